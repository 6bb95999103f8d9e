//! Block-wise 8-bit storage.
//!
//!   scale[k] = max |x| over block k / 127;   code[i] = round(x[i] / scale[i div block]);   x ≈ code·scale
//!
//! A block of zeros has scale 0 and codes 0. Rounding is to nearest, ties to even.

use std::ops::Range;

use super::layout::{part, windows_beside};
use super::reduce::{QUAD, THREADS, lanes};
use super::{Array, Case, Inferred, Rule, arity, ensure, float, range, unit, whole};
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::types::{DType, Type};

/// Values to codes. Input: x. Outputs: codes (I8, like x), scales (one f32 a block).
#[derive(Clone, Debug, PartialEq)]
pub struct Quantize {
    /// Consecutive elements that share a scale.
    pub block: usize,
}

/// Codes to values. Inputs: codes (I8), scales. Output: like the codes, in `dtype`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dequantize {
    /// Consecutive elements that share a scale.
    pub block: usize,
    /// Storage of the output.
    pub dtype: DType,
}

const LARGEST_CODE: f64 = 127.0;

/// The tensors of an op, in blocks of `block` elements.
struct Blocks<'a> {
    limits: &'a Limits,
    block: u64,
    x: Place,
    codes: Place,
    scales: Place,
}

impl Blocks<'_> {
    /// Ranges of blocks that are bound at once.
    fn windows(&self) -> Vec<Range<u64>> {
        let elements = [(self.x.dtype, self.block), (self.codes.dtype, self.block)];
        let blocks = self.x.elements.div_ceil(self.block);
        windows_beside(self.limits, blocks, &elements, &[(self.scales.dtype, 1)])
    }

    /// Elements of a range of blocks.
    fn elements(&self, blocks: &Range<u64>) -> Range<u64> {
        blocks.start * self.block..(blocks.end * self.block).min(self.x.elements)
    }

    /// Threads that own a block.
    fn lanes(&self) -> u64 {
        lanes(self.block, THREADS.min(self.limits.workgroup))
    }

    /// A launch of this many threads over a range of blocks.
    fn launch(&self, entry: &'static str, blocks: &Range<u64>, threads: u64) -> Launch {
        let elements = self.elements(blocks);
        let count = elements.end - elements.start;
        let (scales, first_block) = part(self.limits, self.scales, blocks.clone());
        let workgroup = THREADS.min(self.limits.workgroup);
        Launch::new("quant", entry, workgroup, threads.div_ceil(workgroup.into()))
            .constant("BLOCK", self.block)
            .constant("LANES", self.lanes())
            .bind_four("x", self.x.window(elements.clone()), self.block.is_multiple_of(QUAD))
            .bind_four("code", self.codes.window(elements), true)
            .bind("scale", scales)
            .param("elements", count)
            .param("first_block", first_block)
            .costing(count)
    }

    /// A launch of threads that make four neighbours each.
    fn elementwise(&self, entry: &'static str, blocks: &Range<u64>) -> Launch {
        let elements = self.elements(blocks);
        self.launch(entry, blocks, (elements.end - elements.start).div_ceil(QUAD))
    }
}

impl Quantize {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [(1, 256), (256, 256), (1000, 256), (33, 16)]
            .into_iter()
            .map(|(n, block)| Case::new(Self { block }, vec![range(DType::F32, &[n], -3.0, 3.0)]))
            .collect()
    }
}

impl Rule for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        float("x", x)?;
        ensure(self.block > 0, || "a block needs at least one element".into())?;
        let scales = Type::new(x.dtype.statistics(), [x.elements().div_ceil(self.block)]);
        Ok(vec![x.with_dtype(DType::I8), scales])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let [x, codes, scales] = [
            Place::input(0, inputs[0]),
            Place::output(0, outputs[0]),
            Place::output(1, outputs[1]),
        ];
        let blocks = Blocks { limits, block: self.block as u64, x, codes, scales };
        for window in blocks.windows() {
            let threads = (window.end - window.start) * blocks.lanes();
            launches.push(blocks.launch("scales", &window, threads));
            launches.push(blocks.elementwise("codes", &window));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, codes, scales) = (inputs[0], outputs[0], outputs[1]);
        for k in 0..scales.len() {
            let block = k * self.block..((k + 1) * self.block).min(x.len());
            let largest = block.clone().map(|i| x.get(i).abs()).fold(0.0, f64::max);
            scales.set(k, largest / LARGEST_CODE);
            let scale = scales.get(k);
            for i in block {
                let code = if scale > 0.0 { (x.get(i) / scale).round_ties_even() } else { 0.0 };
                codes.set(i, code.clamp(-LARGEST_CODE, LARGEST_CODE));
            }
        }
    }
}

impl Dequantize {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [(1, 256), (1000, 256), (33, 16)]
            .into_iter()
            .flat_map(|(n, block): (usize, usize)| {
                [DType::F32, DType::BF16].map(|dtype| {
                    let codes = whole(DType::I8, &[n], -127, 128);
                    let scales = unit(DType::F32, &[n.div_ceil(block)]);
                    Case::new(Self { block, dtype }, vec![codes, scales])
                })
            })
            .collect()
    }
}

impl Rule for Dequantize {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [codes, scales] = arity(inputs)?;
        ensure(self.block > 0, || "a block needs at least one element".into())?;
        ensure(codes.dtype == DType::I8, || format!("codes must be i8, are {codes}"))?;
        float("scales", scales)?;
        let blocks = codes.elements().div_ceil(self.block);
        ensure(scales.elements() == blocks, || format!("needs {blocks} scales, got {scales}"))?;
        Ok(vec![codes.with_dtype(self.dtype)])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let [codes, scales, x] =
            [Place::input(0, inputs[0]), Place::input(1, inputs[1]), Place::output(0, outputs[0])];
        let blocks = Blocks { limits, block: self.block as u64, x, codes, scales };
        for window in blocks.windows() {
            launches.push(blocks.elementwise("values", &window));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (codes, scales) = (inputs[0], inputs[1]);
        for i in 0..codes.len() {
            outputs[0].set(i, codes.get(i) * scales.get(i / self.block));
        }
    }
}
