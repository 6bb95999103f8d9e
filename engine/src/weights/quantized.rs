//! Models that bitsandbytes quantized.

use tightrope_nn::{FrozenBits, TrainerConfig};

use super::Source;
use crate::error::{Help as _, Result};

impl Source {
    /// A note on quantized weights, for a run of `config` that starts from this model.
    ///
    /// # Errors
    /// Weights that are missing or in a broken file.
    pub(crate) fn note_on_quantized(&self, config: &TrainerConfig) -> Result<Option<String>> {
        if self.checkpoint.is_some() {
            return Ok(None);
        }
        let weights = self.open_weights().help("fetch or copy the model again")?;
        if !weights.is_quantized() {
            return Ok(None);
        }
        let shown = self.dir.display();
        let again = config.lora.as_ref().is_some_and(|it| it.base_bits != FrozenBits::Precision);
        let then = match again {
            true => "; `lora.base_bits` quantizes them anew, which rounds their scales once more",
            false => "",
        };
        Ok(Some(format!(
            "the weights in `{shown}` are quantized by bitsandbytes, and are read as it dequantizes them{then}"
        )))
    }
}
