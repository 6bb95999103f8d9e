//! Checkpoints of a trainer, whatever model it has: saved whole or not at all, and gone on from bit for bit.
//!
//! A [`Run`](crate::run::Run) saves its own, with what describes it. [`save`] and [`resume`] are for a loop of one's own:
//!
//! ```
//! use tightrope::backends::Cpu;
//! use tightrope::nn::{self, Batch, Done, LearningRate, Planned, Schedule, Trainer, TrainerConfig};
//! use tightrope::{block_on, checkpoint};
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path();
//! let config = TrainerConfig::new(nn::preset("tiny")?.build(16)?);
//! let rate = LearningRate { schedule: Schedule::Constant, lr: 1e-3, min_lr: 1e-3, warmup: 0, steps: 2 };
//! let trainer = || -> Result<Trainer, Box<dyn std::error::Error>> {
//!     let device = Cpu::new(1)?;
//!     let mut trainer = Trainer::new(Planned::new(&config, &device)?, Box::new(device))?;
//!     trainer.initialise()?;
//!     Ok(trainer)
//! };
//! let tokens = [1; 16];
//! let mut first = trainer()?;
//! first.step(0, rate.lr_at(0), &Batch::text(&tokens, &tokens))?;
//! checkpoint::save(&mut first, dir, Done { steps: 1, samples: 1, tokens: 16 }, &rate)?;
//!
//! // In a later process.
//! let mut second = trainer()?;
//! let done = checkpoint::resume(&mut second, dir)?.expect("a checkpoint was saved");
//! assert_eq!(done.steps, 1);
//! assert_eq!(block_on(second.weight(0))?, block_on(first.weight(0))?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(target_family = "wasm"))]
mod copied;
#[cfg(not(target_family = "wasm"))]
mod joint;

#[cfg(not(target_family = "wasm"))]
use std::cell::RefCell;
use std::io::{self, Write};
#[cfg(not(target_family = "wasm"))]
use std::path::{Path, PathBuf};

use serde_json::Value;
use tightrope_core::DType;
#[cfg(not(target_family = "wasm"))]
use tightrope_data::Contents;
#[cfg(not(target_family = "wasm"))]
use tightrope_data::checkpoint::Saved;
use tightrope_data::{Checkpoint, DataState, Manifest, Tensor, checkpoint};
use tightrope_nn::{Done, LearningRate, ReadError, SavedTensor, TrainError, Trainer, UPDATES};

#[cfg(not(target_family = "wasm"))]
use crate::block_on;

#[cfg(not(target_family = "wasm"))]
pub(crate) use copied::Copied;
#[cfg(not(target_family = "wasm"))]
pub(crate) use joint::{Given, cuts, write_own};

/// Checkpoints that are kept unless somebody says another number: the newest, and one to fall back to where the disk damages it.
pub(crate) const KEPT: usize = 2;

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
    /// Weights or optimizer state that have diverged, from which nothing can go on.
    #[error(
        "element {element} of `{name}` is {value}, which the precision doesn't hold: no checkpoint was written"
    )]
    NotFinite {
        /// The tensor.
        name: String,
        /// Index of its first element that isn't finite in the precision of the run.
        element: usize,
        /// The element.
        value: f32,
    },
}

/// Writes `checkpoints/step-N` under `dir`, where N is the number of steps `done`, and removes all but the newest two. It
/// appears whole or not at all, whenever the process dies.
///
/// # Errors
/// Weights that aren't finite, and those of the device and of the disk; earlier checkpoints are as they were.
#[cfg(not(target_family = "wasm"))]
pub fn save(
    trainer: &mut Trainer,
    dir: impl AsRef<Path>,
    done: Done,
    rate: &LearningRate,
) -> Result<PathBuf, CheckpointError> {
    let data = DataState::new(done.samples, &[], "", 0.0);
    let manifest = block_on(manifest(trainer, rate, done, data))?;
    Ok(write(trainer, dir.as_ref(), (manifest, KEPT), vec![], &|_| ())?.path)
}

