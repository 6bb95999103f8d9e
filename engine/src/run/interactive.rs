//! What a program asks of a run between its steps, as one does in a notebook.

use std::path::{Path, PathBuf};

use tightrope_nn::Sampling;

use super::{Ended, Run};
use crate::block_on;
use crate::error::Result;

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

    /// Lets a run that was interrupted go on in the same process.
    pub fn go_on(&mut self) {
        self.ended = self.ended.filter(|ended| *ended != Ended::Interrupted);
    }
}
