//! Every setting of a run, in the tables of a settings file.
//!
//! [`LIST`] is the one list of them: it names, types, limits, describes and defaults each. Reading, writing, flags,
//! help, messages, the [JSON schema](json_schema), the page's TypeScript and Python's types come from it. [`Settings`] has them
//! as fields.
//!
//! ```
//! use tightrope::settings::Settings;
//!
//! let mut settings = Settings::default();
//! settings.read_text("gpt.toml", "[train]\nlr = 3e-4\n")?;
//! settings.read_argument("train.batch=32")?;
//! settings.check()?;
//! assert_eq!((settings.train.batch, settings.train.lr), (Some(32), Some(3e-4)));
//! assert_eq!(settings.origin("train.lr").to_string(), "gpt.toml:2:6");
//!
//! let error = settings.read_argument("train.lrr=1").unwrap_err();
//! assert!(error.help.starts_with("did you mean `train.lr`?"));
//! # Ok::<(), tightrope::settings::SettingsError>(())
//! ```

mod buckets;
mod check;
mod command;
mod diagnostic;
mod interconnect;
mod kind;
mod list;
#[cfg(test)]
mod messages;
mod names;
mod origin;
mod parts;
mod python;
mod read;
mod retired;
mod schema;
mod setting;
mod sharding;
mod table;
mod typescript;
mod values;
mod write;

pub use command::Command;
pub use diagnostic::{Place, SettingsError};
pub use interconnect::Interconnect;
pub use kind::{Form, Kind, LARGEST, Range, SettingValue, Unwritable};
pub use list::{Data, LIST, Lora, Memory, Model, Run, Settings, TABLES, Train};
pub use names::find;
pub use origin::Origin;
pub use python::python;
pub(crate) use read::text_of;
pub use retired::{RETIRED, Retired};
pub use schema::json_schema;
pub use setting::{Flag, PageField, Reads, Setting};
pub use sharding::Sharding;
pub use tightrope_data::{RowFormat, TrainOn};
pub use tightrope_nn::{Family, Gradients, Master, ModelFamily, Offload, Schedule, UpdateRule};
pub use typescript::typescript;
pub use values::{
    Allow, Bytes, Chunk, Device, Extents, Matmul, MicroBatch, Precision, Recompute, Word,
};
pub(crate) use write::is_as_written;
