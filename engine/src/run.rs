//! A run: a planned step, its data and its weights on a device, one step after the other.
//!
//! [`Run`] is made from [`Parts`]. [`Recipe`](crate::recipe::Recipe) makes those of what settings describe; a library's own
//! model and [`Batches`] make theirs. Everything that waits for a device is `async`; natively each such function has a
//! blocking face, and a run is an [`Iterator`] of its steps.
//!
//! | module | does |
//! |---|---|
//! | [`directory`] | the run directory |
//! | `home`, `lock` | that of a run which trains, for one process |
//! | [`metrics`], [`tensorboard`] | what a run records of its steps |
//! | `origin` | what a run is made from, on the first device and on another |
//! | `saved`, `saving`, `joint` | what a run saves of itself, when, and how all ranks write it |
//! | `progress` | how far a checkpoint has been written |
//! | `diverged` | runs whose numbers go astray |
//! | `reference` | log-likelihoods under the model before its first step |
//! | `evaluate` | loss on held-out data |
//! | `intervals`, `best` | what is done between steps, and what a run does by its held-out loss |
//! | `together`, `pace` | a run with other ranks, and how long each computes and waits |
//! | `sample`, `turn` | text out of a model |
//! | `answers` | what a model answers to problems, and how often it's right |
//! | `classify` | what a model takes images and texts for |
//! | `interactive` | what a program asks of a run between its steps |
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::recipe::Recipe;
//! use tightrope::run::Ended;
//! use tightrope::settings::Settings;
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("run");
//! let mut said = Settings::default();
//! for words in ["model.preset=tiny", "model.context=16", "train.steps=2", "run.device=cpu"] {
//!     said.read_argument(words)?;
//! }
//! said.read_argument(&format!("run.out={}", dir.display()))?;
//! let recipe = Recipe::new(&said)?;
//! let device = Devices::default().open(&recipe.step.device)?;
//! let (mut run, dir) = recipe.plan(device)?.start(|spec| Devices::default().open(spec))?.begin()?;
//! let losses: Vec<f32> = (&mut run).map(|step| Ok(step?.loss)).collect::<tightrope::Result<_>>()?;
//! assert_eq!(losses.len(), 2);
//! assert_eq!(run.ended(), Some(Ended::Complete));
//!
//! // What it saved goes on for two more steps.
//! let mut said = Settings::default();
//! said.read_argument("train.steps=4")?;
//! let recipe = Recipe::resume(&said, Some(&dir))?;
//! let device = Devices::default().open(&recipe.step.device)?;
//! let (mut run, _) = recipe.plan(device)?.start(|spec| Devices::default().open(spec))?.begin()?;
//! assert_eq!(run.next().expect("a step")?.step, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answers;
mod batches;
#[cfg(not(target_family = "wasm"))]
mod beside;
mod best;
#[cfg(not(target_family = "wasm"))]
mod blocking;
mod classify;
mod continues;
pub mod directory;
mod diverged;
mod evaluate;
#[cfg(not(target_family = "wasm"))]
mod home;
#[cfg(target_family = "wasm")]
#[path = "run/nowhere.rs"]
mod home;
#[cfg(not(target_family = "wasm"))]
mod interactive;
mod intervals;
#[cfg(not(target_family = "wasm"))]
mod joint;
#[cfg(not(target_family = "wasm"))]
mod lock;
pub mod metrics;
mod origin;
#[cfg(not(target_family = "wasm"))]
mod pace;
mod parts;
mod passes;
mod progress;
mod record;
mod reference;
mod sample;
mod saved;
mod saving;
mod stepped;
pub mod tensorboard;
mod together;
mod turn;

use std::collections::BTreeMap;
#[cfg(not(target_family = "wasm"))]
use std::path::PathBuf;

use anyhow::anyhow;
use tightrope_core::{Backend, Cancel, DeviceError};
use tightrope_data::{Base, Checkpoint};
use tightrope_nn::{Done, Outcome, Precision, Recovering, Trainer, TrainerConfig};
use web_time::Instant;

use crate::error::{Error, Result};
use crate::weights::{Start, teacher};

