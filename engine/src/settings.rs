//! Every setting of a run, in the six tables of a settings file.
//!
//! [`schema`] is the one list of keys: it names, types, limits and describes each, and the
//! command line's flags are made from it. [`Merge`] reads files, flags and `--set` through that
//! list and says where a wrong value stands. The structs here are what the rest of the program
//! reads. `None` means "not chosen": the preset's value, or the planner's.

mod check;
mod diagnostic;
mod merge;
#[cfg(test)]
mod messages;
pub mod schema;
mod values;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{StateBits, defaults};

pub use check::Conflict;
pub use diagnostic::{Place, SettingsError};
pub use merge::Merge;
pub use values::{
    Allow, Bytes, Checkpoint, Chunk, Device, Family, MicroBatch, Offload, Optimizer, Precision,
    Products, Schedule, Word,
};

/// All settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The network.
    pub model: Model,
    /// The optimisation.
    pub train: Train,
    /// Adapters that are trained in place of the network.
    pub lora: Lora,
    /// What the planner may spend and do.
    pub memory: Memory,
    /// The text.
    pub data: Data,
    /// Where and how it runs.
    pub run: Run,
}

/// Table `model`. An unset size is the preset's or the one found in `init`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// Name of a known model, the source of every size left unset.
    pub preset: Option<String>,
    /// Architecture.
    pub family: Option<Family>,
    /// Transformer blocks.
    pub layers: Option<usize>,
    /// Width of the residual stream (C).
    pub channels: Option<usize>,
    /// Attention heads; divides `channels`.
    pub heads: Option<usize>,
    /// Key and value heads; divides `heads`.
    pub kv_heads: Option<usize>,
    /// Inner width of the feed-forward layer.
    pub hidden: Option<usize>,
    /// Longest sequence (T), in tokens.
    pub context: Option<usize>,
    /// Vocabulary (V), in tokens.
    pub vocab: Option<usize>,
    /// Whether the output layer is the embedding, transposed.
    pub tied: Option<bool>,
    /// Chance of dropping an activation, in [0, 1).
    pub dropout: Option<f64>,
    /// Hugging Face directory or checkpoint that the weights start from.
    pub init: Option<PathBuf>,
}

/// Table `train`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Sequences per optimizer step.
    pub batch: Option<usize>,
    /// Sequences per pass; divides `batch`.
    pub micro_batch: MicroBatch,
    /// Optimizer steps.
    pub steps: Option<u64>,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Peak learning rate.
    pub lr: Option<f64>,
    /// Learning rate that the schedule ends at.
    pub min_lr: Option<f64>,
    /// Steps over which the learning rate rises from 0 to `lr`.
    pub warmup: Option<u64>,
    /// Shape of the learning rate after the warmup.
    pub schedule: Schedule,
    /// Decoupled decay, on tensors of two or more dimensions.
    pub weight_decay: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Term in Adam's denominator.
    pub eps: f64,
    /// Largest global gradient norm; 0 switches clipping off.
    pub clip: f64,
    /// Seed of weights, dropout, data order and samples.
    pub seed: u64,
}

impl Default for Train {
    fn default() -> Self {
        Self {
            batch: None,
            micro_batch: MicroBatch::Auto,
            steps: None,
            optimizer: Optimizer::AdamW,
            lr: None,
            min_lr: None,
            warmup: None,
            schedule: Schedule::Cosine,
            weight_decay: defaults::WEIGHT_DECAY,
            beta1: defaults::BETA1,
            beta2: defaults::BETA2,
            eps: defaults::EPS,
            clip: defaults::CLIP,
            seed: defaults::SEED,
        }
    }
}

impl Train {
    /// Fills what is unset: `batch` in sequences, `steps` and the peak learning rate `lr` from
    /// the arguments, `min_lr` as a tenth of the learning rate, `warmup` as a twentieth of the
    /// steps.
    pub fn fill(&mut self, batch: usize, steps: u64, lr: f64) {
        self.batch.get_or_insert(batch);
        let steps = *self.steps.get_or_insert(steps);
        let lr = *self.lr.get_or_insert(lr);
        self.min_lr.get_or_insert(defaults::min_lr(lr));
        self.warmup.get_or_insert(defaults::warmup(steps));
    }
}

