//! Checkpoints of a trainer, whatever model it has: saved whole or not at all, and gone on from bit for bit.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tightrope_data::{Contents, DataState, Manifest, checkpoint};
use tightrope_nn::{Done, LearningRate, TrainError, Trainer};

use crate::block_on;
use crate::run::checkpoint::{KEPT, tensors};

/// Why a trainer can't be saved or go on.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The disk, or a damaged file.
    #[error(transparent)]
    Data(#[from] tightrope_data::Error),
    /// The device, or a checkpoint of another model or optimizer.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Another seed: the rest of the run would be another one's.
    #[error("the checkpoint's run has the seed {found}, this one {expected}; give it the same")]
    Seed {
        /// Seed of the checkpoint.
        found: u64,
        /// Seed of the trainer.
        expected: u64,
    },
}

/// Writes `checkpoints/step-N` under `dir`, where N is the number of steps `done`, and removes all but the newest two. It
/// appears whole or not at all, whenever the process dies.
///
/// # Errors
/// Those of the device and of the disk; earlier checkpoints are as they were.
pub fn save(
    trainer: &mut Trainer,
    dir: impl AsRef<Path>,
    done: Done,
    rate: &LearningRate,
) -> Result<PathBuf, CheckpointError> {
    let manifest = Manifest {
        format: checkpoint::FORMAT,
        step: done.steps,
        tokens_seen: done.tokens,
        seed: trainer.config().seed,
        data: DataState::new(done.samples, &[], "", 0.0),
        schedule: block_on(trainer.saved_schedule(rate))?,
        settings: Value::Null,
        model: Value::Null,
        base: None,
        checksums: Default::default(),
    };
    let (model, optimizer) = (trainer.saved_weights(), trainer.saved_states());
    let trainer = RefCell::new(trainer);
    let (model, optimizer) = (tensors(&trainer, model), tensors(&trainer, optimizer));
    let contents = Contents { model, optimizer, extra: vec![] };
    Ok(checkpoint::save(dir, manifest, contents, KEPT)?)
}

/// Sets weights and optimizer state to those of the newest checkpoint under `dir`, and says how far it had come; `None`
/// where there is none, and the trainer is as it was.
///
/// # Errors
/// A checkpoint of another model, optimizer or seed, a damaged one without another before it, and those of the device.
pub fn resume(
    trainer: &mut Trainer,
    dir: impl AsRef<Path>,
) -> Result<Option<Done>, CheckpointError> {
    if checkpoint::list(&dir)?.is_empty() {
        return Ok(None);
    }
    let (found, _) = checkpoint::latest_complete(dir)?;
    let (manifest, expected) = (&found.manifest, trainer.config().seed);
    if manifest.seed != expected {
        return Err(CheckpointError::Seed { found: manifest.seed, expected });
    }
    let (model, state) = (&found.model, &found.optimizer);
    trainer.load_weights(model.names(), &mut |name| Ok(model.require(name)?.to_values()?))?;
    trainer.load_states(state.names(), &mut |name| Ok(state.require(name)?.to_state()?))?;
    trainer.load_schedule(&manifest.schedule)?;
    Ok(Some(Done {
        steps: manifest.step,
        samples: manifest.data.position,
        tokens: manifest.tokens_seen,
    }))
}
