//! What ranks hold shards of, as a setting.

use tightrope_nn::Shard;
use toml::Value;

use super::kind::{Form, Kind, SettingValue, Unwritable};

/// What each of several ranks holds a shard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// What makes the fastest step that fits.
    #[default]
    Auto,
    /// This, whatever fits.
    Of(Shard),
}

impl SettingValue for Sharding {
    const KIND: Kind = Kind::Form(&Form {
        expected: "0, 1, 2, 3 or \"auto\"",
        words: &["auto"],
        pattern: None,
        whole: true,
        list: false,
        accepts: |value| Self::read(value).is_some(),
    });

    fn read(value: &Value) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self::Auto),
            _ => Some(Self::Of(u32::try_from(value.as_integer()?).ok()?.try_into().ok()?)),
        }
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        match self {
            Self::Auto => Ok(Some("auto".into())),
            Self::Of(shard) => Ok(Some(i64::from(u32::from(*shard)).into())),
        }
    }
}
