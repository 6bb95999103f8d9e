//! What a language model is: its family and extents.

use serde::{Deserialize, Serialize};

use super::rope::RopeScaling;
use crate::error::{Result, ensure};

/// Architecture of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Learned positions, layer norm, biases, GELU (Radford et al. 2019).
    Gpt2,
    /// Rotary positions, RMS norm, no biases, SwiGLU, grouped key-value heads (Touvron et al. 2023).
    Llama,
    /// A Llama whose queries see a window of keys (Jiang et al. 2023).
    Mistral,
    /// A Llama with biases of queries, keys and values (Qwen Team 2024).
    Qwen2,
    /// A Llama that norms queries and keys, head by head (Qwen Team 2025).
    Qwen3,
    /// Norms before and after each branch, capped scores, alternating windows, GEGLU (Gemma Team 2024).
    Gemma2,
    /// Gemma 2 with norms of queries and keys in place of caps, and rotary bases of its own within windows (Gemma Team 2025).
    Gemma3,
    /// A Llama with packed projections (Abdin et al. 2024).
    Phi3,
    /// A Llama of which some layers have no positions (Bakouch et al. 2025).
    SmolLm3,
    /// Norms after each branch, and of all queries and all keys (OLMo Team 2024).
    Olmo2,
}

impl Family {
    /// Every family.
    pub const ALL: &'static [Self] = &[
        Self::Gpt2,
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma2,
        Self::Gemma3,
        Self::Phi3,
        Self::SmolLm3,
        Self::Olmo2,
    ];

    /// Lower-case name, as in settings and in Hugging Face's `model_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
            Self::SmolLm3 => "smollm3",
            Self::Olmo2 => "olmo2",
        }
    }
}

/// A model's family and extents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Architecture of the blocks.
    pub family: Family,
    /// Blocks.
    pub layers: usize,
    /// Width of the residual stream, C.
    pub channels: usize,
    /// Query heads; divides the channels.
    pub heads: usize,
    /// Key-value heads; divides the query heads.
    pub kv_heads: usize,
    /// Width inside the feed-forward layers.
    pub hidden: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Tokens.
    pub vocab: usize,
    /// The output head is the embedding.
    pub tied: bool,
    /// Probability of zeroing elements of the embedding and of what each layer adds to the residual
    /// stream, in training; 0 for none.
    #[serde(default)]
    pub dropout: f64,
    /// Added to the variance in norms.
    #[serde(default = "default_norm_eps")]
    pub norm_eps: f64,
    /// Base of the rotary angles; not used by GPT-2.
    #[serde(default = "default_rope_theta")]
    pub rope_theta: f64,
    /// What published models of a family differ in besides.
    #[serde(default, skip_serializing_if = "Details::are_default")]
    pub details: Details,
}

/// What models of one family differ in besides their extents. Without any, a model is as its family's first ones are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Details {
    /// Channels of a head, where they aren't the channels over the heads.
    pub head_dim: Option<usize>,
    /// How rotary frequencies are lowered for long sequences.
    pub rope_scaling: Option<RopeScaling>,
    /// Base of the rotary angles in layers with a window, where it's another.
    pub local_rope_theta: Option<f64>,
    /// Keys that a query attends to in layers with a window.
    pub window: Option<usize>,
    /// Layers that have it.
    pub windowed: Vec<usize>,
    /// Layers without rotary positions.
    pub unrotated: Vec<usize>,
    /// What scores are divided by the root of, where it isn't the head's channels.
    pub query_scale: Option<f64>,
    /// What scores stay below in size.
    pub attention_cap: Option<f64>,
    /// What logits stay below in size.
    pub logit_cap: Option<f64>,
}

impl Details {
    /// None.
    pub const NONE: Self = Self {
        head_dim: None,
        rope_scaling: None,
        local_rope_theta: None,
        window: None,
        windowed: vec![],
        unrotated: vec![],
        query_scale: None,
        attention_cap: None,
        logit_cap: None,
    };

    fn are_default(&self) -> bool {
        *self == Self::NONE
    }

    fn check(&self, layers: usize) -> Result<()> {
        if let Some(head_dim) = self.head_dim {
            ensure((1..=1 << 16).contains(&head_dim), "head_dim", || {
                format!("{head_dim} must lie between 1 and {}", 1 << 16)
            })?;
        }
        ensure(self.window != Some(0), "window", || "a window of 0 keys leaves nothing".into())?;
        ensure(self.window.is_some() || self.windowed.is_empty(), "windowed", || {
            "layers have a window of which no size is said".into()
        })?;
        for (key, listed) in [("windowed", &self.windowed), ("unrotated", &self.unrotated)] {
            let outside = listed.iter().find(|&&layer| layer >= layers);
            ensure(outside.is_none(), key, || {
                format!("there is no layer {} of {layers}", outside.copied().unwrap_or_default())
            })?;
        }
        for (key, value) in [
            ("local_rope_theta", self.local_rope_theta),
            ("query_scale", self.query_scale),
            ("attention_cap", self.attention_cap),
            ("logit_cap", self.logit_cap),
        ] {
            ensure(value.is_none_or(|value| value.is_finite() && value > 0.0), key, || {
                format!("{} must be above 0", value.unwrap_or_default())
            })?;
        }
        self.rope_scaling.map_or(Ok(()), |scaling| scaling.check())
    }
}

pub(crate) const fn default_norm_eps() -> f64 {
    1e-5
}

pub(crate) const fn default_rope_theta() -> f64 {
    1e4
}

/// Rows of an embedding of so many tokens: see [`ModelConfig::padded_vocab`].
pub(crate) fn padded_vocab(vocab: usize) -> usize {
    vocab.next_multiple_of(64)
}

