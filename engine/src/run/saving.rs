//! What a run writes: checkpoints, and records of evaluations and samples, into its directory as long as that is where it was.

use std::path::Path;

use tightrope_nn::Trainer;

#[cfg(not(target_family = "wasm"))]
use super::beside::Job;
#[cfg(not(target_family = "wasm"))]
use super::home;
use super::origin::Origin;
use super::progress::Progress;
use super::{Ended, Evaluation, Run};
use crate::error::Result;

impl<'a> Run<'a> {
    /// Writes a checkpoint, where the run has a directory and none of this step.
    ///
    /// # Errors
    /// Weights that aren't finite, those of the device and of the disk; earlier checkpoints are as they were. A directory that
    /// was moved or removed: the checkpoint is then in another one, which the error names.
    pub async fn save_async(&mut self) -> Result<()> {
        self.end_beside().await?;
        self.find_home().await?;
        self.save_at_home().await
    }

    /// As [`Run::save_async`], while training goes on where the host has room for a copy. What keeps it from being written is
    /// told by a step after.
    #[cfg(not(target_family = "wasm"))]
    pub(super) async fn save_beside(&mut self) -> Result<()> {
        self.end_beside().await?;
        self.find_home().await?;
        let steps = self.done().steps;
        let joint = self.gives_parts() && self.checkpointed != Some(steps);
        if joint && self.save_jointly(true).await? {
            return Ok(());
        }
        let has_room =
            if joint { self.beside.room_for_all.is_some() } else { self.beside.has_room };
        let home = self.home.as_ref().filter(|_| has_room && self.checkpointed != Some(steps));
        let Some(home) = home else {
            return self.save_alone().await;
        };
        let (dir, metrics) = (home.dir().to_owned(), home.metrics_file());
        let (done, saved, beside) = (self.done(), &self.saved, &mut self.beside);
        let copy = async |origin: &mut Origin<'a>, trainer: &mut Trainer| {
            saved.copied(&dir, trainer, &*origin.data, done, beside.take_memory()).await
        };
        let Some((copied, manifest)) = self.inner.attempt(copy).await? else {
            // Less is free than when it was planned.
            match joint {
                true => self.beside.room_for_all = None,
                false => self.beside.has_room = false,
            }
            return self.save_alone().await;
        };
        let extra = self.saved.extra(self.data());
        let keep = self.saved.keep;
        self.beside.begin(Job { dir, copied, manifest, keep, extra, metrics })?;
        self.checkpointed = Some(steps);
        Ok(())
    }

    /// As [`Run::save_async`]: there are no threads in a browser.
    #[cfg(target_family = "wasm")]
    pub(super) async fn save_beside(&mut self) -> Result<()> {
        self.save_async().await
    }

    /// Looks for the end of a checkpoint that is written while training goes on.
    #[cfg(not(target_family = "wasm"))]
    pub(super) async fn poll_beside(&mut self) -> Result<()> {
        let ended = self.beside.poll();
        self.ended_beside(ended).await?;
        let ended = self.poll_joint().await;
        self.ended_joint(ended).await
    }

    /// Nothing is written beside training in a browser.
    #[cfg(target_family = "wasm")]
    pub(super) async fn poll_beside(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits for a checkpoint that is written while training goes on.
    pub(super) async fn end_beside(&mut self) -> Result<()> {
        #[cfg(not(target_family = "wasm"))]
        {
            let ended = self.beside.finish();
            self.ended_beside(ended).await?;
            let ended = self.end_joint().await;
            self.ended_joint(ended).await?;
        }
        Ok(())
    }

    #[cfg(not(target_family = "wasm"))]
    async fn ended_beside(&mut self, ended: Result<Vec<String>>) -> Result<()> {
        match ended {
            Ok(notes) => self.inner.origin.notes.extend(notes),
            Err(error) => {
                self.checkpointed = None;
                // A directory that is gone is why.
                self.find_home().await?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes a checkpoint in the run's directory, with the other ranks where each has a part of it.
    pub(super) async fn save_at_home(&mut self) -> Result<()> {
        #[cfg(not(target_family = "wasm"))]
        if self.gives_parts() && self.checkpointed != Some(self.done().steps) {
            self.home.iter_mut().for_each(home::Home::flush);
            if self.save_jointly(false).await? {
                return Ok(());
            }
        }
        self.save_alone().await
    }

    /// Writes a checkpoint in this process, which others send what they hold of it.
    async fn save_alone(&mut self) -> Result<()> {
        let steps = self.done().steps;
        let Some(home) = self.home.as_mut().filter(|_| self.checkpointed != Some(steps)) else {
            return self.lend_shards().await;
        };
        home.flush();
        let dir = home.dir().to_owned();
        self.save_to(&dir).await?;
        self.checkpointed = Some(steps);
        Ok(())
    }

    /// Gives the rank that writes a checkpoint this rank's shards of it, where each has some; nothing where the checkpoint of this step
    /// is written.
    #[cfg(not(target_family = "wasm"))]
    async fn lend_shards(&mut self) -> Result<()> {
        let steps = self.done().steps;
        if self.gives_parts() && self.checkpointed != Some(steps) {
            let lend =
                async |_: &mut Origin<'a>, trainer: &mut Trainer| Ok(trainer.read_along().await?);
            self.inner.attempt(lend).await?;
            self.checkpointed = Some(steps);
        }
        Ok(())
    }

    #[cfg(target_family = "wasm")]
    async fn lend_shards(&mut self) -> Result<()> {
        Ok(())
    }

    /// Tells that the run writes the checkpoint that it ends with, where it was asked to end and has a directory.
    pub(super) fn tell_saving(&mut self, ended: Ended) {
        let steps = self.done().steps;
        if ended == Ended::Interrupted && self.home.is_some() && self.checkpointed != Some(steps) {
            (self.tell)(&format!(
                "stopping after step {steps}: writing its checkpoint; another signal quits without it"
            ));
        }
    }

    /// Writes a checkpoint under `dir`.
    pub(super) async fn save_to(&mut self, dir: &Path) -> Result<()> {
        let (done, saved, tell) = (self.done(), &self.saved, &mut self.tell);
        let save = async |origin: &mut Origin<'a>, trainer: &mut Trainer| {
            let progress = Progress::new(trainer, done.steps, tell);
            saved.save(dir, trainer, &*origin.data, done, &|bytes| progress.add(bytes)).await
        };
        let notes = self.inner.attempt(save).await?;
        self.inner.origin.notes.extend(notes);
        Ok(())
    }

    /// Nothing, where the run's directory is where it was. Otherwise the weights are saved in a new one, and the run ends with
    /// an error that names it.
    pub(super) async fn find_home(&mut self) -> Result<()> {
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
