//! A run on a device, between two calls of the page.

use std::cell::Cell;
use std::rc::Rc;

use serde::Serialize;
use tightrope_core::{Backend, DeviceError};
use tightrope_data::{Checkpoint, IGNORED, Tokenizer};
use tightrope_nn::{
    Batch, Done, Origin, Planned, Recovering, SampleTokens, Sampling, Trainer, generate,
};

use crate::checkpoint;
use crate::clock;
use crate::corpus::Data;
use crate::device::{Description, Opener};
use crate::error::{Error, Result};
use crate::planning;
use crate::setup::Setup;

/// Held-out problems that are answered to measure accuracy.
const PROBLEMS: u64 = 32;
/// Held-out problems in a sample.
const SHOWN_PROBLEMS: u64 = 6;
/// What a text is continued from where nothing is given.
const LINE_START: &str = "\n";

/// Figures that can be read while a call is under way.
#[derive(Debug, Default)]
pub struct Stats {
    /// The plan's peak.
    pub predicted_bytes: Cell<u64>,
    /// What the device allocated.
    pub allocated_bytes: Cell<u64>,
    /// Copies of weights and optimizer state in the host's memory.
    pub host_copy_bytes: Cell<u64>,
    /// How often a device took the place of a lost one.
    pub recoveries: Cell<u32>,
}

/// What one step came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Record {
    /// Steps done.
    pub step: u64,
    /// Mean loss over the step's tokens, nats a token.
    pub loss: f32,
    /// Learning rate.
    pub lr: f64,
    /// Norm of the gradients before clipping.
    pub grad_norm: f32,
    /// Tokens that the run has seen.
    pub tokens: u64,
    /// Seconds of a step, over the steps since the last record.
    pub step_s: f64,
    /// Tokens a second.
    pub tokens_per_s: f64,
    /// Whether weights changed: loss and norm are finite.
    pub updated: bool,
}

/// What a run is made from.
pub struct Made<O> {
    /// Its settings, with the planner's choices.
    pub setup: Setup,
    /// Its data.
    pub data: Data,
    /// What it continues, until the host has a copy of its own.
    checkpoint: Option<Box<Checkpoint>>,
    opener: Rc<O>,
    stats: Rc<Stats>,
}

impl<O: Opener> Origin for Made<O> {
    type Error = Error;

    async fn open(&mut self) -> Result<Box<dyn Backend>> {
        self.stats.recoveries.set(self.stats.recoveries.get() + 1);
        Ok(self.opener.open().await?.0)
    }

    fn fill(&mut self, trainer: &mut Trainer) -> Result<Done> {
        let Some(checkpoint) = &self.checkpoint else {
            trainer.initialise()?;
            return Ok(Done::default());
        };
        checkpoint::load(checkpoint, trainer)?;
        Ok(done(checkpoint))
    }

    fn queue(&mut self, trainer: &mut Trainer, at: Done) -> Result<()> {
        let ids = self.data.batch(at.samples)?;
        let batch = Batch::text(&ids.inputs, &ids.targets);
        let rate = self.setup.settings.train.learning_rate();
        Ok(trainer.step(at.steps, rate.lr_at(at.steps), &batch)?)
    }

    fn recovered(&mut self, _: &DeviceError, _: u64) {}

    fn device_error(error: &Error) -> Option<&DeviceError> {
        match error {
            Error::Device(error) => Some(error),
            _ => None,
        }
    }
}

/// How far the run of a checkpoint had come.
fn done(checkpoint: &Checkpoint) -> Done {
    let manifest = &checkpoint.manifest;
    Done { steps: manifest.step, samples: manifest.data.position, tokens: manifest.tokens_seen }
}

/// A run between two calls.
pub struct Run<O> {
    /// Seconds of a step, before one was timed.
    pub estimate: f64,
    run: Recovering<Made<O>>,
    reads_for_free: bool,
}

