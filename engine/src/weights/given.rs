//! Weights that a program gives its own model.

use std::collections::BTreeMap;

use anyhow::anyhow;
use tightrope_data::{Base, Checkpoint, content};
use tightrope_nn::{TrainError, Trainer};

use crate::checkpoint::load_weights;
use crate::error::{Error, Result};

/// Weights of a model by their names in checkpoints.
pub struct Given {
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    fingerprint: String,
}

impl Given {
    /// Weights by name, each with its shape and its elements.
    pub fn new(tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>) -> Self {
        let line = |(name, (shape, values)): (&String, &(Vec<usize>, Vec<f32>))| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            format!("{name} {shape:?} {}\n", content(&bytes))
        };
        let lines: String = tensors.iter().map(line).collect();
        Self { fingerprint: content(lines.as_bytes()), tensors }
    }

    /// The name of these weights for adapters that are beside them.
    pub(super) fn base(&self) -> Base {
        Base::Given { fingerprint: self.fingerprint.clone() }
    }

    /// Sets every weight of the model. Adapters begin as their seed has them.
    pub(super) fn fill(&self, trainer: &mut Trainer) -> std::result::Result<(), TrainError> {
        trainer.load_weights(self.tensors.keys(), &mut |name| Ok(self.tensors[name].clone()))
    }
}

/// Sets the weights of a program's own model to those of `checkpoint`: all of them, or adapters beside those that the run began with.
///
/// # Errors
/// Weights of another model, adapters without the weights that they are beside, and errors of the device.
pub(super) fn load(
    trainer: &mut Trainer,
    checkpoint: &Checkpoint,
    given: Option<&Given>,
) -> Result<()> {
    let Some(base) = &checkpoint.manifest.base else {
        return Ok(load_weights(trainer, checkpoint)?);
    };
    match base {
        Base::Seed(seed) => trainer.initialise_from(*seed)?,
        Base::Given { .. } | Base::Model { .. } => match given {
            Some(given) if given.base() == *base => given.fill(trainer)?,
            other => {
                let problem = if other.is_some() { "others are given" } else { "none are given" };
                return Err(Error::usage(
                    anyhow!(
                        "the adapters in `{}` are beside weights that the run began with, and {problem}",
                        checkpoint.path.display()
                    ),
                    "give with --init the weights that the run began with",
                ));
            }
        },
    }
    let weights = &checkpoint.model;
    let mut get = |name: &str| Ok(weights.require(name)?.to_values()?);
    Ok(trainer.load_adapters(weights.names(), &mut get)?)
}
