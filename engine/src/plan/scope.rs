//! What a planner may choose, and what was chosen for it.

use std::path::PathBuf;

use tightrope_nn::{Free, TrainerConfig};

use crate::machine;
use crate::model::reads_text;
use crate::rates::Store;
use crate::settings::{
    Allow, Bytes, Chunk, LIST, MicroBatch, Origin, Recompute, Settings, Sharding, find,
};

const PRESET: &str = "model.preset";
const CONTEXT: &str = "model.context";
const VOCAB: &str = "model.vocab";
const TOKENIZER: &str = "data.tokenizer";

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
    /// Keys of the settings that decide the model together with a preset: sizes, and the tokenizer for the vocabulary.
    pub own_sizes: Vec<&'static str>,
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
            own_sizes: {
                let keys = LIST.iter().map(|setting| setting.key);
                let sizes = keys.filter(|key| key.starts_with("model.") || *key == TOKENIZER);
                sizes
                    .filter(|key| *key != PRESET && *settings.origin(key) != Origin::Default)
                    .collect()
            },
            threads: machine::threads(run.threads.unwrap_or(0)),
            rates: Store::of_user().connected(run.interconnect),
        }
    }

    /// Returns `true` if another preset leaves the vocabulary as it is.
    pub(super) fn is_own_vocab(&self) -> bool {
        self.own_sizes.iter().any(|key| [VOCAB, TOKENIZER].contains(key))
    }

    /// Words of the command line that train the preset `name` on sequences as long as those of `config`.
    pub fn preset_words(&self, name: &str, config: &TrainerConfig) -> String {
        let mut words = format!("--preset {name}");
        if reads_text(config) && !self.own_sizes.contains(&CONTEXT) {
            words += &format!(" --context {}", config.model.seq_len());
        }
        let kept = [CONTEXT, VOCAB, TOKENIZER];
        let replaced = self.own_sizes.iter().filter(|key| !kept.contains(key));
        let flags = replaced.map(|key| match find(key).and_then(|setting| setting.flag) {
            Some(flag) => format!("--{}", flag.name),
            None => format!("`{key}`"),
        });
        let flags: Vec<String> = flags.collect();
        if flags.is_empty() { words } else { format!("{words} without {}", flags.join(", ")) }
    }

    /// What a planner searches over.
    pub(crate) fn free(&self) -> Free {
        Free { micro_batch: self.micro_batch, loss_chunk: self.loss_chunk }
    }
}