/// Writes a checkpoint of `trainer` with this manifest and these files besides, and removes all but the `keep` newest and the best one. `written`
/// hears of bytes of tensors as they're written.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn write(
    trainer: &mut Trainer,
    dir: &Path,
    (manifest, keep): (Manifest, usize),
    extra: Vec<(String, Vec<u8>)>,
    written: &dyn Fn(usize),
) -> Result<Saved, CheckpointError> {
    let (weights, states) = (trainer.saved_weights(), trainer.saved_states());
    let read = Numbers::weights(trainer);
    finite_scale(block_on(trainer.loss_scale())?)?;
    let (trainer, diverged) = (RefCell::new(trainer), RefCell::new(None));
    let model = tensors((&trainer, written), weights, read, &diverged);
    let optimizer = tensors((&trainer, written), states, Numbers::States, &diverged);
    let saved = checkpoint::save(dir, manifest, Contents { model, optimizer, extra }, keep);
    match diverged.take() {
        Some(error) => Err(error),
        None => Ok(saved?),
    }
}

/// Numbers of a checkpoint, of which some can't be gone on from.
#[cfg(not(target_family = "wasm"))]
#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// Weights that are read in this dtype.
    Weights(DType),
    States,
}

#[cfg(not(target_family = "wasm"))]
impl Numbers {
    /// Check of a trainer's weights.
    fn weights(trainer: &Trainer) -> Self {
        Self::Weights(trainer.config().precision.dtype())
    }

    /// Refuses the first of `values` that nothing can go on from; they begin at element `first` of the tensor.
    fn check(self, name: &str, first: usize, values: &[f32]) -> Result<(), CheckpointError> {
        let fits = |value: &f32| match self {
            Self::Weights(dtype) => fits_dtype(dtype, *value),
            // A moment that overflows holds its weight where it is; one that's no number makes it none.
            Self::States => !value.is_nan(),
        };
        // Looking at all of them is faster than to look where to stop.
        if values.iter().fold(true, |all, value| all & fits(value)) {
            return Ok(());
        }
        let Some(at) = values.iter().position(|value| !fits(value)) else { return Ok(()) };
        let (name, element, value) = (name.to_owned(), first + at, values[at]);
        Err(CheckpointError::NotFinite { name, element, value })
    }
}

/// Refuses a loss scale that nothing can go on from.
#[cfg(not(target_family = "wasm"))]
fn finite_scale(scale: Option<[f32; 2]>) -> Result<(), CheckpointError> {
    match scale {
        Some([value, _]) if !value.is_finite() => {
            Err(CheckpointError::NotFinite { name: "loss_scale".to_owned(), element: 0, value })
        }
        _ => Ok(()),
    }
}

/// Sets weights and optimizer state to those of the newest checkpoint under `dir`, and says how far it had come; `None`
/// where there is none, and the trainer is as it was.
///
/// # Errors
/// A checkpoint of another model, optimizer or seed, a damaged one without another before it, and those of the device.
#[cfg(not(target_family = "wasm"))]
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
    load_weights(trainer, &found)?;
    load_optimizer(trainer, &found)?;
    Ok(Some(done(manifest)))
}

/// Sets weights to those of a checkpoint.
pub(crate) fn load_weights(trainer: &mut Trainer, from: &Checkpoint) -> Result<(), TrainError> {
    let weights = &from.model;
    trainer.load_weights(weights.names(), &mut |name| Ok(weights.require(name)?.to_values()?))
}

/// Sets optimizer state and loss scale to those of a checkpoint.
pub(crate) fn load_optimizer(trainer: &mut Trainer, from: &Checkpoint) -> Result<(), TrainError> {
    trainer.load_states(from.optimizer.names(), &mut |name| state(from, name))?;
    trainer.load_schedule(&from.manifest.schedule)
}

/// As [`load_optimizer`], of a checkpoint whose run froze other weights.
pub(crate) fn load_optimizer_of_both(
    trainer: &mut Trainer,
    from: &Checkpoint,
) -> Result<(), TrainError> {
    trainer.load_states_of_both(from.optimizer.names(), &mut |name| state(from, name))?;
    trainer.load_schedule(&from.manifest.schedule)
}

