//! What a run writes into its directory besides checkpoints.

use std::path::{Path, PathBuf};

use super::metrics::{Metrics, MetricsFile};
use super::tensorboard::EventWriter;
use super::{Evaluation, Stepped, directory};
use crate::error::Result;

/// Writes `metrics.jsonl`, samples and TensorBoard's events.
pub struct Recorder {
    dir: PathBuf,
    metrics: MetricsFile,
    events: EventWriter,
}

impl Recorder {
    /// Of the run in `dir` that has done `steps`: what was recorded of later ones is dropped.
    ///
    /// # Errors
    /// Files that can't be written, and metrics that were damaged.
    pub fn open(dir: &Path, steps: u64) -> Result<Self> {
        let metrics = match steps {
            0 => MetricsFile::create(dir)?,
            step => MetricsFile::resume(dir, step)?,
        };
        Ok(Self { dir: dir.to_owned(), metrics, events: EventWriter::create(dir)? })
    }

    /// Records a step.
    ///
    /// # Errors
    /// A file that can't be written.
    pub fn log(&mut self, stepped: &Stepped) -> Result<()> {
        let metrics = Metrics {
            step: stepped.step,
            loss: stepped.loss.into(),
            lr: stepped.lr,
            grad_norm: stepped.grad_norm.into(),
            step_s: stepped.step_s,
            tokens_per_s: stepped.step_tokens as f64 / stepped.step_s,
            tokens: stepped.tokens,
            others: stepped.metrics.clone(),
        };
        self.metrics.append(&metrics)?;
        for (tag, value) in [
            ("train/loss", metrics.loss),
            ("train/lr", metrics.lr),
            ("train/grad_norm", metrics.grad_norm),
            ("train/tokens_per_s", metrics.tokens_per_s),
        ] {
            self.events.scalar(tag, metrics.step, value)?;
        }
        for (name, value) in &metrics.others {
            self.events.scalar(&format!("train/{name}"), metrics.step, *value)?;
        }
        Ok(self.events.flush()?)
    }

    /// Records an evaluation after `step`.
    ///
    /// # Errors
    /// A file that can't be written.
    pub fn evaluated(&mut self, step: u64, evaluation: &Evaluation) -> Result<()> {
        self.events.scalar("eval/loss", step, evaluation.loss)?;
        for (name, value) in &evaluation.metrics {
            self.events.scalar(&format!("eval/{name}"), step, *value)?;
        }
        Ok(self.events.flush()?)
    }

    /// Records a sample after `step`.
    ///
    /// # Errors
    /// A file that can't be written.
    pub fn sampled(&mut self, step: u64, text: &str) -> Result<()> {
        let file = self.dir.join("samples").join(format!("step-{step}.txt"));
        directory::write(&file, text.as_bytes())?;
        // Indented, it's code to Markdown, and shown as it is.
        let code: String = text.lines().map(|line| format!("    {line}\n")).collect();
        self.events.text("sample", step, &code)?;
        Ok(self.events.flush()?)
    }
}
