//! A trainer to a checkpoint, bit for bit.

#[cfg(not(target_family = "wasm"))]
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;

#[cfg(not(target_family = "wasm"))]
use anyhow::Context as _;
use serde_json::Value;
use tightrope_core::DType;
use tightrope_data::{Base, Contents, Manifest, Tensor, checkpoint};
use tightrope_nn::{Done, LearningRate, SavedTensor, Trainer, TrainerConfig};

use super::Batches;
#[cfg(not(target_family = "wasm"))]
use crate::block_on;
use crate::error::{Help as _, Result};
use crate::weights::adapters;

/// Checkpoints of a run that are kept: the newest, and one to fall back to where the disk damages it.
#[cfg(not(target_family = "wasm"))]
pub(crate) const KEPT: usize = 2;

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
    pub(super) seed: u64,
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
            checkpoint::save(dir, manifest, Contents { model, optimizer, extra }, KEPT)?;
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
        checkpoint::to_archive(manifest, contents).help("free some memory, then save again")
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
        Ok(Manifest {
            format: checkpoint::FORMAT,
            step: done.steps,
            tokens_seen: done.tokens,
            seed: self.seed,
            data: data.state(done.samples),
            schedule: trainer.saved_schedule(&self.rate).await?,
            settings: self.described.settings.clone(),
            model: self.described.model.clone(),
            base: self.base.clone(),
            checksums: Default::default(),
        })
    }
}

/// Reads tensors back. The bytes of each are freed as soon as they're written.
async fn read_back(trainer: &mut Trainer, saved: Vec<SavedTensor>) -> Result<Vec<Tensor<'static>>> {
    let mut tensors = Vec::with_capacity(saved.len());
    for tensor in saved {
        let values = trainer.saved_values(&tensor).await?;
        let dtype = tensor.ty.dtype;
        let write = move |out: &mut dyn Write| write_values(out, dtype, &values);
        tensors.push(Tensor::streamed(tensor.name, tensor.ty, write));
    }
    Ok(tensors)
}

/// Tensors to save, each read back while its bytes are written, so that a checkpoint takes no second copy
/// of the model.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn tensors<'a>(
    trainer: &'a RefCell<&mut Trainer>,
    saved: Vec<SavedTensor>,
) -> Vec<Tensor<'a>> {
    let tensor = |saved: SavedTensor| {
        let (name, ty) = (saved.name.clone(), saved.ty.clone());
        Tensor::streamed(name, ty, move |out: &mut dyn Write| {
            let mut written = 0;
            while written < saved.ty.elements() {
                let values = block_on(trainer.borrow_mut().saved_values_from(&saved, written));
                let values = values.map_err(io::Error::other)?;
                write_values(out, saved.ty.dtype, &values)?;
                written += values.len();
            }
            Ok(())
        })
    };
    saved.into_iter().map(tensor).collect()
}

fn write_values(out: &mut dyn Write, dtype: DType, values: &[f32]) -> io::Result<()> {
    const PIECE: usize = 1 << 16;
    let size = dtype.size();
    let mut bytes = vec![0; size * values.len().min(PIECE)];
    for piece in values.chunks(PIECE) {
        let bytes = &mut bytes[..size * piece.len()];
        for (element, &value) in bytes.chunks_exact_mut(size).zip(piece) {
            dtype.write(element, value.into());
        }
        out.write_all(bytes)?;
    }
    Ok(())
}