pub use batches::{Batches, Epoch, HeldOut, Numbers, Question, Samples, Wait};
pub use classify::Seen;
pub use evaluate::{Evaluation, evaluate};
pub use origin::{Opening, Reopen};
#[cfg(not(target_family = "wasm"))]
pub use pace::describe as describe_ranks;
pub use parts::{Every, Parts, Retention};
pub use record::Recorder;
pub use sample::{generate, sample};
pub use saved::Described;
pub use stepped::{Kept, Stepped, Summary};

#[cfg(not(target_family = "wasm"))]
pub(crate) use classify::softmax;
pub(crate) use continues::{changed, check as check_continues};
#[cfg(not(target_family = "wasm"))]
pub(crate) use home::Home;
#[cfg(not(target_family = "wasm"))]
pub(crate) use turn::Turn;

#[cfg(not(target_family = "wasm"))]
use beside::Beside;
use diverged::PATIENCE;

#[cfg(target_family = "wasm")]
use home::Home;
use origin::Origin;
use saved::Saved;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps are done.
    Complete,
    /// Evaluations in a row had no lower loss, as many as its patience.
    OutOfPatience,
    /// It was asked to stop, and wrote a checkpoint.
    Interrupted,
}

/// Hears words for people.
pub type Tell<'a> = Box<dyn FnMut(&str) + 'a>;

/// A run between its first and its last step.
pub struct Run<'a> {
    inner: Recovering<Origin<'a>>,
    saved: Saved,
    every: Every,
    retention: Retention,
    /// Its directory.
    home: Option<Home>,
    cancel: Cancel,
    /// Hears what takes long once the run is to end.
    tell: Tell<'a>,
    /// Whether it trains with other ranks.
    joined: bool,
    #[cfg(not(target_family = "wasm"))]
    pace: pace::Pace,
    summary: Summary,
    /// Whether what went wrong in a step that f16 skips is told.
    explains_skips: bool,
    /// f16 steps in a row without an update.
    skips: u64,
    /// Steps in a row with a higher loss than the one before.
    rises: u64,
    #[cfg(not(target_family = "wasm"))]
    beside: Beside,
    #[cfg(not(target_family = "wasm"))]
    joint: joint::Joint,
    /// Steps of the newest checkpoint.
    checkpointed: Option<u64>,
    /// True if the process before ended between that checkpoint and the evaluation after it, by what this rank knows; `None` once ranks
    /// have agreed on it.
    owes_evaluation: Option<bool>,
    ended: Option<Ended>,
}

impl<'a> Run<'a> {
    /// Allocates the plan on its device and fills it. Nothing is written to disk before [`Run::record_in`].
    ///
    /// # Errors
    /// Weights and data that don't fit the model, and those of the device.
    pub async fn start_async(parts: Parts<'a>) -> Result<Self> {
        let Parts { planned, device, every, retention, rate, explains_skips, .. } = parts;
        let mut described = parts.described;
        let (lora, seed) = (planned.config().lora.clone(), planned.config().seed);
        let copies = device.kind().can_be_lost();
        let joined = planned.config().ranks > 1;
        let origin = Origin {
            start: parts.start,
            places: parts.places,
            data: parts.data,
            rate,
            reopen: parts.reopen,
            threads: parts.threads,
            #[cfg(not(target_family = "wasm"))]
            replaced: Vec::new(),
            ends: parts.ends,
            notes: Vec::new(),
            #[cfg(not(target_family = "wasm"))]
            ranks: parts.ranks,
        };
        let mut inner = Recovering::start(origin, (device, planned), copies).await?;
        inner
            .attempt(async |origin, trainer| reference::refer(trainer, &mut *origin.data).await)
            .await?;
        let (config, done) = (inner.config().clone(), inner.done());
        inner.origin.data.seek(&config, done)?;
        let base = if lora.is_some() { inner.origin.start.base(seed)? } else { None };
        let teacher = inner.origin.places.teacher.as_deref().map(teacher::base).transpose()?;
        if let Some(base) = &base {
            let origin = &inner.origin;
            described.adapters(&config, base, (&origin.start, &origin.places))?;
        }
        let before = inner.origin.start.checkpoint().and_then(|it| it.manifest.evaluations);
        let evaluations = retention.evaluations(before);
        let mut run = Self {
            saved: Saved {
                rate,
                base,
                teacher,
                described,
                #[cfg(not(target_family = "wasm"))]
                keep: retention.newest,
                evaluations,
            },
            inner,
            every,
            retention,
            home: None,
            cancel: Cancel::default(),
            tell: Box::new(|_| ()),
            joined,
            #[cfg(not(target_family = "wasm"))]
            pace: pace::Pace::default(),
            summary: Summary { done, ..Summary::default() },
            explains_skips,
            skips: 0,
            rises: 0,
            #[cfg(not(target_family = "wasm"))]
            beside: Beside::new(parts.room_beside, parts.room_for_all),
            #[cfg(not(target_family = "wasm"))]
            joint: joint::Joint::default(),
            // What was resumed from is still there.
            checkpointed: (done.steps > 0).then_some(done.steps),
            owes_evaluation: None,
            ended: None,
        };
        run.owes_evaluation = Some(run.lacks_evaluation());
        Ok(run)
    }

