//! What a run writes: checkpoints, and records of evaluations and samples, into its directory as long as that is where it was.

use std::path::Path;

use tightrope_nn::Trainer;

#[cfg(not(target_family = "wasm"))]
use super::home;
use super::origin::Origin;
use super::{Evaluation, Run};
use crate::error::Result;

impl<'a> Run<'a> {
    /// Writes a checkpoint, where the run has a directory and none of this step.
    ///
    /// # Errors
    /// Weights that aren't finite, those of the device and of the disk; earlier checkpoints are as they were. A directory that
    /// was moved or removed: the checkpoint is then in another one, which the error names.
    pub async fn save_async(&mut self) -> Result<()> {
        self.find_home().await?;
        self.save_at_home().await
    }

    async fn save_at_home(&mut self) -> Result<()> {
        let steps = self.done().steps;
        let Some(home) = self.home.as_mut().filter(|_| self.checkpointed != Some(steps)) else {
            return Ok(());
        };
        home.flush();
        let dir = home.dir().to_owned();
        self.save_to(&dir).await?;
        self.checkpointed = Some(steps);
        Ok(())
    }

    /// Writes a checkpoint under `dir`.
    pub(super) async fn save_to(&mut self, dir: &Path) -> Result<()> {
        let (done, saved) = (self.done(), &self.saved);
        let save = async |origin: &mut Origin<'a>, trainer: &mut Trainer| {
            saved.save(dir, trainer, &*origin.data, done).await
        };
        let notes = self.inner.attempt(save).await?;
        self.inner.origin.notes.extend(notes);
        Ok(())
    }

    /// Nothing, where the run's directory is where it was. Otherwise the weights are saved in a new one, and the run ends with
    /// an error that names it.
    async fn find_home(&mut self) -> Result<()> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(home) = self.home.as_ref().filter(|home| !home.is_there()) {
            let (lost, step) = (home.dir().to_owned(), self.done().steps);
            let again = home.again(step);
            let saved = async {
                self.home = Some(again?);
                self.checkpointed = None;
                self.save_at_home().await?;
                Ok(self.home.as_ref().map(|home| home.dir().to_owned()).unwrap_or_default())
            };
            return Err(home::moved(&lost, step, saved.await));
        }
        Ok(())
    }

    /// The run as one file, for where there are no folders.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn archive_async(&mut self) -> Result<Vec<u8>> {
        let (done, saved) = (self.done(), &self.saved);
        let archive = async |origin: &mut Origin<'a>, trainer: &mut Trainer| {
            saved.archive(trainer, &*origin.data, done).await
        };
        self.inner.attempt(archive).await
    }

    /// Records what came of an evaluation and a sample.
    pub(super) async fn record(
        &mut self,
        evaluation: Option<&Evaluation>,
        sample: Option<&str>,
    ) -> Result<()> {
        self.find_home().await?;
        let step = self.done().steps;
        if let Some(home) = &mut self.home {
            evaluation.into_iter().for_each(|evaluation| home.evaluated(step, evaluation));
            sample.into_iter().for_each(|text| home.sampled(step, text));
        }
        Ok(())
    }
}
