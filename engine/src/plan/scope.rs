//! What a planner may choose, and what was chosen for it.

use std::path::PathBuf;

use tightrope_nn::Free;

use crate::machine;
use crate::rates::Store;
use crate::settings::{Allow, Bytes, Chunk, MicroBatch, Recompute, Settings, Sharding};

/// What a planner may choose, and what was chosen for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Bytes that a plan may take; unset for those that the device has free.
    pub budget: Option<u64>,
    /// Plan file whose choices are taken as they are.
    pub plan: Option<PathBuf>,
    /// Whether the planner chooses the micro-batch.
    pub micro_batch: bool,
    /// Whether it chooses how many rows of logits exist at once.
    pub loss_chunk: bool,
    /// Which activations are kept for the backward pass.
    pub recompute: Recompute,
    /// Whether it chooses what each rank holds a shard of.
    pub shard: bool,
    /// Which changes of the numerics may be made to fit the budget.
    pub allow: Vec<Allow>,
    /// Whether the model is new, so that another one could be trained instead.
    pub new_model: bool,
    /// Threads of the processor.
    pub threads: usize,
    /// How fast devices are.
    pub rates: Store,
}

impl Scope {
    /// What the settings leave open.
    pub fn of(settings: &Settings) -> Self {
        let Settings { train, memory, run, .. } = settings;
        Self {
            budget: memory.budget.map(|Bytes(bytes)| bytes),
            plan: memory.plan.clone(),
            // Gradients that are consumed are of one pass.
            micro_batch: train.micro_batch == MicroBatch::Auto && !memory.consume_gradients,
            loss_chunk: memory.loss_chunk == Chunk::Auto,
            recompute: memory.recompute.clone(),
            shard: memory.shard == Sharding::Auto,
            allow: memory.allow.clone(),
            new_model: settings.model.init.is_none(),
            threads: machine::threads(run.threads.unwrap_or(0)),
            rates: Store::of_user().connected(run.interconnect),
        }
    }

    /// What a planner searches over.
    pub(crate) fn free(&self) -> Free {
        Free { micro_batch: self.micro_batch, loss_chunk: self.loss_chunk }
    }
}
