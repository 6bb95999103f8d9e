//! A run on a device, and its way back from a lost one: the host keeps a copy of what steps change, and the
//! steps since are made again. They are the same steps on the same data, so no number changes.

use std::cell::Cell;
use std::rc::Rc;

use serde::Serialize;
use tightrope_core::{Backend, DeviceError};
use tightrope_data::{Checkpoint, IGNORED, Tokenizer};
use tightrope_nn::{Planned, SampleTokens, Sampling, Snapshot, Trainer, TrainerConfig, generate};

use crate::checkpoint;
use crate::clock;
use crate::corpus::Data;
use crate::device::{Description, Opener};
use crate::error::{Error, Result};
use crate::planning;
use crate::setup::Setup;

/// Losses of the device in a row, without getting on, after which it's given up.
const TRIES: usize = 3;
/// Part of the time that copies to the host may take.
const COPY_SHARE: f64 = 0.05;
/// Bytes a second that a copy is taken to move before one was timed.
const COPY_RATE: f64 = 0.5e9;
/// A second copy of more than this isn't kept for the next time.
const KEPT_BYTES: u64 = 64 << 20;
/// Held-out problems that are answered to measure accuracy.
const PROBLEMS: u64 = 32;
/// Held-out problems in a sample.
const SHOWN_PROBLEMS: u64 = 6;
/// What a text is continued from where nothing is given.
const LINE_START: &str = "\n";

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Optimizer steps.
    pub steps: u64,
    /// Windows of the data.
    pub windows: u64,
    /// Tokens.
    pub tokens: u64,
}

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

/// Where weights come from when a device is new.
enum Origin {
    Seed,
    Checkpoint(Box<Checkpoint>),
    Copy { copy: Snapshot, done: Done },
}

