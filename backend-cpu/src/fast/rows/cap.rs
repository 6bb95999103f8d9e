//! Logits that are capped (Gemma Team 2024).   R rows, P columns
//!
//! ```text
//! capped[r,c] = cap·tanh(logits[r,c] / cap)
//! ```

use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block};
use crate::fast::vmath::{Simd, dispatched, tanh};
use crate::isa::Isa;

/// Caps logits (R, P) in place.
pub fn cap_logits(isa: Isa, logits: &mut [f32], columns: usize, cap: f32) {
    let rows = logits.len() / columns.max(1);
    let logits = Disjoint::new(logits);
    for_each_block(rows, block_rows(columns), |block| {
        // SAFETY: each row is in one block.
        cap_row(isa, unsafe { logits.part(block.start * columns, block.len() * columns) }, cap);
    });
}

dispatched!(fn cap_row(row: &mut [f32], cap: f32) = cap_row_body);

#[inline(always)]
fn cap_row_body<S: Simd>(row: &mut [f32], cap: f32) {
    row.iter_mut().for_each(|x| *x = cap * tanh::<S>(*x / cap));
}
