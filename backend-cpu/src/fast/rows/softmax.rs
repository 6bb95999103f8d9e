//! Softmax over rows.

use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block};
use crate::fast::vmath::reduce::{dot, fold};
use crate::fast::vmath::{LANES, Simd, Storage, dispatched, exp};
use crate::isa::Isa;

/// `y[r,c] = exp(x[r,c]) / Σ_c exp(x[r,c])` for x (R, C) of `columns` C.
///
/// # Panics
/// If the lengths do not agree.
pub fn softmax<X: Storage>(isa: Isa, x: &[X], columns: usize, y: &mut [X]) {
    assert_eq!(x.len(), y.len(), "x and y differ in length");
    let Some(rows) = x.len().checked_div(columns) else { return };
    assert_eq!(x.len(), rows * columns, "x is not whole rows of {columns}");
    let y = Disjoint::new(y);
    for_each_block(rows, block_rows(columns), |block| {
        let (start, len) = (block.start * columns, block.len() * columns);
        // SAFETY: blocks of rows do not overlap.
        forward(isa, &x[start..][..len], columns, unsafe { y.part(start, len) });
    });
}

dispatched!(fn forward<X>(x: &[X], columns: usize, y: &mut [X]) = forward_body);

#[inline(always)]
fn forward_body<S: Simd, X: Storage>(x: &[X], columns: usize, y: &mut [X]) {
    for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
        let max = maximum(x);
        let mut sums = [0.0f32; LANES];
        let (lanes, rest) = x.as_chunks::<LANES>();
        for lanes in lanes {
            for (sum, x) in sums.iter_mut().zip(lanes) {
                *sum += exp::<S>(x.to_f32() - max);
            }
        }
        for (sum, x) in sums.iter_mut().zip(rest) {
            *sum += exp::<S>(x.to_f32() - max);
        }
        let inverse = 1.0 / fold(sums, |a, b| a + b);
        for (y, x) in y.iter_mut().zip(x) {
            *y = X::from_f32(exp::<S>(x.to_f32() - max) * inverse);
        }
    }
}

#[inline(always)]
fn maximum<X: Storage>(x: &[X]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut max = [f32::NEG_INFINITY; LANES];
    let (lanes, rest) = x.as_chunks::<LANES>();
    for lanes in lanes {
        for (max, x) in max.iter_mut().zip(lanes) {
            *max = larger(*max, x.to_f32());
        }
    }
    rest.iter().fold(fold(max, larger), |max, x| larger(max, x.to_f32()))
}

/// dx = y∘(dy − Σ_c y∘dy) for y, the output of [`softmax`], and dy, both (R, C) of `columns` C.
///
/// # Panics
/// If the lengths do not agree.
pub fn softmax_backward<X: Storage>(isa: Isa, y: &[X], dy: &[X], columns: usize, dx: &mut [X]) {
    assert_eq!(y.len(), dx.len(), "y and dx differ in length");
    assert_eq!(dy.len(), dx.len(), "dy and dx differ in length");
    let Some(rows) = y.len().checked_div(columns) else { return };
    assert_eq!(y.len(), rows * columns, "y is not whole rows of {columns}");
    let dx = Disjoint::new(dx);
    for_each_block(rows, block_rows(columns), |block| {
        let (start, len) = (block.start * columns, block.len() * columns);
        let (y, dy) = (&y[start..][..len], &dy[start..][..len]);
        // SAFETY: blocks of rows do not overlap.
        backward(isa, y, dy, columns, unsafe { dx.part(start, len) });
    });
}

dispatched!(fn backward<X>(y: &[X], dy: &[X], columns: usize, dx: &mut [X]) = backward_body);

#[inline(always)]
fn backward_body<S: Simd, X: Storage>(y: &[X], dy: &[X], columns: usize, dx: &mut [X]) {
    let rows = y.chunks_exact(columns).zip(dy.chunks_exact(columns));
    for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(columns)) {
        let mean = dot::<S, X, X>(y, dy);
        for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = X::from_f32(y.to_f32() * (dy.to_f32() - mean));
        }
    }
}
