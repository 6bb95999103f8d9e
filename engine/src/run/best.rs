//! Rules by the held-out loss of a run: the checkpoint with the lowest one stays, and evaluations without a lower one end the run.
//!
//! What evaluations came to is in every checkpoint of such a run, and an evaluation comes before the checkpoint of its step. So a run that
//! goes on after a kill makes each evaluation again that its checkpoint doesn't know of, and keeps and ends as it would have.

#[cfg(not(target_family = "wasm"))]
use std::path::PathBuf;

#[cfg(not(target_family = "wasm"))]
use tightrope_data::checkpoint::list;
use tightrope_data::{Best, Evaluations};

use super::intervals::EVALUATED;
use super::{Ended, Evaluation, Retention, Run};
use crate::error::Result;

impl Retention {
    /// Results of evaluations `before`, of a run with these rules.
    pub(super) fn evaluations(&self, before: Option<Evaluations>) -> Option<Evaluations> {
        let goes_by_loss = self.best || self.patience > 0;
        goes_by_loss.then(|| Evaluations { keeps_best: self.best, ..before.unwrap_or_default() })
    }
}

impl Run<'_> {
    /// Results of evaluations, of a run that keeps its best checkpoint or ends by its patience.
    pub fn evaluations(&self) -> Option<&Evaluations> {
        self.saved.evaluations.as_ref()
    }

    /// The folder of the checkpoint with the lowest held-out loss, if the run keeps that and it's in its directory.
    #[cfg(not(target_family = "wasm"))]
    pub fn best_checkpoint(&self) -> Option<PathBuf> {
        let step = self.saved.evaluations?.kept()?;
        let found = list(self.home.as_ref()?.dir()).ok()?;
        found.into_iter().find(|(other, _)| *other == step).map(|(_, path)| path)
    }

    /// Reason that the run ends before its next step, if it does.
    pub(super) fn is_over(&self) -> Option<Ended> {
        let patience = self.retention.patience;
        if self.done().steps >= self.saved.rate.steps {
            return Some(Ended::Complete);
        }
        let evaluations = self.saved.evaluations.filter(|_| patience > 0)?;
        (evaluations.since >= patience).then_some(Ended::OutOfPatience)
    }

    /// Returns `true` if an evaluation was due after the checkpoint that the run goes on from, which doesn't know of it, or knows of none
    /// because the rules are new.
    pub(super) fn lacks_evaluation(&self) -> bool {
        let step = self.done().steps;
        let due = |best: Option<Best>| best.is_none() || self.is_due(self.every.evaluate, step);
        step > 0 && self.saved.evaluations.is_some_and(|it| it.last != step && due(it.best))
    }

    /// Returns `true` if the checkpoint of `step` is the best one, which stays.
    pub(super) fn keeps(&self, step: u64) -> bool {
        self.saved.evaluations.is_some_and(|it| it.kept() == Some(step))
    }

    /// Adds an evaluation after `step`.
    pub(super) fn add_evaluation(&mut self, step: u64, evaluation: Option<&Evaluation>) {
        if let (Some(evaluations), Some(evaluation)) = (&mut self.saved.evaluations, evaluation) {
            evaluations.add(step, evaluation.loss);
        }
    }

    /// Makes an evaluation that the process before left undone, and the checkpoint again that is to know of it.
    pub(super) async fn evaluate_missed(&mut self) -> Result<()> {
        let step = self.done().steps;
        self.evaluate_and_sample(step).await?;
        self.save_again_with(step).await
    }

    /// Evaluates the last step as those before it, so that its checkpoint can be the best one.
    pub(super) async fn evaluate_last_step(&mut self) -> Result<()> {
        let step = self.done().steps;
        if !self.retention.best || self.saved.evaluations.is_none_or(|it| it.last == step) {
            return Ok(());
        }
        let evaluation = self.evaluate_async(Some(EVALUATED)).await?;
        self.add_evaluation(step, evaluation.as_ref());
        self.save_again_with(step).await
    }

    /// Writes the checkpoint of `step` once more, if it was there before its evaluation.
    async fn save_again_with(&mut self, step: u64) -> Result<()> {
        let knows = self.saved.evaluations.is_some_and(|it| it.last == step);
        if knows && self.checkpointed == Some(step) {
            self.checkpointed = None;
            self.save_async().await?;
        }
        Ok(())
    }
}
