//! The model that a directory's `config.json` describes.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use tightrope_data::{Weights, files, limits};
use tightrope_nn::Architecture;

use super::adapters::CONFIG as ADAPTERS;
use super::hub;
use crate::error::{Error, Help as _, Result};

const CONFIG: &str = "config.json";
/// Advice for a directory that holds no model.
const KINDS: &str = "name a run directory, a checkpoint in one (checkpoints/step-N), an archive of one (.tar), \
                     or a Hugging Face directory with config.json and model.safetensors or pytorch_model.bin";

/// Advice for a directory of adapters.
const BESIDE: &str =
    "it holds adapters: name the model that they are beside with --init, and them with --lora-init";

/// Reads the `config.json` of a model directory.
///
/// # Errors
/// A file that is missing, damaged, or of a model that isn't supported; more layers than there are tensors.
pub(super) fn read(dir: &Path) -> Result<Architecture> {
    let file = dir.join(CONFIG);
    let text = files::read(&file, limits::DESCRIPTION)
        .with_context(|| {
            format!("`{}` is no model directory: can't read `{CONFIG}`", dir.display())
        })
        .map_err(|error| {
            let help = match hub::advice(dir) {
                _ if dir.join(ADAPTERS).exists() => BESIDE.to_owned(),
                Some(hub) => format!("{KINDS}; {hub}"),
                None => KINDS.to_owned(),
            };
            Error::usage(error, help)
        })?;
    let value = serde_json::from_slice(&text)
        .with_context(|| format!("`{}` is not JSON", file.display()))
        .help("fetch the file again")?;
    let config = Architecture::from_hf(&value)
        .with_context(|| format!("the model in `{}` can't be used", dir.display()))
        .help("name another model; docs/models.md lists those that are read")?;
    check_layers(dir, &config)?;
    Ok(config)
}

/// Refuses a description of more layers than there are tensors, before a graph is made of them. Published models have fewer
/// than 256, and are not opened for it.
fn check_layers(dir: &Path, config: &Architecture) -> Result<()> {
    const USUAL_LAYERS: usize = 256;
    let layers = match config {
        Architecture::Language(model) => model.layers,
        Architecture::Classifier(model) => model.decoder.layers,
        Architecture::Vit(model) => model.layers,
        Architecture::Bert(model) => model.layers,
    };
    if layers <= USUAL_LAYERS {
        return Ok(());
    }
    // Weights that are missing or damaged are refused where they are read.
    let Ok(weights) = Weights::open(dir) else { return Ok(()) };
    let tensors = weights.names().len();
    if layers <= tensors {
        return Ok(());
    }
    let message = format!(
        "`{}` describes {layers} layers in its {CONFIG}, and its weights are {tensors} tensors",
        dir.display()
    );
    Err(Error::failed(anyhow!(message), "fetch the model again, or name another one"))
}
