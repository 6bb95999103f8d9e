//! What a run saves of itself: its trainer, how far it has come, and what describes it.

#[cfg(not(target_family = "wasm"))]
use std::cell::RefCell;
use std::path::PathBuf;

#[cfg(not(target_family = "wasm"))]
use anyhow::Context as _;
use serde_json::Value;
use tightrope_data::{Base, Contents, Manifest};
use tightrope_nn::{Done, LearningRate, Trainer, TrainerConfig};

use super::Batches;
#[cfg(not(target_family = "wasm"))]
use crate::checkpoint::{KEPT, tensors};
use crate::checkpoint::{manifest, read_back};
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

/// A value as the text of a file.
pub(crate) fn json_text(value: &Value) -> anyhow::Result<Vec<u8>> {
    Ok((serde_json::to_string_pretty(value)? + "\n").into_bytes())
}

/// What a run saves of itself, besides the trainer.
pub(super) struct Saved {
    /// The run directory.
    pub(super) dir: Option<PathBuf>,
    pub(super) rate: LearningRate,
    /// Where the frozen weights are, of a run that trains adapters.
    pub(super) base: Option<Base>,
    pub(super) described: Described,
}

impl Saved {
    /// Nothing: there are no folders in a browser, and a run has none.
    #[cfg(target_family = "wasm")]
    pub(super) async fn save(&self, _: &mut Trainer, _: &dyn Batches, _: Done) -> Result<()> {
        Ok(())
    }

    /// Writes `checkpoints/step-N` and removes old ones. Two runs that went the same way write the same
    /// bytes.
    ///
    /// # Errors
    /// Those of the device and of the disk; earlier checkpoints are as they were.
    #[cfg(not(target_family = "wasm"))]
    pub(super) async fn save(
        &self,
        trainer: &mut Trainer,
        data: &dyn Batches,
        done: Done,
    ) -> Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let mut write = async || -> anyhow::Result<()> {
            let manifest = self.manifest(trainer, data, done).await?;
            let extra = self.extra(data);
            let (model, optimizer) = (trainer.saved_weights(), trainer.saved_states());
            let trainer = RefCell::new(&mut *trainer);
            let (model, optimizer) = (tensors(&trainer, model), tensors(&trainer, optimizer));
            tightrope_data::checkpoint::save(
                dir,
                manifest,
                Contents { model, optimizer, extra },
                KEPT,
            )?;
            Ok(())
        };
        write()
            .await
            .with_context(|| format!("can't write the checkpoint of step {}", done.steps))
            .help(format!("free some space, then `tightrope train --resume {}`", dir.display()))
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

    fn extra(&self, data: &dyn Batches) -> Vec<(String, Vec<u8>)> {
        let mut files = self.described.files.clone();
        files.extend(data.files());
        files
    }

    async fn manifest(
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
            ..manifest(trainer, &self.rate, done, data).await?
        })
    }
}
