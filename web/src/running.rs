//! A run between two calls of the page, and text and answers out of its model.

use tightrope::data::{Problem, Tokenizer};
use tightrope::nn::Sampling;
use tightrope::recipe::Task;
use tightrope::run::{Run, Stepped, generate};

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
    /// Its task, where it's one.
    pub task: Option<Task>,
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

    /// Part of the held-out problems that are answered exactly.
    ///
    /// # Errors
    /// Where the data is text, and a device that is lost again and again.
    pub async fn accuracy(&mut self) -> Result<f64> {
        let text = Error::Refused("a text has no answers: accuracy is of sort, reverse and add");
        let answers = self.answers(self.task.ok_or(text)?, PROBLEMS).await?;
        let right = answers.iter().filter(|(problem, given)| problem.answer == *given).count();
        Ok(right as f64 / answers.len() as f64)
    }

    /// The first held-out problems with the model's answers.
    async fn answers(&mut self, task: Task, count: u64) -> Result<Vec<(Problem, String)>> {
        let problems = task.problems(self.run.config())?;
        let mut answers = vec![];
        for problem in (0..count).map(|index| problems.held_out(index)) {
            let length = problem.answer.len();
            let given = self.continued(&problem.question, length, Sampling::GREEDY).await?;
            answers.push((problem, given));
        }
        Ok(answers)
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
        if let Some(task) = self.task.filter(|_| prompt.is_empty()) {
            let line = |(Problem { question, answer }, given): &(Problem, String)| {
                let right = if answer == given { String::new() } else { format!("  not {answer}") };
                format!("{question}{given}{right}\n")
            };
            return Ok(self.answers(task, SHOWN_PROBLEMS).await?.iter().map(line).collect());
        }
        let sampling = Sampling { temperature, top_k: 0, top_p: 1.0, seed, draw: 0 };
        self.continued(prompt, tokens, sampling).await
    }

    async fn continued(&mut self, prompt: &str, most: usize, how: Sampling) -> Result<String> {
        let mut text = String::new();
        let mut show = |piece: &str| {
            text += piece;
            true
        };
        self.generate(prompt, most, how, &mut show).await?;
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
        let prompt = Tokenizer::Byte.encode(if prompt.is_empty() { LINE_START } else { prompt })?;
        let how = Sampling { draw: self.run.done().steps, ..sampling };
        let mut shown = 0;
        let work = async |trainer: &mut _| {
            // On a device that took the place of a lost one it begins again, with pieces that were shown.
            let mut made = 0;
            let mut piece = |piece: &str| {
                made += 1;
                made <= shown || {
                    shown = made;
                    show(piece)
                }
            };
            generate(trainer, &Tokenizer::Byte, &prompt, most, &how, &mut piece).await.map(drop)
        };
        Ok(self.run.with_trainer(work).await?)
    }
}
