//! What a run saves of itself: its trainer, how far it has come, and what describes it.

use std::path::Path;

use serde_json::Value;
use tightrope_data::{Base, Contents, Evaluations, Manifest};
use tightrope_nn::{Done, LearningRate, Trainer, TrainerConfig};

use super::Batches;
#[cfg(not(target_family = "wasm"))]
use super::diverged::DIVERGED;
#[cfg(not(target_family = "wasm"))]
use crate::checkpoint::{CheckpointError, Copied, write};
use crate::checkpoint::{manifest, read_back};
#[cfg(not(target_family = "wasm"))]
use crate::error::Error;
use crate::error::{Help as _, Result};
use crate::units::json_text;
use crate::weights::{Places, Start, adapters, preprocessor};

/// What a checkpoint says of the settings and the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// The settings that decide numbers.
    pub settings: Value,
    /// The model.
    pub model: Value,
    /// Files beside the weights, by name: a Hugging Face `config.json`, and the files of the first model that training doesn't change.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Described {
    /// Adds what the adapters of `config` are, beside the weights of `base`.
    pub(super) fn adapters(
        &mut self,
        config: &TrainerConfig,
        base: &Base,
        began: (&Start, &Places),
    ) -> Result<()> {
        let path = match base {
            Base::Model { path, .. } => path.to_str(),
            Base::Seed(_) | Base::Given { .. } => None,
        };
        let Some(file) = adapters::described(config, path, began)? else { return Ok(()) };
        self.files.retain(|(name, _)| name != adapters::CONFIG);
        self.files.push((adapters::CONFIG.to_owned(), json_text(&file)?));
        Ok(())
    }
}

/// The failure of a checkpoint of `step` in the run directory `dir`.
#[cfg(not(target_family = "wasm"))]
pub(super) fn unwritten(error: CheckpointError, dir: &Path, step: u64) -> Error {
    let help = match &error {
        CheckpointError::NotFinite { .. } => DIVERGED.to_owned(),
        _ => format!("free some space, then `tightrope train --resume {}`", dir.display()),
    };
    let error = anyhow::Error::new(error);
    let lacks_memory = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::OutOfMemory)
    };
    if error.chain().any(lacks_memory) {
        let what = format!("no memory to write the checkpoint of step {step}");
        return Error::does_not_fit(
            error.context(what),
            format!("free some, then `tightrope train --resume {}`", dir.display()),
        );
    }
    Error::failed(error.context(format!("can't write the checkpoint of step {step}")), help)
}

/// What a run saves of itself, besides the trainer.
pub(super) struct Saved {
    pub(super) rate: LearningRate,
    /// Where the frozen weights are, of a run that trains adapters.
    pub(super) base: Option<Base>,
    /// The model that it learns of.
    pub(super) teacher: Option<Base>,
    pub(super) described: Described,
    /// Newest checkpoints that stay.
    #[cfg(not(target_family = "wasm"))]
    pub(super) keep: usize,
    /// Results of evaluations, of a run that keeps its best checkpoint or has a patience.
    pub(super) evaluations: Option<Evaluations>,
}

impl Saved {
    /// Writes `checkpoints/step-N` under `dir` and removes old ones. Two runs that went the same way write the same
    /// bytes. `written` hears of bytes as they're written. Returns notes for the user.
    ///
    /// # Errors
    /// Weights that aren't finite, and those of the device and of the disk; earlier checkpoints are as they were.
    #[cfg(not(target_family = "wasm"))]
    pub(super) async fn save(
        &self,
        dir: &Path,
        trainer: &mut Trainer,
        data: &dyn Batches,
        done: Done,
        written: &dyn Fn(usize),
    ) -> Result<Vec<String>> {
        let manifest = self.manifest(trainer, data, done).await?;
        let saved = write(trainer, dir, (manifest, self.keep), self.extra(data), written)
            .map_err(|error| unwritten(error, dir, done.steps))?;
        Ok(saved.left.iter().map(|error| format!("warning: {error}")).collect())
    }

    /// What [`Saved::save`] writes, copied into `memory`. `None` where the host hasn't as much.
    ///
    /// # Errors
    /// Weights that aren't finite, and those of the device.
    #[cfg(not(target_family = "wasm"))]
    pub(super) async fn copied(
        &self,
        dir: &Path,
        trainer: &mut Trainer,
        data: &dyn Batches,
        done: Done,
        memory: Vec<u8>,
    ) -> Result<Option<(Copied, Manifest)>> {
        let manifest = self.manifest(trainer, data, done).await?;
        let copied = match Copied::new(trainer, memory).await {
            // A device that is lost is opened again.
            Err(CheckpointError::Train(error)) => return Err(error.into()),
            copied => copied.map_err(|error| unwritten(error, dir, done.steps))?,
        };
        Ok(copied.map(|copied| (copied, manifest)))
    }

    /// Nothing: there are no folders in a browser, and a run has none.
    #[cfg(target_family = "wasm")]
    pub(super) async fn save(
        &self,
        _: &Path,
        _: &mut Trainer,
        _: &dyn Batches,
        _: Done,
        _: &dyn Fn(usize),
    ) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// The checkpoint as one file.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) async fn archive(
        &self,
        trainer: &mut Trainer,
        data: &dyn Batches,
        done: Done,
    ) -> Result<Vec<u8>> {
        let manifest = self.manifest(trainer, data, done).await?;
        let (weights, states) = (trainer.saved_weights(), trainer.saved_states());
        let model = read_back(trainer, weights).await?;
        let optimizer = read_back(trainer, states).await?;
        let contents = Contents { model, optimizer, extra: self.extra(data) };
        tightrope_data::checkpoint::to_archive(manifest, contents)
            .help("free some memory, then save again")
    }

    /// Files beside the tensors, with their contents. Those of the data stand in for the described ones of the same name.
    pub(super) fn extra(&self, data: &dyn Batches) -> Vec<(String, Vec<u8>)> {
        let own = data.files();
        let described = &self.described.files;
        let same = |(name, bytes): &(String, Vec<u8>)| {
            let is_kept = |(other, kept): &(String, Vec<u8>)| {
                other == name && *name == preprocessor::FILE && preprocessor::agree(bytes, kept)
            };
            described.iter().any(is_kept)
        };
        let own: Vec<_> = own.into_iter().filter(|file| !same(file)).collect();
        let replaced = |name: &String| own.iter().any(|(other, _)| other == name);
        let files: Vec<_> = described.iter().filter(|(name, _)| !replaced(name)).cloned().collect();
        files.into_iter().chain(own).collect()
    }

    /// What describes a checkpoint.
    pub(super) async fn manifest(
        &self,
        trainer: &mut Trainer,
        data: &dyn Batches,
        done: Done,
    ) -> anyhow::Result<Manifest> {
        let data = data.state(done.samples);
        Ok(Manifest {
            settings: self.described.settings.clone(),
            model: self.described.model.clone(),
            base: self.base.clone(),
            teacher: self.teacher.clone(),
            evaluations: self.evaluations,
            ..manifest(trainer, &self.rate, done, data).await?
        })
    }
}
