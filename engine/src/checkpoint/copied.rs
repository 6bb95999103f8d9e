//! A checkpoint's tensors in the host's memory, which are written while training goes on.

use std::io::Write;
use std::ops::Range;
use std::path::Path;

use tightrope_core::Type;
use tightrope_data::checkpoint::{self, Saved};
use tightrope_data::{Contents, Manifest, Tensor};
use tightrope_nn::{SavedTensor, Trainer};

use super::{CheckpointError, Numbers, finite_scale, write_values};

/// The tensors of a checkpoint, as its files have them.
pub(crate) struct Copied {
    memory: Vec<u8>,
    model: Vec<Piece>,
    optimizer: Vec<Piece>,
}

/// A tensor, and where its bytes are.
struct Piece {
    name: String,
    ty: Type,
    at: Range<usize>,
}

impl Copied {
    /// Copies weights and optimizer state into `memory`, whose allocation is used again. `None` where the host hasn't as much.
    ///
    /// # Errors
    /// Weights that aren't finite, and those of the device.
    pub async fn new(
        trainer: &mut Trainer,
        mut memory: Vec<u8>,
    ) -> Result<Option<Self>, CheckpointError> {
        let (weights, states) = (trainer.saved_weights(), trainer.saved_states());
        let read = Numbers::weights(trainer);
        finite_scale(trainer.loss_scale().await?)?;
        memory.clear();
        let all = weights.iter().chain(&states);
        if memory.try_reserve_exact(all.map(|saved| saved.ty.bytes()).sum()).is_err() {
            return Ok(None);
        }
        let model = copy(trainer, weights, read, &mut memory).await?;
        let optimizer = copy(trainer, states, Numbers::States, &mut memory).await?;
        Ok(Some(Self { memory, model, optimizer }))
    }

    /// Writes `checkpoints/step-N` under `dir`, and removes all but the `keep` newest and the best one.
    ///
    /// # Errors
    /// Those of the disk; earlier checkpoints are as they were.
    pub fn write(
        &self,
        dir: &Path,
        (manifest, keep): (Manifest, usize),
        extra: Vec<(String, Vec<u8>)>,
    ) -> Result<Saved, CheckpointError> {
        let (model, optimizer) = (self.tensors(&self.model), self.tensors(&self.optimizer));
        Ok(checkpoint::save(dir, manifest, Contents { model, optimizer, extra }, keep)?)
    }

    fn tensors(&self, pieces: &[Piece]) -> Vec<Tensor<'_>> {
        let tensor = |piece: &Piece| {
            let bytes = &self.memory[piece.at.clone()];
            let write = move |out: &mut dyn Write| out.write_all(bytes);
            Tensor::streamed(piece.name.clone(), piece.ty.clone(), write)
        };
        pieces.iter().map(tensor).collect()
    }

    /// The allocation, for the next one.
    pub fn into_memory(self) -> Vec<u8> {
        self.memory
    }
}

async fn copy(
    trainer: &mut Trainer,
    saved: Vec<SavedTensor>,
    numbers: Numbers,
    memory: &mut Vec<u8>,
) -> Result<Vec<Piece>, CheckpointError> {
    let mut pieces = Vec::with_capacity(saved.len());
    for saved in saved {
        let (start, mut copied) = (memory.len(), 0);
        while copied < saved.ty.elements() {
            let values = trainer.saved_values_from(&saved, copied).await?;
            numbers.check(&saved.name, copied, &values)?;
            // Writing to a Vec can't fail.
            let _ = write_values(memory, saved.ty.dtype, &values);
            copied += values.len();
        }
        pieces.push(Piece { name: saved.name, ty: saved.ty, at: start..memory.len() });
    }
    Ok(pieces)
}
