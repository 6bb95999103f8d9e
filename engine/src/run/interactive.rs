//! What a program asks of a run between its steps, as one does in a notebook.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use tightrope_nn::{Sampling, SavedTensor};

use super::{Ended, Run};
use crate::block_on;
use crate::checkpoint::fits_dtype;
use crate::error::{Error, Result};

impl Run<'_> {
    /// Continues `prompt` by at most `count` tokens.
    ///
    /// # Errors
    /// A run whose data isn't text, an empty prompt, one outside the model's vocabulary, and those of the device.
    pub fn generate(&mut self, prompt: &str, count: usize, sampling: &Sampling) -> Result<String> {
        let mut text = String::new();
        let mut show = |piece: &str| {
            text.push_str(piece);
            true
        };
        block_on(self.generate_async(prompt, count, sampling, &mut show))?;
        Ok(text)
    }

    /// Writes a checkpoint `checkpoints/step-N` under `dir`, whatever directory the run has. Gives its path.
    ///
    /// # Errors
    /// As [`Run::save_async`].
    pub fn save_in(&mut self, dir: &Path) -> Result<PathBuf> {
        block_on(self.save_to(dir))?;
        Ok(dir.join(format!("checkpoints/step-{}", self.done().steps)))
    }

    /// Steps that it makes in all; `u64::MAX` where it has no end.
    pub fn steps(&self) -> u64 {
        self.saved.rate.steps
    }

    /// Sets weights to these values, each in the order of its elements in a checkpoint. `weights` are of `Trainer::saved_weights`.
    /// All values are checked first. Optimizer state stays as it is.
    ///
    /// # Errors
    /// Values that the precision of the run doesn't hold, another number of values, and errors of the device.
    pub fn set_weights(&mut self, weights: Vec<(SavedTensor, Vec<f32>)>) -> Result<()> {
        let dtype = self.config().precision.dtype();
        for (SavedTensor { name, ty, .. }, values) in &weights {
            let elements = ty.elements();
            if values.len() != elements {
                return Err(Error::usage(
                    anyhow!("`{name}` has {elements} elements, and {} are given", values.len()),
                    "give an array of its shape",
                ));
            }
            if let Some(at) = values.iter().position(|&value| !fits_dtype(dtype, value)) {
                return Err(Error::usage(
                    anyhow!(
                        "element {at} of `{name}` is {}, which {dtype:?} doesn't hold",
                        values[at]
                    ),
                    "give finite values within its range",
                ));
            }
        }
        block_on(self.end_beside())?;
        // A checkpoint of this step has the weights from before.
        self.checkpointed = None;
        block_on(self.with_trainer(async |trainer| {
            for (saved, values) in &weights {
                trainer.set_saved(saved, values).await?;
            }
            Ok(())
        }))?;
        if self.backend().is_some_and(|device| device.kind().can_be_lost()) {
            let replaced = &mut self.inner.origin.replaced;
            replaced.retain(|(before, _)| weights.iter().all(|(saved, _)| saved != before));
            replaced.extend(weights.into_iter().filter(|(saved, _)| saved.is_frozen()));
        }
        if block_on(self.inner.keep())? {
            return Ok(());
        }
        Err(Error::failed(
            anyhow!(
                "there is no memory left for a copy of the weights, without which a lost device would undo the change"
            ),
            "free some memory, and set them again",
        ))
    }

    /// Lets a run that was interrupted go on in the same process.
    pub fn go_on(&mut self) {
        self.ended = self.ended.filter(|ended| *ended != Ended::Interrupted);
    }
}
