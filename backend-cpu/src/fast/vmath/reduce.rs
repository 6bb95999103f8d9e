//! Reductions of a row: sixteen partial results whatever the instruction set, combined in halves,
//! so that the order of a sum depends on its length only.

use super::{LANES, Simd, Storage, exp};
use crate::threads;

/// Combines partial results in halves.
#[inline(always)]
pub(crate) fn fold(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = combine(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Σ f(x).
#[inline(always)]
pub(crate) fn sum<X: Storage>(x: &[X], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for x in chunks {
        for (sum, x) in lanes.iter_mut().zip(x) {
            *sum += f(x.to_f32());
        }
    }
    for (sum, x) in lanes.iter_mut().zip(rest) {
        *sum += f(x.to_f32());
    }
    fold(lanes, |a, b| a + b)
}

/// Σ x·y, over the shorter of the two.
#[inline(always)]
pub(crate) fn dot<S: Simd, X: Storage, Y: Storage>(x: &[X], y: &[Y]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for ((sum, x), y) in lanes.iter_mut().zip(x).zip(y) {
            *sum = S::mul_add(x.to_f32(), y.to_f32(), *sum);
        }
    }
    for ((sum, x), y) in lanes.iter_mut().zip(x_rest).zip(y_rest) {
        *sum = S::mul_add(x.to_f32(), y.to_f32(), *sum);
    }
    fold(lanes, |a, b| a + b)
}

/// The largest of `x`, NaN left out; −∞ if there is none.
#[inline(always)]
pub(crate) fn maximum(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (max, &x) in lanes.iter_mut().zip(chunk) {
            *max = larger(*max, x);
        }
    }
    rest.iter().fold(fold(lanes, larger), |max, &x| larger(max, x))
}

/// x to exp(x − shift) in place, and their sum. The first `valid` count; the others become 0. The
/// length is a multiple of [`LANES`].
#[inline(always)]
pub(crate) fn exponentiate<S: Simd>(x: &mut [f32], valid: usize, shift: f32) -> f32 {
    x[valid..].fill(f32::NEG_INFINITY);
    let mut sums = [0.0; LANES];
    for lanes in x.as_chunks_mut::<LANES>().0 {
        for (x, sum) in lanes.iter_mut().zip(&mut sums) {
            *x = exp::<S>(*x - shift);
            *sum += *x;
        }
    }
    fold(sums, |a, b| a + b)
}

/// The second stage of a sum over rows: `to[c] = Σ partial[block · stride + offset + c]`, or `+=`, over the
/// blocks in order.
pub(crate) fn sum_partials(
    partial: &[f32],
    offset: usize,
    stride: usize,
    to: &mut [f32],
    accumulate: bool,
) {
    const COLUMNS: usize = 256;
    threads::for_each_chunk(to, COLUMNS, |i, to| {
        if !accumulate {
            to.fill(0.0);
        }
        for block in partial.chunks_exact(stride) {
            for (to, x) in to.iter_mut().zip(&block[offset + i * COLUMNS..]) {
                *to += x;
            }
        }
    });
}
