//! Work on the rows of a matrix: cross-entropy, softmax, sums, embeddings and rotary positions.
//!
//! Letters: R rows, C columns, V vocabulary, B batch, T positions, D channels of a head. Matrices are
//! contiguous; arithmetic is in f32 whatever the storage. Every sum has an order that depends on the
//! shape only, so results do not depend on the number of threads.

mod cap;
mod cross_entropy;
mod distillation;
mod embedding;
mod rope;
mod softmax;
mod sums;
#[cfg(test)]
mod tests;

pub use cap::cap_logits;
pub use cross_entropy::{
    Slope, counted, cross_entropy, cross_entropy_grad, cross_entropy_in_place, hits,
};
pub use distillation::{Soft, distil};
pub use embedding::{gather, scatter_add, scatter_add_rounded};
pub use rope::{Places, Rotary, rope, rope_in_place, rope_scratch};
pub use softmax::{softmax, softmax_backward};
pub use sums::{accumulate, block_square_sums, column_sums, column_sums_scratch, row_sums};

use std::fmt;

/// A token id outside the vocabulary. Nothing has been written when it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdError {
    /// Position of the id in the slice.
    pub row: usize,
    /// The id found there.
    pub id: i32,
    /// The number of rows or columns it was to select from.
    pub vocab: usize,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IdError { row, id, vocab } = self;
        write!(
            f,
            "token id {id} at row {row} is outside the vocabulary of {vocab}: check that the data \
             was tokenized for this model"
        )
    }
}

impl std::error::Error for IdError {}

/// The first id that is not below `vocab`; negative ones count unless they are allowed.
fn check_ids(ids: &[i32], vocab: usize, allow_negative: bool) -> Result<(), IdError> {
    let outside = |&id: &i32| match usize::try_from(id) {
        Ok(id) => id >= vocab,
        Err(_) => !allow_negative,
    };
    match ids.iter().position(outside) {
        Some(row) => Err(IdError { row, id: ids[row], vocab }),
        None => Ok(()),
    }
}
