//! `metrics.jsonl`: a line of JSON per logged step of a run, and one per evaluation.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tightrope_data::files;

use super::Evaluation;
#[cfg(not(target_family = "wasm"))]
use crate::figures::RankTimes;

/// Name of the file in a run directory.
pub const FILE_NAME: &str = "metrics.jsonl";

/// One logged step. A number that isn't finite is written as `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Optimizer steps done, from 1.
    pub step: u64,
    /// Mean loss over the step, in nats a token or an image.
    pub loss: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Seconds the step took.
    pub step_s: f64,
    /// Trained tokens or images per second.
    pub tokens_per_s: f64,
    /// Tokens or images trained since the start of the run.
    pub tokens: u64,
    /// What steps took on each rank since the last line, where several train together.
    #[cfg(not(target_family = "wasm"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankTimes>,
    /// The model's other figures, each under its name.
    #[serde(flatten)]
    pub others: BTreeMap<String, f64>,
}

/// One evaluation on held-out data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldOutMetrics {
    /// Optimizer steps done.
    pub step: u64,
    /// Mean loss, in nats a token or an image.
    pub heldout_loss: f64,
    /// Tokens or images that were scored.
    pub heldout_tokens: usize,
    /// The model's other figures, each under its name behind `heldout_`.
    #[serde(flatten)]
    pub others: BTreeMap<String, f64>,
}

impl HeldOutMetrics {
    /// Of an evaluation after `step`.
    pub fn new(step: u64, evaluation: &Evaluation) -> Self {
        let others = evaluation.metrics.iter();
        Self {
            step,
            heldout_loss: evaluation.loss,
            heldout_tokens: evaluation.tokens,
            others: others.map(|(name, value)| (format!("heldout_{name}"), *value)).collect(),
        }
    }
}

/// Appends to the metrics of a run.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    file: Arc<File>,
    /// What was there when it was opened.
    kept: Kept,
}

impl MetricsFile {
    /// Starts an empty file in the run directory `dir`, over one that was there.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn create(dir: &Path) -> anyhow::Result<Self> {
        Self::open(dir, |_| Ok(Kept::default()))
    }

    /// Continues the file in `dir` after `step`: the lines of later steps, and a last line that
    /// was cut off, are dropped. A missing file is an empty one.
    ///
    /// # Errors
    /// When the file can't be read or written, or a line before the last isn't one of metrics.
    pub fn resume(dir: &Path, step: u64) -> anyhow::Result<Self> {
        Self::open(dir, |file| kept_through(file, step))
    }

    /// Opens the file and cuts it off after what is `kept` of it. What is added comes at its end, wherever that is then.
    fn open(dir: &Path, kept: impl FnOnce(&File) -> anyhow::Result<Kept>) -> anyhow::Result<Self> {
        let path = dir.join(FILE_NAME);
        // A backup may be made of other names of the same files.
        files::take_alone(&path).with_context(|| format!("can't copy `{}`", path.display()))?;
        let file = files::open(&path, OpenOptions::new().read(true).append(true).create(true))
            .with_context(|| format!("can't open `{}`", path.display()))?;
        let kept = kept(&file).with_context(|| format!("can't continue `{}`", path.display()))?;
        file.set_len(kept.length).with_context(|| format!("can't shorten `{}`", path.display()))?;
        Ok(Self { path, file: Arc::new(file), kept })
    }

    /// Whether there were lines when the file was opened, and none of an evaluation after `step`.
    pub fn lacks_evaluation(&self, step: u64) -> bool {
        self.kept.length > 0 && self.kept.evaluated.is_none_or(|(last, _)| last != step)
    }

    /// Adds an evaluation, unless it's the last one in the file: a run that ends early, or that is taken up at its end, makes it again.
    /// Returns `true` if it was added.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn add_evaluation(&mut self, evaluation: &HeldOutMetrics) -> anyhow::Result<bool> {
        let last = (evaluation.step, evaluation.heldout_tokens);
        let is_new = self.kept.evaluated != Some(last);
        if is_new {
            self.append(evaluation)?;
            self.kept.evaluated = Some(last);
        }
        Ok(is_new)
    }

    /// Adds a line. It is handed to the operating system at once, so that a reader sees it and
    /// a crash of the program doesn't lose it.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn append(&mut self, metrics: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(metrics).context("metrics don't fit JSON")?;
        line.push(b'\n');
        let before = self.file.metadata().map(|found| found.len());
        let written = (&*self.file).write_all(&line);
        if let (Err(_), Ok(before)) = (&written, before) {
            // A line that was cut off isn't one of metrics.
            let _ = self.file.set_len(before);
        }
        written.with_context(|| format!("can't write `{}`", self.path.display()))
    }

    /// The file, for another thread to flush.
    pub fn shared(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Puts what was added on the disk: without it, lines that lie before a checkpoint would be gone when the power goes away.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| format!("can't write `{}`", self.path.display()))
    }
}

