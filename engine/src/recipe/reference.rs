//! Log-likelihoods of preferences under the reference model: kept in checkpoints, and found there by runs on the same pairs that begin
//! with the same weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use tightrope_core::{DType, Type};
use tightrope_data::checkpoint::{Base, list};
use tightrope_data::safetensors::{self, Tensor};
use tightrope_data::{Checkpoint, SafeTensors, content, files, limits};

use crate::error::{Error, Help as _, Result};
use crate::settings::Settings;
use crate::weights::Start;

/// Name of the file in a checkpoint, and that of the pairs that a run is evaluated on where those are of their own.
pub(super) const FILE: &str = "reference.safetensors";
pub(super) const OF_VALIDATION: &str = "reference-validation.safetensors";
const FILES: [&str; 2] = [FILE, OF_VALIDATION];
/// Its tensor, f32 (pairs, 2): of the chosen and of the rejected answer.
const TENSOR: &str = "log_likelihoods";
/// Its metadata: hashes of the pairs' tokens and of which are trained on, of what decides the weights, and of the tensor.
const ROWS: &str = "rows";
const WEIGHTS: &str = "weights";
const VALUES: &str = "values";

/// Log-likelihoods of pairs, the chosen answer's before the rejected one's.
#[derive(Clone)]
pub struct Reference {
    /// One for each sequence, in the order of the data.
    pub values: Arc<[f32]>,
    /// As a file.
    pub file: (String, Vec<u8>),
}

impl Reference {
    /// Of the sequences and the weights with these hashes.
    ///
    /// # Errors
    /// Log-likelihoods that aren't finite.
    pub fn new(values: Vec<f32>, rows: &str, weights: Option<&str>) -> Result<Self> {
        if values.iter().any(|value| !value.is_finite()) {
            return Err(Error::failed(
                anyhow!(
                    "the log-likelihood of a pair isn't finite under the weights that the run begins with"
                ),
                "train with --precision f32 or bf16, or look into the weights with `tightrope verify`",
            ));
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let ty = Type::new(DType::F32, [values.len() / 2, 2]);
        let hash = content(&bytes);
        let metadata = [(ROWS, rows), (VALUES, &hash)];
        let metadata = metadata.into_iter().chain(weights.map(|weights| (WEIGHTS, weights)));
        let metadata: BTreeMap<String, String> =
            metadata.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let file = safetensors::to_bytes([Tensor::new(TENSOR, ty, &bytes)], &metadata);
        let file = file.help("free some memory, then try again")?;
        Ok(Self { values: values.into(), file: (FILE.to_owned(), file) })
    }

    /// That of a run, as its checkpoint holds it, for so many sequences with this hash.
    ///
    /// # Errors
    /// A checkpoint without one, or with one of other sequences.
    pub fn of_checkpoint(checkpoint: &Checkpoint, count: usize, rows: &str) -> Result<Self> {
        let shown = checkpoint.path.display();
        let mut files = FILES.into_iter().filter(|file| checkpoint.has(file)).peekable();
        if files.peek().is_none() {
            return Err(Error::usage(
                anyhow!(
                    "`{shown}` was not trained on preferences, and has no reference that they are compared with"
                ),
                "start a run from its weights with --init",
            ));
        }
        for file in files {
            let bytes = checkpoint.extra(file).help("copy the checkpoint again")?;
            let (found, metadata) = read(bytes).help("copy the checkpoint again")?;
            let is_of = metadata.get(ROWS).map(String::as_str) == Some(rows);
            if is_of && found.values.len() == count {
                return Ok(found);
            }
        }
        Err(Error::usage(
            anyhow!("the reference in `{shown}` is of other pairs, or of other tokens of them"),
            "give the --data, --context and --train-on that the run began with, or start a run from its weights with --init",
        ))
    }

    /// That of a run in the folder `runs`, for so many sequences and the weights with these hashes, and the run. One that can't be read is
    /// as one that isn't there.
    pub fn of_runs(
        runs: &Path,
        count: usize,
        rows: &str,
        weights: &str,
    ) -> Option<(PathBuf, Self)> {
        let folders = fs::read_dir(runs).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut folders: Vec<PathBuf> = folders.collect();
        folders.sort();
        let places = folders.iter().flat_map(|run| FILES.map(|file| (run, file)));
        places.into_iter().find_map(|(run, file)| {
            // All checkpoints of a run have the same one.
            let (_, checkpoint) = list(run).ok()?.pop()?;
            let (found, metadata) =
                read(files::read(&checkpoint.join(file), limits::TOKENS).ok()?).ok()?;
            let bytes: Vec<u8> = found.values.iter().flat_map(|it| it.to_le_bytes()).collect();
            let hash = content(&bytes);
            let is = |name: &str, value: &str| metadata.get(name).is_some_and(|it| it == value);
            let same = is(ROWS, rows) && is(WEIGHTS, weights) && is(VALUES, &hash);
            (same && found.values.len() == count).then(|| (run.clone(), found))
        })
    }
}

/// A reference of a file, and the file's metadata.
fn read(bytes: Vec<u8>) -> tightrope_data::Result<(Reference, BTreeMap<String, String>)> {
    let file = SafeTensors::from_bytes(FILE, bytes.clone())?;
    let metadata = file.metadata().iter().map(|(name, value)| (name.clone(), value.clone()));
    let values = file.require(TENSOR)?.to_f32()?.into();
    Ok((Reference { values, file: (FILE.to_owned(), bytes) }, metadata.collect()))
}

/// A hash of what decides the weights of a run before its first step, and how they are computed with; `None` where more does than is
/// known here.
///
/// # Errors
/// Weights that can't be read.
pub fn weights_of(settings: &Settings, start: &Start) -> Result<Option<String>> {
    let base = match start.base(settings.train.seed)? {
        Some(Base::Seed(seed)) => format!("seed {seed}"),
        Some(Base::Model { fingerprint, .. } | Base::Given { fingerprint }) => fingerprint,
        None => return Ok(None),
    };
    // A planner that may change the precision does it later, and adapters to start from are weights too.
    if settings.lora.init.is_some() || !settings.memory.allow.is_empty() {
        return Ok(None);
    }
    let decided = settings.to_json(|setting| {
        let sizes = setting.key.starts_with("model.") && !setting.passing;
        sizes || ["run.precision", "lora.base_bits"].contains(&setting.key)
    })?;
    Ok(Some(content(format!("{base} {decided}").as_bytes())))
}
