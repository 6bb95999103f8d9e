//! How many lengths batches of rows are padded to, as a setting.

use tightrope_data::BucketCount;
use toml::Value;

use super::kind::{Form, Kind, SettingValue, Unwritable};
use super::values::{auto_or, count};

auto_or!(
    BucketCount::Most,
    "a number of lengths, 1 or more, or \"auto\"",
    count,
    SettingValue::write
);
