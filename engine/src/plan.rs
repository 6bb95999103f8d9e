//! The plan of a training step: the fastest that fits a budget, over what is open.
//!
//! ```
//! use tightrope::devices::{Devices, Spec};
//! use tightrope::recipe::Step;
//! use tightrope::settings::Settings;
//!
//! let mut said = Settings::default();
//! said.read_argument("model.preset=tiny")?;
//! said.read_argument("train.batch=8")?;
//! said.read_argument("run.device=cpu")?;
//! let step = Step::of(&said)?;
//! let device = Devices::default().open(&step.device)?;
//! let planned = step.plan(&*device)?;
//! assert_eq!(planned.plan.report().peak_bytes, planned.plan.peak_bytes());
//! # Ok::<(), tightrope::Error>(())
//! ```

mod budget;
mod file;
mod fit;
mod fresh;
mod inference;
pub(crate) mod refusal;
pub mod scale;
mod scope;
mod shorter;
pub mod stages;
pub mod techniques;
mod trial;

#[cfg(not(target_family = "wasm"))]
pub(crate) use budget::room_for_copy;
pub use budget::{budget, checkpoint_copy, fewest_bytes, free, planned};
pub use file::{Choices, MadeFor, PlanFile};
pub(crate) use fit::is_deep;
pub use fit::{Closest, Fits, closest, fits};
pub use fresh::planned_now;
pub use inference::inference;
pub use refusal::Change;
pub use scope::Scope;
pub use trial::Trial;
