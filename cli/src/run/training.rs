//! The loop over optimizer steps: train, log, evaluate, sample, save.

use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use pollster::block_on;
use tightrope_data::{Loader, LoaderConfig};
use tightrope_nn::{
    Batch, Done, LearningRate, Outcome, Precision, Recovering, Sampling, Trainer, TrainerConfig,
};

use super::corpus::Data;
use super::evaluate::{self, Evaluation};
use super::figures::StepTimes;
use super::origin::Origin;
use super::state::Saved;
use super::{directory, sample};
use crate::error::{Failure, Help as _};
use crate::metrics::{Metrics, MetricsFile};
use crate::progress::{Progress, Readings, StepInfo};
use crate::settings::{Run, Settings};
use crate::tensorboard::EventWriter;

/// Held-out tokens that an evaluation during training scores; the one at the end scores all.
const EVALUATED: usize = 1 << 15;
/// Tokens of a sample.
const SAMPLED: usize = 400;
/// f16 steps in a row that may be skipped: halved that often, the loss scale has gone from its highest value
/// to its lowest.
const SKIPS: u64 = 64;

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps are done.
    Complete,
    /// It was asked to stop, and wrote a checkpoint.
    Interrupted,
}

/// Where training reports to.
pub struct Outputs {
    /// `metrics.jsonl`.
    pub metrics: MetricsFile,
    /// TensorBoard's file.
    pub events: EventWriter,
    /// The terminal.
    pub progress: Progress,
}

impl Outputs {
    fn log(&mut self, metrics: &Metrics) -> Result<(), Failure> {
        self.metrics.append(metrics)?;
        for (tag, value) in [
            ("train/loss", metrics.loss),
            ("train/lr", metrics.lr),
            ("train/grad_norm", metrics.grad_norm),
            ("train/tokens_per_s", metrics.tokens_per_s),
        ] {
            self.events.scalar(tag, metrics.step, value)?;
        }
        Ok(self.events.flush()?)
    }

    fn evaluated(&mut self, step: u64, evaluation: &Evaluation) -> Result<(), Failure> {
        self.events.scalar("eval/loss", step, evaluation.loss)?;
        Ok(self.events.flush()?)
    }

    fn sampled(&mut self, step: u64, text: &str, dir: &Path) -> Result<(), Failure> {
        directory::write(&dir.join("samples").join(format!("step-{step}.txt")), text.as_bytes())?;
        // Indented, it's code to Markdown, and shown as it is.
        let code: String = text.lines().map(|line| format!("    {line}\n")).collect();
        self.events.text("sample", step, &code)?;
        Ok(self.events.flush()?)
    }

    /// Records what the run ended with.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn finish(
        &mut self,
        step: u64,
        evaluation: Option<&Evaluation>,
        sample: Option<&str>,
        dir: &Path,
    ) -> Result<(), Failure> {
        if let Some(evaluation) = evaluation {
            self.evaluated(step, evaluation)?;
        }
        sample.map_or(Ok(()), |text| self.sampled(step, text, dir))
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How far it came, earlier sessions included.
    pub done: Done,
    /// Loss of the first step of this session.
    pub first_loss: Option<f32>,
    /// Loss of the last step of this session.
    pub last_loss: Option<f32>,
    /// Times of the steps of this session.
    pub times: StepTimes,
    /// f16 steps without an update.
    pub skipped: u64,
}

/// A run between its first and its last step.
pub struct Training<'a, 'o> {
    saved: Saved<'a>,
    run: &'a mut Recovering<Origin<'o>>,
    rate: LearningRate,
    summary: Summary,
    /// Steps of the newest checkpoint.
    checkpointed: Option<u64>,
}

impl<'a, 'o> Training<'a, 'o> {
    /// Continues after what is done.
    pub fn new(saved: Saved<'a>, run: &'a mut Recovering<Origin<'o>>) -> Self {
        let rate = saved.settings.train.learning_rate();
        let done = run.done();
        let summary = Summary { done, ..Summary::default() };
        // What was resumed from is still there.
        let checkpointed = (done.steps > 0).then_some(done.steps);
        Self { saved, run, rate, summary, checkpointed }
    }

