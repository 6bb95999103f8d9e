//! Models, layers, optimizers and schedules of the Tightrope training engine, as builders of
//! [`tightrope_core::Graph`]s.
//!
//! | to | see |
//! |---|---|
//! | write a model | [`Model`], [`layers`], [`Pass`] |
//! | choose one of this crate's | [`ModelConfig`], [`preset`] |
//! | plan a training step | [`TrainerConfig`], [`Planner`], [`Planned`] |
//! | train | [`Trainer`], [`Batch`] |
//! | fill weights from a file | [`Import`] |
//! | save them | [`Trainer::saved_weights`], [`export`] |
//! | append the optimizer | [`append_update`] |
//! | set the learning rate of a step | [`LearningRate`] |
//! | train adapters of frozen weights | [`Lora`] |
//! | train on a device that may go away | [`Recovering`] |
//!
//! A model family is one file that uses public items alone, in this crate or in somebody else's.

#![forbid(unsafe_code)]

mod cost;
#[cfg(not(target_family = "wasm"))]
mod cut;
pub mod defaults;
mod error;
mod figure;
mod frozen;
mod handles;
mod import;
mod init;
pub mod inputs;
mod interconnect;
mod keys;
pub mod layers;
pub mod lora;
mod model;
mod models;
mod noise;
mod offload;
mod optim;
mod outputs;
mod overlap;
mod params;
mod pass;
mod peft;
mod planner;
mod precision;
mod programs;
mod ranks;
mod recording;
mod recover;
mod sample;
mod saved;
mod schedule;
mod sharding;
mod share;
mod step;
mod trainer;
mod transpose;
mod watch;
mod weights;

pub use cost::{Estimate, Peaks, Rates, Timed};
#[cfg(not(target_family = "wasm"))]
pub use cut::Cut;
pub use error::{Error, ReadError, Result};
pub use frozen::FrozenBits;
pub use import::{Exported, Get, Import, Matched, export, import};
pub use init::{fill_initial, initial_values};
pub use inputs::{Batch, Input, Inputs, Values};
pub use interconnect::{Interconnect, Link};
pub use lora::Lora;
pub use model::{Decoder, Model};
pub use models::{
    Architecture, Bert, BertConfig, Classifier, ClassifierConfig, Details, Family, IMAGES, LABELS,
    LanguageModel, ModelConfig, ModelFamily, Pooling, Preset, RopeScaling, Vit, VitConfig,
    bert_presets, parameters, preset, presets, vit_presets,
};
pub use offload::Offload;
pub use optim::{
    AdjustLr, LossScale, Optimizer, Scalars, State, StateBits, Stored, TableBits, Trained, Update,
    UpdateOptions, UpdateRule, append_update,
};
pub use overlap::Overlapped;
pub use params::{Init, Kind, Parameter, Part};
pub use pass::{BuildOptions, Cache, Pass};
pub use planner::{Free, Planner, sweep};
pub use precision::{GradientSums, Gradients, Master, Precision};
pub use programs::{Planned, Programs, TrainerConfig};
pub use recover::{Done, Origin, Recovering, device_error};
pub use sample::{SampleError, SampleTokens, Sampling, generate};
pub use saved::{SavedTensor, Snapshot, UPDATES};
pub use schedule::{LearningRate, Schedule};
pub use sharding::Shard;
pub use trainer::{Cause, Evaluation, Outcome, Scored, Scores, Sum, TrainError, Trainer};
pub use watch::{GRADIENT, Watched};
pub use weights::{Weights, named};
