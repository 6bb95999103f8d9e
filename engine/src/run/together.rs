//! A run that trains with other ranks.

use tightrope_nn::Shard;

use super::{Ended, Run};
use crate::error::Result;

impl Run<'_> {
    /// Whether the run trains with other ranks. A browser's tab has none.
    pub(super) fn is_joined(&self) -> bool {
        cfg!(not(target_family = "wasm")) && self.joined
    }

    /// How the run ends before its next step, where this rank's ends or any other was asked to stop.
    pub(super) async fn agreed(&mut self, own: Option<Ended>) -> Result<Option<Ended>> {
        if !self.is_joined() {
            return Ok(own);
        }
        #[cfg(not(target_family = "wasm"))]
        self.begin_step().await?;
        let stops = own.is_some() || self.cancel.is_requested();
        let stops = self.any_rank(stops).await?;
        Ok(stops.then(|| own.unwrap_or(Ended::Interrupted)))
    }

    /// Whether ranks hold shards of weights: then each token of a sample would send all of them.
    pub(super) fn lacks_samples(&self) -> bool {
        self.is_joined() && self.config().shard == Shard::Weights
    }

    pub(super) fn note_no_sample(&mut self) {
        if self.lacks_samples() {
            let note = "note: ranks hold shards of weights, and each token of a sample would send them all: \
                        see what the model writes by `tightrope generate` on the checkpoint";
            self.inner.origin.notes.push(note.to_owned());
        }
    }

    /// Whether the run, on any of its ranks, was asked to stop.
    pub(super) async fn asked_to_stop(&mut self) -> Result<bool> {
        self.any_rank(self.cancel.is_requested()).await
    }

    /// True if `own` is on any rank.
    pub(super) async fn any_rank(&mut self, own: bool) -> Result<bool> {
        match self.is_joined() {
            true => self.with_trainer(async |trainer| Ok(trainer.any_rank(own)?)).await,
            false => Ok(own),
        }
    }
}