/// Table `lora`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lora {
    /// Rank of the adapters; 0 is none, and the network itself is trained.
    pub rank: usize,
    /// The adapters' products count alpha/rank times.
    pub alpha: Option<f64>,
    /// Ends of the Hugging Face names of the layers that get adapters.
    pub targets: Vec<String>,
    /// Chance of dropping an element of an adapter's input, in [0, 1).
    pub dropout: f64,
    /// Bits per weight of the frozen layers: 8, or unset for the run's precision.
    pub base_bits: Option<u32>,
    /// PEFT directory with adapters to start from.
    pub init: Option<PathBuf>,
}

impl Default for Lora {
    fn default() -> Self {
        let targets = vec![ALL_LINEAR.to_owned()];
        Self { rank: 0, alpha: None, targets, dropout: 0.0, base_bits: None, init: None }
    }
}

/// Table `memory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Bytes that the plan may use; unset is what the device has free.
    pub budget: Option<Bytes>,
    /// Plan file whose choices are taken as they are.
    pub plan: Option<PathBuf>,
    /// Which activations are kept for the backward pass.
    pub checkpoint: Checkpoint,
    /// Rows of logits that exist at once.
    pub loss_chunk: Chunk,
    /// Rows of attention scores that exist at once.
    pub attention_chunk: Chunk,
    /// Bits per optimizer state: 32, 16 or 8.
    pub optimizer_bits: StateBits,
    /// What may wait in host memory.
    pub offload: Vec<Offload>,
    /// Weights are updated as soon as their gradients are made.
    pub consume_gradients: bool,
    /// Which changes of the numerics the planner may make to fit the budget.
    pub allow: Vec<Allow>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            budget: None,
            plan: None,
            checkpoint: Checkpoint::Auto,
            loss_chunk: Chunk::Auto,
            attention_chunk: Chunk::Auto,
            optimizer_bits: StateBits::B32,
            offload: Vec::new(),
            consume_gradients: false,
            allow: Vec::new(),
        }
    }
}

/// Table `data`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Text files or token shards; none is the built-in text. Relative to the working directory.
    pub files: Vec<PathBuf>,
    /// Name or file of a tokenizer.
    pub tokenizer: Option<String>,
    /// Part of the data kept for evaluation, in [0, 1).
    pub holdout: f64,
}

impl Default for Data {
    fn default() -> Self {
        Self { files: Vec::new(), tokenizer: None, holdout: defaults::HOLDOUT }
    }
}

/// Table `run`. The intervals count optimizer steps, and 0 means "only at the end".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// Run directory.
    pub out: Option<PathBuf>,
    /// Where the plan runs.
    pub device: Device,
    /// Storage type of weights and activations, and how f32 is multiplied.
    pub precision: Precision,
    /// Who multiplies matrices on an NVIDIA GPU.
    pub products: Products,
    /// CPU threads; unset is every core.
    pub threads: Option<usize>,
    /// Steps between logged losses; at least 1.
    pub log_every: u64,
    /// Steps between evaluations.
    pub eval_every: u64,
    /// Steps between samples.
    pub sample_every: u64,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            out: None,
            device: Device::Auto,
            precision: Precision::F32,
            products: Products::Auto,
            threads: None,
            log_every: 10,
            eval_every: 250,
            sample_every: 0,
            checkpoint_every: 500,
        }
    }
}

