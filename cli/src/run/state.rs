//! A trainer to and from a checkpoint, bit for bit.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use pollster::block_on;
use serde_json::Value;
use tightrope_core::DType;
use tightrope_data::{Base, Checkpoint, Contents, DataState, Manifest, Tensor, checkpoint};
use tightrope_nn::{Done, ModelConfig, SavedTensor, Trainer};

use super::adapters;
use super::corpus::Data;
use crate::error::{Failure, Help as _};
use crate::settings::Settings;
use crate::setup;

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
        let schedule = block_on(trainer.saved_schedule(&setup::learning_rate(self.settings)))?;
        let manifest = Manifest {
            format: checkpoint::FORMAT,
            step: done.steps,
            tokens_seen: done.tokens,
            seed: self.settings.train.seed,
            data: self.data.state(done.samples),
            schedule,
            settings: lasting(self.settings)?,
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

/// Settings that say where things lie and how often a run reports. The manifest leaves them out, so that
/// equal runs have equal checkpoints.
const PASSING: [(&str, &[&str]); 5] = [
    ("model", &["init"]),
    ("lora", &["init"]),
    ("memory", &["plan"]),
    ("data", &["files", "tokenizer"]),
    ("run", &["out", "threads", "log_every", "eval_every", "sample_every", "checkpoint_every"]),
];

/// The settings that decide numbers.
fn lasting(settings: &Settings) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(settings)?;
    for (table, keys) in PASSING {
        if let Some(table) = value.get_mut(table).and_then(Value::as_object_mut) {
            table.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
    Ok(value)
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
    let bits = manifest.settings.pointer("/memory/optimizer_bits").and_then(Value::as_u64);
    let (was, now) = (bits, u64::from(u32::from(settings.memory.optimizer_bits)));
    if let Some(was) = was.filter(|&was| was != now) {
        return changed("`memory.optimizer_bits`", was.to_string(), now.to_string());
    }
    // What is trained, and beside what. Checkpoints of earlier versions say nothing, and have no adapters.
    let mine = serde_json::to_value(&settings.lora).context("the settings don't fit JSON")?;
    let before = manifest.settings.get("lora").cloned();
    let before = before.unwrap_or_else(|| serde_json::json!({ "rank": 0 }));
    for (key, name) in [
        ("rank", "`lora.rank`"),
        ("alpha", "`lora.alpha`"),
        ("targets", "`lora.targets`"),
        ("base_bits", "`lora.base_bits`"),
    ] {
        let (was, now) = (&before[key], &mine[key]);
        let adapted = key == "rank" || settings.lora.rank > 0;
        if adapted && was != now {
            return changed(name, was.to_string(), now.to_string());
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