    /// What it came to so far.
    pub fn summary(self) -> Summary {
        self.summary
    }

    /// Trains to the last step, or until `stop`, which is asked before every micro-batch; then writes a
    /// checkpoint.
    ///
    /// # Errors
    /// A loss that isn't finite, a full disk, and those of data and device.
    pub fn train(
        &mut self,
        outputs: &mut Outputs,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, Failure> {
        let mut skips = 0;
        while self.summary.done.steps < self.rate.steps {
            let stepped = self.step(stop)?;
            self.tell(outputs);
            let Some((outcome, seconds)) = stepped else {
                self.checkpoint()?;
                self.tell(outputs);
                return Ok(Ended::Interrupted);
            };
            skips = if outcome.updated { 0 } else { skips + 1 };
            self.summary.skipped += u64::from(!outcome.updated);
            if skips > SKIPS {
                let message = format!("{skips} steps in a row weren't finite at any loss scale");
                return Err(Failure::failed(anyhow!(message), DIVERGED));
            }
            self.report(&outcome, seconds, outputs)?;
            block_on(self.run.copy_if_due(seconds))?;
            self.at_intervals(outputs)?;
            self.tell(outputs);
        }
        self.checkpoint()?;
        self.tell(outputs);
        Ok(Ended::Complete)
    }

    /// Tells of devices that were lost.
    fn tell(&mut self, outputs: &mut Outputs) {
        for note in self.run.origin.notes.drain(..) {
            outputs.progress.note(&note);
        }
    }

    /// The next step: what it came to and its seconds, or `None` where it was abandoned.
    ///
    /// The outcome of every step is read, so that one that isn't finite is explained with its own data.
    fn step(&mut self, stop: &mut dyn FnMut() -> bool) -> Result<Option<(Outcome, f64)>, Failure> {
        let done = self.run.done();
        let skips = self.run.config().precision == Precision::F16;
        let lr = self.rate.lr_at(done.steps);
        let started = Instant::now();
        let outcome = block_on(self.run.attempt(async |origin, trainer| {
            let batch = origin.batch(trainer.config(), done)?;
            let batch = Batch::text(&batch.inputs, &batch.targets);
            let completed = trainer.step_unless(done.steps, lr, &batch, stop)?;
            Ok(if completed { Some(trainer.outcome().await?) } else { None })
        }))?;
        let Some(outcome) = outcome else { return Ok(None) };
        let seconds = started.elapsed().as_secs_f64();
        if !outcome.updated && !skips {
            return Err(self.not_finite(&outcome)?);
        }
        self.run.advance();
        self.summary.done = self.run.done();
        self.summary.first_loss.get_or_insert(outcome.loss);
        self.summary.last_loss = Some(outcome.loss);
        self.summary.times.push(seconds);
        Ok(Some((outcome, seconds)))
    }

    /// The failure of a step that the device refused to make, with the op that went wrong first. The
    /// weights are those before it, and are saved.
    fn not_finite(&mut self, outcome: &Outcome) -> Result<Failure, Failure> {
        let at = self.run.done();
        let found = block_on(self.run.attempt(async |origin, trainer| {
            let batch = origin.batch(trainer.config(), at)?;
            let batch = Batch::text(&batch.inputs, &batch.targets);
            Ok(trainer.explain(at.steps, &batch).await?)
        }))?;
        let done = at.steps;
        let place = match found {
            Some(found) => format!(
                "the first output that isn't finite is `{}`, element {}, of op {}",
                found.tensor, found.element, found.op
            ),
            None => {
                "every op's output is finite, and the sum of squared gradients overflows".to_owned()
            }
        };
        let Outcome { loss, grad_norm, .. } = *outcome;
        self.checkpoint()?;
        let message = format!(
            "step {} has loss {loss} and gradient norm {grad_norm}, and wasn't made: {place}; the \
             weights of step {done} are saved in `{}`",
            done + 1,
            self.saved.dir.display()
        );
        Ok(Failure::failed(anyhow!(message), DIVERGED))
    }

    fn report(
        &self,
        outcome: &Outcome,
        seconds: f64,
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let Done { steps: step, tokens, .. } = self.summary.done;
        let config = self.run.config();
        let of_step = config.tokens() as u64;
        let lr = self.rate.lr_at(step - 1);
        let logged = step == 1
            || step == self.rate.steps
            || step.is_multiple_of(self.saved.settings.run.log_every);
        let readings = Readings { loss: outcome.loss.into(), grad_norm: outcome.grad_norm.into() };
        if logged {
            outputs.log(&Metrics {
                step,
                loss: readings.loss,
                lr,
                grad_norm: readings.grad_norm,
                step_s: seconds,
                tokens_per_s: of_step as f64 / seconds,
                tokens,
            })?;
        }
        outputs.progress.step(&StepInfo {
            step,
            readings: logged.then_some(readings),
            lr,
            tokens: of_step,
            memory: self.run.allocated_bytes(),
        });
        Ok(())
    }

    /// Evaluation, sample and checkpoint, where they are due. Those of the last step are for the end.
    fn at_intervals(&mut self, outputs: &mut Outputs) -> Result<(), Failure> {
        let step = self.summary.done.steps;
        let Saved { dir, settings, data, .. } = self.saved;
        let Run { eval_every, sample_every, save_every, .. } = settings.run;
        let due = |every: u64| every > 0 && step.is_multiple_of(every) && step < self.rate.steps;
        let (evaluates, samples, saves) = (due(eval_every), due(sample_every), due(save_every));
        if saves {
            self.checkpoint()?;
        }
        if evaluates
            && let Some(evaluation) = block_on(self.run.attempt(async |_, trainer| {
                evaluate::held_out(trainer, &data.held_out, Some(EVALUATED))
            }))?
        {
            outputs.evaluated(step, &evaluation)?;
            let Evaluation { loss, tokens } = evaluation;
            outputs
                .progress
                .note(&format!("step {step}: held-out loss {loss:.4} ({tokens} tokens)"));
        }
        if samples
            && let Some(text) = block_on(
                self.run.attempt(async |_, trainer| sample(trainer, data, settings, step)),
            )?
        {
            outputs.sampled(step, &text, dir)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        let done = self.summary.done;
        if self.checkpointed != Some(done.steps) {
            block_on(self.run.attempt(async |_, trainer| self.saved.save(trainer, done)))?;
            self.checkpointed = Some(done.steps);
        }
        Ok(())
    }
}

/// The batches of a run that has consumed `windows` windows.
///
/// # Errors
/// Data shorter than a window.
pub fn loader(config: &TrainerConfig, data: &Data, windows: u64) -> Result<Loader, Failure> {
    let TrainerConfig { batch, seed, .. } = *config;
    let order = LoaderConfig { batch, context: config.model.tokens(), seed };
    Loader::new(data.train.clone(), order, windows)
        .help("give more --data, a shorter --context or a smaller data.holdout")
}

const DIVERGED: &str =
    "resume with a lower --lr or a smaller --clip, or look at the data around this step";

/// A count with its noun.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A sample of the model after `step`; `None` where its tokens have no text.
///
/// # Errors
/// Those of the device and the tokenizer.
pub fn sample(
    trainer: &mut Trainer,
    data: &Data,
    settings: &Settings,
    step: u64,
) -> Result<Option<String>, Failure> {
    if !data.is_text {
        return Ok(None);
    }
    let prompt = match data.tokenizer.eos() {
        Some(end) => vec![end],
        None => data.tokenizer.encode("\n").help("give another --tokenizer")?,
    };
    let sampling =
        Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, seed: settings.train.seed, draw: step };
    let mut text = String::new();
    let mut show = |piece: &str| {
        text.push_str(piece);
        true
    };
    sample::generate(trainer, &data.tokenizer, &prompt, SAMPLED, &sampling, &mut show)?;
    Ok(Some(text))
}
