//! Sums over columns, rows and whole tensors.

use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block, partial_rows};
use crate::fast::vmath::reduce::{dot, sum, sum_partials};
use crate::fast::vmath::{Simd, Storage, dispatched};
use crate::isa::Isa;

/// f32 of scratch that [`column_sums`] needs for R rows of C columns, on any number of threads.
pub fn column_sums_scratch(rows: usize, columns: usize) -> usize {
    rows.div_ceil(partial_rows(rows)) * columns
}

/// `to[c] = Σᵣ x[r,c]`, or `+=` where `accumulate`, for x (R, C), C being the length of `to`: the gradient
/// of a bias. Two stages, over fixed blocks of rows and then over the blocks in order.
///
/// # Panics
/// If `x` is not whole rows or `scratch` is shorter than [`column_sums_scratch`].
pub fn column_sums<X: Storage>(
    isa: Isa,
    x: &[X],
    to: &mut [f32],
    accumulate: bool,
    scratch: &mut [f32],
) {
    let c = to.len();
    let Some(rows) = x.len().checked_div(c) else { return };
    assert_eq!(x.len(), rows * c, "x is not whole rows of {c}");
    let per_block = partial_rows(rows);
    let partial = &mut scratch[..column_sums_scratch(rows, c)];
    let parts = Disjoint::new(partial);
    for_each_block(rows, per_block, |block| {
        // SAFETY: a partial sum belongs to one block.
        let part = unsafe { parts.part(block.start / per_block * c, c) };
        add_rows(isa, &x[block.start * c..block.end * c], part);
    });
    sum_partials(partial, 0, c, to, accumulate);
}

dispatched!(fn add_rows<X>(x: &[X], to: &mut [f32]) = add_rows_body);

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "S is the instruction set that the loop is compiled for"
)]
#[inline(always)]
fn add_rows_body<S: Simd, X: Storage>(x: &[X], to: &mut [f32]) {
    to.fill(0.0);
    for row in x.chunks_exact(to.len()) {
        for (sum, x) in to.iter_mut().zip(row) {
            *sum += x.to_f32();
        }
    }
}

/// Columns that a task adds up at once, f32: their sums are 16 KiB.
const ACCUMULATED: usize = 4096;

/// `to[c] = x[0,c] + x[1,c] + …`, or `to[c] + x[0,c] + …` where it is `begun`, for x (R, C), C being the length of `to`: in f32 and in the
/// order of rows.
///
/// # Panics
/// If `x` is not whole rows, or has none.
pub fn accumulate<X: Storage>(isa: Isa, x: &[X], to: &mut [X], begun: bool) {
    let columns = to.len();
    let Some(rows) = x.len().checked_div(columns) else { return };
    assert!(rows > 0 && x.len() == rows * columns, "x is not whole rows of {columns}");
    let to = Disjoint::new(to);
    for_each_block(columns, ACCUMULATED, |block| {
        // SAFETY: blocks of columns do not overlap.
        let to = unsafe { to.part(block.start, block.len()) };
        accumulate_block(isa, &x[block.start..], columns, to, begun);
    });
}

dispatched!(fn accumulate_block<X>(x: &[X], columns: usize, to: &mut [X], begun: bool) = accumulate_block_body);

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "S is the instruction set that the loop is compiled for"
)]
#[inline(always)]
fn accumulate_block_body<S: Simd, X: Storage>(x: &[X], columns: usize, to: &mut [X], begun: bool) {
    let mut sums = [0.0; ACCUMULATED];
    let sums = &mut sums[..to.len()];
    let mut rows = x.chunks(columns).map(|row| &row[..to.len()]);
    let first = if begun { None } else { rows.next() };
    X::load(first.unwrap_or(to), sums);
    for row in rows {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x.to_f32();
        }
    }
    X::store(sums, to);
}

/// `to[r] = Σ_c x[r,c]` for x (R, C), R being the length of `to`.
///
/// # Panics
/// If `x` is not whole rows.
pub fn row_sums<X: Storage>(isa: Isa, x: &[X], to: &mut [f32]) {
    let rows = to.len();
    let Some(columns) = x.len().checked_div(rows) else { return };
    assert_eq!(x.len(), rows * columns, "x is not {rows} rows of equal length");
    let to = Disjoint::new(to);
    for_each_block(rows, block_rows(columns), |block| {
        // SAFETY: blocks of rows do not overlap.
        let to = unsafe { to.part(block.start, block.len()) };
        for (row, to) in block.zip(to) {
            *to = row_sum(isa, &x[row * columns..][..columns]);
        }
    });
}

dispatched!(fn row_sum<X>(x: &[X]) -> f32 = row_sum_body);

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "S is the instruction set that the loop is compiled for"
)]
#[inline(always)]
fn row_sum_body<S: Simd, X: Storage>(x: &[X]) -> f32 {
    sum(x, |x| x)
}

/// `to[b] = Σ x²` over block b of `block` elements, the last of which may be shorter, for the norm of gradients. (A sum overflows to ∞
/// above 3.4e38.)
///
/// # Panics
/// If `to` isn't as long as there are blocks.
pub fn block_square_sums<X: Storage>(isa: Isa, x: &[X], block: usize, to: &mut [f32]) {
    assert_eq!(to.len(), x.len().div_ceil(block), "one sum a block");
    let (blocks, to) = (to.len(), Disjoint::new(to));
    for_each_block(blocks, block_rows(block), |range| {
        // SAFETY: ranges of blocks do not overlap.
        let to = unsafe { to.part(range.start, range.len()) };
        for (index, to) in range.zip(to) {
            let first = index * block;
            *to = block_squares(isa, &x[first..x.len().min(first + block)]);
        }
    });
}

dispatched!(fn block_squares<X>(x: &[X]) -> f32 = block_squares_body);

#[inline(always)]
fn block_squares_body<S: Simd, X: Storage>(x: &[X]) -> f32 {
    dot::<S, X, X>(x, x)
}
