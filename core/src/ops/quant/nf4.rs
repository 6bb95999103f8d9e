//! 4-bit NormalFloat storage of frozen weights (Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs"), with the codes and
//! the layout of bitsandbytes.
//!
//!   x[i] ≈ LEVELS[code[i]] · scale[i div block]
//!
//! Levels are quantiles of a normal distribution, from −1 to 1, with 0 among them. Two codes share a byte, the first in its upper half.
//! A scale is the largest absolute value of its block. Double quantization stores scales less their mean as [`Codebook::Signed`] in
//! 8 bits: the op takes them dequantized.

use serde::{Deserialize, Serialize};

use super::super::windows::{part, windows_with_vectors};
use super::super::{Array, Case, Inferred, Rule, arity, ensure, float, unit, whole};
use super::Codebook;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::types::{DType, Type};

/// The numbers that codes stand for, as parts of their block's scale: `bitsandbytes.functional.get_4bit_type("nf4")`.
pub const LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The code of 0.
const ZERO: u8 = 7;
/// Threads of a workgroup, and neighbours that each makes: of four bytes.
const THREADS: u32 = 64;
const PER_THREAD: u64 = 8;

/// Dequantizes. Inputs: bytes (⌈n/2⌉ of U8, each of two codes), scales (f32, one a block). Output: n elements of `shape`, in `dtype`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DequantizeNf4 {
    /// Extents of the output.
    pub shape: Vec<usize>,
    /// Consecutive elements that share a scale: a multiple of 8.
    pub block: usize,
    /// Storage of the output.
    pub dtype: DType,
}

/// Elements that share a scale, as bitsandbytes chooses them.
pub const NF4_BLOCK: usize = 64;
/// Scales that share one.
pub const NF4_SCALES: usize = 256;

/// A quantized weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nf4 {
    /// Two codes each.
    pub bytes: Vec<u8>,
    /// The scale of each block of [`NF4_BLOCK`] elements.
    pub scales: Nf4Scales,
}

/// Quantized scales.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nf4Scales {
    /// Quantized values, by [`Codebook::Signed`], of the scales less their mean.
    pub codes: Vec<u8>,
    /// The scale of each block of [`NF4_SCALES`] codes.
    pub scales: Vec<f32>,
    /// The mean of the scales.
    pub offset: f32,
}

impl Nf4 {
    /// Quantizes `values` as `bitsandbytes.functional.quantize_4bit` does with `nf4` and `compress_statistics`.
    pub fn of(values: &[f32]) -> Self {
        let (bytes, scales) = nf4_bytes(values);
        Self { bytes, scales: Nf4Scales::of(&scales) }
    }

    /// The first `count` values, dequantized.
    pub fn values(&self, count: usize) -> Vec<f32> {
        let scales: Vec<f32> = self.scales.values().collect();
        (0..count).map(|i| LEVELS[code(self.bytes[i / 2], i)] * scales[i / NF4_BLOCK]).collect()
    }
}

impl Nf4Scales {
    /// Quantizes `scales`.
    pub fn of(scales: &[f32]) -> Self {
        let offset = mean(scales);
        let mut quantized = Self { codes: vec![], scales: vec![], offset };
        for block in scales.chunks(NF4_SCALES) {
            let apart = block.iter().map(|scale| scale - offset);
            let largest = apart.clone().fold(0.0, |largest: f32, x| largest.max(x.abs()));
            // Scales that are all their mean have codes that mean nothing, and are 0.
            let code = |x: f32| match largest > 0.0 {
                true => Codebook::Signed.nearest((x / largest).into()) as u8,
                false => 0,
            };
            quantized.codes.extend(apart.map(code));
            quantized.scales.push(largest);
        }
        quantized
    }

    /// The scales, dequantized.
    pub fn values(&self) -> impl Iterator<Item = f32> + '_ {
        self.codes.iter().enumerate().map(|(at, &code)| {
            let value = Codebook::Signed.value(code.into()) as f32;
            value * self.scales[at / NF4_SCALES] + self.offset
        })
    }
}

/// Codes of values, two a byte, and the scale of each block of [`NF4_BLOCK`].
pub fn nf4_bytes(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let largest = |block: &[f32]| block.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let scales: Vec<f32> = values.chunks(NF4_BLOCK).map(largest).collect();
    let blocks = values.chunks(NF4_BLOCK).zip(&scales);
    let codes: Vec<u8> =
        blocks.flat_map(|(block, &scale)| block.iter().map(move |&x| nearest(x, scale))).collect();
    // An odd rest is filled up with a zero.
    let bytes = codes.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(ZERO));
    (bytes.collect(), scales)
}

fn mean(values: &[f32]) -> f32 {
    let sum: f64 = values.iter().map(|&x| f64::from(x)).sum();
    (sum / values.len().max(1) as f64) as f32
}

