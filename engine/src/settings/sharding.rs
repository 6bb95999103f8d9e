//! What ranks hold shards of, as a setting.

use tightrope_nn::Shard;
use toml::Value;

use super::kind::{Form, Kind, SettingValue, Unwritable};
use super::values::auto_or;

/// What each of several ranks holds a shard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// What makes the fastest step that fits.
    #[default]
    Auto,
    /// This, whatever fits.
    Of(Shard),
}

auto_or!(Sharding::Of, "0, 1, 2, 3 or \"auto\"", read, write);

fn read(value: &Value) -> Option<Shard> {
    u32::try_from(value.as_integer()?).ok()?.try_into().ok()
}

#[expect(clippy::unnecessary_wraps, reason = "some settings can't be written")]
fn write(shard: &Shard) -> Result<Option<Value>, Unwritable> {
    Ok(Some(i64::from(u32::from(*shard)).into()))
}
