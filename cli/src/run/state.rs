//! A trainer to and from a checkpoint, bit for bit.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use pollster::block_on;
use serde_json::{Value, json};
use tightrope_core::{DType, Type};
use tightrope_data::{Checkpoint, Contents, DataState, Manifest, Tensor, checkpoint};
use tightrope_nn::{ModelConfig, Parameter, Part, Trainer, export};

use super::corpus::Data;
use crate::error::{Failure, Help as _};
use crate::settings::Settings;
use crate::setup;

/// Checkpoints of a run that are kept: the newest, and one to fall back to where the disk damages it.
const KEPT: usize = 2;
/// Key of f16 training's loss scale in the manifest.
const LOSS_SCALE: &str = "loss_scale";

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Optimizer steps.
    pub steps: u64,
    /// Windows of the data.
    pub windows: u64,
    /// Tokens.
    pub tokens: u64,
}

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
        let mut schedule = serde_json::to_value(setup::learning_rate(self.settings))?;
        if let Some(scale) = block_on(trainer.loss_scale())? {
            schedule[LOSS_SCALE] = json!(scale);
        }
        let manifest = Manifest {
            format: checkpoint::FORMAT,
            step: done.steps,
            tokens_seen: done.tokens,
            seed: self.settings.train.seed,
            data: self.data.state(done.windows),
            schedule,
            settings: lasting(self.settings)?,
            model: serde_json::to_value(self.model)?,
            checksums: Default::default(),
        };
        let trainer = RefCell::new(trainer);
        let contents = Contents { model: weights(&trainer), optimizer: states(&trainer), extra };
        Ok(checkpoint::save(self.dir, manifest, contents, KEPT)?)
    }
}

/// Settings that say where things lie and how often a run reports. The manifest leaves them out, so that
/// equal runs have equal checkpoints.
const PASSING: [(&str, &[&str]); 3] = [
    ("model", &["init"]),
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

/// All weights under their Hugging Face names, each read back while its bytes are written, so that a
/// checkpoint takes no second copy of the model.
fn weights<'a>(trainer: &'a RefCell<&mut Trainer>) -> Vec<Tensor<'a>> {
    let parameters = trainer.borrow().parameters().to_vec();
    let of_parameter = |(index, parameter): (usize, Parameter)| {
        let of_part = |(part, which): (usize, &Part)| {
            let ty = Type::new(DType::F32, parameter.part_shape(which));
            let parameter = parameter.clone();
            Tensor::streamed(which.name.clone(), ty, move |out: &mut dyn Write| {
                let values =
                    block_on(trainer.borrow_mut().weight(index)).map_err(io::Error::other)?;
                write_values(out, &export(&parameter, &values).swap_remove(part).values)
            })
        };
        parameter.parts.iter().enumerate().map(of_part).collect::<Vec<_>>()
    };
    parameters.into_iter().enumerate().flat_map(of_parameter).collect()
}

/// All optimizer state, read back as [`weights`] are.
fn states<'a>(trainer: &'a RefCell<&mut Trainer>) -> Vec<Tensor<'a>> {
    let borrowed = trainer.borrow();
    let names = state_names(&borrowed).into_iter().zip(borrowed.states());
    let of_state = |(index, (name, (parameter, _))): (usize, (String, (usize, &str)))| {
        let ty = Type::new(DType::F32, borrowed.parameters()[parameter].shape.clone());
        Tensor::streamed(name, ty, move |out: &mut dyn Write| {
            let values = block_on(trainer.borrow_mut().state(index)).map_err(io::Error::other)?;
            write_values(out, &values)
        })
    };
    names.enumerate().map(of_state).collect()
}

fn write_values(out: &mut dyn Write, values: &[f32]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(4 * values.len().min(1 << 16));
    for piece in values.chunks(1 << 16) {
        bytes.clear();
        bytes.extend(piece.iter().flat_map(|value| value.to_le_bytes()));
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Names of the optimizer's state tensors: of the parameter and the slot.
fn state_names(trainer: &Trainer) -> Vec<String> {
    let name = |(parameter, slot): (usize, &str)| {
        format!("{}.{slot}", trainer.parameters()[parameter].name)
    };
    trainer.states().into_iter().map(name).collect()
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
    let names = state_names(trainer);
    if let Some(other) = checkpoint.optimizer.names().find(|name| !names.iter().any(|n| n == name))
    {
        return Err(anyhow!(
            "it holds optimizer state `{other}`, which this optimizer doesn't keep"
        ));
    }
    for (index, name) in names.iter().enumerate() {
        let view = checkpoint.optimizer.require(name)?;
        let (parameter, _) = trainer.states()[index];
        let expected = &trainer.parameters()[parameter].shape;
        if view.shape != expected {
            return Err(anyhow!("state `{name}` has shape {:?}, not {expected:?}", view.shape));
        }
        trainer.set_state(index, &view.to_f32()?)?;
    }
    if let Some(scale) = checkpoint.manifest.schedule.get(LOSS_SCALE) {
        let scale: [f32; 2] = serde_json::from_value(scale.clone())?;
        trainer.set_loss_scale(scale)?;
    }
    Ok(())
}

/// Whether a checkpoint continues in these settings and this data.
///
/// # Errors
/// A changed seed, corpus, tokenizer or split.
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
