//! A run between two calls of the page, and text and answers out of its model.

use tightrope::data::Problem;
use tightrope::nn::Sampling;
use tightrope::run::{Run, Stepped};

use crate::error::{Error, Result};

/// Held-out tokens that an evaluation scores at most.
const EVALUATED: usize = 1 << 13;
/// Held-out problems that are answered to measure accuracy.
const PROBLEMS: u64 = 32;
/// Held-out problems in a sample.
const SHOWN_PROBLEMS: u64 = 6;
/// What a text is continued from where nothing is given.
const LINE_START: &str = "\n";

/// A run between two calls.
pub struct Running {
    /// The run.
    pub run: Run<'static>,
    /// Seconds of a step, before one was timed.
    pub estimate: f64,
}

impl Running {
    /// Trains `count` steps, or those that are left. Where reading a loss waits for the device, the record is of the last alone.
    ///
    /// # Errors
    /// A device that is lost again and again.
    pub async fn step(&mut self, count: u64, reads_for_free: bool) -> Result<Vec<Stepped>> {
        let (calls, steps) = if reads_for_free { (count, 1) } else { (1, count) };
        let mut records = vec![];
        for _ in 0..calls {
            let Some(stepped) = self.run.steps_async(steps).await? else { break };
            records.push(stepped);
        }
        Ok(records)
    }

    /// Mean loss on held-out data, nats a token.
    ///
    /// # Errors
    /// Where nothing is held out, and a device that is lost again and again.
    pub async fn evaluate(&mut self) -> Result<f64> {
        let evaluation = self.run.evaluate_async(Some(EVALUATED)).await?;
        let nothing = Error::Refused("nothing is held out: raise data.holdout");
        Ok(evaluation.ok_or(nothing)?.loss)
    }

    /// Part of the held-out problems that are answered exactly, or of the held-out images that are told rightly.
    ///
    /// # Errors
    /// Where the data is text, and a device that is lost again and again.
    pub async fn accuracy(&mut self) -> Result<f64> {
        let text =
            Error::Refused("a text has no answers: accuracy is of sort, reverse, add and digits");
        self.run.accuracy_async(PROBLEMS, EVALUATED).await?.ok_or(text)
    }

    /// What the model continues `prompt` with. Without a prompt: a new line of text, or held-out problems
    /// with the model's answers.
    ///
    /// # Errors
    /// Weights that have diverged, and a device that is lost again and again.
    pub async fn sample(
        &mut self,
        prompt: &str,
        tokens: usize,
        temperature: f64,
        seed: u64,
    ) -> Result<String> {
        let answers =
            if prompt.is_empty() { self.run.answers_async(SHOWN_PROBLEMS).await? } else { None };
        if let Some(answers) = answers {
            let line = |(Problem { question, answer }, given): &(Problem, String)| {
                let right = if answer == given { String::new() } else { format!("  not {answer}") };
                format!("{question}{given}{right}\n")
            };
            return Ok(answers.iter().map(line).collect());
        }
        let sampling = Sampling { temperature, top_k: 0, top_p: 1.0, seed, draw: 0 };
        let mut text = String::new();
        let mut show = |piece: &str| {
            text += piece;
            true
        };
        self.generate(prompt, tokens, sampling, &mut show).await?;
        Ok(text)
    }

    /// Hands what the model continues `prompt` with to `show`, piece by piece, until that says to end.
    ///
    /// # Errors
    /// Weights that have diverged, and a device that is lost again and again.
    pub async fn generate(
        &mut self,
        prompt: &str,
        most: usize,
        sampling: Sampling,
        show: &mut dyn FnMut(&str) -> bool,
    ) -> Result<()> {
        let prompt = if prompt.is_empty() { LINE_START } else { prompt };
        let how = Sampling { draw: self.run.done().steps, ..sampling };
        Ok(self.run.generate_async(prompt, most, &how, show).await?)
    }
}
