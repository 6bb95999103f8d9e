//! What steps come to.

use std::collections::BTreeMap;

use serde::Serialize;
use tightrope_nn::{Done, Exported, Trainer};

use super::evaluate::Evaluation;
use crate::error::Result;
#[cfg(not(target_family = "wasm"))]
use crate::figures::RankTimes;
use crate::figures::StepTimes;

/// What one step came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stepped {
    /// Optimizer steps done, from 1.
    pub step: u64,
    /// Mean loss of the step, in nats a token or an image.
    pub loss: f32,
    /// The model's other figures by name, means over the step: `accuracy` of one that tells classes apart.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Learning rate of the step.
    pub lr: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f32,
    /// Seconds the step took.
    pub step_s: f64,
    /// What steps took on each rank since it was last logged, where several train together.
    #[cfg(not(target_family = "wasm"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankTimes>,
    /// Tokens of the step.
    pub step_tokens: u64,
    /// Tokens trained since the start of the run.
    pub tokens: u64,
    /// Whether weights changed: loss and norm are finite.
    pub updated: bool,
    /// Whether it is one of those that are logged.
    pub logged: bool,
    /// Bytes that the device holds for the plan.
    pub allocated_bytes: u64,
    /// Loss on held-out data after the step, where that was due.
    pub evaluation: Option<Evaluation>,
    /// A sample of the model after the step, where that was due.
    pub sample: Option<String>,
    /// What there is to tell of devices that were lost.
    pub notes: Vec<String>,
    /// The tensors that are watched, as the step left them: see `TrainerConfig::watch`.
    #[serde(skip)]
    pub watched: Vec<Kept>,
}

/// A tensor as a step left it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The name that it was asked for by; its own, where that was a pattern. A gradient has that of its weight in checkpoints.
    pub name: String,
    /// Extents, which are those of its weight in checkpoints for a gradient.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub values: Vec<f32>,
}

impl Kept {
    /// What the last step left in the tensors that are watched.
    pub(super) async fn of(trainer: &mut Trainer) -> Result<Vec<Self>> {
        let kept = trainer.watched_exported().await?.into_iter();
        let kept = kept.map(|Exported { name, shape, values }| Self { name, shape, values });
        Ok(kept.collect())
    }
}

impl Stepped {
    /// Tokens trained per second.
    pub fn tokens_per_s(&self) -> f64 {
        // A clock without fine steps may say that no time has passed.
        self.step_tokens as f64 / self.step_s.max(1e-9)
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How far it came, earlier sessions included.
    pub done: Done,
    /// Loss of the first step of this session.
    pub first_loss: Option<f32>,
    /// Loss of the last step of this session.
    pub last_loss: Option<f32>,
    /// The other figures of the last step of this session.
    pub last_metrics: BTreeMap<String, f64>,
    /// Times of the steps of this session.
    pub times: StepTimes,
    /// Tokens of each step, padding included, by its seconds.
    pub speeds: StepTimes,
    /// f16 steps without an update.
    pub skipped: u64,
}
