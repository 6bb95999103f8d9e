//! Rows of a table by token id, and their gradient.

use super::{IdError, check_ids};
use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block};
use crate::fast::vmath::{Simd, Storage, dispatched};
use crate::isa::Isa;

/// Columns per task of [`scatter_add`]: whole cache lines.
const COLUMNS: usize = 64;

/// `out[r, :] = table[ids[r], :]` for table (V, C), ids (R) and out (R, C), C being `columns`.
///
/// # Errors
/// An id is negative, or V or more.
///
/// # Panics
/// If the lengths do not agree.
pub fn gather<W: Storage, X: Storage>(
    isa: Isa,
    table: &[W],
    ids: &[i32],
    columns: usize,
    out: &mut [X],
) -> Result<(), IdError> {
    assert_eq!(out.len(), ids.len() * columns, "out is not (R, C) = ({}, {columns})", ids.len());
    let Some(vocab) = table.len().checked_div(columns) else { return Ok(()) };
    assert_eq!(table.len(), vocab * columns, "the table is not whole rows of {columns}");
    check_ids(ids, vocab, false)?;
    let out = Disjoint::new(out);
    for_each_block(ids.len(), block_rows(columns), |block| {
        // SAFETY: blocks of rows do not overlap.
        let out = unsafe { out.part(block.start * columns, block.len() * columns) };
        copy_rows(isa, table, &ids[block], columns, out);
    });
    Ok(())
}

dispatched!(fn copy_rows<W, X>(
    table: &[W], ids: &[i32], columns: usize, out: &mut [X],
) = copy_rows_body);

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "S is the instruction set that the loop is compiled for"
)]
#[inline(always)]
fn copy_rows_body<S: Simd, W: Storage, X: Storage>(
    table: &[W],
    ids: &[i32],
    columns: usize,
    out: &mut [X],
) {
    for (&id, out) in ids.iter().zip(out.chunks_exact_mut(columns)) {
        for (out, x) in out.iter_mut().zip(&table[id as usize * columns..][..columns]) {
            *out = X::from_f32(x.to_f32());
        }
    }
}

/// `dtable[ids[r], :] += dy[r, :]`, in the order of r, for dy (R, C), ids (R) and dtable (V, C), C being
/// `columns`. Tasks own columns, not rows, so that a frequent token is no bottleneck.
///
/// # Errors
/// An id is negative, or V or more.
///
/// # Panics
/// If the lengths do not agree.
pub fn scatter_add<X: Storage>(
    isa: Isa,
    dy: &[X],
    ids: &[i32],
    columns: usize,
    dtable: &mut [f32],
) -> Result<(), IdError> {
    assert_eq!(dy.len(), ids.len() * columns, "dy is not (R, C) = ({}, {columns})", ids.len());
    let Some(vocab) = dtable.len().checked_div(columns) else { return Ok(()) };
    assert_eq!(dtable.len(), vocab * columns, "the table is not whole rows of {columns}");
    check_ids(ids, vocab, false)?;
    let dtable = Disjoint::new(dtable);
    for_each_block(columns, COLUMNS, |block| {
        for (&id, dy) in ids.iter().zip(dy.chunks_exact(columns)) {
            // SAFETY: these columns of every row belong to this task.
            let row = unsafe { dtable.part(id as usize * columns + block.start, block.len()) };
            add_row(isa, &dy[block.clone()], row);
        }
    });
    Ok(())
}

dispatched!(fn add_row<X>(dy: &[X], row: &mut [f32]) = add_row_body);

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "S is the instruction set that the loop is compiled for"
)]
#[inline(always)]
fn add_row_body<S: Simd, X: Storage>(dy: &[X], row: &mut [f32]) {
    for (sum, x) in row.iter_mut().zip(dy) {
        *sum += x.to_f32();
    }
}

/// [`scatter_add`] into a table of 16-bit elements, each of which is rounded once: `order` (R), which is written over,
/// brings rows of one id together, in the order of r.
///
/// # Errors
/// As [`scatter_add`].
///
/// # Panics
/// If the lengths do not agree.
pub fn scatter_add_rounded<X: Storage, Y: Storage>(
    isa: Isa,
    dy: &[X],
    ids: &[i32],
    columns: usize,
    order: &mut [u32],
    dtable: &mut [Y],
) -> Result<(), IdError> {
    assert_eq!(dy.len(), ids.len() * columns, "dy is not (R, C) = ({}, {columns})", ids.len());
    assert_eq!(order.len(), ids.len(), "the order has another length than the ids");
    let Some(vocab) = dtable.len().checked_div(columns) else { return Ok(()) };
    assert_eq!(dtable.len(), vocab * columns, "the table is not whole rows of {columns}");
    check_ids(ids, vocab, false)?;
    order.iter_mut().zip(0..).for_each(|(place, r)| *place = r);
    order.sort_unstable_by_key(|&r| (ids[r as usize], r));
    let dtable = Disjoint::new(dtable);
    for_each_block(columns, COLUMNS, |block| {
        let mut sums = [0.0; COLUMNS];
        let sums = &mut sums[..block.len()];
        for run in order.chunk_by(|&a, &b| ids[a as usize] == ids[b as usize]) {
            let id = ids[run[0] as usize];
            // SAFETY: these columns of every row belong to this task.
            let row = unsafe { dtable.part(id as usize * columns + block.start, block.len()) };
            Y::load(row, sums);
            for &r in run {
                let dy = &dy[r as usize * columns..][..columns];
                add_row(isa, &dy[block.clone()], sums);
            }
            Y::store(sums, row);
        }
    });
    Ok(())
}
