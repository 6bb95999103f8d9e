//! Scaled rotary frequencies, as `config.json` describes them.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tightrope_core::ops::{Kept, Stretch};

use crate::error::{Result, ensure};
use crate::keys::Keys;

/// How a model that was trained on short sequences first lowers its rotary frequencies for longer ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase", deny_unknown_fields)]
pub enum RopeScaling {
    /// Every frequency is divided by `factor` (Chen et al. 2023).
    Linear {
        /// Longer by so much.
        factor: f64,
    },
    /// Frequencies fall with the length of a sequence past the context, and are as they were within it. No sequence is longer
    /// than the context here.
    Dynamic {
        /// Longer by so much.
        factor: f64,
    },
    /// Pairs that turn often within the first context keep their frequency, and those that don't turn once have it divided
    /// (Llama Team 2024).
    Llama3 {
        /// Longer by so much.
        factor: f64,
        /// Turns within the first context below which a frequency is divided.
        low_freq_factor: f64,
        /// Turns above which it's kept.
        high_freq_factor: f64,
        /// The first context.
        original_max_position_embeddings: usize,
    },
    /// The first pairs keep their frequency, the last have it divided, and scores are scaled (Peng et al. 2023).
    Yarn {
        /// Longer by so much.
        factor: f64,
        /// Turns within the first context above which a frequency is kept.
        beta_fast: f64,
        /// Turns below which it's divided.
        beta_slow: f64,
        /// The first context.
        original_max_position_embeddings: usize,
        /// Factor on rotated queries and keys.
        attention_factor: f64,
        /// The pairs between which frequencies change are whole numbers.
        truncate: bool,
    },
}

impl RopeScaling {
    /// What becomes of the frequencies of heads of `head_dim` channels at base `theta`.
    pub fn stretch(&self, head_dim: usize, theta: f64) -> Stretch {
        match *self {
            Self::Linear { factor } => {
                Stretch { kept: Kept::default(), rest: 1.0 / factor, amplitude: 1.0 }
            }
            Self::Dynamic { .. } => Stretch::NONE,
            Self::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: first,
            } => {
                // Turns within the first context are first·f/2π.
                let base = -low / (high - low);
                let frequency = first as f64 / TAU / (high - low);
                let kept = Kept { base, frequency, pair: 0.0 };
                Stretch { kept, rest: 1.0 / factor, amplitude: 1.0 }
            }
            Self::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position_embeddings: first,
                attention_factor,
                truncate,
            } => {
                // The pair that turns so often within the first context.
                let pair = |turns: f64| {
                    head_dim as f64 * (first as f64 / (turns * TAU)).ln() / (2.0 * theta.ln())
                };
                let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
                if low == high {
                    high += 1e-3;
                }
                let kept = Kept {
                    base: 1.0 + low / (high - low),
                    frequency: 0.0,
                    pair: -1.0 / (high - low),
                };
                Stretch { kept, rest: 1.0 / factor, amplitude: attention_factor }
            }
        }
    }

    /// What a table of `config.json` describes; nothing where frequencies are as they are. `context` is the model's.
    pub(super) fn from_hf(table: &Keys<'_>, context: usize) -> Result<Option<Self>> {
        table.must_be("partial_rotary_factor", &[json!(1), json!(1.0)])?;
        let kind = match (table.text("rope_type")?, table.text("type")?) {
            (Some(kind), _) | (None, Some(kind)) => kind,
            (None, None) => "default",
        };
        let number = |key: &str| {
            let found = table.number(key)?;
            found.ok_or_else(|| table.wrong(key, "is missing; it must be a number".into()))
        };
        let factor = || {
            let factor = number("factor")?;
            let found = (factor.is_finite() && factor >= 1.0).then_some(factor);
            found.ok_or_else(|| table.wrong("factor", format!("must be at least 1, is {factor}")))
        };
        let first = table.optional_size("original_max_position_embeddings")?;
        Ok(Some(match kind {
            "default" => return Ok(None),
            "linear" => Self::Linear { factor: factor()? },
            "dynamic" => Self::Dynamic { factor: factor()? },
            "llama3" => Self::Llama3 {
                factor: factor()?,
                low_freq_factor: number("low_freq_factor")?,
                high_freq_factor: number("high_freq_factor")?,
                original_max_position_embeddings: first.unwrap_or(context),
            },
            "yarn" => {
                let factor = factor()?;
                let grown =
                    |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
                let attention_factor = match table.number("attention_factor")? {
                    Some(given) => given,
                    None => match (table.number("mscale")?, table.number("mscale_all_dim")?) {
                        (Some(one), Some(all)) if one != 0.0 && all != 0.0 => {
                            grown(one) / grown(all)
                        }
                        _ => grown(1.0),
                    },
                };
                Self::Yarn {
                    factor,
                    beta_fast: table.number("beta_fast")?.unwrap_or(32.0),
                    beta_slow: table.number("beta_slow")?.unwrap_or(1.0),
                    original_max_position_embeddings: first.unwrap_or(context),
                    attention_factor,
                    truncate: table.flag("truncate")?.unwrap_or(true),
                }
            }
            other => {
                let problem = format!(
                    "is \"{other}\", a rope type that isn't supported yet; supported: default, linear, dynamic, llama3, yarn"
                );
                return Err(table.wrong("rope_type", problem));
            }
        }))
    }

    /// The table of `config.json` for frequencies of base `theta`.
    pub(super) fn to_hf(scaling: Option<Self>, theta: f64) -> Value {
        let mut table = match scaling {
            None => json!({ "rope_type": "default" }),
            Some(scaling) => json!(scaling),
        };
        table["rope_theta"] = theta.into();
        table
    }

    /// # Errors
    /// [`crate::Error::Setting`] for a number that is out of range.
    pub(super) fn check(&self) -> Result<()> {
        let (factor, first, spread) = match *self {
            Self::Linear { factor } | Self::Dynamic { factor } => (factor, 1, 1.0),
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => (factor, original_max_position_embeddings, high_freq_factor - low_freq_factor),
            Self::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position_embeddings,
                attention_factor,
                ..
            } => {
                let positive = beta_slow > 0.0 && attention_factor > 0.0;
                let spread = if positive { beta_fast - beta_slow } else { f64::NAN };
                (factor, original_max_position_embeddings, spread)
            }
        };
        let range = factor.is_finite() && factor >= 1.0 && first > 0;
        ensure(range && spread.is_finite() && spread > 0.0, "rope_scaling", || {
            format!("{} is out of range", json!(self))
        })
    }
}
