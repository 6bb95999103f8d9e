//! What a language model is: its family and extents.

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};

/// Architecture of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Learned positions, layer norm, biases, GELU (Radford et al. 2019).
    Gpt2,
    /// Rotary positions, RMS norm, no biases, SwiGLU, grouped key-value heads (Touvron et al. 2023).
    Llama,
}

impl Family {
    /// Every family.
    pub const ALL: &'static [Self] = &[Self::Gpt2, Self::Llama];

    /// Lower-case name, as in settings and in Hugging Face's `model_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
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
    /// Most positions that a model can have.
    pub const LONGEST_CONTEXT: usize = 1 << 24;

    /// Channels of a head, D.
    pub fn head_dim(&self) -> usize {
        self.channels / self.heads.max(1)
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
            ("layers", self.layers, 1 << 12),
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
        // No tensor of a model may be larger than the address space, which in a browser is 4 GiB.
        let widest = 3 * channels.max(self.hidden).max(self.context).max(self.vocab + 64);
        let bytes = widest.checked_mul(channels).and_then(|elements| elements.checked_mul(4));
        ensure(bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()), "channels", || {
            format!("{channels}, with the model's other extents, make tensors beyond all memory")
        })?;
        ensure(channels.is_multiple_of(heads), "heads", || {
            format!("{heads} heads don't divide {channels} channels")
        })?;
        ensure(heads.is_multiple_of(kv_heads), "kv_heads", || {
            format!("{kv_heads} key-value heads don't divide {heads} heads")
        })?;
        match self.family {
            Family::Gpt2 => ensure(kv_heads == heads, "kv_heads", || {
                format!("gpt2 has a key-value head for each of its {heads} heads, not {kv_heads}")
            })?,
            Family::Llama => ensure(self.head_dim().is_multiple_of(2), "heads", || {
                format!(
                    "rotary positions need heads of even width, {channels} / {heads} is {}",
                    self.head_dim()
                )
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
