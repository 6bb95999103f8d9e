//! Block-wise 8-bit storage: each x as the quantized value nearest to it over its block's scale, and back.
//!
//! The nearest value of a dynamic codebook is found without a search: comparing with the starts of the decades gives
//! the decade, and its values are spread evenly. Every element takes the same steps, so the loops vectorise.

use tightrope_core::ops::{Codebook, DECADES};

use crate::fast::vmath::parallel::{Disjoint, for_each_block};
use crate::fast::vmath::reduce::fold;
use crate::fast::vmath::{LANES, Simd, Storage, dispatched};
use crate::isa::Isa;

/// Elements of a task of the thread pool.
const TASK: usize = 1 << 14;

const LEVELS: usize = DECADES as usize;

/// A dynamic codebook's decades, in numbers that the search for the nearest value needs.
#[derive(Clone, Copy)]
struct Search {
    codebook: Codebook,
    /// From where on a value belongs to the decade: halfway from the last value below it to its first.
    starts: [f32; LEVELS],
    /// Values.
    counts: [f32; LEVELS],
    /// Values a unit.
    slopes: [f32; LEVELS],
    /// From where on a value belongs to 1.
    one: f32,
}

impl Search {
    fn new(codebook: Codebook) -> Self {
        let base = f64::from(codebook.base());
        let (mut starts, mut counts, mut slopes) = ([0.0; LEVELS], [0.0; LEVELS], [0.0; LEVELS]);
        for k in 0..LEVELS {
            let power = 10_f64.powi(k as i32 + 1 - LEVELS as i32);
            let count = base * f64::from(1_u32 << k);
            // The gap's ends are half a step from the decade's edge, on the side above in steps of the decade.
            starts[k] = match k {
                0 => power * (0.05 + 0.225 / count),
                _ => power / 10.0 * (1.0 + 1.8 / count),
            } as f32;
            counts[k] = count as f32;
            slopes[k] = (count / (0.9 * power)) as f32;
        }
        Self { codebook, starts, counts, slopes, one: 1.0 - 0.225 / counts[LEVELS - 1] }
    }

    /// Rank of the value nearest to `part`, from 0 to 1.
    #[inline(always)]
    fn rank(&self, part: f32) -> f32 {
        let (mut count, mut slope) = (0.0, 0.0);
        for k in 0..LEVELS {
            let above = part >= self.starts[k];
            count = if above { self.counts[k] } else { count };
            slope = if above { self.slopes[k] } else { slope };
        }
        let within = (part * slope - count / 9.0).floor();
        let within = within.max(0.0).min((count - 1.0).max(0.0));
        if part >= self.one { 2.0 * self.counts[LEVELS - 1] } else { count + within }
    }

    /// The quantized value nearest to `part`, of a signed codebook.
    #[inline(always)]
    fn signed(&self, part: f32) -> f32 {
        // There is no −1: the one before is the last.
        (Codebook::Signed.zero() as f32 + self.rank(part.abs()).copysign(part)).max(0.0)
    }

    /// As [`Search::signed`], of an unsigned codebook.
    #[inline(always)]
    fn unsigned(&self, part: f32) -> f32 {
        self.rank(part).max(1.0) - 1.0
    }
}

/// Writes the quantized value of every element of `x` (as bytes, whatever their sign) and the scale of every block.
///
/// # Panics
/// If the lengths do not agree.
pub fn quantize<X: Storage>(
    isa: Isa,
    codebook: Codebook,
    block: usize,
    x: &[X],
    quantized: &mut [u8],
    scales: &mut [f32],
) {
    assert_eq!(x.len(), quantized.len(), "x and its quantized values differ in length");
    assert_eq!(x.len().div_ceil(block), scales.len(), "one scale a block");
    let search = Search::new(codebook);
    let (quantized, scales) = (Disjoint::new(quantized), Disjoint::new(scales));
    for_each_block(x.len().div_ceil(block), (TASK / block).max(1), |blocks| {
        let elements = blocks.start * block..(blocks.end * block).min(x.len());
        // SAFETY: ranges of blocks do not overlap.
        let (quantized, scales) = unsafe {
            (
                quantized.part(elements.start, elements.len()),
                scales.part(blocks.start, blocks.len()),
            )
        };
        encode(isa, &search, block, &x[elements], quantized, scales);
    });
}

dispatched!(fn encode<X>(
    search: &Search, block: usize, x: &[X], quantized: &mut [u8], scales: &mut [f32]
) = encode_body);

