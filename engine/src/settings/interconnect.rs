//! What connects ranks, as a setting.

use toml::Value;

use super::kind::{Form, Kind, SettingValue, Unwritable};
use crate::interconnect::Links;

/// What connects the GPUs of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Interconnect {
    /// What the device has, by its data sheet.
    #[default]
    Auto,
    /// These links.
    Of(Links),
}

impl SettingValue for Interconnect {
    const KIND: Kind = Kind::Form(&Form {
        expected: Links::EXPECTED,
        words: &["auto", "nvlink", "pcie", "100gbe", "400gbe"],
        pattern: Some(Links::PATTERN),
        whole: false,
        list: false,
        accepts: |value| Self::read(value).is_some(),
    });

    fn read(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "auto" => Some(Self::Auto),
            text => text.parse().ok().map(Self::Of),
        }
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        Ok(Some(match self {
            Self::Auto => "auto".into(),
            Self::Of(links) => links.to_string().into(),
        }))
    }
}
