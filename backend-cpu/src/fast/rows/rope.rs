//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864) in Hugging Face's half-split
//! convention (`rotate_half`): channel i of a head is paired with channel i + D/2,
//!
//! ```text
//! (x[i], x[i + D/2]) is rotated by the angle position · frequency[i]
//! ```

use tightrope_core::ops::Rope;

use crate::fast::vmath::parallel::{Disjoint, for_each_task};
use crate::fast::vmath::{LANES, Simd, Storage, dispatched, sin_cos};
use crate::isa::Isa;

/// Positions per task.
const BLOCK: usize = 64;
/// Pairs that are rotated one by one sooner than in a vector that they don't fill.
const FEW: usize = 4;

/// What is rotated in x (B, T, heads, D), and by how much.
#[derive(Clone, Copy, Debug)]
pub struct Rotary<'a> {
    /// T, positions of each sequence.
    pub positions: usize,
    /// Heads of a position: queries, keys and values of packed qkv, say.
    pub heads: usize,
    /// Where rows are.
    pub places: Places<'a>,
    /// Heads that turn, their channels, and how far each pair turns with a position.
    pub op: &'a Rope,
}

/// Positions of rows.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// In a row, from this one on in each sequence.
    From(i32),
    /// Of each row.
    Each(&'a [i32]),
}

impl Rotary<'_> {
    fn place(&self, row: usize) -> i32 {
        match self.places {
            Places::From(start) => start + (row % self.positions) as i32,
            Places::Each(places) => places[row],
        }
    }
}

/// f32 of scratch that [`rope`] and [`rope_in_place`] need on `threads` threads.
pub fn rope_scratch(head_dim: usize, threads: usize) -> usize {
    head_dim / 2 + threads.max(1) * head_dim.max(1)
}

/// y = x with its heads rotated; both (B, T, heads, D).
///
/// # Panics
/// As [`rope_in_place`], or if `x` and `y` differ in length.
pub fn rope<X: Storage>(isa: Isa, rotary: &Rotary<'_>, x: &[X], y: &mut [X], scratch: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "x and y differ in length");
    rotate(isa, rotary, Some(x), y, scratch);
}

/// Rotates the heads of x (B, T, heads, D).
///
/// # Panics
/// If D is odd, `rotated` exceeds `heads`, `x` is not whole sequences, or `scratch` is shorter than
/// [`rope_scratch`] for one thread.
pub fn rope_in_place<X: Storage>(isa: Isa, rotary: &Rotary<'_>, x: &mut [X], scratch: &mut [f32]) {
    rotate(isa, rotary, None, x, scratch);
}

fn rotate<X: Storage>(
    isa: Isa,
    rotary: &Rotary<'_>,
    x: Option<&[X]>,
    y: &mut [X],
    scratch: &mut [f32],
) {
    let (d, row) = (rotary.op.head_dim, rotary.heads * rotary.op.head_dim);
    assert!(d.is_multiple_of(2), "rotary heads have an even number of channels, not {d}");
    assert!(rotary.op.rotated <= rotary.heads, "more heads rotated than there are: {rotary:?}");
    if y.is_empty() {
        return;
    }
    assert!(
        y.len().is_multiple_of(rotary.positions * row),
        "x is not (B, T, heads, D) of {rotary:?}"
    );
    let (frequencies, scratch) = scratch.split_at_mut(d / 2);
    for (pair, frequency) in frequencies.iter_mut().enumerate() {
        *frequency = rotary.op.frequency(pair) as f32;
    }
    let frequencies = &*frequencies;
    let rows = y.len() / row;
    let y = Disjoint::new(y);
    for_each_task(rows.div_ceil(BLOCK), scratch, d, |task, scratch| {
        let first = task * BLOCK;
        let (at, len) = (first * row, BLOCK.min(rows - first) * row);
        // SAFETY: blocks of rows do not overlap.
        let y = unsafe { y.part(at, len) };
        if let Some(x) = x {
            y.copy_from_slice(&x[at..][..len]);
        }
        rotate_rows(isa, rotary, first, frequencies, y, scratch);
    });
}

dispatched!(fn rotate_rows<X>(
    rotary: &Rotary<'_>, first: usize, frequencies: &[f32], x: &mut [X], scratch: &mut [f32],
) = rotate_rows_body);

/// Rows `first`.. of all (B·T) rows.
#[inline(always)]
fn rotate_rows_body<S: Simd, X: Storage>(
    rotary: &Rotary<'_>,
    first: usize,
    frequencies: &[f32],
    x: &mut [X],
    scratch: &mut [f32],
) {
    let d = rotary.op.head_dim;
    let amplitude = rotary.op.stretch.amplitude as f32;
    let (cos, sin) = scratch.split_at_mut(d / 2);
    for (r, row) in x.chunks_exact_mut(rotary.heads * d).enumerate() {
        let position = rotary.place(first + r) as f32;
        let sign = if rotary.op.inverse { -amplitude } else { amplitude };
        for ((cos, sin), frequency) in cos.iter_mut().zip(sin.iter_mut()).zip(frequencies) {
            // The angle is rounded to f32, as Hugging Face's is.
            let (s, c) = sin_cos::<S>(position * frequency);
            (*cos, *sin) = (c * amplitude, s * sign);
        }
        for head in row.chunks_exact_mut(d).take(rotary.op.rotated) {
            let (low, high) = head.split_at_mut(d / 2);
            let (low, low_rest) = low.as_chunks_mut::<LANES>();
            let (high, high_rest) = high.as_chunks_mut::<LANES>();
            let (cos, cos_rest) = cos.as_chunks::<LANES>();
            let (sin, sin_rest) = sin.as_chunks::<LANES>();
            for ((a, b), (cos, sin)) in low.iter_mut().zip(high).zip(cos.iter().zip(sin)) {
                rotate_lanes::<S, X>(a, b, cos, sin);
            }
            if low_rest.len() > FEW {
                rotate_lanes::<S, X>(low_rest, high_rest, cos_rest, sin_rest);
                continue;
            }
            let rest = low_rest.iter_mut().zip(high_rest).zip(cos_rest.iter().zip(sin_rest));
            for ((a, b), (&cos, &sin)) in rest {
                let (x, y) = rotated::<S>(a.to_f32(), b.to_f32(), cos, sin);
                (*a, *b) = (X::from_f32(x), X::from_f32(y));
            }
        }
    }
}

/// The point (x, y) rotated.
#[inline(always)]
fn rotated<S: Simd>(x: f32, y: f32, cos: f32, sin: f32) -> (f32, f32) {
    (S::mul_add(x, cos, -(y * sin)), S::mul_add(y, cos, x * sin))
}

/// Rotates (a, b), at most [`LANES`] pairs, by way of f32: a loop that converts and computes at once
/// does not vectorise for 16-bit storage.
#[inline(always)]
fn rotate_lanes<S: Simd, X: Storage>(a: &mut [X], b: &mut [X], cos: &[f32], sin: &[f32]) {
    let (mut x, mut y) = ([0.0; LANES], [0.0; LANES]);
    X::load(a, &mut x);
    X::load(b, &mut y);
    let pairs = x.iter_mut().zip(&mut y).zip(cos.iter().zip(sin));
    for ((x, y), (&cos, &sin)) in pairs {
        (*x, *y) = rotated::<S>(*x, *y, cos, sin);
    }
    X::store(&x, a);
    X::store(&y, b);
}
