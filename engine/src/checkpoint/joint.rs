//! What one rank writes of a checkpoint that all ranks write.

use std::io;

use tightrope_data::checkpoint::{CutTensor, Cuts, Part};
use tightrope_nn::{SavedTensor, TrainError, Trainer};

use super::{CheckpointError, Numbers, finite_scale, write_values};
use crate::block_on;

/// How the tensors of a checkpoint are cut among ranks.
pub(crate) fn cuts(trainer: &Trainer, adapters: bool) -> Cuts {
    let ranks = trainer.config().ranks;
    let of = |saved: SavedTensor| {
        let cut = trainer.cut(&saved);
        let runs = (0..ranks).map(|rank| cut.runs(rank)).collect();
        CutTensor { name: saved.name, ty: saved.ty, runs }
    };
    Cuts {
        adapters,
        model: trainer.saved_weights().into_iter().map(of).collect(),
        optimizer: trainer.saved_states().into_iter().map(of).collect(),
    }
}

/// All tensors of a checkpoint in the order of [`Cuts::tensors`], each with what its numbers are.
fn saved(trainer: &Trainer) -> Vec<(SavedTensor, Numbers)> {
    let numbers = Numbers::weights(trainer);
    let weights = trainer.saved_weights().into_iter().map(|saved| (saved, numbers));
    let states = trainer.saved_states().into_iter().map(|saved| (saved, Numbers::States));
    weights.chain(states).collect()
}

/// What keeps a rank from giving its values.
enum Stopped {
    Disk(io::Error),
    Other(CheckpointError),
}

impl From<TrainError> for Stopped {
    fn from(error: TrainError) -> Self {
        Self::Other(error.into())
    }
}

/// Writes what this rank holds, each piece read back while it's written. Gives what [`Part::write`] gives.
///
/// # Errors
/// Numbers that aren't finite, and those of the device and of the disk.
pub(crate) fn write_own(
    trainer: &mut Trainer,
    part: &mut Part,
    cuts: &Cuts,
) -> Result<Vec<u64>, CheckpointError> {
    finite_scale(block_on(trainer.loss_scale())?)?;
    let (saved, rank) = (saved(trainer), trainer.rank());
    let tensors: Vec<&CutTensor> = cuts.tensors().collect();
    let mut stopped = None;
    let written = part.write(cuts, |index, out| {
        let (saved, numbers) = &saved[index];
        let mut before = 0;
        let given = trainer.give_values(saved, |values| {
            check(*numbers, tensors[index], (rank, before), values).map_err(Stopped::Other)?;
            before += values.len();
            write_values(out, saved.ty.dtype, values).map_err(Stopped::Disk)
        });
        block_on(given).map_err(|error| match error {
            Stopped::Disk(error) => error,
            Stopped::Other(error) => {
                stopped = Some(error);
                io::Error::other("its numbers can't be read, or have diverged")
            }
        })
    });
    match stopped {
        Some(error) => Err(error),
        None => Ok(written?),
    }
}

/// Refuses the first of `values` that nothing can go on from, where a rank has given so many of the tensor before.
fn check(
    numbers: Numbers,
    tensor: &CutTensor,
    (rank, before): (usize, usize),
    values: &[f32],
) -> Result<(), CheckpointError> {
    let Err(error) = numbers.check(&tensor.name, 0, values) else { return Ok(()) };
    let CheckpointError::NotFinite { name, element, value } = error else { return Err(error) };
    let mut given = tensor.runs[rank].iter().cloned().flatten();
    let element = given.nth(before + element).unwrap_or(element);
    Err(CheckpointError::NotFinite { name, element, value })
}

/// What this rank holds, copied into the host's memory, from which it's written while training goes on.
pub(crate) struct Given {
    memory: Vec<u8>,
    /// Where each tensor's bytes end.
    ends: Vec<usize>,
}

impl Given {
    /// Copies into `memory`, whose allocation is used again. `None` where the host hasn't as much.
    ///
    /// # Errors
    /// Numbers that aren't finite, and those of the device.
    pub async fn new(
        trainer: &mut Trainer,
        cuts: &Cuts,
        mut memory: Vec<u8>,
    ) -> Result<Option<Self>, CheckpointError> {
        let rank = trainer.rank();
        finite_scale(trainer.loss_scale().await?)?;
        memory.clear();
        let bytes = |tensor: &CutTensor| {
            tensor.runs[rank].iter().map(|run| run.len()).sum::<usize>() * tensor.ty.dtype.size()
        };
        if memory.try_reserve_exact(cuts.tensors().map(bytes).sum()).is_err() {
            return Ok(None);
        }
        let mut ends = vec![];
        for ((saved, numbers), tensor) in saved(trainer).iter().zip(cuts.tensors()) {
            let mut before = 0;
            trainer
                .give_values(saved, |values| {
                    check(*numbers, tensor, (rank, before), values)?;
                    before += values.len();
                    // Writing to a Vec can't fail.
                    let _ = write_values(&mut memory, saved.ty.dtype, values);
                    Ok::<(), CheckpointError>(())
                })
                .await?;
            ends.push(memory.len());
        }
        Ok(Some(Self { memory, ends }))
    }

    /// Writes it. Gives what [`Part::write`] gives.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&self, part: &mut Part, cuts: &Cuts) -> Result<Vec<u64>, CheckpointError> {
        let start = |index: usize| index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let written = part
            .write(cuts, |index, out| out.write_all(&self.memory[start(index)..self.ends[index]]));
        Ok(written?)
    }

    /// The allocation, for the next one.
    pub fn into_memory(self) -> Vec<u8> {
        self.memory
    }
}