/// A run between two calls.
pub struct Run<O> {
    /// Its settings, with the planner's choices.
    pub setup: Setup,
    /// Its data.
    pub data: Data,
    /// How far it has come.
    pub done: Done,
    /// Seconds of a step at default rates.
    pub estimate: f64,
    config: TrainerConfig,
    opener: Rc<O>,
    stats: Rc<Stats>,
    trainer: Option<Trainer>,
    /// What the first device and its plan are, until they're used.
    first: Option<(Box<dyn Backend>, Planned)>,
    origin: Origin,
    /// Memory for the next copy.
    spare: Snapshot,
    /// Seconds that the last copy took.
    copy_s: Option<f64>,
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
        let estimate = planning::estimate(&first.1, &description.name);
        let done = checkpoint.as_ref().map_or_else(Done::default, |checkpoint| Done {
            steps: checkpoint.manifest.step,
            windows: checkpoint.manifest.data.position,
            tokens: checkpoint.manifest.tokens_seen,
        });
        if done.steps > setup.rate.steps {
            return Err(Error::Setup(format!(
                "the run has done {} steps, more than `train.steps` = {}",
                done.steps, setup.rate.steps
            )));
        }
        let config = first.1.config().clone();
        stats.predicted_bytes.set(first.1.plan.peak_bytes());
        let origin = checkpoint.map_or(Origin::Seed, |it| Origin::Checkpoint(Box::new(it)));
        let mut run = Self {
            setup,
            data,
            done,
            estimate,
            config,
            opener,
            stats,
            trainer: None,
            first: Some(first),
            origin,
            spare: Snapshot::default(),
            copy_s: None,
            reads_for_free: description.reads_for_free,
        };
        run.attempt(async |_| Ok(())).await?;
        if matches!(run.origin, Origin::Checkpoint(_)) && !run.copy().await? {
            return Err(Error::Refused(
                "there is no memory left for a copy of the weights: choose a smaller model, or close other \
                 tabs",
            ));
        }
        Ok(run)
    }

    /// The device, where it isn't lost.
    pub fn backend(&self) -> Option<&dyn Backend> {
        self.trainer.as_ref().map(|trainer| trainer.session().backend())
    }

    /// Ends the run and gives its device back.
    pub fn into_backend(self) -> Option<Box<dyn Backend>> {
        self.trainer.map(Trainer::into_backend)
    }

    /// The trainer of a device that is ready.
    fn trainer(&mut self) -> Result<&mut Trainer> {
        self.trainer.as_mut().ok_or_else(gone)
    }

    /// Does `work` with the trainer taken out of the run, so that both can be borrowed.
    async fn apart<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Self, &mut Trainer) -> Result<T>,
    ) -> Result<T> {
        let mut trainer = self.trainer.take().ok_or_else(gone)?;
        let result = work(self, &mut trainer).await;
        self.trainer = Some(trainer);
        result
    }

    /// Does `work` on a device that is ready, again on a new one where it's lost on the way.
    ///
    /// # Errors
    /// What `work` fails with, and a device that is lost [`TRIES`] times.
    pub async fn attempt<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mut losses = 0;
        loop {
            let result = match self.ready().await {
                Ok(()) => work(self).await,
                Err(error) => Err(error),
            };
            let Err(Error::Device(DeviceError::Lost { device, reason })) = result else {
                return result;
            };
            self.trainer = None;
            losses += 1;
            if losses == TRIES {
                let reason = format!(
                    "{reason}; it was re-created {TRIES} times without getting on. Reload the page; the run \
                     continues from its last saved checkpoint"
                );
                return Err(DeviceError::Lost { device, reason }.into());
            }
        }
    }

    /// Makes the device ready where it isn't: allocates the plan, fills it, and makes the steps since.
    async fn ready(&mut self) -> Result<()> {
        if self.trainer.is_some() {
            return Ok(());
        }
        let (backend, planned) = match self.first.take() {
            Some(first) => first,
            None => {
                self.stats.recoveries.set(self.stats.recoveries.get() + 1);
                let (backend, _) = self.opener.open().await?;
                let planned = Planned::new(&self.config, &*backend)?;
                (backend, planned)
            }
        };
        let mut trainer = Trainer::new(planned, backend)?;
        let mut at = match &self.origin {
            Origin::Seed => {
                trainer.initialise()?;
                Done::default()
            }
            Origin::Checkpoint(checkpoint) => {
                checkpoint::load(checkpoint, &mut trainer)?;
                self.done
            }
            Origin::Copy { copy, done } => {
                trainer.restore(copy)?;
                *done
            }
        };
        while at.steps < self.done.steps {
            at = self.queue(&mut trainer, at)?;
        }
        // Waits: a device says late that it has no room.
        trainer.outcome().await?;
        self.stats.allocated_bytes.set(trainer.allocated_bytes());
        self.trainer = Some(trainer);
        Ok(())
    }

    /// Queues the step after `at`, and says where that leads.
    fn queue(&mut self, trainer: &mut Trainer, at: Done) -> Result<Done> {
        let TrainerConfig { batch, micro_batch, time, .. } = self.config;
        let ids = self.data.batch(at.windows)?;
        let pairs =
            ids.inputs.chunks(micro_batch * time).zip(ids.targets.chunks(micro_batch * time));
        let micro_batches: Vec<(&[i32], &[i32])> = pairs.collect();
        trainer.step(at.steps, self.setup.rate.lr_at(at.steps), &micro_batches)?;
        Ok(Done {
            steps: at.steps + 1,
            windows: at.windows + batch as u64,
            tokens: at.tokens + (batch * time) as u64,
        })
    }

    /// Trains `count` steps, or those that are left. A record for every step whose loss was read: all where
    /// that costs nothing, else the last.
    ///
    /// # Errors
    /// Those of the data, and a device that is lost again and again.
    pub async fn step(&mut self, count: u64) -> Result<Vec<Record>> {
        let end = self.done.steps.saturating_add(count).min(self.setup.rate.steps);
        let mut records = vec![];
        let (mut since, mut queued) = (clock::now(), 0.0);
        while self.done.steps < end {
            let queue = async |run: &mut Self, trainer: &mut Trainer| run.queue(trainer, run.done);
            self.done = self.attempt(async |run| run.apart(queue).await).await?;
            queued += 1.0;
            if !self.reads_for_free && self.done.steps < end {
                continue;
            }
            let outcome = self.attempt(async |run| Ok(run.trainer()?.outcome().await?)).await?;
            let now = clock::now();
            let step_s = (now - since) / queued;
            (since, queued) = (now, 0.0);
            let tokens = (self.config.batch * self.config.time) as f64;
            records.push(Record {
                step: self.done.steps,
                loss: outcome.loss,
                lr: self.setup.rate.lr_at(self.done.steps - 1),
                grad_norm: outcome.grad_norm,
                tokens: self.done.tokens,
                step_s,
                // A clock without fine steps may say that no time has passed.
                tokens_per_s: tokens / step_s.max(1e-9),
                updated: outcome.updated,
            });
        }
        if let Some(last) = records.last() {
            self.copy_if_due(last.step_s).await?;
        }
        Ok(records)
    }

    /// Copies to the host once the steps since the last copy took long enough for another to be cheap.
    async fn copy_if_due(&mut self, step_s: f64) -> Result<()> {
        let copied = match &self.origin {
            Origin::Copy { done, .. } => done.steps,
            _ => 0,
        };
        let guess = || self.stats.predicted_bytes.get() as f64 / COPY_RATE;
        let worth = (self.done.steps - copied) as f64 * step_s * COPY_SHARE;
        if worth >= self.copy_s.unwrap_or_else(guess) {
            self.copy().await?;
        }
        Ok(())
    }

    /// Copies what steps change to the host. `false` where the host has no memory for it, and the last copy
    /// stays.
    async fn copy(&mut self) -> Result<bool> {
        let start = clock::now();
        let mut copy = std::mem::take(&mut self.spare);
        let taken = self.attempt(async |run| Ok(run.trainer()?.snapshot(&mut copy).await?)).await?;
        if taken {
            let before =
                std::mem::replace(&mut self.origin, Origin::Copy { copy, done: self.done });
            if let Origin::Copy { copy: before, .. } = before
                && before.bytes() <= KEPT_BYTES
            {
                self.spare = before;
            }
            self.copy_s = Some(clock::now() - start);
        }
        let current = match &self.origin {
            Origin::Copy { copy, .. } => copy.bytes(),
            _ => 0,
        };
        self.stats.host_copy_bytes.set(current + self.spare.bytes());
        Ok(taken)
    }

    /// Mean loss on held-out data, nats a token.
    ///
    /// # Errors
    /// Where nothing is held out, and a device that is lost again and again.
    pub async fn evaluate(&mut self) -> Result<f64> {
        let batches = self.data.held_out(&self.config)?;
        if batches.is_empty() {
            return Err(Error::Refused("nothing is held out: raise data.holdout"));
        }
        self.attempt(async |run| {
            let trainer = run.trainer()?;
            let (mut sum, mut counted) = (0.0, 0);
            for batch in &batches {
                let scored = batch.targets.iter().filter(|&&target| target != IGNORED).count();
                let loss = trainer.evaluate(&batch.inputs, &batch.targets).await?;
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
            let Some(problem) = self.data.problem(index) else {
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
        if prompt.is_empty() && self.data.problem(0).is_some() {
            let answers = self.answers(SHOWN_PROBLEMS).await?;
            let line = |(question, answer, given): &(String, String, String)| {
                let right = if answer == given { String::new() } else { format!("  not {answer}") };
                format!("{question}{given}{right}\n")
            };
            return Ok(answers.iter().map(line).collect());
        }
        let prompt = if prompt.is_empty() { LINE_START } else { prompt };
        let sampling = Sampling { temperature, top_k: 0, top_p: 1.0, seed, draw: self.done.steps };
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
            .attempt(async |run| {
                let mut all = |_| Ok::<bool, Error>(true);
                generate(run.trainer()?, tokens, &prompt, count, sampling, &mut all).await
            })
            .await?;
        Ok(Tokenizer::Byte.decode(&ids)?)
    }

    /// The run as one file.
    ///
    /// # Errors
    /// A device that is lost again and again.
    pub async fn checkpoint(&mut self) -> Result<Vec<u8>> {
        let save =
            async |run: &mut Self, trainer: &mut Trainer| checkpoint::save(run, trainer).await;
        self.attempt(async |run| run.apart(save).await).await
    }
}

fn gone() -> Error {
    DeviceError::Lost { device: "the device".into(), reason: "it is gone".into() }.into()
}
