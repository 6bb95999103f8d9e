//! Work between steps: evaluations, samples and checkpoints, at their intervals and at its end.

use super::{Ended, Evaluation, Run, Stepped};
use crate::error::Result;

/// Held-out tokens or images that an evaluation during training scores; the one at the end scores all.
pub(super) const EVALUATED: usize = 1 << 15;

impl Run<'_> {
    /// Evaluation, sample and checkpoint, where they are due. Those of the last step are for the end.
    pub(super) async fn at_intervals(&mut self, stepped: &mut Stepped) -> Result<()> {
        let step = stepped.step;
        let saves = self.is_due(self.every.save, step);
        // A run that goes by its evaluations has what they came to in the checkpoint.
        let first = self.saved.evaluations.is_none();
        if saves && first {
            self.save_beside().await?;
        }
        (stepped.evaluation, stepped.sample) = self.evaluate_and_sample(step).await?;
        if (saves && !first) || self.keeps(step) {
            self.save_beside().await?;
        }
        Ok(())
    }

    /// Returns `true` if work of the interval `every` is due after `step`.
    pub(super) fn is_due(&self, every: u64, step: u64) -> bool {
        every > 0 && step.is_multiple_of(every) && step < self.saved.rate.steps
    }

    /// Evaluation and sample, where they are due after `step`, recorded.
    pub(super) async fn evaluate_and_sample(
        &mut self,
        step: u64,
    ) -> Result<(Option<Evaluation>, Option<String>)> {
        let (mut evaluation, mut sample) = (None, None);
        if self.is_due(self.every.evaluate, step) {
            evaluation = self.evaluate_async(Some(EVALUATED)).await?;
            self.add_evaluation(step, evaluation.as_ref());
        }
        if self.is_due(self.every.sample, step) {
            sample = self.sample_async().await?;
        }
        self.record(evaluation.as_ref(), sample.as_deref()).await?;
        Ok((evaluation, sample))
    }

    /// The loss on all held-out data and a sample, which the run's directory records. A run that is asked to stop meanwhile is
    /// [`Ended::Interrupted`], and lacks what wasn't done.
    ///
    /// # Errors
    /// As [`Run::evaluate_async`] and [`Run::sample_async`].
    pub async fn finish_async(&mut self) -> Result<(Option<Evaluation>, Option<String>)> {
        let evaluation = self.evaluate_async(None).await?;
        let mut sample = None;
        if !self.asked_to_stop().await? {
            sample = self.sample_async().await?;
            self.note_no_sample();
        }
        if self.asked_to_stop().await? {
            // A run that is resumed makes the evaluation again.
            self.ended = Some(Ended::Interrupted);
        } else {
            self.record(evaluation.as_ref(), sample.as_deref()).await?;
        }
        Ok((evaluation, sample))
    }
}
