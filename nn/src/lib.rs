//! Models, optimizers and schedules of the Tightrope training engine, as builders of
//! [`tightrope_core::Graph`]s.
//!
//! | to | see |
//! |---|---|
//! | choose a model | [`ModelConfig`], [`preset`] |
//! | build its loss, logits or decoder | [`Model`] |
//! | fill its weights | [`initial_values`], [`Import`] |
//! | save them | [`export`] |
//! | append the optimizer | [`append_update`] |
//! | set the learning rate of a step | [`LearningRate`] |
//! | train adapters beside frozen weights | [`Lora`] |
//! | train on a device that may go away | [`Recovering`] |
//!
//! A new model family is one file like `gpt2.rs`: its parameters with their Hugging Face names, and one
//! block. A new activation or optimizer rule is one function.

#![forbid(unsafe_code)]

mod config;
mod cost;
pub mod defaults;
mod error;
mod gpt2;
mod huggingface;
mod init;
mod keys;
mod layers;
mod llama;
pub mod lora;
mod model;
mod offload;
mod optim;
mod params;
mod peft;
mod planner;
mod presets;
mod programs;
mod recover;
mod sample;
mod saved;
mod schedule;
mod trainer;

pub use config::{Family, ModelConfig};
pub use cost::{Estimate, Rates, Timed};
pub use error::{Error, ReadError, Result};
pub use init::{fill_initial, initial_values};
pub use lora::Lora;
pub use model::{BuildOptions, Cache, DecodeInputs, Inputs, Model, Precision};
pub use offload::Offload;
pub use optim::{
    LossScale, Optimizer, Scalars, State, StateBits, Stored, Trained, Update, UpdateOptions,
    append_update,
};
pub use params::{
    Exported, Get, Import, Init, Parameter, Part, export, import, parameters, zero_gradient_rows,
};
pub use planner::{Free, Planner, sweep};
pub use presets::{Preset, preset, presets};
pub use programs::{Planned, TrainerConfig};
pub use recover::{Done, Origin, Recovering, device_error};
pub use sample::{SampleError, SampleTokens, Sampling, generate};
pub use saved::{SavedTensor, Snapshot};
pub use schedule::{LearningRate, Schedule};
pub use trainer::{Outcome, TrainError, Trainer};