impl Settings {
    /// The settings as TOML, in the order of [`schema::KEYS`]; unset keys are left out.
    ///
    /// # Errors
    /// When a path isn't valid Unicode, which TOML can't hold.
    pub fn to_toml(&self) -> Result<String, SettingsError> {
        let tables = toml::Table::try_from(self).map_err(|error| {
            let help = "use whole numbers up to 9223372036854775807 and paths in Unicode";
            SettingsError::new(format!("the settings don't fit TOML: {error}"), help)
        })?;
        let mut text =
            "# Every setting of this run. Repeat it with `--config` and this file.\n".to_owned();
        for table in schema::TABLES {
            text += &format!("\n[{table}]\n");
            for key in schema::KEYS.iter().filter(|key| key.table() == table) {
                if let Some(value) = tables.get(table).and_then(|table| table.get(key.name())) {
                    text += &format!("{} = {}\n", key.name(), schema::to_toml(value));
                }
            }
        }
        Ok(text)
    }

    /// Writes [`Settings::to_toml`] to `path`, complete or not at all.
    ///
    /// # Errors
    /// As [`Settings::to_toml`], or when the file can't be written.
    pub fn write(&self, path: &Path) -> Result<(), SettingsError> {
        let partial = path.with_extension("toml.partial");
        let written = std::fs::write(&partial, self.to_toml()?);
        written.and_then(|()| std::fs::rename(&partial, path)).map_err(|error| {
            let message = format!("can't write the settings to `{}`: {error}", path.display());
            SettingsError::new(message, "check that the folder exists and has room")
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reread(settings: &Settings) -> Settings {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.toml");
        settings.write(&path).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a partial file is left");
        let mut merge = Merge::default();
        merge.file(&path).unwrap();
        merge.finish().unwrap()
    }

    #[test]
    fn defaults_are_valid_and_read_back() {
        Settings::default().check().unwrap();
        assert_eq!(reread(&Settings::default()), Settings::default());
    }

    #[test]
    fn run_toml_is_readable() {
        let mut settings = Settings::default();
        settings.model.layers = Some(6);
        settings.memory.budget = Some(Bytes(2 << 30));
        settings.memory.checkpoint = Checkpoint::Every(2);
        settings.data.files = vec!["a.txt".into()];
        settings.train.fill(32, 1000, 1e-3);
        let expected = r#"# Every setting of this run. Repeat it with `--config` and this file.

[model]
layers = 6

[train]
batch = 32
micro_batch = "auto"
steps = 1000
optimizer = "adamw"
lr = 0.001
min_lr = 1e-4
warmup = 50
schedule = "cosine"
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
clip = 1.0
seed = 1337

[lora]
rank = 0
targets = ["all-linear"]
dropout = 0.0

[memory]
budget = "2GiB"
checkpoint = "every:2"
loss_chunk = "auto"
attention_chunk = "auto"
optimizer_bits = 32
offload = []
consume_gradients = false
allow = []

[data]
files = ["a.txt"]
holdout = 0.1

[run]
device = "auto"
precision = "f32"
products = "auto"
log_every = 10
eval_every = 250
sample_every = 0
checkpoint_every = 500
"#;
        assert_eq!(settings.to_toml().unwrap(), expected);
    }

    proptest! {
        #[test]
        fn any_settings_read_back(
            lr in 1e-12f64..10.0,
            decay in 0.0f64..1.0,
            seed in 0u64..=i64::MAX as u64,
            budget in proptest::option::of(1u64..1 << 50),
            names in proptest::collection::vec("[ -~é\t\n\"\\\\]{1,12}", 1..4),
            rows in 1usize..100_000,
            cuda in 0usize..16,
        ) {
            let mut settings = Settings::default();
            settings.train.lr = Some(lr);
            settings.train.weight_decay = decay;
            settings.train.seed = seed;
            settings.memory.budget = budget.map(Bytes);
            settings.memory.checkpoint = Checkpoint::Keep(names.clone());
            settings.memory.loss_chunk = Chunk::Rows(rows);
            settings.memory.attention_chunk = Chunk::None;
            settings.memory.offload = vec![Offload::Optimizer];
            settings.model.family = Some(Family::Llama);
            settings.data.files = names.iter().map(PathBuf::from).collect();
            settings.run.device = Device::Cuda(cuda);
            prop_assert_eq!(reread(&settings), settings);
        }
    }
}
