//! Layer norm and RMS norm over the last axis.
//!
//! ```text
//! x̂[r,c] = (x[r,c] − mean[r])·rstd[r]        y[r,c] = x̂[r,c]·weight[c] + bias[c]
//! dx[r,c] = rstd·(g − mean_c g − x̂·mean_c(g·x̂)) with g = dy·weight
//! dweight[c] = Σᵣ dy·x̂                        dbias[c] = Σᵣ dy
//! ```
//!
//! R rows of C columns, C being the length of `weight`. Layer norm (Ba et al. 2016, arXiv:1607.06450)
//! divides by √(variance + eps) with the biased variance; RMS norm (Zhang and Sennrich 2019,
//! arXiv:1910.07467) takes mean as 0, both above and in the gradient, and has no bias.
//!
//! Sums over rows go in two stages, over fixed blocks of rows and then over the blocks in order.

use super::vmath::parallel::{Disjoint, block_rows, for_each_block, partial_rows};
use super::vmath::reduce::{fold, sum, sum_partials};
use super::vmath::{LANES, Simd, Storage, dispatched};
use crate::isa::Isa;

#[cfg(test)]
mod tests;

/// y (R, C), mean (R) and rstd (R) from x (R, C), weight (C) and bias (C).
///
/// # Panics
/// If the lengths do not agree.
#[expect(clippy::too_many_arguments, reason = "the norm's inputs and outputs")]
pub fn layer_norm<X: Storage, W: Storage>(
    isa: Isa,
    x: &[X],
    weight: &[W],
    bias: Option<&[W]>,
    eps: f32,
    y: &mut [X],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    assert_eq!(mean.len(), rstd.len(), "mean and rstd differ in length");
    forward(isa, x, weight, bias, eps, y, Some(mean), rstd);
}

/// y (R, C) and rstd (R) from x (R, C) and weight (C).
///
/// # Panics
/// If the lengths do not agree.
pub fn rms_norm<X: Storage, W: Storage>(
    isa: Isa,
    x: &[X],
    weight: &[W],
    eps: f32,
    y: &mut [X],
    rstd: &mut [f32],
) {
    forward(isa, x, weight, None, eps, y, None, rstd);
}

#[expect(clippy::too_many_arguments, reason = "as `layer_norm`")]
fn forward<X: Storage, W: Storage>(
    isa: Isa,
    x: &[X],
    weight: &[W],
    bias: Option<&[W]>,
    eps: f32,
    y: &mut [X],
    mean: Option<&mut [f32]>,
    rstd: &mut [f32],
) {
    let (rows, c) = (rstd.len(), weight.len());
    assert_eq!(x.len(), rows * c, "x is not (R, C) = ({rows}, {c})");
    assert_eq!(y.len(), rows * c, "y is not (R, C) = ({rows}, {c})");
    assert!(bias.is_none_or(|bias| bias.len() == c), "bias is not (C) = ({c})");
    if x.is_empty() {
        return;
    }
    let (y, rstd, mean) = (Disjoint::new(y), Disjoint::new(rstd), mean.map(Disjoint::new));
    for_each_block(rows, block_rows(c), |block| {
        let (first, count) = (block.start, block.len());
        // SAFETY: blocks of rows do not overlap.
        unsafe {
            let mean = mean.as_ref().map(|mean| mean.part(first, count));
            let (y, rstd) = (y.part(first * c, count * c), rstd.part(first, count));
            rows_forward(isa, &x[first * c..][..count * c], weight, bias, eps, y, mean, rstd);
        }
    });
}

dispatched!(fn rows_forward<X, W>(
    x: &[X], weight: &[W], bias: Option<&[W]>, eps: f32, y: &mut [X], mean: Option<&mut [f32]>,
    rstd: &mut [f32],
) = rows_forward_body);

#[inline(always)]
fn rows_forward_body<S: Simd, X: Storage, W: Storage>(
    x: &[X],
    weight: &[W],
    bias: Option<&[W]>,
    eps: f32,
    y: &mut [X],
    mut mean: Option<&mut [f32]>,
    rstd: &mut [f32],
) {
    let c = weight.len();
    for (r, (x, y)) in x.chunks_exact(c).zip(y.chunks_exact_mut(c)).enumerate() {
        let m = if mean.is_some() { sum(x, |x| x) / c as f32 } else { 0.0 };
        // A second pass and not E[x²] − m², which cancels where |m| is large.
        let variance = sum(x, |x| (x - m) * (x - m)) / c as f32;
        let scale = 1.0 / (variance + eps).sqrt();
        match bias {
            Some(bias) => {
                for (((y, x), w), b) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                    let normal = (x.to_f32() - m) * scale;
                    *y = X::from_f32(S::mul_add(normal, w.to_f32(), b.to_f32()));
                }
            }
            None => {
                for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
                    *y = X::from_f32((x.to_f32() - m) * scale * w.to_f32());
                }
            }
        }
        rstd[r] = scale;
        if let Some(mean) = &mut mean {
            mean[r] = m;
        }
    }
}

