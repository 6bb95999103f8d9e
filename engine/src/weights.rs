//! Where the weights of a run come from: model directories, checkpoints, adapters, and what is beside them.
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::settings::Settings;
//! use tightrope::weights::Source;
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("run");
//! # let mut said = Settings::default();
//! # for words in ["model.preset=tiny", "model.context=16", "train.steps=1", "run.device=cpu"] {
//! #     said.read_argument(words)?;
//! # }
//! # said.read_argument(&format!("run.out={}", dir.display()))?;
//! # let recipe = tightrope::recipe::Recipe::new(&said)?;
//! # let device = Devices::default().open(&recipe.step.device)?;
//! # let (mut run, _) = recipe.plan(device)?.start(|spec| Devices::default().open(spec))?.begin()?;
//! # (&mut run).try_for_each(|step| step.map(drop))?;
//!
//! // A run directory, a checkpoint, or a directory of Hugging Face.
//! let source = Source::open(&dir)?;
//! assert!(source.dir.ends_with("checkpoints/step-1"));
//! let (tokenizer, seq_len) = (source.tokenizer(None)?, source.settings(&Settings::default())?.model.context);
//! assert_eq!((tokenizer.vocab_size(), seq_len), (256, Some(16)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod adapters;
pub mod companions;
mod config;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod frozen;
mod given;
mod grown;
#[cfg(not(target_family = "wasm"))]
mod heads;
pub(crate) mod hub;
pub mod preprocessor;
#[cfg(not(target_family = "wasm"))]
mod quantized;
pub mod source;
pub mod start;
pub(crate) mod teacher;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod templates;
pub mod tokenizer;

use std::path::Path;

pub use companions::Generation;
pub use given::Given;
pub use source::{Places, Source};
pub use start::Start;

/// The settings of a run, in its directory.
pub const RUN_SETTINGS: &str = "run.toml";

/// Returns `true` for the directory of a run.
pub fn is_run(path: &Path) -> bool {
    path.join(RUN_SETTINGS).exists() || path.join("checkpoints").exists()
}
