//! A run to and from one file: the same tensors and manifest as in the command line's checkpoints.

use std::io::Write;

use tightrope_data::{Checkpoint, Contents, Manifest, Tensor, Tokenizer, checkpoint};
use tightrope_nn::{Done, ModelConfig, SavedTensor, Trainer};

use crate::error::{Error, Result};
use crate::run::Made;
use crate::setup::Setup;

/// The bytes of a checkpoint of the run `made` that has `done` so much, with its trainer.
///
/// # Errors
/// Those of the device.
pub async fn save<O>(made: &Made<O>, done: Done, trainer: &mut Trainer) -> Result<Vec<u8>> {
    let text = |value: &serde_json::Value| format!("{value:#}\n").into_bytes();
    let mut extra = vec![("config.json".to_owned(), text(&made.setup.model.to_hf()))];
    extra.extend(Tokenizer::Byte.files());
    extra.extend(made.data.own_files());
    let manifest = Manifest {
        format: checkpoint::FORMAT,
        step: done.steps,
        tokens_seen: done.tokens,
        seed: made.setup.settings.train.seed,
        data: made.data.state(done.samples),
        schedule: trainer.saved_schedule(&made.setup.settings.train.learning_rate()).await?,
        settings: made.setup.to_settings()?,
        model: serde_json::to_value(&made.setup.model)
            .map_err(|error| Error::Setup(format!("the model can't be written: {error}")))?,
        base: None,
        checksums: Default::default(),
    };
    let (weights, states) = (trainer.saved_weights(), trainer.saved_states());
    let model = tensors(trainer, weights).await?;
    let optimizer = tensors(trainer, states).await?;
    Ok(checkpoint::to_archive(manifest, Contents { model, optimizer, extra })?)
}

/// Reads tensors back. The bytes of each are freed as soon as they're written.
async fn tensors(trainer: &mut Trainer, saved: Vec<SavedTensor>) -> Result<Vec<Tensor<'static>>> {
    let mut tensors = Vec::with_capacity(saved.len());
    for tensor in saved {
        let values = trainer.saved_values(&tensor).await?;
        let dtype = tensor.ty.dtype;
        tensors.push(Tensor::streamed(tensor.name, tensor.ty, move |out: &mut dyn Write| {
            let mut element = vec![0; dtype.size()];
            values.iter().try_for_each(|&value| {
                dtype.write(&mut element, value.into());
                out.write_all(&element)
            })
        }));
    }
    Ok(tensors)
}

/// Fills a trainer with the tensors of a checkpoint.
///
/// # Errors
/// Tensors of another model or optimizer, and those of the device.
pub fn load(checkpoint: &Checkpoint, trainer: &mut Trainer) -> Result<()> {
    let (weights, states) = (&checkpoint.model, &checkpoint.optimizer);
    trainer.load_weights(weights.names(), &mut |name| Ok(weights.require(name)?.to_values()?))?;
    trainer.load_states(states.names(), &mut |name| Ok(states.require(name)?.to_state()?))?;
    Ok(trainer.load_schedule(&checkpoint.manifest.schedule)?)
}

/// The setup with what a checkpoint knows of its model and a setup doesn't say.
///
/// # Errors
/// A setup of another model.
pub fn with_model(setup: Setup, checkpoint: &Checkpoint) -> Result<Setup> {
    if checkpoint.manifest.base.is_some() {
        return Err(Error::Setup(
            "the checkpoint holds LoRA adapters, which the page doesn't train: open one of a whole model".into(),
        ));
    }
    let model: ModelConfig = serde_json::from_value(checkpoint.manifest.model.clone())
        .map_err(|error| Error::Setup(format!("the checkpoint's model can't be read: {error}")))?;
    model.check()?;
    let ModelConfig { dropout, norm_eps, rope_theta, .. } = model;
    let asked = ModelConfig { norm_eps, rope_theta, ..setup.model.clone() };
    if (ModelConfig { dropout, ..asked.clone() }) != model {
        return Err(Error::Setup(format!(
            "the checkpoint is of another model than the setup: {}",
            difference(&asked, &model)
        )));
    }
    Ok(setup.with_model(asked))
}

/// The first size in which two models differ.
fn difference(asked: &ModelConfig, found: &ModelConfig) -> String {
    let sizes = |model: &ModelConfig| {
        [
            ("layers", model.layers),
            ("channels", model.channels),
            ("heads", model.heads),
            ("kv_heads", model.kv_heads),
            ("hidden", model.hidden),
            ("context", model.context),
            ("vocab", model.vocab),
        ]
    };
    let pairs = sizes(asked).into_iter().zip(sizes(found));
    match pairs.into_iter().find(|(asked, found)| asked != found) {
        Some(((key, asked), (_, found))) => format!("`model.{key}` is {asked}, and it has {found}"),
        None => "family and tied output layer must be the same".to_owned(),
    }
}