/// Where the gradients of weight and bias go.
#[derive(Debug)]
pub struct ParameterGrads<'a> {
    /// dweight (C).
    pub weight: &'a mut [f32],
    /// dbias (C).
    pub bias: Option<&'a mut [f32]>,
    /// Add to what is there instead of overwriting it.
    pub accumulate: bool,
}

/// f32 of scratch that [`layer_norm_backward`] and [`rms_norm_backward`] need for R rows of C columns,
/// on any number of threads.
pub fn norm_backward_scratch(rows: usize, columns: usize) -> usize {
    rows.div_ceil(partial_rows(rows)) * PARTS * columns
}

/// Rows of scratch of a block of rows: partial dweight, partial dbias, and one row of dy.
const PARTS: usize = 3;

/// dx (R, C) and, where asked for, the gradients of weight and bias (C) from x and dy (R, C), weight (C), and mean
/// and rstd (R) as [`layer_norm`] left them. Without `dy`, `dx` holds it and is overwritten.
///
/// # Panics
/// If the lengths do not agree or `scratch` is shorter than [`norm_backward_scratch`].
#[expect(clippy::too_many_arguments, reason = "the gradient's five inputs and two outputs")]
pub fn layer_norm_backward<X: Storage, W: Storage>(
    isa: Isa,
    x: &[X],
    weight: &[W],
    mean: &[f32],
    rstd: &[f32],
    dy: Option<&[X]>,
    dx: &mut [X],
    grads: Option<ParameterGrads>,
    scratch: &mut [f32],
) {
    assert_eq!(mean.len(), rstd.len(), "mean and rstd differ in length");
    backward(isa, x, weight, Some(mean), rstd, dy, dx, grads, scratch);
}

/// dx (R, C) and, where asked for, the gradient of weight (C) from x and dy (R, C), weight (C), and rstd (R) as
/// [`rms_norm`] left it. Without `dy`, `dx` holds it and is overwritten.
///
/// # Panics
/// As [`layer_norm_backward`].
#[expect(clippy::too_many_arguments, reason = "as `layer_norm_backward`")]
pub fn rms_norm_backward<X: Storage, W: Storage>(
    isa: Isa,
    x: &[X],
    weight: &[W],
    rstd: &[f32],
    dy: Option<&[X]>,
    dx: &mut [X],
    grads: Option<ParameterGrads>,
    scratch: &mut [f32],
) {
    backward(isa, x, weight, None, rstd, dy, dx, grads, scratch);
}

#[expect(clippy::too_many_arguments, reason = "as `layer_norm_backward`")]
fn backward<X: Storage, W: Storage>(
    isa: Isa,
    x: &[X],
    weight: &[W],
    mean: Option<&[f32]>,
    rstd: &[f32],
    dy: Option<&[X]>,
    dx: &mut [X],
    grads: Option<ParameterGrads>,
    scratch: &mut [f32],
) {
    let (rows, c) = (rstd.len(), weight.len());
    assert_eq!(x.len(), rows * c, "x is not (R, C) = ({rows}, {c})");
    assert!(dy.is_none_or(|dy| dy.len() == rows * c), "dy is not (R, C) = ({rows}, {c})");
    assert_eq!(dx.len(), rows * c, "dx is not (R, C) = ({rows}, {c})");
    if let Some(grads) = &grads {
        assert_eq!(grads.weight.len(), c, "dweight is not (C) = ({c})");
        assert!(grads.bias.as_ref().is_none_or(|b| b.len() == c), "dbias is not (C) = ({c})");
    }
    if c == 0 {
        return;
    }
    let per_block = partial_rows(rows);
    let partial = &mut scratch[..norm_backward_scratch(rows, c)];
    let (dx, parts) = (Disjoint::new(dx), Disjoint::new(partial));
    for_each_block(rows, per_block, |block| {
        let (first, count) = (block.start, block.len());
        let range = first * c..(first + count) * c;
        let mean = mean.map(|mean| &mean[block.clone()]);
        // SAFETY: blocks of rows do not overlap, nor do their partial sums.
        let (dx, part) = unsafe {
            let part = first / per_block * PARTS * c;
            (dx.part(first * c, count * c), parts.part(part, PARTS * c))
        };
        let (x, dy) = (&x[range.clone()], dy.map(|dy| &dy[range]));
        rows_backward(isa, x, weight, mean, &rstd[block], dy, dx, part, grads.is_some());
    });
    let Some(grads) = grads else { return };
    sum_partials(partial, 0, PARTS * c, grads.weight, grads.accumulate);
    if let Some(bias) = grads.bias {
        sum_partials(partial, c, PARTS * c, bias, grads.accumulate);
    }
}

