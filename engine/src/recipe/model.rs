//! The model that settings describe.

use std::path::Path;

use anyhow::anyhow;
use tightrope_nn::defaults::{self, Sizes};
use tightrope_nn::{ModelConfig, preset};

use crate::error::{Error, Result};
use crate::settings::{Family, Settings};
use crate::weights::source::config_of;
use crate::weights::tokenizer;

/// The model that the settings describe. Its context is the number of positions it has, of which a run
/// may use fewer.
///
/// # Errors
/// An unknown preset, a model directory that can't be read, and sizes that don't fit each other.
pub fn model_config(settings: &Settings) -> Result<ModelConfig> {
    let own = &settings.model;
    let base = match (&own.init, &own.preset) {
        (Some(init), _) => config_of(init)?,
        (None, Some(name)) => preset(name)?,
        (None, None) if own.family == Some(Family::Llama) => preset(defaults::LLAMA)?,
        (None, None) => defaults::MODEL,
    };
    let vocab = match (own.vocab, &settings.data.tokenizer, &own.init) {
        (None, Some(name), None) => Some(tokenizer::named(name)?.vocab_size()),
        (vocab, _, _) => vocab,
    };
    let sizes = Sizes {
        // A model on disk keeps its positions, of which a run may use fewer.
        context: own.context.filter(|_| own.init.is_none()),
        vocab,
        ..own.sizes()
    };
    let config = sizes.over(&base);
    config.check()?;
    if let Some(init) = &own.init {
        agrees(settings, &base, init)?;
    }
    Ok(config)
}

/// Whether the sizes that the settings name are those of the model in `dir`: weights of one shape can't
/// start a model of another.
///
/// # Errors
/// The first size that isn't.
pub fn agrees(settings: &Settings, model: &ModelConfig, dir: &Path) -> Result<()> {
    let own = &settings.model;
    for (key, asked, found) in [
        ("layers", own.layers, model.layers),
        ("channels", own.channels, model.channels),
        ("heads", own.heads, model.heads),
        ("kv_heads", own.kv_heads, model.kv_heads),
        ("hidden", own.hidden, model.hidden),
        ("vocab", own.vocab, model.vocab),
        ("tied", own.tied.map(usize::from), usize::from(model.tied)),
    ] {
        if let Some(asked) = asked.filter(|&asked| asked != found) {
            return Err(Error::usage(
                anyhow!(
                    "`model.{key}` is {asked}, and the model in `{}` has {found}",
                    dir.display()
                ),
                format!(
                    "leave `model.{key}` out, or start a model of these sizes from random weights"
                ),
            ));
        }
    }
    Ok(())
}