/// Shape and values of a tensor of the optimizer's state.
fn state(from: &Checkpoint, name: &str) -> Result<(Vec<usize>, Vec<f32>), ReadError> {
    let state = &from.optimizer;
    match name {
        // A checkpoint from before updates were counted: all steps were taken for updates.
        UPDATES if !state.names().any(|known| known == UPDATES) => {
            Ok((vec![1], vec![from.manifest.step as f32]))
        }
        _ => Ok(state.require(name)?.to_state()?),
    }
}

/// How far the run of a checkpoint had come.
pub(crate) fn done(manifest: &Manifest) -> Done {
    Done { steps: manifest.step, samples: manifest.data.position, tokens: manifest.tokens_seen }
}

/// What a checkpoint of `trainer` says of how far it has come. It describes neither settings nor model.
pub(crate) async fn manifest(
    trainer: &mut Trainer,
    rate: &LearningRate,
    done: Done,
    data: DataState,
) -> Result<Manifest, TrainError> {
    Ok(Manifest {
        format: checkpoint::FORMAT,
        step: done.steps,
        tokens_seen: done.tokens,
        seed: trainer.config().seed,
        data,
        schedule: trainer.saved_schedule(rate).await?,
        settings: Value::Null,
        model: Value::Null,
        base: None,
        teacher: None,
        evaluations: None,
        checksums: Default::default(),
    })
}

/// Reads tensors back. The bytes of each are freed as soon as they're written.
pub(crate) async fn read_back(
    trainer: &mut Trainer,
    saved: Vec<SavedTensor>,
) -> Result<Vec<Tensor<'static>>, TrainError> {
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
/// of the model. `told` hears of their bytes. The first value that nothing can go on from fails, and goes into `diverged`.
#[cfg(not(target_family = "wasm"))]
fn tensors<'a>(
    (trainer, told): (&'a RefCell<&mut Trainer>, &'a dyn Fn(usize)),
    saved: Vec<SavedTensor>,
    numbers: Numbers,
    diverged: &'a RefCell<Option<CheckpointError>>,
) -> Vec<Tensor<'a>> {
    let tensor = |saved: SavedTensor| {
        let (name, ty) = (saved.name.clone(), saved.ty.clone());
        Tensor::streamed(name, ty, move |out: &mut dyn Write| {
            let mut written = 0;
            while written < saved.ty.elements() {
                let values = block_on(trainer.borrow_mut().saved_values_from(&saved, written));
                let values = values.map_err(io::Error::other)?;
                if let Err(error) = numbers.check(&saved.name, written, &values) {
                    diverged.replace(Some(error));
                    return Err(io::Error::other("a number has diverged"));
                }
                write_values(out, saved.ty.dtype, &values)?;
                told(values.len() * saved.ty.dtype.size());
                written += values.len();
            }
            Ok(())
        })
    };
    saved.into_iter().map(tensor).collect()
}

/// Returns `true` if a number is finite after it was rounded to a dtype.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn fits_dtype(dtype: DType, value: f32) -> bool {
    // The least number that is rounded to infinity.
    let end = match dtype {
        DType::F16 => 65_520.0,
        DType::BF16 => f32::from_bits(0x7f7f_8000),
        _ => f32::INFINITY,
    };
    value.abs() < end
}

pub(crate) fn write_values(out: &mut dyn Write, dtype: DType, values: &[f32]) -> io::Result<()> {
    const PIECE: usize = 1 << 16;
    let size = dtype.size();
    let mut bytes = vec![0; size * values.len().min(PIECE)];
    for piece in values.chunks(PIECE) {
        let bytes = &mut bytes[..size * piece.len()];
        let elements = bytes.chunks_exact_mut(size).zip(piece);
        match dtype {
            // Nearly all of a checkpoint.
            DType::F32 => elements.for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes())),
            _ => elements.for_each(|(to, &value)| dtype.write(to, value.into())),
        }
        out.write_all(bytes)?;
    }
    Ok(())
}