/// The code whose level is nearest to `x / scale`; the lower of two that are as near.
fn nearest(x: f32, scale: f32) -> u8 {
    let part = if scale > 0.0 { x / scale } else { 0.0 };
    let above = LEVELS.partition_point(|&level| level < part).min(LEVELS.len() - 1);
    let below = above.saturating_sub(1);
    // In f64, where no difference is rounded.
    let [part, low, high] = [part, LEVELS[below], LEVELS[above]].map(f64::from);
    let is_below = part - low <= high - part;
    if is_below { below as u8 } else { above as u8 }
}

/// The code of element `i`, of its byte.
fn code(byte: u8, i: usize) -> usize {
    usize::from(if i.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
}

impl DequantizeNf4 {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (shape, block) in
            [(vec![1], 64), (vec![64], 64), (vec![17, 59], 64), (vec![3, 1, 11], 8)]
        {
            let elements: usize = shape.iter().product();
            for dtype in [DType::F32, DType::BF16] {
                let bytes = whole(DType::U8, &[elements.div_ceil(2)], 0, 256);
                let scales = unit(DType::F32, &[elements.div_ceil(block)]);
                let op = Self { shape: shape.clone(), block, dtype };
                cases.push(Case::new(op, vec![bytes, scales]));
            }
        }
        cases
    }
}

impl Rule for DequantizeNf4 {
    fn name(&self) -> &'static str {
        "dequantize_nf4"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [bytes, scales] = arity(inputs)?;
        let Self { block, .. } = *self;
        ensure(block > 0 && block.is_multiple_of(PER_THREAD as usize), || {
            format!("a block has a multiple of {PER_THREAD} elements, not {block}")
        })?;
        let out = Type::new(self.dtype, self.shape.clone());
        float("the output", &out)?;
        let elements = out.elements();
        let needs = elements.div_ceil(2);
        ensure(bytes.dtype == DType::U8 && bytes.elements() == needs, || {
            format!("{elements} elements are in {needs} bytes of u8, got {bytes}")
        })?;
        let blocks = elements.div_ceil(block);
        float("scales", scales)?;
        ensure(scales.elements() == blocks, || format!("needs {blocks} scales, got {scales}"))?;
        Ok(vec![out])
    }

    fn made_again(&self) -> bool {
        true
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.dtype = with(self.dtype);
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let [bytes, scales] = [0, 1].map(|index| Place::input(index, inputs[index]));
        let (x, block) = (Place::output(0, outputs[0]), self.block as u64);
        let matrices = [(x.dtype, block), (bytes.dtype, block / 2)];
        let blocks = x.elements.div_ceil(block);
        for window in windows_with_vectors(limits, blocks, &matrices, &[(scales.dtype, 1)]) {
            let elements = window.start * block..(window.end * block).min(x.elements);
            let (count, pairs) =
                (elements.end - elements.start, elements.start / 2..elements.end.div_ceil(2));
            let (scales, first_block) = part(limits, scales, window);
            let workgroup = THREADS.min(limits.workgroup);
            let groups = count.div_ceil(PER_THREAD).div_ceil(workgroup.into());
            launches.push(
                Launch::new("nf4", "values", workgroup, groups)
                    .constant("BLOCK", block)
                    .bind_four("x", x.window(elements), true)
                    .bind_four("pairs", bytes.window(pairs), true)
                    .bind("scale", scales)
                    .param("elements", count)
                    .param("first_block", first_block)
                    .costing(count),
            );
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (bytes, scales) = (inputs[0], inputs[1]);
        for i in 0..outputs[0].len() {
            let level = LEVELS[code(bytes.get(i / 2) as u8, i)];
            outputs[0].set(i, f64::from(level) * scales.get(i / self.block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_come_back_as_they_are() {
        let values: Vec<f32> = (0..160).map(|i| 3.0 * LEVELS[(i * 7) % 16]).collect();
        let quantized = Nf4::of(&values);
        assert_eq!(quantized.bytes[0], 0x07);
        assert_eq!((quantized.bytes.len(), quantized.scales.codes.len()), (80, 3));
        // All scales are their mean.
        assert_eq!((quantized.scales.offset, quantized.scales.scales[0]), (3.0, 0.0));
        assert_eq!(quantized.values(160), values);
        assert!(Nf4::of(&[]).bytes.is_empty());
        assert_eq!(Nf4::of(&[0.0; 3]).values(3), [0.0; 3]);
    }

    #[test]
    fn a_value_is_off_by_less_than_half_the_widest_gap() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin() * 0.1).collect();
        let quantized = Nf4::of(&values);
        let scales: Vec<f32> = quantized.scales.values().collect();
        for (i, (x, back)) in values.iter().zip(quantized.values(1000)).enumerate() {
            assert!((x - back).abs() <= 0.16 * scales[i / NF4_BLOCK], "{i}: {x} and {back}");
        }
    }
}