#[inline(always)]
#[expect(clippy::extra_unused_type_parameters, reason = "compiled once for each instruction set")]
fn encode_body<S: Simd, X: Storage>(
    search: &Search,
    block: usize,
    x: &[X],
    quantized: &mut [u8],
    scales: &mut [f32],
) {
    let search = *search;
    let blocks = x.chunks(block).zip(quantized.chunks_mut(block));
    for ((x, quantized), scale) in blocks.zip(scales) {
        *scale = magnitude(x) / search.codebook.largest() as f32;
        let scale = *scale;
        // The codebook is chosen out of the loop, which then has no branch.
        let largest = Codebook::Linear.largest() as f32;
        match search.codebook {
            _ if scale == 0.0 => quantized.fill(search.codebook.zero() as u8),
            Codebook::Linear => {
                each(scale, x, quantized, |part| part.round_ties_even().max(-largest).min(largest))
            }
            Codebook::Signed => each(scale, x, quantized, |part| search.signed(part)),
            Codebook::Unsigned => each(scale, x, quantized, |part| search.unsigned(part)),
        }
    }
}

/// Writes `quantize(x / scale)`, a vector's width at once: rounding to bytes in a loop of its own lets both vectorise.
#[inline(always)]
fn each<X: Storage>(scale: f32, x: &[X], quantized: &mut [u8], quantize: impl Fn(f32) -> f32) {
    for (quantized, x) in quantized.chunks_mut(LANES).zip(x.chunks(LANES)) {
        let mut lanes = [0.0; LANES];
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = x.to_f32() / scale;
        }
        // A loop, since `map` of arrays isn't always inlined and would miss the instruction set.
        for lane in &mut lanes {
            *lane = quantize(*lane);
        }
        for (byte, value) in quantized.iter_mut().zip(lanes) {
            *byte = value as i32 as u8;
        }
    }
}

/// The largest |x|, NaN left out.
#[inline(always)]
fn magnitude<X: Storage>(x: &[X]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (max, x) in lanes.iter_mut().zip(chunk) {
            *max = larger(*max, x.to_f32().abs());
        }
    }
    rest.iter().fold(fold(lanes, larger), |max, x| larger(max, x.to_f32().abs()))
}

/// Writes the number of every quantized value.
///
/// # Panics
/// If the lengths do not agree.
pub fn dequantize<X: Storage>(
    isa: Isa,
    codebook: Codebook,
    block: usize,
    quantized: &[u8],
    scales: &[f32],
    x: &mut [X],
) {
    assert_eq!(x.len(), quantized.len(), "x and its quantized values differ in length");
    assert_eq!(x.len().div_ceil(block), scales.len(), "one scale a block");
    // By byte: the quantized values of the linear codebook are signed.
    let values: [f32; 256] = std::array::from_fn(|byte| match codebook {
        Codebook::Linear => f32::from(byte as u8 as i8),
        Codebook::Signed | Codebook::Unsigned => codebook.value(byte as f64) as f32,
    });
    let x = Disjoint::new(x);
    for_each_block(scales.len(), (TASK / block).max(1), |blocks| {
        let elements = blocks.start * block..(blocks.end * block).min(quantized.len());
        // SAFETY: ranges of blocks do not overlap.
        let x = unsafe { x.part(elements.start, elements.len()) };
        decode(isa, &values, block, &quantized[elements], &scales[blocks], x);
    });
}

dispatched!(fn decode<X>(
    values: &[f32; 256], block: usize, quantized: &[u8], scales: &[f32], x: &mut [X]
) = decode_body);

#[inline(always)]
#[expect(clippy::extra_unused_type_parameters, reason = "compiled once for each instruction set")]
fn decode_body<S: Simd, X: Storage>(
    values: &[f32; 256],
    block: usize,
    quantized: &[u8],
    scales: &[f32],
    x: &mut [X],
) {
    let blocks = quantized.chunks(block).zip(x.chunks_mut(block));
    for ((quantized, x), scale) in blocks.zip(scales) {
        for (x, &byte) in x.iter_mut().zip(quantized) {
            *x = X::from_f32(values[usize::from(byte)] * scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantized_values_are_the_nearest_ones() {
        for codebook in [Codebook::Signed, Codebook::Unsigned] {
            let search = Search::new(codebook);
            for i in 0..=1_000_000_u32 {
                let x = f64::from(i) / 1e6;
                for x in [x, x.powi(9), -x] {
                    let x = if codebook == Codebook::Unsigned { x.abs() } else { x };
                    let found = match codebook {
                        Codebook::Unsigned => search.unsigned(x as f32),
                        _ => search.signed(x as f32),
                    };
                    let (found, nearest) = (f64::from(found), codebook.nearest(x));
                    let off = |c: f64| (codebook.value(c) - x).abs();
                    // Halfway between two, rounding decides.
                    assert!(
                        off(found) <= off(nearest) + 1e-7 * x.abs(),
                        "{codebook:?} {x:e}: {found}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_block_of_zeros_comes_back_as_zeros() {
        for (isa, codebook) in Isa::available().flat_map(|isa| Codebook::ALL.map(|of| (isa, of))) {
            let (mut quantized, mut scales, mut x) = ([9; 300], [1.0; 2], [1.0_f32; 300]);
            quantize(isa, codebook, 256, &[0.0_f32; 300], &mut quantized, &mut scales);
            dequantize(isa, codebook, 256, &quantized, &scales, &mut x);
            assert_eq!(x, [0.0; 300]);
        }
    }
}
