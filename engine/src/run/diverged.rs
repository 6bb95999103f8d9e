//! Runs whose numbers go astray: what is said of them, and which weights are kept.

use anyhow::anyhow;
use tightrope_nn::Outcome;

use super::Run;
use crate::error::{Error, Result};

/// What to do about it.
pub(super) const DIVERGED: &str =
    "resume with a lower --lr or a smaller --clip, or look at the data around this step";

/// Steps in a row that f16 may skip: halved that often, the loss scale has gone from its highest value to its lowest. A loss
/// that rises as often without falling once isn't noise.
pub(super) const PATIENCE: u64 = 64;

impl Run<'_> {
    /// The failure of a step that the device refused to make, with the op that went wrong first. The
    /// weights are those before it, and are saved.
    pub(super) async fn not_finite(&mut self, outcome: &Outcome) -> Result<Error> {
        let at = self.done();
        let place = self.first_not_finite().await?;
        let Outcome { loss, grad_norm, .. } = *outcome;
        let step = at.steps + 1;
        let mut message = format!(
            "step {step} has loss {loss} and gradient norm {grad_norm}, and wasn't made: {place}"
        );
        if self.skips > 1 {
            let first = step + 1 - self.skips;
            message += &format!("; no step from {first} on was finite, at any loss scale");
        }
        match self.save_async().await {
            Ok(()) => message += &self.kept(at.steps),
            Err(error) => message += &format!("; {error}"),
        }
        Ok(Error::failed(anyhow!(message), DIVERGED))
    }

    /// Notes what went wrong in a step that f16 skips, which is then made again to find it.
    pub(super) async fn note_skipped(&mut self) -> Result<()> {
        let step = self.done().steps + 1;
        let place = self.first_not_finite().await?;
        self.inner.origin.notes.push(format!("step {step} is skipped: {place}"));
        Ok(())
    }

    /// Makes the next step again, and says where numbers stop being finite.
    async fn first_not_finite(&mut self) -> Result<String> {
        let at = self.done();
        let explain = self.inner.attempt(async |origin, trainer| {
            let batch = origin.data.batch(trainer.config(), at)?;
            Ok(trainer.explain(at.steps, &batch.batch()).await?)
        });
        Ok(match explain.await? {
            Some(found) => format!(
                "the first output that isn't finite is `{}`, element {}, of op {}",
                found.tensor, found.element, found.op
            ),
            None => {
                "every op's output is finite, and the sum of squared gradients overflows".to_owned()
            }
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
        if let Some(steps) = self.checkpointed {
            message += &self.kept(steps);
        }
        Error::failed(anyhow!(message), DIVERGED)
    }

    /// Says where the weights of a step are kept.
    fn kept(&self, step: u64) -> String {
        self.home.as_ref().map_or_else(String::new, |home| {
            format!("; the weights of step {step} are saved in `{}`", home.dir().display())
        })
    }
}