dispatched!(fn rows_backward<X, W>(
    x: &[X], weight: &[W], mean: Option<&[f32]>, rstd: &[f32], dy: Option<&[X]>, dx: &mut [X],
    partial: &mut [f32], sums: bool,
) = rows_backward_body);

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "as `layer_norm_backward`")]
fn rows_backward_body<S: Simd, X: Storage, W: Storage>(
    x: &[X],
    weight: &[W],
    mean: Option<&[f32]>,
    rstd: &[f32],
    dy: Option<&[X]>,
    dx: &mut [X],
    partial: &mut [f32],
    sums: bool,
) {
    let c = weight.len();
    partial.fill(0.0);
    let (dweight, partial) = partial.split_at_mut(c);
    let (dbias, held) = partial.split_at_mut(c);
    for (r, (x, dx)) in x.chunks_exact(c).zip(dx.chunks_exact_mut(c)).enumerate() {
        X::load(dy.map_or(&*dx, |dy| &dy[r * c..][..c]), held);
        let dy = &*held;
        let (m, scale) = (mean.map_or(0.0, |mean| mean[r]), rstd[r]);
        let (sum_g, sum_gx) = gradient_sums::<S, X, W>(x, dy, weight, m, scale);
        let mean_g = if mean.is_some() { sum_g / c as f32 } else { 0.0 };
        let mean_gx = sum_gx / c as f32;
        let row = [m, scale, mean_g, mean_gx];
        let inputs = x.iter().zip(dy).zip(weight);
        if !sums {
            for (((x, dy), w), dx) in inputs.zip(dx) {
                (_, *dx) = element::<S, X, W>(*x, *dy, *w, row);
            }
            continue;
        }
        let outputs = dx.iter_mut().zip(dweight.iter_mut()).zip(dbias.iter_mut());
        for (((x, dy), w), ((dx, dweight), dbias)) in inputs.zip(outputs) {
            let normal;
            (normal, *dx) = element::<S, X, W>(*x, *dy, *w, row);
            *dweight = S::mul_add(*dy, normal, *dweight);
            *dbias += dy;
        }
    }
}

/// x̂ and dx of an element of a row with this mean, 1/deviation, mean of g and mean of g·x̂.
#[inline(always)]
fn element<S: Simd, X: Storage, W: Storage>(
    x: X,
    dy: f32,
    w: W,
    [mean, rstd, mean_g, mean_gx]: [f32; 4],
) -> (f32, X) {
    let normal = (x.to_f32() - mean) * rstd;
    // Rounded as in the sum: with one column the difference is exactly 0.
    let centered = dy * w.to_f32() - mean_g;
    (normal, X::from_f32(rstd * S::mul_add(-normal, mean_gx, centered)))
}

/// (Σ g, Σ g·x̂) of a row, g = dy·weight.
#[inline(always)]
fn gradient_sums<S: Simd, X: Storage, W: Storage>(
    x: &[X],
    dy: &[f32],
    weight: &[W],
    mean: f32,
    rstd: f32,
) -> (f32, f32) {
    let (mut g_lanes, mut gx_lanes) = ([0.0f32; LANES], [0.0f32; LANES]);
    let mut add = |lane: usize, x: X, dy: f32, w: W| {
        let g = dy * w.to_f32();
        g_lanes[lane] += g;
        gx_lanes[lane] = S::mul_add(g, (x.to_f32() - mean) * rstd, gx_lanes[lane]);
    };
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (dy, dy_rest) = dy.as_chunks::<LANES>();
    let (w, w_rest) = weight.as_chunks::<LANES>();
    for ((x, dy), w) in x.iter().zip(dy).zip(w) {
        for lane in 0..LANES {
            add(lane, x[lane], dy[lane], w[lane]);
        }
    }
    for (lane, ((&x, &dy), &w)) in x_rest.iter().zip(dy_rest).zip(w_rest).enumerate() {
        add(lane, x, dy, w);
    }
    (fold(g_lanes, |a, b| a + b), fold(gx_lanes, |a, b| a + b))
}
