//! What a program asks of a run between its steps, as one does in a notebook.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use tightrope_nn::Sampling;

use super::{Ended, Run, generate};
use crate::block_on;
use crate::error::{Error, Help as _, Result};

impl Run<'_> {
    /// Continues `prompt` by at most `count` tokens.
    ///
    /// # Errors
    /// A run whose data isn't text, an empty prompt, one outside the model's vocabulary, and those of the device.
    pub fn generate(&mut self, prompt: &str, count: usize, sampling: &Sampling) -> Result<String> {
        block_on(self.inner.attempt(async |origin, trainer| {
            let Some(tokenizer) = origin.data.tokenizer() else {
                return Err(Error::usage(
                    anyhow!("the run's data isn't text"),
                    "train on text, or name the tokenizer that its ids are of",
                ));
            };
            let prompt = tokenizer.encode(prompt).help("give another prompt")?;
            let mut text = String::new();
            let mut show = |piece: &str| {
                text.push_str(piece);
                true
            };
            generate(trainer, tokenizer, &prompt, count, sampling, &mut show).await?;
            Ok(text)
        }))
    }

    /// Writes a checkpoint `checkpoints/step-N` under `dir`, whatever directory the run has. Gives its path.
    ///
    /// # Errors
    /// As [`Run::save_async`].
    pub fn save_in(&mut self, dir: &Path) -> Result<PathBuf> {
        let (own, checkpointed) =
            (self.saved.dir.replace(dir.to_owned()), self.checkpointed.take());
        let saved = self.save();
        (self.saved.dir, self.checkpointed) = (own, checkpointed);
        saved?;
        Ok(dir.join(format!("checkpoints/step-{}", self.done().steps)))
    }

    /// Steps that it makes in all; `u64::MAX` where it has no end.
    pub fn steps(&self) -> u64 {
        self.saved.rate.steps
    }

    /// Lets a run that was interrupted go on in the same process.
    pub fn go_on(&mut self) {
        self.ended = self.ended.filter(|ended| *ended == Ended::Complete);
    }
}
