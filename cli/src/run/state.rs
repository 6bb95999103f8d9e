//! A trainer to and from a checkpoint, bit for bit.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use pollster::block_on;
use tightrope_core::DType;
use tightrope_data::{Base, Checkpoint, Contents, DataState, Manifest, Tensor, checkpoint};
use tightrope_nn::{Done, ModelConfig, SavedTensor, Trainer};

use super::adapters;
use super::corpus::Data;
use crate::error::{Failure, Help as _};
use crate::settings::{Origin, Settings};

/// Checkpoints of a run that are kept: the newest, and one to fall back to where the disk damages it.
const KEPT: usize = 2;

/// What a run saves of itself, besides the trainer.
pub struct Saved<'a> {
    /// The run directory.
    pub dir: &'a Path,
    /// The run's settings, filled in.
    pub settings: &'a Settings,
    /// The model.
    pub model: &'a ModelConfig,
    /// The data.
    pub data: &'a Data,
    /// Where the frozen weights are, of a run that trains adapters.
    pub base: Option<Base>,
}

impl Saved<'_> {
    /// Writes `checkpoints/step-N` and removes old ones. Two runs that went the same way write the same
    /// bytes.
    ///
    /// # Errors
    /// Those of the device and of the disk; earlier checkpoints are as they were.
    pub fn save(&self, trainer: &mut Trainer, done: Done) -> Result<PathBuf, Failure> {
        self.write(trainer, done)
            .with_context(|| format!("can't write the checkpoint of step {}", done.steps))
            .help(format!(
                "free some space, then `tightrope train --resume {}`",
                self.dir.display()
            ))
    }

    fn write(&self, trainer: &mut Trainer, done: Done) -> anyhow::Result<PathBuf> {
        let mut extra = vec![(
            "config.json".to_owned(),
            (serde_json::to_string_pretty(&self.model.to_hf())? + "\n").into_bytes(),
        )];
        extra.extend(self.data.tokenizer.files());
        if let Some(lora) = &trainer.config().lora {
            let path = match &self.base {
                Some(Base::Model { path, .. }) => path.to_str(),
                _ => None,
            };
            let config = serde_json::to_string_pretty(
                &lora.to_peft(&tightrope_nn::parameters(self.model), path),
            )? + "\n";
            extra.push((adapters::CONFIG.to_owned(), config.into_bytes()));
        }
        let schedule = block_on(trainer.saved_schedule(&self.settings.train.learning_rate()))?;
        let manifest = Manifest {
            format: checkpoint::FORMAT,
            step: done.steps,
            tokens_seen: done.tokens,
            seed: self.settings.train.seed,
            data: self.data.state(done.samples),
            schedule,
            settings: self.settings.to_json(|setting| !setting.passing)?,
            model: serde_json::to_value(self.model)?,
            base: self.base.clone(),
            checksums: Default::default(),
        };
        let (model, optimizer) = (trainer.saved_weights(), trainer.saved_states());
        let trainer = RefCell::new(trainer);
        let (model, optimizer) = (tensors(&trainer, model), tensors(&trainer, optimizer));
        let contents = Contents { model, optimizer, extra };
        Ok(checkpoint::save(self.dir, manifest, contents, KEPT)?)
    }
}

/// Tensors to save, each read back while its bytes are written, so that a checkpoint takes no second copy
/// of the model.
fn tensors<'a>(trainer: &'a RefCell<&mut Trainer>, saved: Vec<SavedTensor>) -> Vec<Tensor<'a>> {
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

/// Sets optimizer state and loss scale to those of a checkpoint.
///
/// # Errors
/// State of another optimizer or model, and those of the device.
pub fn restore_optimizer(trainer: &mut Trainer, checkpoint: &Checkpoint) -> Result<(), Failure> {
    restore(trainer, checkpoint)
        .with_context(|| format!("can't resume from `{}`", checkpoint.path.display()))
        .help("resume with the optimizer and model that the run began with, or start a new run")
}

fn restore(trainer: &mut Trainer, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let state = &checkpoint.optimizer;
    trainer.load_states(state.names(), &mut |name| Ok(state.require(name)?.to_state()?))?;
    Ok(trainer.load_schedule(&checkpoint.manifest.schedule)?)
}

/// Whether a checkpoint continues in these settings and this data.
///
/// # Errors
/// A changed seed, number of bits of optimizer state, adapter, corpus, tokenizer or split.
pub fn check_continues(
    checkpoint: &Checkpoint,
    settings: &Settings,
    data: &Data,
) -> Result<(), Failure> {
    let manifest = &checkpoint.manifest;
    let changed = |what: &str, was: String, now: String| {
        Err(Failure::usage(
            anyhow!("{what} was {was} when the run began, and is {now}"),
            "resume with what the run began with, or start a new run with --init on this checkpoint",
        ))
    };
    let (was, now) = (manifest.seed, settings.train.seed);
    if was != now {
        return changed("`train.seed`", was.to_string(), now.to_string());
    }
    // Checkpoints of earlier versions say nothing of adapters, and have none.
    let mut before = Settings::default();
    before.read_json(
        &manifest.settings,
        &Origin::Checkpoint(checkpoint.path.display().to_string()),
    )?;
    let adapted = settings.lora.rank > 0;
    for (key, matters) in [
        ("memory.optimizer_bits", true),
        ("lora.rank", true),
        ("lora.alpha", adapted),
        ("lora.targets", adapted),
        ("lora.base_bits", adapted),
    ] {
        let text = |settings: &Settings| -> anyhow::Result<String> {
            Ok(settings.value(key)?.map_or_else(|| "not set".to_owned(), |value| value.to_string()))
        };
        let (was, now) = (text(&before)?, text(settings)?);
        if matters && was != now {
            return changed(&format!("`{key}`"), was, now);
        }
    }
    let (was, now) = (&manifest.data, data.state(manifest.data.position));
    if was.tokenizer != now.tokenizer {
        return changed("the tokenizer", was.tokenizer.clone(), now.tokenizer);
    }
    if was.fingerprint != now.fingerprint {
        return changed("the data", described(was), described(&now));
    }
    if was.holdout != now.holdout {
        return changed("`data.holdout`", was.holdout.to_string(), now.holdout.to_string());
    }
    Ok(())
}

fn described(data: &DataState) -> String {
    let tokens: u64 = data.files.iter().map(|file| file.tokens).sum();
    let names: Vec<&str> = data.files.iter().take(3).map(|file| file.name.as_str()).collect();
    let more = if data.files.len() > names.len() { ", …" } else { "" };
    format!("{tokens} tokens of {}{more}", names.join(", "))
}