impl<O: Opener> Run<O> {
    /// Allocates and fills a plan on its device.
    ///
    /// # Errors
    /// Those of the device, and a checkpoint that doesn't fit.
    pub async fn start(
        opener: Rc<O>,
        first: (Box<dyn Backend>, Planned),
        (setup, data): (Setup, Data),
        checkpoint: Option<Checkpoint>,
        (stats, description): (Rc<Stats>, &Description),
    ) -> Result<Self> {
        let estimate = planning::estimate(&first.1, description);
        let steps = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.manifest.step);
        let all = setup.settings.train.learning_rate().steps;
        if steps > all {
            return Err(Error::Setup(format!(
                "the run has done {steps} steps, more than `train.steps` = {all}",
            )));
        }
        stats.predicted_bytes.set(first.1.plan.peak_bytes());
        let checkpoint = checkpoint.map(Box::new);
        let made = Made { setup, data, checkpoint, opener, stats };
        let run = Recovering::start(made, first, true).await.map_err(reload)?;
        let mut run = Self { estimate, run, reads_for_free: description.reads_for_free };
        if run.made().checkpoint.is_some() {
            if !run.run.copy().await.map_err(reload)? {
                return Err(Error::Refused(
                    "there is no memory left for a copy of the weights: choose a smaller model, or close \
                     other tabs",
                ));
            }
            run.run.origin.checkpoint = None;
        }
        run.count();
        Ok(run)
    }

    /// What it's made from.
    pub fn made(&self) -> &Made<O> {
        &self.run.origin
    }

    /// How far it has come.
    pub fn done(&self) -> Done {
        self.run.done()
    }

    /// The device, where it isn't lost.
    pub fn backend(&self) -> Option<&dyn Backend> {
        self.run.backend()
    }

    /// Ends the run and gives its device back.
    pub fn into_backend(self) -> Option<Box<dyn Backend>> {
        self.run.into_backend()
    }

    /// Does `work` on a device that is ready, again on a new one where it's lost on the way.
    async fn attempt<T>(
        &mut self,
        work: impl AsyncFnMut(&mut Made<O>, &mut Trainer) -> Result<T>,
    ) -> Result<T> {
        let result = self.run.attempt(work).await.map_err(reload);
        self.count();
        result
    }

    /// Sets the figures that can be read meanwhile.
    fn count(&self) {
        let stats = &self.made().stats;
        stats.allocated_bytes.set(self.run.allocated_bytes());
        stats.host_copy_bytes.set(self.run.copied_bytes());
    }

    /// Trains `count` steps, or those that are left. A record for every step whose loss was read: all where
    /// that costs nothing, else the last.
    ///
    /// # Errors
    /// Those of the data, and a device that is lost again and again.
    pub async fn step(&mut self, count: u64) -> Result<Vec<Record>> {
        let rate = self.made().setup.settings.train.learning_rate();
        let end = self.done().steps.saturating_add(count).min(rate.steps);
        let mut records = vec![];
        let (mut since, mut queued) = (clock::now(), 0.0);
        while self.done().steps < end {
            let at = self.done();
            self.attempt(async |made, trainer| made.queue(trainer, at)).await?;
            self.run.advance();
            queued += 1.0;
            let done = self.done();
            if !self.reads_for_free && done.steps < end {
                continue;
            }
            let outcome = self.attempt(async |_, trainer| Ok(trainer.outcome().await?)).await?;
            let now = clock::now();
            let step_s = (now - since) / queued;
            (since, queued) = (now, 0.0);
            records.push(Record {
                step: done.steps,
                loss: outcome.loss,
                lr: rate.lr_at(at.steps),
                grad_norm: outcome.grad_norm,
                tokens: done.tokens,
                step_s,
                // A clock without fine steps may say that no time has passed.
                tokens_per_s: (done.tokens - at.tokens) as f64 / step_s.max(1e-9),
                updated: outcome.updated,
            });
        }
        if let Some(last) = records.last() {
            self.run.copy_if_due(last.step_s).await.map_err(reload)?;
            self.count();
        }
        Ok(records)
    }

    /// Mean loss on held-out data, nats a token.
    ///
    /// # Errors
    /// Where nothing is held out, and a device that is lost again and again.
    pub async fn evaluate(&mut self) -> Result<f64> {
        let batches = self.made().data.held_out(self.run.config())?;
        if batches.is_empty() {
            return Err(Error::Refused("nothing is held out: raise data.holdout"));
        }
        self.attempt(async |_, trainer| {
            let (mut sum, mut counted) = (0.0, 0);
            for batch in &batches {
                let scored = batch.targets.iter().filter(|&&target| target != IGNORED).count();
                let batch = Batch::text(&batch.inputs, &batch.targets);
                let loss = trainer.evaluate(&batch).await?.loss;
                sum += f64::from(loss) * scored as f64;
                counted += scored;
            }
            Ok(sum / counted.max(1) as f64)
        })
        .await
    }

    /// Part of the held-out problems that are answered exactly.
    ///
    /// # Errors
    /// Where the data is text, and a device that is lost again and again.
    pub async fn accuracy(&mut self) -> Result<f64> {
        let answers = self.answers(PROBLEMS).await?;
        let right = answers.iter().filter(|(_, answer, given)| answer == given).count();
        Ok(right as f64 / answers.len() as f64)
    }

    /// Question, right answer and given answer of the first held-out problems.
    async fn answers(&mut self, count: u64) -> Result<Vec<(String, String, String)>> {
        let mut answers = vec![];
        for index in 0..count {
            let Some(problem) = self.made().data.problem(index) else {
                return Err(Error::Refused(
                    "a text has no answers: accuracy is of sort, reverse and add",
                ));
            };
            let length = problem.answer.len();
            let given = self.continued(&problem.question, length, &Sampling::GREEDY).await?;
            answers.push((problem.question, problem.answer, given));
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
        if prompt.is_empty() && self.made().data.problem(0).is_some() {
            let answers = self.answers(SHOWN_PROBLEMS).await?;
            let line = |(question, answer, given): &(String, String, String)| {
                let right = if answer == given { String::new() } else { format!("  not {answer}") };
                format!("{question}{given}{right}\n")
            };
            return Ok(answers.iter().map(line).collect());
        }
        let prompt = if prompt.is_empty() { LINE_START } else { prompt };
        let sampling =
            Sampling { temperature, top_k: 0, top_p: 1.0, seed, draw: self.done().steps };
        self.continued(prompt, tokens, &sampling).await
    }

    async fn continued(
        &mut self,
        prompt: &str,
        count: usize,
        sampling: &Sampling,
    ) -> Result<String> {
        let prompt = Tokenizer::Byte.encode(prompt)?;
        let tokens = SampleTokens { vocab: Tokenizer::Byte.vocab_size(), end: None };
        let ids = self
            .attempt(async |_, trainer| {
                let mut all = |_| Ok::<bool, Error>(true);
                generate(trainer, tokens, &prompt, count, sampling, &mut all).await
            })
            .await?;
        Ok(Tokenizer::Byte.decode(&ids)?)
    }

    /// The run as one file.
    ///
    /// # Errors
    /// A device that is lost again and again.
    pub async fn checkpoint(&mut self) -> Result<Vec<u8>> {
        let done = self.done();
        self.attempt(async |made, trainer| checkpoint::save(made, done, trainer).await).await
    }
}

/// What to do where a device is lost again and again.
fn reload(error: Error) -> Error {
    match error {
        Error::Device(DeviceError::Lost { device, reason }) => {
            let reason = format!(
                "{reason}. Reload the page; the run continues from its last saved checkpoint"
            );
            DeviceError::Lost { device, reason }.into()
        }
        error => error,
    }
}
