//! Whether a checkpoint continues in the settings and the data that a run goes on with.

use std::path::Path;

use anyhow::anyhow;
use serde_json::Value;
use tightrope_data::Checkpoint;
use tightrope_nn::Model;

#[cfg(not(target_family = "wasm"))]
use super::Recipe;
#[cfg(not(target_family = "wasm"))]
use crate::error::Help as _;
use crate::error::{Error, Result};
use crate::run::{Batches, changed, check_continues};
use crate::settings::{LIST, RowFormat, Setting, Settings};
#[cfg(not(target_family = "wasm"))]
use crate::weights::Source;
use crate::weights::start::trained_with;

/// Key of the descriptions of a model's ops in a manifest's model.
pub(crate) const OPS: &str = "ops";

#[cfg(not(target_family = "wasm"))]
impl Recipe {
    /// The recipe of a new run that goes on from the checkpoint at `path`, whose weights may have been edited. Other weights may be frozen:
    /// optimizer state of weights that were frozen begins at 0.
    ///
    /// # Errors
    /// As [`Recipe::resume`].
    pub fn resume_changed(said: &Settings, path: &Path) -> Result<Self> {
        let checkpoint = Checkpoint::open_edited(path)
            .help("name the folder of a checkpoint, such as checkpoints/step-100 of a run")?;
        Self::from_checkpoint(said, Source::of_checkpoint(checkpoint, Vec::new())?, false)
    }
}

/// Checks that a checkpoint continues in these settings and this data. Unless `strict`, other weights may be frozen.
///
/// # Errors
/// A changed seed, storage of the master or of optimizer state, adapter, corpus, tokenizer or split.
pub(crate) fn check(
    checkpoint: &Checkpoint,
    settings: &Settings,
    data: &dyn Batches,
    strict: bool,
) -> Result<()> {
    check_continues(checkpoint, settings.train.seed, data)?;
    // Checkpoints of earlier versions say nothing of adapters, and have none.
    let before = trained_with(checkpoint)?;
    let adapted = settings.lora.rank > 0;
    let texts = |settings: &Settings| {
        matches!(settings.data.format, None | Some(RowFormat::Auto | RowFormat::Text))
    };
    let chats = !texts(settings) || !texts(&before);
    for (key, matters) in [
        ("memory.master", true),
        ("memory.optimizer_bits", true),
        ("memory.table_bits", true),
        ("train.freeze", strict),
        ("data.format", chats),
        ("data.train_on", chats),
        ("data.packing", chats),
        ("data.buckets", chats),
        ("lora.rank", true),
        ("lora.alpha", adapted),
        ("lora.targets", adapted),
        ("lora.rslora", adapted),
        ("lora.dora", adapted),
        ("lora.rank_pattern", adapted),
        ("lora.alpha_pattern", adapted),
        ("lora.layers", adapted),
        ("lora.layers_pattern", adapted),
        ("lora.exclude", adapted),
        ("lora.modules_to_save", adapted),
        ("lora.bias", adapted),
        ("lora.base_bits", adapted),
    ] {
        let (was, now) = (shown(&before, key)?, shown(settings, key)?);
        if matters && was != now {
            let refused = changed(&format!("`{key}`"), was, now);
            return match key {
                "train.freeze" => refused.map_err(Error::unless_strict),
                _ => refused,
            };
        }
    }
    Ok(())
}

/// Checks that the inputs and ops of the program's own model are those of `checkpoint`.
///
/// # Errors
/// Other inputs or ops of the loss: the first that differs.
pub(crate) fn check_ops(checkpoint: &Checkpoint, model: &dyn Model) -> Result<()> {
    let before = checkpoint.manifest.model.get(OPS).and_then(Value::as_array);
    // Checkpoints of earlier versions describe no ops.
    let Some(before) = before else { return Ok(()) };
    let now = model.ops();
    let pairs = (0..before.len().max(now.len()))
        .map(|index| (before.get(index).and_then(Value::as_str), now.get(index)));
    for (was, now) in pairs {
        let now = now.map(String::as_str);
        if was != now {
            let [was, now] = [was, now].map(|op| op.unwrap_or("missing"));
            return Err(Error::usage(
                anyhow!("the model has `{now}` where the checkpoint's has `{was}`"),
                "resume with the model that the run began with",
            )
            .unless_strict());
        }
    }
    Ok(())
}

/// Whether runs that differ in it train to other weights.
fn decides_numbers(setting: &Setting) -> bool {
    const CHANGES: [&str; 5] = [
        "memory.gradients",
        "memory.master",
        "memory.optimizer_bits",
        "memory.table_bits",
        "memory.consume_gradients",
    ];
    let exact_memory = setting.key.starts_with("memory.") && !CHANGES.contains(&setting.key);
    !setting.passing && !exact_memory
}

/// The value of a setting, in words.
fn shown(settings: &Settings, key: &str) -> anyhow::Result<String> {
    Ok(settings.value(key)?.map_or_else(|| "not set".to_owned(), |value| value.to_string()))
}

/// Holds a settings file of a run that was changed or damaged since it was written against the run's checkpoint: what decides
/// numbers must be the same, or be on the command line. How much memory a run may take doesn't decide them.
///
/// # Errors
/// Settings that differ, by name; a run without a checkpoint.
pub(crate) fn check_changed_file(
    file: &Path,
    read: &Settings,
    said: &Settings,
    checkpoint: Option<&Checkpoint>,
) -> Result<()> {
    let changed = format!("`{}` isn't as the run wrote it", file.display());
    let Some(checkpoint) = checkpoint else {
        return Err(Error::usage(
            anyhow!("{changed}, and there is no checkpoint to hold it against"),
            "start a new run; where the file is right, with --config and its name",
        ));
    };
    let before = trained_with(checkpoint)?;
    let mut differing = Vec::new();
    for setting in LIST.iter().filter(|setting| decides_numbers(setting)) {
        let (was, now) = (shown(&before, setting.key)?, shown(read, setting.key)?);
        if was != now && !said.on_command_line(setting.key) {
            differing.push(format!("`{}` is {now} and was {was}", setting.key));
        }
    }
    if differing.is_empty() {
        return Ok(());
    }
    Err(Error::usage(
        anyhow!("{changed}, and differs from its checkpoint: {}", differing.join(", ")),
        format!(
            "give on the command line what is meant, or go on as the checkpoint was trained, in a new run: \
             `tightrope train --resume {}`",
            checkpoint.path.display()
        ),
    ))
}
