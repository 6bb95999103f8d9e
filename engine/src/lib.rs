//! Tightrope trains neural networks in the memory you have.
//!
//! This is the library under every front end: the command line, the page and Python. A run is four values in a row, each
//! made from the one before: [`Settings`](settings::Settings) → [`Recipe`](recipe::Recipe) → [`Planned`](recipe::Planned) →
//! [`Run`](run::Run).
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::recipe::Recipe;
//! use tightrope::settings::Settings;
//!
//! # let folder = tempfile::tempdir()?;
//! # let out = folder.path().join("run");
//! // What is said, as in a settings file or on a command line.
//! let mut said = Settings::default();
//! for words in ["model.preset=tiny", "model.context=16", "train.batch=4", "train.steps=3", "run.device=cpu"] {
//!     said.read_argument(words)?;
//! }
//! said.read_argument(&format!("run.out={}", out.display()))?;
//!
//! // Everything decided, then planned: the peak is known to the byte before anything is allocated.
//! let recipe = Recipe::new(&said)?;
//! let device = Devices::default().open(&recipe.step.device)?;
//! let planned = recipe.plan(device)?;
//! let peak_bytes = planned.step.plan.peak_bytes();
//!
//! // Trained, one step after the other.
//! let mut devices = Devices::default();
//! let (mut run, dir) = planned.start(move |spec| devices.open(spec))?.begin()?;
//! assert_eq!(run.allocated_bytes(), peak_bytes);
//! for step in &mut run {
//!     let step = step?;
//!     println!("step {}: loss {:.3}, {:.0} tokens/s", step.step, step.loss, step.tokens_per_s());
//! }
//! let evaluation = run.evaluate(None)?.expect("a tenth of the text is held out");
//! assert!(evaluation.loss.is_finite());
//! assert!(dir.join("checkpoints/step-3").is_dir());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | what is said: the one list of keys, and how files and words are read |
//! | [`recipe`] | everything decided before a plan |
//! | [`model`] | what is said of any model |
//! | [`plan`] | the fastest plan within a budget, and what is said where none fits |
//! | [`view`] | what is said of a plan |
//! | [`run`] | steps, evaluation, samples, checkpoints |
//! | [`checkpoint`] | checkpoints of a trainer of any model |
//! | [`backends`] | the devices themselves |
//! | [`weights`] | where weights come from: model directories, checkpoints, adapters |
//! | [`devices`], [`rates`], [`machine`] | what there is to run on, and how fast it is |
//! | [`profile`], [`mod@bench`], [`timing`], [`product`] | what ops take |
//! | [`check`], [`verify`], [`doctor`] | whether a device computes what it should, and what a machine has |
//! | [`encode`] | tokenizers from texts, and texts as token ids |
//! | [`rows`] | rows of conversations as training sees them |
//! | [`generate`](mod@generate) | text from a model on disk, and its loss |
//! | [`classifies`] | classes of texts, as models know them |
//! | [`score`] | perplexity of texts, and accuracy on multiple choice |
//! | [`error`] | what went wrong, and what to do next |
//! | [`units`], [`figures`] | numbers as people read them, and the one in the middle |
//! | [`plain`] | text of others, as a terminal may show it |
//!
//! [`core`], [`nn`] and [`data`] are the crates under this one, for models and data of one's own.
//!
//! The features `cpu` (default), `wgpu` and `cuda` choose the backends.

#![forbid(unsafe_code)]

#[cfg(all(feature = "cpu", not(target_family = "wasm")))]
pub mod bench;
pub mod cards;
#[cfg(not(target_family = "wasm"))]
pub mod check;
pub mod checkpoint;
#[cfg(not(target_family = "wasm"))]
pub mod classifies;
pub mod devices;
#[cfg(all(feature = "cpu", feature = "wgpu", feature = "cuda", not(target_family = "wasm")))]
pub mod doctor;
#[cfg(not(target_family = "wasm"))]
pub mod encode;
pub mod error;
#[cfg(not(target_family = "wasm"))]
pub mod export;
pub mod figures;
#[cfg(not(target_family = "wasm"))]
pub mod generate;
#[cfg(all(feature = "hub", not(target_family = "wasm")))]
pub mod hub;
pub mod interconnect;
pub mod machine;
pub mod model;
pub mod plain;
pub mod plan;
#[cfg(feature = "wgpu")]
pub mod product;
pub mod profile;
#[cfg(not(target_family = "wasm"))]
pub mod ranks;
pub mod rates;
pub mod recipe;
#[cfg(not(target_family = "wasm"))]
pub mod rows;
pub mod run;
#[cfg(not(target_family = "wasm"))]
pub mod score;
pub mod settings;
#[cfg(not(target_family = "wasm"))]
pub mod timing;
pub mod units;
#[cfg(not(target_family = "wasm"))]
pub mod verify;
pub mod view;
pub mod weights;

pub use error::{Error, Result};
#[cfg(not(target_family = "wasm"))]
pub use pollster::block_on;
pub use tightrope_core as core;
pub use tightrope_data as data;
pub use tightrope_nn as nn;

/// The devices that a program was built for, by features.
pub mod backends {
    #[cfg(feature = "cpu")]
    pub use tightrope_backend_cpu::Cpu;
    #[cfg(feature = "cuda")]
    pub use tightrope_backend_cuda::Cuda;
    #[cfg(feature = "wgpu")]
    pub use tightrope_backend_wgpu::Wgpu;
}
