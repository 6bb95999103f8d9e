//! What a run saves of itself: its trainer, how far it has come, and what describes it.

use std::path::Path;

use serde_json::Value;
use tightrope_data::{Base, Contents, Manifest};
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
use crate::weights::adapters;

/// What a checkpoint says of the settings and the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// The settings that decide numbers.
    pub settings: Value,
    /// The model.
    pub model: Value,
    /// Files beside the weights, by name: a Hugging Face `config.json`.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Described {
    /// Adds what the adapters of `config` are, beside the weights of `base`.
    pub(super) fn adapters(&mut self, config: &TrainerConfig, base: &Base) -> Result<()> {
        let Some(lora) = &config.lora else { return Ok(()) };
        let path = match base {
            Base::Model { path, .. } => path.to_str(),
            Base::Seed(_) => None,
        };
        let text = json_text(&lora.to_peft(&config.model.parameters(), path))?;
        self.files.push((adapters::CONFIG.to_owned(), text));
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

/// A value as the text of a file.
pub(crate) fn json_text(value: &Value) -> anyhow::Result<Vec<u8>> {
    Ok((serde_json::to_string_pretty(value)? + "\n").into_bytes())
}

/// What a run saves of itself, besides the trainer.
pub(super) struct Saved {
    pub(super) rate: LearningRate,
    /// Where the frozen weights are, of a run that trains adapters.
    pub(super) base: Option<Base>,
    /// The model that it learns of.
    pub(super) teacher: Option<Base>,
    pub(super) described: Described,
}

impl Saved {
    /// Writes `checkpoints/step-N` under `dir` and removes old ones. Two runs that went the same way write the same
    /// bytes. Gives what there is to tell.
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
    ) -> Result<Vec<String>> {
        let manifest = self.manifest(trainer, data, done).await?;
        let saved = write(trainer, dir, manifest, self.extra(data))
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

    /// Files beside the tensors, with their contents.
    pub(super) fn extra(&self, data: &dyn Batches) -> Vec<(String, Vec<u8>)> {
        let mut files = self.described.files.clone();
        files.extend(data.files());
        files
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
            ..manifest(trainer, &self.rate, done, data).await?
        })
    }
}