/// What is kept of a file.
#[derive(Debug, Default)]
struct Kept {
    /// Its first bytes.
    length: u64,
    /// Step of the last evaluation, and what it scored.
    evaluated: Option<(u64, usize)>,
}

/// The lines up to and with those of `step`.
fn kept_through(file: &File, step: u64) -> anyhow::Result<Kept> {
    #[derive(Deserialize)]
    struct Line {
        step: u64,
        heldout_tokens: Option<usize>,
    }
    let mut reader = BufReader::new(file);
    let (mut kept, mut number, mut broken) = (Kept::default(), 0, None);
    let mut line = Vec::new();
    loop {
        line.clear();
        number += 1;
        let length = reader.read_until(b'\n', &mut line)?;
        // The end of the file, or a line that was cut off.
        if line.last() != Some(&b'\n') {
            return Ok(kept);
        }
        match serde_json::from_slice::<Line>(&line) {
            Ok(line) if line.step > step => return Ok(kept),
            Ok(line) => {
                if let Some((number, error)) = broken {
                    bail!(
                        "line {number} isn't one of metrics ({error}); move the file away to start a new one"
                    );
                }
                kept.length += length as u64;
                kept.evaluated =
                    line.heldout_tokens.map(|tokens| (line.step, tokens)).or(kept.evaluated);
            }
            // A power cut can leave lines of the right length but without their content, after the last that a checkpoint
            // put on the disk.
            Err(error) => broken = broken.or(Some((number, error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: u64) -> Metrics {
        Metrics {
            step,
            loss: 2.5,
            lr: 3e-4,
            grad_norm: 0.75,
            step_s: 0.125,
            tokens_per_s: 4096.0,
            tokens: step * 512,
            ranks: vec![],
            others: BTreeMap::new(),
        }
    }

    fn read(dir: &Path) -> String {
        std::fs::read_to_string(dir.join(FILE_NAME)).unwrap()
    }

    fn steps(dir: &Path) -> Vec<u64> {
        let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        read(dir).lines().map(|line| value(line)["step"].as_u64().unwrap()).collect()
    }

    /// `cp -al` makes a backup of other names of the same files.
    #[cfg(unix)]
    #[test]
    fn a_backup_stays_as_it_was_when_the_run_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::create(dir.path()).unwrap();
        file.append(&at(1)).unwrap();
        let backup = dir.path().join("backup");
        std::fs::hard_link(dir.path().join(FILE_NAME), &backup).unwrap();
        let before = std::fs::read(&backup).unwrap();
        MetricsFile::resume(dir.path(), 1).unwrap().append(&at(2)).unwrap();
        assert_eq!(std::fs::read(&backup).unwrap(), before);
        assert_eq!(std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_line_is_visible_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::create(dir.path()).unwrap();
        file.append(&Metrics { loss: f64::NAN, grad_norm: f64::INFINITY, ..at(1) }).unwrap();
        assert_eq!(
            read(dir.path()),
            "{\"step\":1,\"loss\":null,\"lr\":0.0003,\"grad_norm\":null,\"step_s\":0.125,\
             \"tokens_per_s\":4096.0,\"tokens\":512}\n"
        );
        let others = [("accuracy".to_owned(), 0.5)].into();
        file.append(&Metrics { others, ..at(2) }).unwrap();
        assert!(read(dir.path()).ends_with(",\"tokens\":1024,\"accuracy\":0.5}\n"));
        let metrics = [("accuracy".to_owned(), 0.75)].into();
        let evaluation = Evaluation { loss: 1.5, tokens: 64, metrics };
        file.append(&HeldOutMetrics::new(2, &evaluation)).unwrap();
        let expected =
            "{\"step\":2,\"heldout_loss\":1.5,\"heldout_tokens\":64,\"heldout_accuracy\":0.75}\n";
        assert!(read(dir.path()).ends_with(expected), "{}", read(dir.path()));
    }

    #[test]
    fn resuming_drops_later_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::create(dir.path()).unwrap();
        for step in [10, 20, 30, 40] {
            file.append(&at(step)).unwrap();
        }
        let mut file = MetricsFile::resume(dir.path(), 25).unwrap();
        file.append(&Metrics { loss: f64::NAN, ..at(30) }).unwrap();
        assert_eq!(steps(dir.path()), [10, 20, 30]);
        MetricsFile::resume(dir.path(), 30).unwrap().append(&at(40)).unwrap();
        assert_eq!(steps(dir.path()), [10, 20, 30, 40]);
        MetricsFile::resume(dir.path(), 0).unwrap();
        assert!(steps(dir.path()).is_empty());
    }

    #[test]
    fn an_evaluation_that_is_lacking_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::create(dir.path()).unwrap();
        assert!(!file.lacks_evaluation(0), "a new run owes nothing");
        let evaluation = Evaluation { loss: 1.5, tokens: 64, metrics: BTreeMap::new() };
        file.append(&at(10)).unwrap();
        let evaluation = HeldOutMetrics::new(10, &evaluation);
        assert!(file.add_evaluation(&evaluation).unwrap());
        assert!(!file.add_evaluation(&evaluation).unwrap(), "it's there");
        let of_all = HeldOutMetrics { heldout_tokens: 128, ..evaluation.clone() };
        let mut again = MetricsFile::resume(dir.path(), 10).unwrap();
        assert!(!again.add_evaluation(&evaluation).unwrap(), "it was there");
        assert!(again.add_evaluation(&of_all).unwrap());
        file.append(&at(20)).unwrap();
        assert!(!MetricsFile::resume(dir.path(), 10).unwrap().lacks_evaluation(10));
        file.append(&at(20)).unwrap();
        assert!(MetricsFile::resume(dir.path(), 20).unwrap().lacks_evaluation(20));
    }

    #[test]
    fn resuming_drops_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let whole = "{\"step\":1}\n{\"step\":2}\n";
        for torn in [
            "{\"step\":3",
            "{\"step\":3}",
            "{\"st\n",
            "\0\0\0\n",
            "\0\0\0\n\0\0\n{\"step\":12}\n",
            "",
        ] {
            std::fs::write(dir.path().join(FILE_NAME), format!("{whole}{torn}")).unwrap();
            MetricsFile::resume(dir.path(), 9).unwrap().append(&at(4)).unwrap();
            assert_eq!(steps(dir.path()), [1, 2, 4], "{torn:?}");
        }
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let damaged = "{\"step\":1}\nhello\n{\"step\":2}\n";
        std::fs::write(dir.path().join(FILE_NAME), damaged).unwrap();
        let error = format!("{:#}", MetricsFile::resume(dir.path(), 9).unwrap_err());
        assert!(error.contains("metrics.jsonl") && error.contains("line 2"), "{error}");
        assert_eq!(read(dir.path()), damaged);
    }

    #[test]
    fn a_missing_file_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        MetricsFile::resume(dir.path(), 5).unwrap().append(&at(6)).unwrap();
        assert_eq!(steps(dir.path()), [6]);
    }
}
