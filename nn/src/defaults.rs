//! What a run takes where it doesn't say otherwise, on the command line and in the browser.

use tightrope_core::ops::LOSS_ROWS;

use crate::models::{BertConfig, Details, Family, ModelConfig, VitConfig, padded_vocab};

/// The model of a run that names none: small enough to train within minutes on two cores.
pub const MODEL: ModelConfig = ModelConfig {
    family: Family::Gpt2,
    layers: 4,
    channels: 128,
    heads: 4,
    kv_heads: 4,
    hidden: 512,
    context: 128,
    vocab: 256,
    tied: true,
    dropout: 0.0,
    norm_eps: 1e-5,
    rope_theta: 1e4,
    details: Details::NONE,
};
/// Preset of a run that names the family Llama alone.
pub const LLAMA: &str = "llama-small";
/// Preset of a run that names the family of vision transformers alone.
pub const VIT: &str = "vit-tiny";
/// Preset of a run that names the family of BERT alone.
pub const BERT: &str = "bert-tiny";
/// Sequences of an encoder's step where the settings don't say otherwise.
pub const TEXTS: usize = 32;
/// Peak learning rate of an encoder that starts from trained weights: the largest that Devlin et al. 2019 chose from.
pub const TUNED_ENCODER_LR: f64 = 5e-5;
/// Peak learning rate of a decoder that starts from trained weights, as in TRL.
pub const TUNED_LR: f64 = 2e-5;
/// The same for direct preference optimization, as in TRL.
pub const DPO_LR: f64 = 1e-6;
/// Peak learning rate of adapters, divided by that of the weights themselves (Schulman et al., "LoRA Without Regret", 2025).
pub const ADAPTER_LR_FACTOR: f64 = 10.0;
/// Images of a step where the settings don't say otherwise.
pub const IMAGES: usize = 32;
/// Sequences of a step where neither the settings nor the memory say otherwise.
pub const BATCH: usize = 8;
/// Peak learning rate of a program's own model.
pub const OWN_LR: f64 = 1e-3;
/// How far direct preference optimization holds a model to its reference, β: as in TRL.
pub const DPO_BETA: f64 = 0.1;
/// What logits are divided by in distillation.
pub const TEMPERATURE: f64 = 2.0;
/// Share of the soft loss in distillation.
pub const SOFT_SHARE: f64 = 0.5;
/// Steps of a run that doesn't say how many.
pub const STEPS: u64 = 1850;
/// Decoupled decay of matrices.
pub const WEIGHT_DECAY: f64 = 0.1;
/// Decay of the first moment.
pub const BETA1: f64 = 0.9;
/// Decay of the second moment. Steps of a machine with little memory see few tokens, whose mean square takes many steps to
/// settle: the default run ends 0.04 nats lower than with the 0.95 of large batches.
pub const BETA2: f64 = 0.99;
/// Term in Adam's denominator.
pub const EPS: f64 = 1e-8;
/// Largest gradient norm.
pub const CLIP: f64 = 1.0;
/// Seed of weights, dropout, data order and samples.
pub const SEED: u64 = 1337;
/// Part of the data kept for evaluation.
pub const HOLDOUT: f64 = 0.1;
/// Bytes of logits that exist at once; rows come in multiples of [`LOSS_ROWS`].
const LOGITS_BYTES: usize = 64 << 20;

/// Rows of logits that exist at once on an NVIDIA GPU, whose matmuls need thousands of rows to fill it.
pub const CUDA_LOSS_ROWS: usize = 8192;

/// Learning rate of a model: narrow ones bear higher rates. Inversely to the width, near the rates of GPT-3's models (Brown et
/// al., "Language Models are Few-Shot Learners", 2020, table 2.1): 6e-4 for 768 channels, 1.2e-4 for 4096.
pub fn lr(model: &ModelConfig) -> f64 {
    (0.512 / model.channels as f64).min(4e-3)
}

/// Learning rate of a vision transformer: 2e-3 for 64 channels, and inversely to the width.
pub fn vit_lr(model: &VitConfig) -> f64 {
    (0.128 / model.channels as f64).min(2e-3)
}

/// Learning rate of an encoder that starts from random weights: the 1e-4 of Devlin et al. 2019 for 768 channels, and inversely to the
/// width.
pub fn bert_lr(model: &BertConfig) -> f64 {
    (0.0768 / model.channels as f64).min(1e-3)
}

/// Learning rate that a schedule from `lr` ends at.
pub fn min_lr(lr: f64) -> f64 {
    lr / 10.0
}

/// Steps of warm-up of a run of `steps`.
pub fn warmup(steps: u64) -> u64 {
    steps / 20
}

/// Rows of logits of a vocabulary that exist at once.
pub fn loss_rows(vocab: usize) -> usize {
    let row = size_of::<f32>() * padded_vocab(vocab);
    (LOGITS_BYTES / row / LOSS_ROWS).max(1) * LOSS_ROWS
}

/// The sizes of a model that settings name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Architecture.
    pub family: Option<Family>,
    /// Blocks.
    pub layers: Option<usize>,
    /// Width of the residual stream.
    pub channels: Option<usize>,
    /// Query heads.
    pub heads: Option<usize>,
    /// Key-value heads.
    pub kv_heads: Option<usize>,
    /// Width inside the feed-forward layers.
    pub hidden: Option<usize>,
    /// Longest sequence.
    pub context: Option<usize>,
    /// Tokens.
    pub vocab: Option<usize>,
    /// Whether the output head is the embedding.
    pub tied: Option<bool>,
    /// Chance of dropping an activation.
    pub dropout: Option<f64>,
}

impl Sizes {
    /// The model of these sizes, with those of `base` for the rest. Unchecked.
    pub fn over(&self, base: &ModelConfig) -> ModelConfig {
        let family = self.family.unwrap_or(base.family);
        let channels = self.channels.unwrap_or(base.channels);
        let heads = self.heads.unwrap_or(base.heads);
        // Where the base's head count is left behind, its grouping is too.
        let grouped = heads == base.heads && family == base.family;
        let hidden = base.hidden.saturating_mul(channels) / base.channels.max(1);
        let layers = self.layers.unwrap_or(base.layers);
        let of_family = family.details(layers);
        let (mut details, rope_theta) = match family == base.family {
            true => (base.details.clone(), base.rope_theta),
            false => (of_family.clone(), family.rope_theta()),
        };
        if layers != base.layers {
            let has_windows = details.window.is_some();
            details.windowed = if has_windows { of_family.windowed } else { vec![] };
            details.unrotated = of_family.unrotated;
        }
        if (channels, heads) != (base.channels, base.heads) {
            details = Details { head_dim: None, query_scale: None, ..details };
        }
        ModelConfig {
            family,
            layers,
            channels,
            heads,
            kv_heads: self.kv_heads.unwrap_or(if grouped { base.kv_heads } else { heads }),
            hidden: self.hidden.unwrap_or(hidden.max(1)),
            context: self.context.unwrap_or(base.context),
            vocab: self.vocab.unwrap_or(base.vocab),
            tied: self.tied.unwrap_or(base.tied),
            dropout: self.dropout.unwrap_or(base.dropout),
            norm_eps: base.norm_eps,
            rope_theta,
            details,
        }
    }
}