    /// Saves checkpoints in `dir` from now on, and records metrics, samples and TensorBoard's events there. No other process may
    /// train there until the run is dropped.
    ///
    /// # Errors
    /// Files that can't be written, a directory that another process trains in, and metrics that were damaged.
    #[cfg(not(target_family = "wasm"))]
    pub fn record_in(&mut self, dir: PathBuf) -> Result<()> {
        self.settle(Home::take(&dir)?)
    }

    /// As [`Run::record_in`], in a directory that is taken.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn settle(&mut self, mut home: Home) -> Result<()> {
        let steps = self.done().steps;
        home.record(steps)?;
        if self.saved.evaluations.is_none() {
            let due = self.is_due(self.every.evaluate, steps);
            self.owes_evaluation = Some(due && home.lacks_evaluation(steps));
        }
        self.home = Some(home);
        Ok(())
    }

    /// Ends the run once `cancel` is requested. What is computed stops within two seconds, but for an update that has begun: it's
    /// finished. A step that hasn't come so far is dropped.
    ///
    /// Ranks that train together end before their next step.
    pub fn cancel_by(&mut self, cancel: Cancel) {
        // A step that others wait for isn't dropped.
        self.inner.cancel_by(if self.is_joined() { Cancel::default() } else { cancel.clone() });
        self.cancel = cancel;
    }

    /// Has `tell` hear at once what takes long once the run is to end: a checkpoint that is written, and how far that has come.
    pub fn tell_by(&mut self, tell: impl FnMut(&str) + 'a) {
        self.tell = Box::new(tell);
    }

    /// How far it has come.
    pub fn done(&self) -> Done {
        self.inner.done()
    }

    /// How it ended, once it has.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// What it came to so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What is trained and how.
    pub fn config(&self) -> &TrainerConfig {
        self.inner.config()
    }

    /// What it is trained on.
    pub fn data(&self) -> &dyn Batches {
        &*self.inner.origin.data
    }

    /// Where frozen weights are, of a run that trains adapters.
    pub fn base(&self) -> Option<&Base> {
        self.saved.base.as_ref()
    }

    /// The checkpoint that it goes on from.
    pub fn continues(&self) -> Option<&Checkpoint> {
        self.inner.origin.start.checkpoint()
    }

    /// The device, where it isn't lost.
    pub fn backend(&self) -> Option<&dyn Backend> {
        self.inner.backend()
    }

    /// Bytes that the device holds for the plan, by the account of whoever gave them.
    pub fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes()
    }

    /// Bytes of the host's memory that copies of weights and states take, should the device go away.
    pub fn copied_bytes(&self) -> u64 {
        self.inner.copied_bytes()
    }

    /// Ends the run and gives its device back.
    pub fn into_backend(self) -> Option<Box<dyn Backend>> {
        self.inner.into_backend()
    }

    /// What there is to tell since the last time, of devices that were lost and of files that couldn't be written.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.inner.origin.notes);
        notes.extend(self.home.iter_mut().flat_map(Home::take_notes));
        notes
    }

    /// Does `work` with the trainer, again on a new device where it's lost on the way.
    ///
    /// # Errors
    /// What `work` fails with, and a device that is lost too many times in a row.
    pub async fn with_trainer<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Trainer) -> Result<T>,
    ) -> Result<T> {
        self.inner.attempt(async |_, trainer| work(trainer).await).await
    }

    /// Trains `count` steps, or those that are left, and says what the last of them came to; `None` where all are done. What
    /// the others came to isn't read, as reading waits for the device: nothing ends where a loss isn't finite, and
    /// [`Stepped::step_s`] is the mean.
    ///
    /// # Errors
    /// Those of the data, and a device that is lost again and again.
    pub async fn steps_async(&mut self, count: u64) -> Result<Option<Stepped>> {
        let first = self.done().steps;
        let end = first.saturating_add(count).min(self.saved.rate.steps);
        if first >= end {
            return Ok(None);
        }
        let started = Instant::now();
        while self.done().steps < end {
            let at = self.done();
            self.inner
                .attempt(async |origin, trainer| {
                    tightrope_nn::Origin::queue(origin, trainer, at).await
                })
                .await?;
            self.inner.advance();
            self.summary.done = self.done();
        }
        let outcome = self.with_trainer(async |trainer| Ok(trainer.outcome().await?)).await?;
        let step_s = started.elapsed().as_secs_f64() / (end - first) as f64;
        self.inner.copy_if_due(step_s).await?;
        let notes = self.take_notes();
        Ok(Some(Stepped { notes, ..self.stepped(&outcome, step_s) }))
    }

    /// Copies weights and states to the host and lets go of the checkpoint that the run goes on from: for one that lies in
    /// memory. One whose weights are partly frozen stays, as copies don't hold those.
    ///
    /// # Errors
    /// A host without memory for the copy, and a device that is lost again and again.
    pub async fn release_checkpoint_async(&mut self) -> Result<()> {
        let config = self.config();
        let frozen = config.lora.is_some() || !config.frozen.is_empty();
        if self.continues().is_none() || frozen {
            return Ok(());
        }
        if !self.inner.copy().await? {
            return Err(Error::failed(
                anyhow!("there is no memory left for a copy of the weights"),
                "train a smaller model, or end what else takes memory",
            ));
        }
        self.inner.origin.start = Start::Seed;
        Ok(())
    }

    /// The next step, with the evaluation, the sample and the checkpoint that are due after it. `None` where all are
    /// done or the run was asked to stop, which [`Run::ended`] tells apart; a checkpoint is written then, where the run has
    /// a directory.
    ///
    /// The outcome of every step is read, so that one that isn't finite is explained with its own data.
    ///
    /// # Errors
    /// A loss that isn't finite, a full disk, and those of data and device.
    pub async fn step_async(&mut self) -> Result<Option<Stepped>> {
        let stepped = self.next_step().await;
        #[cfg(not(target_family = "wasm"))]
        self.home.iter_mut().for_each(|home| home.set_failed(stepped.is_err()));
        stepped
    }

    async fn next_step(&mut self) -> Result<Option<Stepped>> {
        if self.ended.is_some() {
            return Ok(None);
        }
        self.poll_beside().await?;
        // Only the first rank has the file of metrics.
        if let Some(owes) = self.owes_evaluation.take()
            && self.any_rank(owes).await?
        {
            self.evaluate_missed().await?;
        }
        if let Some(ended) = self.is_over() {
            if ended == Ended::Complete {
                self.evaluate_last_step().await?;
            }
            self.save_async().await?;
            self.ended = Some(ended);
            return Ok(None);
        }
        let waited = self.wait()?;
        let waited = self.agreed(waited).await?;
        let stepped = match waited {
            Some(ended) => Err(ended),
            None => self.train_step().await?.ok_or(Ended::Interrupted),
        };
        let (outcome, step_s, watched) = match stepped {
            Ok(stepped) => stepped,
            Err(ended) => {
                self.tell_saving(ended);
                self.save_async().await?;
                self.ended = Some(ended);
                return Ok(None);
            }
        };
        let mut stepped = Stepped { watched, ..self.stepped(&outcome, step_s) };
        #[cfg(not(target_family = "wasm"))]
        (stepped.ranks = self.end_step(stepped.logged).await?);
        if let Some(home) = self.home.as_mut().filter(|_| stepped.logged) {
            home.log(&stepped);
        }
        self.inner.copy_if_due(step_s).await?;
        self.at_intervals(&mut stepped).await?;
        stepped.notes = self.take_notes();
        Ok(Some(stepped))
    }

    /// Waits for the next batch. How the run ends, where it's asked to stop meanwhile or the data ends.
    fn wait(&mut self) -> Result<Option<Ended>> {
        let (config, at) = (self.inner.config().clone(), self.done());
        loop {
            match self.inner.origin.data.wait(&config, at)? {
                Wait::Over => return Ok(None),
                Wait::Longer if self.cancel.is_requested() => return Ok(Some(Ended::Interrupted)),
                Wait::Longer => {}
                Wait::Ended => {
                    let (done, steps) = (at.steps, self.saved.rate.steps);
                    let note = format!("note: the data ended after step {done} of {steps}");
                    self.inner.origin.notes.push(note);
                    return Ok(Some(Ended::Complete));
                }
            }
        }
    }

    /// Makes the next step: its outcome, its seconds and the tensors that are watched; `None` if it was dropped.
    async fn train_step(&mut self) -> Result<Option<(Outcome, f64, Vec<Kept>)>> {
        let done = self.done();
        let skips = self.config().precision == Precision::F16;
        let lr = self.saved.rate.lr_at(done.steps);
        let started = Instant::now();
        let attempt = self.inner.attempt(async |origin, trainer| {
            let batch = origin.data.batch(trainer.config(), done)?;
            trainer.step_async(done.steps, lr, &batch.batch()).await?;
            let outcome = trainer.outcome().await?;
            let seconds = started.elapsed().as_secs_f64();
            Ok((outcome, seconds, Kept::of(trainer).await?))
        });
        let made = unless_cancelled(attempt.await)?;
        let Some((outcome, seconds, watched)) = made else { return Ok(None) };
        self.skips = if outcome.updated { 0 } else { self.skips + 1 };
        if !outcome.updated && (!skips || self.skips > PATIENCE) {
            return Err(self.not_finite(&outcome).await?);
        }
        let rose = self.summary.last_loss.is_some_and(|before| outcome.loss > before);
        self.rises = if rose { self.rises + 1 } else { 0 };
        if self.rises >= PATIENCE {
            self.end_beside().await?;
            return Err(self.rising(&outcome));
        }
        self.summary.skipped += u64::from(!outcome.updated);
        self.inner.advance();
        // A device that is lost meanwhile makes the skipped step again, which lowers the loss scale.
        if !outcome.updated && self.explains_skips {
            self.note_skipped(done, &outcome).await?;
        }
        self.summary.done = self.done();
        self.summary.first_loss.get_or_insert(outcome.loss);
        self.summary.last_loss = Some(outcome.loss);
        self.summary.last_metrics = figures(&outcome);
        self.summary.times.push(seconds);
        self.summary.speeds.push(outcome.tokens as f64 / seconds.max(1e-9));
        Ok(Some((outcome, seconds, watched)))
    }

    fn stepped(&self, outcome: &Outcome, step_s: f64) -> Stepped {
        let Done { steps: step, tokens, .. } = self.done();
        let rate = &self.saved.rate;
        Stepped {
            step,
            loss: outcome.loss,
            metrics: figures(outcome),
            lr: rate.lr_at(step - 1),
            grad_norm: outcome.grad_norm,
            step_s,
            step_tokens: outcome.tokens as u64,
            tokens,
            updated: outcome.updated,
            logged: step == 1 || step == rate.steps || step.is_multiple_of(self.every.log.max(1)),
            allocated_bytes: self.allocated_bytes(),
            ..Stepped::default()
        }
    }
}

/// The value; `None` if it was cancelled.
fn unless_cancelled<T>(made: Result<T>) -> Result<Option<T>> {
    match made {
        Err(error) if error.device() == Some(&DeviceError::Cancelled) => Ok(None),
        made => made.map(Some),
    }
}

/// The figures of a step besides its loss, by name.
fn figures(outcome: &Outcome) -> BTreeMap<String, f64> {
    outcome.metrics.iter().map(|(name, value)| (name.clone(), f64::from(*value))).collect()
}
