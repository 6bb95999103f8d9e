//! Runs whose numbers go astray: what is said of them, and which weights are kept.

use anyhow::anyhow;
use tightrope_core::NonFinite;
use tightrope_nn::{Cause, Done, Outcome};

use super::Run;
use crate::error::{Error, Result};

/// What to do about it.
pub(super) const DIVERGED: &str =
    "resume with a lower --lr or a smaller --clip, or look at the data around this step";

/// Reason that a step isn't finite whose outputs all are in a second look. Gradients of several passes or ranks are `summed`: these sums can be
/// infinite and then no number; sums of squares can only be infinite.
fn of_sums(loss: f32, grad_norm: f32, summed: bool) -> &'static str {
    if grad_norm.is_infinite() {
        return "every op's output is finite, and the sum of gradients or of their squares overflows";
    }
    if grad_norm.is_nan() && summed {
        return "every op's output is finite, and a sum of gradients over passes or ranks overflows";
    }
    if grad_norm.is_finite() && !loss.is_finite() {
        return "every op's output is finite, and the sum of losses isn't";
    }
    "made again, every op's output is finite: the device doesn't repeat its numbers (`tightrope doctor --check` tests its kernels)"
}
/// Why no op is named.
const CONSUMED: &str = "the op isn't known, as memory.consume_gradients has updated weights while gradients were made; without it the \
                        op is named";

/// Steps in a row that f16 may skip: halved that often, the loss scale has gone from its highest value to its lowest. A loss
/// that rises as often without falling once isn't noise.
pub(super) const PATIENCE: u64 = 64;

impl Run<'_> {
    /// The failure of a step that the device refused to make, with the op that went wrong first. The
    /// weights are those before it, and are saved; not where they were updated while gradients were made.
    pub(super) async fn not_finite(&mut self, outcome: &Outcome) -> Result<Error> {
        let at = self.done();
        let place = self.first_not_finite(at, outcome).await?;
        let Outcome { loss, grad_norm, .. } = *outcome;
        let step = at.steps + 1;
        let consumed = self.config().consume_gradients;
        let made = if consumed { "" } else { ", and wasn't made" };
        let mut message =
            format!("step {step} has loss {loss} and gradient norm {grad_norm}{made}: {place}");
        if self.skips > 1 {
            let first = step + 1 - self.skips;
            message += &format!("; no step from {first} on was finite, at any loss scale");
        }
        if consumed {
            self.end_beside().await?;
            message += &self.kept_last();
            return Ok(Error::failed(anyhow!(message), DIVERGED));
        }
        match self.save_async().await {
            Ok(()) => message += &self.kept(at.steps),
            Err(error) => message += &format!("; {error}"),
        }
        Ok(Error::failed(anyhow!(message), DIVERGED))
    }

    /// Notes what went wrong in the step after `at`, which f16 skipped.
    pub(super) async fn note_skipped(&mut self, at: Done, outcome: &Outcome) -> Result<()> {
        let place = self.first_not_finite(at, outcome).await?;
        self.inner.origin.notes.push(format!("step {} is skipped: {place}", at.steps + 1));
        Ok(())
    }

    /// Says where numbers stop being finite in the step after `at`.
    async fn first_not_finite(&mut self, at: Done, outcome: &Outcome) -> Result<String> {
        let joined = self.is_joined();
        let summed = joined || self.config().accumulation() > 1;
        let explain = self.inner.attempt(async |origin, trainer| {
            let batch = origin.data.batch(trainer.config(), at)?;
            Ok(trainer.explain(at.steps, &batch.batch(), outcome).await?)
        });
        Ok(match explain.await? {
            Cause::Output { output, rank } => {
                let of_rank = if joined { format!(", on rank {rank}") } else { String::new() };
                let NonFinite { tensor, element, op } = output;
                format!(
                    "the first output that isn't finite is `{tensor}`, element {element}, of op {op}{of_rank}"
                )
            }
            Cause::Sums => of_sums(outcome.loss, outcome.grad_norm, summed).to_owned(),
            Cause::Overwritten => CONSUMED.to_owned(),
        })
    }

    /// The failure of a run whose loss does nothing but rise. Its weights are worse than those of the last checkpoint, which
    /// stays.
    pub(super) fn rising(&self, outcome: &Outcome) -> Error {
        let step = self.done().steps + 1;
        let first = step - self.rises;
        let mut message = format!(
            "the loss has risen at every step since step {first}, to {} at step {step}",
            outcome.loss
        );
        message += &self.kept_last();
        Error::failed(anyhow!(message), DIVERGED)
    }

    /// Says where the weights of the last checkpoint are kept, if there is one.
    fn kept_last(&self) -> String {
        self.checkpointed.map_or_else(String::new, |steps| self.kept(steps))
    }

    /// Says where the weights of a step are kept.
    fn kept(&self, step: u64) -> String {
        self.home.as_ref().map_or_else(String::new, |home| {
            format!("; the weights of step {step} are saved in `{}`", home.dir().display())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss that isn't finite beside a norm that is, and a step that doesn't repeat itself, were said to overflow in sums of squares.
    #[test]
    fn sums_overflow_where_their_numbers_say_so() {
        let squares = of_sums(1.0, f32::INFINITY, false);
        assert!(squares.contains("or of their squares overflows"), "{squares}");
        for (loss, grad_norm, summed, expected) in [
            (1.0, f32::NAN, true, "a sum of gradients over passes or ranks overflows"),
            (f32::NAN, 1.0, false, "the sum of losses isn't"),
            (f32::INFINITY, 1.0, true, "the sum of losses isn't"),
            (1.0, f32::NAN, false, "doesn't repeat its numbers"),
            (f32::NAN, f32::NAN, false, "doesn't repeat its numbers"),
        ] {
            let said = of_sums(loss, grad_norm, summed);
            assert!(said.contains(expected) && !said.contains("squares"), "{said}");
        }
    }
}
