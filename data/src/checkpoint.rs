//! Checkpoints: folders `checkpoints/step-N` of a run, each complete or not there at all.
//!
//! A checkpoint is written to `.tmp-step-N`, every file and the folder are flushed to disk, and
//! the folder is renamed. One file, a tar archive of the folder, holds the same where there are no folders.
//! Whatever moment a process dies at, the newest `step-N` is complete. What
//! dies later on the disk itself is found by checksums, which cover every byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::safetensors::{SafeTensors, Tensor};
use crate::source::{Difference, Source, difference, fingerprint};
use crate::{Error, Result, Toy, files};

mod archive;
mod fill;
#[cfg(not(target_family = "wasm"))]
mod joint;
mod manifest;
mod save;
mod verify;

pub use archive::to_archive;
#[cfg(not(target_family = "wasm"))]
pub use joint::{Begun, CutTensor, Cuts, Part};
pub use save::{Saved, save, tidy, unpack};

/// Layout of the folder and of the manifest.
pub const FORMAT: u32 = 1;

const FOLDER: &str = "checkpoints";
const MANIFEST: &str = "manifest.json";
const MODEL: &str = "model.safetensors";
/// Adapters, under PEFT's name.
pub const ADAPTERS: &str = "adapter_model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STEP: &str = "step-";
const TEMPORARY: &str = ".tmp-step-";
const LOCK: &str = ".lock";
const REPLACED: &str = ".replaced-step-";

/// What a run needs, besides tensors, to continue bit for bit. Random numbers are counter-based:
/// seed and step are their state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Layout of this file, [`FORMAT`].
    pub format: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Tokens trained on.
    pub tokens_seen: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Where the data stands.
    pub data: DataState,
    /// Learning-rate schedule, and whatever else the optimizer keeps besides tensors.
    pub schedule: Value,
    /// The run's settings, merged.
    pub settings: Value,
    /// The model's description.
    pub model: Value,
    /// Where the frozen weights of adapters are; a checkpoint of adapters holds nothing else of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// The model that it learned of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<Base>,
    /// Results of evaluations, of a run that keeps its best checkpoint or has a patience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<Evaluations>,
    /// 16 hex digits of XXH3-64 by path: `FILE/TENSOR` for a tensor's bytes, `FILE` for the header of
    /// a safetensors file or all of another file. Filled in by [`save`].
    #[serde(default)]
    pub checksums: BTreeMap<String, String>,
}

/// Results of the evaluations of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluations {
    /// Steps done at the last one; 0 before the first.
    pub last: u64,
    /// The one with the lowest loss.
    pub best: Option<Best>,
    /// Evaluations since the best one.
    pub since: u64,
    /// True if the checkpoint of the best one stays.
    pub keeps_best: bool,
}

/// The evaluation of a run with the lowest loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Steps done.
    pub step: u64,
    /// Mean loss, in nats.
    pub loss: f64,
}

impl Evaluations {
    /// Adds the loss of an evaluation after `step`. One that isn't finite is never the lowest.
    pub fn add(&mut self, step: u64, loss: f64) {
        self.last = step;
        if loss.is_finite() && self.best.is_none_or(|best| loss < best.loss) {
            self.best = Some(Best { step, loss });
            self.since = 0;
        } else {
            self.since += 1;
        }
    }

    /// Step of the checkpoint that stays however old it is.
    pub fn kept(&self) -> Option<u64> {
        self.best.filter(|_| self.keeps_best).map(|best| best.step)
    }
}

/// The frozen weights of adapters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// Those that this seed begins with.
    Seed(u64),
    /// Those of a model directory or checkpoint.
    Model {
        /// Where it was.
        path: PathBuf,
        /// [`crate::weights_fingerprint`] of its tensors.
        fingerprint: String,
    },
    /// Weights that a program gave its own model.
    Given {
        /// A hash of their names, shapes and elements.
        fingerprint: String,
    },
}

impl Manifest {
    /// The file of the weights: PEFT's name for adapters.
    fn weights_file(&self) -> &'static str {
        if self.base.is_some() { ADAPTERS } else { MODEL }
    }
}

/// Position in the data, and which data it is a position in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataState {
    /// Windows or images consumed, as [`crate::Loader::position`].
    pub position: u64,
    /// Names, lengths and contents of the corpus' files.
    pub files: Vec<Source>,
    /// [`fingerprint`] of `files`.
    pub fingerprint: String,
    /// [`crate::Tokenizer::name`], or `images`.
    pub tokenizer: String,
    /// Fraction held out for evaluation.
    pub holdout: f64,
}

