//! What a run writes into its directory besides checkpoints. Nothing of it ends a run: what can't be written is told once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::metrics::{HeldOutMetrics, Metrics, MetricsFile};
use super::tensorboard::EventWriter;
use super::{Evaluation, Stepped, directory};
use crate::error::{Help as _, Result};

/// Writes `metrics.jsonl`, samples and TensorBoard's events.
pub struct Recorder {
    dir: PathBuf,
    /// None once it can't be written.
    metrics: Option<MetricsFile>,
    /// None once it can't be written.
    events: Option<EventWriter>,
    samples: bool,
    notes: Vec<String>,
}

impl Recorder {
    /// Of the run in `dir` that has done `steps`: what was recorded of later ones is dropped.
    ///
    /// # Errors
    /// Metrics that can't be written or were damaged.
    pub fn open(dir: &Path, steps: u64) -> Result<Self> {
        let metrics = match steps {
            0 => MetricsFile::create(dir),
            step => MetricsFile::resume(dir, step),
        };
        let metrics = metrics.help("move that file away, or give --out another directory")?;
        let mut notes = Vec::new();
        let events =
            EventWriter::create(dir).map_err(|error| notes.push(lost(EVENTS, &error))).ok();
        Ok(Self { dir: dir.to_owned(), metrics: Some(metrics), events, samples: true, notes })
    }

    /// Whether the run recorded before, and no evaluation after `step`.
    pub fn lacks_evaluation(&self, step: u64) -> bool {
        self.metrics.as_ref().is_some_and(|metrics| metrics.lacks_evaluation(step))
    }

    /// What couldn't be written since the last time.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Records a step.
    pub fn log(&mut self, stepped: &Stepped) {
        let metrics = Metrics {
            step: stepped.step,
            loss: stepped.loss.into(),
            lr: stepped.lr,
            grad_norm: stepped.grad_norm.into(),
            step_s: stepped.step_s,
            tokens_per_s: stepped.step_tokens as f64 / stepped.step_s,
            tokens: stepped.tokens,
            #[cfg(not(target_family = "wasm"))]
            ranks: stepped.ranks.clone(),
            others: stepped.metrics.clone(),
        };
        self.append(&metrics);
        let curves = [
            ("loss", metrics.loss),
            ("lr", metrics.lr),
            ("grad_norm", metrics.grad_norm),
            ("tokens_per_s", metrics.tokens_per_s),
        ];
        let others = metrics.others.iter().map(|(name, value)| (name.as_str(), *value));
        self.events(|events| {
            let mut curves = curves.into_iter().chain(others);
            curves.try_for_each(|(name, value)| {
                events.scalar(&format!("train/{name}"), metrics.step, value)
            })
        });
    }

    /// Records an evaluation after `step`, unless it repeats the last one.
    pub fn evaluated(&mut self, step: u64, evaluation: &Evaluation) {
        let mut is_new = true;
        self.metrics(|file| {
            is_new = file.add_evaluation(&HeldOutMetrics::new(step, evaluation))?;
            Ok(())
        });
        if !is_new {
            return;
        }
        let others = evaluation.metrics.iter().map(|(name, value)| (name.as_str(), *value));
        self.events(|events| {
            let mut curves = [("loss", evaluation.loss)].into_iter().chain(others);
            curves.try_for_each(|(name, value)| events.scalar(&format!("eval/{name}"), step, value))
        });
    }

    /// Records a sample after `step`.
    pub fn sampled(&mut self, step: u64, text: &str) {
        let file = self.dir.join(directory::SAMPLES).join(format!("step-{step}.txt"));
        if self.samples
            && let Err(error) = directory::write(&file, text.as_bytes())
        {
            self.notes.push(lost("samples", &error.into()));
            self.samples = false;
        }
        // Indented, it's code to Markdown, and shown as it is.
        let code: String = text.lines().map(|line| format!("    {line}\n")).collect();
        self.events(|events| events.text("sample", step, &code));
    }

    /// Puts the metrics so far on the disk.
    pub fn flush(&mut self) {
        self.metrics(MetricsFile::flush);
    }

    /// The file of metrics, for another thread to flush.
    pub fn metrics_file(&self) -> Option<Arc<File>> {
        self.metrics.as_ref().map(MetricsFile::shared)
    }

    /// Adds a line to the metrics.
    fn append(&mut self, line: &impl Serialize) {
        self.metrics(|file| file.append(line));
    }

    /// Does something with the metrics, which are none any more where that fails.
    fn metrics(&mut self, work: impl FnOnce(&mut MetricsFile) -> anyhow::Result<()>) {
        if let Some(Err(error)) = self.metrics.as_mut().map(work) {
            self.notes.push(lost("the metrics", &error));
            self.metrics = None;
        }
    }

    /// Adds to TensorBoard's events.
    fn events(&mut self, add: impl FnOnce(&mut EventWriter) -> anyhow::Result<()>) {
        let Some(events) = &mut self.events else { return };
        if let Err(error) = add(events).and_then(|()| events.flush()) {
            self.notes.push(lost(EVENTS, &error));
            self.events = None;
        }
    }
}

const EVENTS: &str = "TensorBoard's events";

fn lost(what: &str, error: &anyhow::Error) -> String {
    format!("warning: {what} aren't recorded any more: {error:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can't be written any more is told once, and the rest goes on.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_loses_curves_and_no_step() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::open(dir.path(), 0).unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        recorder.events = Some(EventWriter::of(full));
        for step in 1..4 {
            recorder.log(&Stepped { step, step_s: 1.0, ..Stepped::default() });
        }
        let notes = recorder.take_notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("TensorBoard's events aren't recorded any more"), "{notes:?}");
        let metrics = std::fs::read_to_string(dir.path().join("metrics.jsonl")).unwrap();
        assert_eq!(metrics.lines().count(), 3);
    }
}
