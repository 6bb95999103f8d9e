//! How many lengths batches of rows are padded to, as a setting.

use tightrope_data::BucketCount;
use toml::Value;

use super::kind::{Form, Kind, SettingValue, Unwritable};
use super::values::count;

impl SettingValue for BucketCount {
    const KIND: Kind = Kind::Form(&Form {
        expected: "a number of lengths, 1 or more, or \"auto\"",
        words: &["auto"],
        pattern: None,
        whole: true,
        list: false,
        accepts: |value| Self::read(value).is_some(),
    });

    fn read(value: &Value) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self::Auto),
            _ => count(value).map(Self::Most),
        }
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        match self {
            Self::Auto => Ok(Some("auto".into())),
            Self::Most(most) => most.write(),
        }
    }
}