impl ModelConfig {
    /// Most layers that a model can have.
    pub const MOST_LAYERS: usize = 1 << 12;
    /// Most positions that a model can have.
    pub const LONGEST_CONTEXT: usize = 1 << 24;

    /// Channels of a head, D.
    pub fn head_dim(&self) -> usize {
        self.details.head_dim.unwrap_or(self.channels / self.heads.max(1))
    }

    /// Channels of all query heads, H·D.
    pub fn queries(&self) -> usize {
        self.heads * self.head_dim()
    }

    /// Rows of the embedding in memory: the vocabulary rounded up to a multiple of 64, which keeps matrix
    /// matmuls on whole tiles. The extra rows are 0 and have probability 0.
    pub fn padded_vocab(&self) -> usize {
        padded_vocab(self.vocab)
    }

    /// Columns of the packed query, key and value projection.
    pub fn packed(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim()
    }

    /// # Errors
    /// [`crate::Error::Setting`] for the first setting that is out of range or doesn't fit another.
    pub fn check(&self) -> Result<()> {
        let Self { channels, heads, kv_heads, .. } = *self;
        // The limits keep counts of parameters within 64 bits and token ids within i32.
        for (key, value, limit) in [
            ("layers", self.layers, Self::MOST_LAYERS),
            ("channels", channels, 1 << 20),
            ("heads", heads, 1 << 20),
            ("kv_heads", kv_heads, 1 << 20),
            ("hidden", self.hidden, 1 << 22),
            ("context", self.context, Self::LONGEST_CONTEXT),
            ("vocab", self.vocab, 1 << 24),
        ] {
            ensure((1..=limit).contains(&value), key, || {
                format!("{value} must lie between 1 and {limit}")
            })?;
        }
        self.details.check(self.layers)?;
        // No tensor of a model may be larger than the address space, which in a browser is 4 GiB.
        let packed = heads.saturating_add(2 * kv_heads).saturating_mul(self.head_dim());
        let positions = if self.family == Family::Gpt2 { self.context } else { 0 };
        let rows = packed.max(2 * self.hidden).max(positions).max(self.vocab + 64);
        let bytes = rows.checked_mul(channels).and_then(|elements| elements.checked_mul(4));
        ensure(bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()), "channels", || {
            format!("{channels}, with the model's other extents, make tensors beyond all memory")
        })?;
        let divides = self.details.head_dim.is_some() || channels.is_multiple_of(heads);
        ensure(divides, "heads", || format!("{heads} heads don't divide {channels} channels"))?;
        ensure(heads.is_multiple_of(kv_heads), "kv_heads", || {
            format!("{kv_heads} key-value heads don't divide {heads} heads")
        })?;
        match self.family {
            Family::Gpt2 => ensure(kv_heads == heads, "kv_heads", || {
                format!("gpt2 has a key-value head for each of its {heads} heads, not {kv_heads}")
            })?,
            _ => ensure(self.head_dim().is_multiple_of(2), "heads", || {
                let of = match self.details.head_dim {
                    Some(_) => "`head_dim`".into(),
                    None => format!("{channels} / {heads}"),
                };
                format!("rotary positions need heads of even width, {of} is {}", self.head_dim())
            })?,
        }
        ensure((0.0..1.0).contains(&self.dropout), "dropout", || {
            format!("{} must be at least 0 and below 1", self.dropout)
        })?;
        for (key, value) in [("norm_eps", self.norm_eps), ("rope_theta", self.rope_theta)] {
            ensure(value.is_finite() && value > 0.0, key, || format!("{value} must be above 0"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    #[test]
    fn counts_of_llm_c() {
        let gpt2 = preset("gpt2").unwrap();
        assert_eq!(gpt2.flops_per_token(1024), 6 * 124_439_808 + 6 * 12 * 768 * 1024);
        assert_eq!((gpt2.head_dim(), gpt2.padded_vocab(), gpt2.packed()), (64, 50_304, 2304));
    }

    #[test]
    fn an_untied_embedding_multiplies_nothing() {
        let tied = ModelConfig { tied: true, ..preset("llama-1.1b").unwrap() };
        let untied = ModelConfig { tied: false, ..tied.clone() };
        assert_eq!(tied.flops_per_token(64), untied.flops_per_token(64));
        assert_eq!(untied.parameters() - tied.parameters(), 32_000 * 2048);
    }

    #[test]
    fn refusals_name_the_setting() {
        let gpt2 = preset("gpt2").unwrap();
        let llama = preset("llama-tiny").unwrap();
        for (config, words) in [
            (ModelConfig { heads: 7, ..gpt2.clone() }, "`heads`: 7 heads don't divide 768"),
            (ModelConfig { heads: 0, ..gpt2.clone() }, "`heads`: 0 must lie between"),
            (ModelConfig { kv_heads: 4, ..gpt2.clone() }, "`kv_heads`: gpt2 has"),
            (ModelConfig { kv_heads: 3, ..llama.clone() }, "`kv_heads`: 3 key-value heads"),
            (ModelConfig { channels: 12, ..llama }, "even width, 12 / 4 is 3"),
            (ModelConfig { dropout: 1.0, ..gpt2.clone() }, "`dropout`: 1 must be"),
            (ModelConfig { vocab: 1 << 31, ..gpt2.clone() }, "`vocab`"),
            (ModelConfig { norm_eps: f64::NAN, ..gpt2 }, "`norm_eps`: NaN"),
        ] {
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let mut value = serde_json::to_value(preset("tiny").unwrap()).unwrap();
        assert_eq!(serde_json::from_value::<ModelConfig>(value.clone()).unwrap().vocab, 256);
        value["chanels"] = 3.into();
        let message = serde_json::from_value::<ModelConfig>(value).unwrap_err().to_string();
        assert!(message.contains("chanels"), "{message}");
    }
}
