//! What a run comes to: losses and the files of its last checkpoint, and whether another's are the same to the bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::tally::{Violation, Wrong};

/// Where a run is, in the folder of a case.
pub const RUN: &str = "a";

/// The numbers of a logged step or of an evaluation that don't depend on time.
const NUMBERS: [&str; 6] = ["loss", "lr", "grad_norm", "tokens", "heldout_loss", "heldout_tokens"];

/// What the lines of one step say, those of steps and of evaluations apart.
type Lines = BTreeMap<(u64, bool), Vec<Value>>;

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    metrics: Lines,
    /// Files of the last checkpoint, and of the best one under its name.
    files: BTreeMap<String, Vec<u8>>,
    last: u64,
}

impl Results {
    /// Those of the run in `dir` of a case, after step `last`.
    ///
    /// # Errors
    /// Files that aren't there or can't be read.
    pub fn of(dir: &Path, last: u64) -> anyhow::Result<Self> {
        let run = dir.join(RUN);
        let metrics = fs::read(run.join("metrics.jsonl")).context("metrics.jsonl")?;
        let metrics = lines(&String::from_utf8_lossy(&metrics))?;
        let mut files = BTreeMap::new();
        let mut add = |before: &str, step: u64| -> anyhow::Result<()> {
            let name = format!("checkpoints/step-{step}");
            for entry in fs::read_dir(run.join(&name)).context(name)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                files.insert(format!("{before}{name}"), fs::read(entry.path())?);
            }
            Ok(())
        };
        add("", last)?;
        let manifest = fs::read(run.join(format!("checkpoints/step-{last}/manifest.json")))?;
        let manifest: Value = serde_json::from_slice(&manifest)?;
        if let Some(best) = manifest["evaluations"]["best"]["step"].as_u64() {
            add(&format!("step-{best}/"), best)?;
        }
        ensure!(files.len() >= 4, "a checkpoint has four files: {:?}", files.keys());
        Ok(Self { metrics, files, last })
    }

    /// Whether the run in `dir` came to the same. Where it `said` that metrics couldn't be written, lines may be missing.
    ///
    /// # Errors
    /// What differs.
    pub fn hold(&self, dir: &Path, said: &str) -> Result<(), Violation> {
        self.hold_since(0, dir, said)
    }

    /// As [`Results::hold`], of lines only those after step `since`.
    ///
    /// # Errors
    /// What differs.
    pub fn hold_since(&self, since: u64, dir: &Path, said: &str) -> Result<(), Violation> {
        let found = Self::of(dir, self.last).map_err(|error| {
            Violation::new(Wrong::Lost, format!("the run ended well, but has no {error:#}"))
        })?;
        for (name, bytes) in &self.files {
            let Some(other) = found.files.get(name) else {
                return Err(Violation::new(Wrong::Lost, format!("the checkpoint has no {name}")));
            };
            if bytes != other {
                let at = bytes.iter().zip(other).take_while(|(a, b)| a == b).count();
                let what = format!("{name} of step {} differs at byte {at}", self.last);
                return Err(Violation::new(Wrong::Silent, what));
            }
        }
        let excused = said.contains("aren't recorded any more");
        for (place, expected) in self.metrics.range((since + 1, false)..) {
            let (step, evaluation) = place;
            let what = if *evaluation { "evaluation" } else { "loss" };
            match found.metrics.get(place) {
                None if excused => {}
                None => {
                    let what = format!("metrics.jsonl lacks the {what} of step {step}");
                    return Err(Violation::new(Wrong::Lost, what));
                }
                // An evaluation is made again where a run goes on after its last step.
                Some(found) if found.iter().all(|found| *found == expected[0]) => {}
                Some(found) => {
                    let what = format!("the {what} of step {step} is {found:?}, not {expected:?}");
                    return Err(Violation::new(Wrong::Silent, what));
                }
            }
        }
        let mut more = found.metrics.range((since + 1, false)..).map(|(place, _)| place);
        let more = more.find(|place| !self.metrics.contains_key(place));
        more.map_or(Ok(()), |(step, _)| {
            Err(Violation::new(Wrong::Silent, format!("metrics.jsonl has a step {step} too many")))
        })
    }
}

/// What lines say of steps and of evaluations.
fn lines(text: &str) -> anyhow::Result<Lines> {
    let mut found = Lines::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)
            .with_context(|| format!("metrics.jsonl that reads: {line:?}"))?;
        let step = line["step"].as_u64().context("steps in metrics.jsonl")?;
        let numbers: Vec<Value> = NUMBERS.iter().map(|name| line[*name].clone()).collect();
        let evaluation = line.get("heldout_loss").is_some();
        found.entry((step, evaluation)).or_default().push(numbers.into());
    }
    Ok(found)
}

/// Steps of the checkpoints of the run in `dir` of a case, however damaged.
pub fn saved(dir: &Path) -> Vec<u64> {
    let entries = fs::read_dir(dir.join(RUN).join("checkpoints")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut steps: Vec<u64> = names
        .filter_map(|name| {
            let digits =
                name.strip_prefix("step-").or_else(|| name.strip_prefix(".replaced-step-"));
            digits?.parse().ok()
        })
        .collect();
    steps.sort_unstable();
    steps
}

/// All files in a folder, and in folders in it.
///
/// # Errors
/// What the system refuses.
pub fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Copies a folder with all that's in it.
///
/// # Errors
/// What the system refuses.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("can't make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("can't list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