impl DataState {
    /// What stands for a tokenizer where the data is images.
    pub const IMAGES: &str = "images";

    /// The task it's a position in, where it's none of files.
    pub fn toy(&self) -> Option<Toy> {
        let [Source { name, .. }] = self.files.as_slice() else { return None };
        Toy::ALL.into_iter().find(|toy| toy.source() == *name)
    }

    /// How data that is given now differs from this; `None` where a run goes on with it.
    pub fn difference(&self, now: &Self) -> Option<Difference> {
        difference(&self.files, &now.files)
    }

    /// The state after `position` windows of these files.
    pub fn new(position: u64, files: &[Source], tokenizer: &str, holdout: f64) -> Self {
        Self {
            position,
            files: files.to_vec(),
            fingerprint: fingerprint(files),
            tokenizer: tokenizer.to_owned(),
            holdout,
        }
    }
}

/// What a checkpoint holds besides its manifest.
#[derive(Debug, Default)]
pub struct Contents<'a> {
    /// Weights under their Hugging Face names: `model.safetensors`, or `adapter_model.safetensors` with a
    /// [`Manifest::base`].
    pub model: Vec<Tensor<'a>>,
    /// Optimizer state: `optimizer.safetensors`.
    pub optimizer: Vec<Tensor<'a>>,
    /// Other files and their bytes: `config.json`, `tokenizer.json`, ….
    pub extra: Vec<(String, Vec<u8>)>,
}

/// A verified checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    /// Its folder, or the archive of one.
    pub path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its weights, or adapters where the manifest names a base, mapped.
    pub model: SafeTensors,
    /// Its optimizer state, mapped.
    pub optimizer: SafeTensors,
    files: verify::Files,
}

/// Name of the file in a checkpoint that holds the text of the source `name`, for runs whose text is nowhere
/// else.
pub fn text_file(name: &str) -> String {
    format!("data-{name}")
}

/// A checkpoint that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its folder.
    pub path: PathBuf,
    /// The damage, naming file and tensor.
    pub reason: String,
}

/// Folders of a run's checkpoints with their steps, oldest first; unverified. Empty where the run
/// has none.
///
/// # Errors
/// A folder that cannot be read.
pub fn list(root: impl AsRef<Path>) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = BTreeMap::new();
    for (name, path) in entries(&root.as_ref().join(FOLDER))? {
        if let Some(step) = parse_step(&name, STEP) {
            found.insert(step, path);
        } else if let Some(step) = parse_step(&name, REPLACED) {
            // Counts where the process died between the two renames that replace a checkpoint.
            found.entry(step).or_insert(path);
        }
    }
    Ok(found.into_iter().collect())
}

/// The newest checkpoint of a run that is complete, and the newer ones that are not.
///
/// # Errors
/// [`Error::NoCheckpoint`] where none is; a folder that cannot be read.
pub fn latest_complete(root: impl AsRef<Path>) -> Result<(Checkpoint, Vec<Skipped>)> {
    let root = root.as_ref();
    let mut skipped = Vec::new();
    for (_, path) in list(root)?.into_iter().rev() {
        let opened = no_links(&path).and_then(|()| Checkpoint::open(&path));
        match opened {
            Ok(checkpoint) => return Ok((checkpoint, skipped)),
            Err(reason) => skipped.push(Skipped { path, reason: reason.to_string() }),
        }
    }
    Err(Error::NoCheckpoint { root: root.to_owned(), skipped })
}

/// Refuses a checkpoint of a run that is a link, or has one in it: it would be read from wherever that leads.
fn no_links(checkpoint: &Path) -> Result<()> {
    files::refuse_link(checkpoint)?;
    entries(checkpoint)?.iter().try_for_each(|(_, file)| files::refuse_link(file))
}

/// Names and paths in a folder; none where there is no folder.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("list", folder))?,
    };
    let mut named = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        if let Ok(name) = entry.file_name().into_string() {
            named.push((name, entry.path()));
        }
    }
    Ok(named)
}

/// N of `PREFIXN`, written the one way [`save`] writes it.
fn parse_step(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let step = digits.parse().ok()?;
    (format!("{step}") == digits).then_some(step)
}

#[cfg(test)]
mod tests;
