//! Block-wise 8-bit storage (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization").
//!
//!   scale[k] = max |x| over block k / largest;   x[i] ≈ value(quantized[i])·scale[i div block]
//!
//! An element is stored as the index of the value nearest to x/scale. [`Codebook`] says which values there are, and how far
//! off the nearest is at most. A block of zeros has scale 0 and the index of 0. Quantized values and scales that are all 0,
//! as memory starts, mean zeros.

mod codebook;
mod nf4;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::reduce::{QUAD, THREADS, lanes};
use super::windows::{part, windows_with_vectors};
use super::{Array, Case, Inferred, Rule, arity, ensure, float, range, unit, whole};
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::types::{DType, Type};

pub use codebook::{Codebook, DECADES};
pub use nf4::{DequantizeNf4, LEVELS, NF4_BLOCK, NF4_SCALES, Nf4, Nf4Scales, nf4_bytes};

/// Quantizes. Inputs: x, and where it updates: the old quantized values, scales, whether to. Outputs: quantized values
/// (like x), scales (one f32 a block).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantize {
    /// Consecutive elements that share a scale.
    pub block: usize,
    /// The numbers that quantized values stand for.
    pub codebook: Codebook,
    /// Writes over the quantized values and scales of inputs 1 and 2, and leaves them alone where input 3, one number,
    /// is 0.
    pub update: bool,
}

/// Dequantizes. Inputs: quantized values, scales. Output: like the quantized values, in `dtype`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dequantize {
    /// Consecutive elements that share a scale.
    pub block: usize,
    /// The numbers that quantized values stand for.
    pub codebook: Codebook,
    /// Storage of the output.
    pub dtype: DType,
}

/// The tensors of an op, in blocks of `block` elements.
struct Blocks<'a> {
    limits: &'a Limits,
    block: u64,
    codebook: Codebook,
    x: Place,
    quantized: Place,
    scales: Place,
    /// One number: 0 leaves quantized values and scales as they are.
    ok: Option<Place>,
}

impl Blocks<'_> {
    /// Ranges of blocks that are bound at once.
    fn windows(&self) -> Vec<Range<u64>> {
        let elements = [(self.x.dtype, self.block), (self.quantized.dtype, self.block)];
        let blocks = self.x.elements.div_ceil(self.block);
        windows_with_vectors(self.limits, blocks, &elements, &[(self.scales.dtype, 1)])
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
            .constant("BASE", self.codebook.base())
            .constant("ZERO", self.codebook.zero() as u32)
            .constant("DECADES", DECADES)
            .constant("UPDATE", self.ok.is_some())
            .bind_four("x", self.x.window(elements.clone()), self.block.is_multiple_of(QUAD))
            .bind_four("code", self.quantized.window(elements), true)
            .bind("scale", scales)
            .bind("ok", self.ok.unwrap_or(scales))
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
        let mut cases = vec![];
        for codebook in Codebook::ALL {
            let low = if codebook == Codebook::Unsigned { 0.0 } else { -3.0 };
            for (n, block) in [(1, 256), (256, 256), (1000, 256), (33, 16)] {
                let x = range(DType::F32, &[n], low, 3.0);
                cases.push(Case::new(Self { block, codebook, update: false }, vec![x]));
            }
            for ok in [0.0, 1.0] {
                let x = range(DType::F32, &[700], low, 3.0);
                let quantized = whole(codebook.dtype(), &[700], 0, 128);
                let ok = range(DType::F32, &[1], ok, ok);
                let inputs = vec![x, quantized, unit(DType::F32, &[3]), ok];
                cases.push(Case::new(Self { block: 256, codebook, update: true }, inputs));
            }
        }
        cases
    }
}

impl Rule for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let x = if self.update {
            let [x, _, _, ok] = arity(inputs)?;
            float("whether to update", ok)?;
            ensure(ok.elements() == 1, || format!("whether to update is one number, not {ok}"))?;
            x
        } else {
            let [x] = arity(inputs)?;
            x
        };
        float("x", x)?;
        ensure(self.block > 0, || "a block needs at least one element".into())?;
        let scales = Type::new(x.dtype.statistics(), [x.elements().div_ceil(self.block)]);
        Ok(vec![x.with_dtype(self.codebook.dtype()), scales])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.update { vec![(0, 1), (1, 2)] } else { vec![] }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let [x, quantized, scales] = [
            Place::input(0, inputs[0]),
            Place::output(0, outputs[0]),
            Place::output(1, outputs[1]),
        ];
        let ok = self.update.then(|| Place::input(3, inputs[3]));
        let (block, codebook) = (self.block as u64, self.codebook);
        let blocks = Blocks { limits, block, codebook, x, quantized, scales, ok };
        for window in blocks.windows() {
            let threads = (window.end - window.start) * blocks.lanes();
            launches.push(blocks.launch("scales", &window, threads));
            launches.push(blocks.elementwise("codes", &window));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, quantized, scales) = (inputs[0], outputs[0], outputs[1]);
        if self.update && inputs[3].get(0) == 0.0 {
            return;
        }
        for k in 0..scales.len() {
            let block = k * self.block..((k + 1) * self.block).min(x.len());
            let largest = block.clone().map(|i| x.get(i).abs()).fold(0.0, f64::max);
            scales.set(k, largest / self.codebook.largest());
            let scale = scales.get(k);
            for i in block {
                let part = if scale > 0.0 { x.get(i) / scale } else { 0.0 };
                quantized.set(i, self.codebook.nearest(part));
            }
        }
    }
}

impl Dequantize {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for codebook in Codebook::ALL {
            let (low, high) = if codebook == Codebook::Linear { (-127, 128) } else { (0, 256) };
            for (n, block) in [(1, 256), (1000, 256), (33, 16)] {
                for dtype in [DType::F32, DType::BF16] {
                    let quantized = whole(codebook.dtype(), &[n], low, high);
                    let scales = unit(DType::F32, &[n.div_ceil(block)]);
                    cases.push(Case::new(Self { block, codebook, dtype }, vec![quantized, scales]));
                }
            }
        }
        cases
    }
}

impl Rule for Dequantize {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [quantized, scales] = arity(inputs)?;
        ensure(self.block > 0, || "a block needs at least one element".into())?;
        let stored = self.codebook.dtype();
        ensure(quantized.dtype == stored, || {
            format!("quantized values must be {stored}, are {quantized}")
        })?;
        float("scales", scales)?;
        let blocks = quantized.elements().div_ceil(self.block);
        ensure(scales.elements() == blocks, || format!("needs {blocks} scales, got {scales}"))?;
        Ok(vec![quantized.with_dtype(self.dtype)])
    }

    fn made_again(&self) -> bool {
        true
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.dtype = with(self.dtype);
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let [quantized, scales, x] =
            [Place::input(0, inputs[0]), Place::input(1, inputs[1]), Place::output(0, outputs[0])];
        let (block, codebook) = (self.block as u64, self.codebook);
        let blocks = Blocks { limits, block, codebook, x, quantized, scales, ok: None };
        for window in blocks.windows() {
            launches.push(blocks.elementwise("values", &window));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (quantized, scales) = (inputs[0], inputs[1]);
        for i in 0..quantized.len() {
            outputs[0].set(i, self.codebook.value(quantized.get(i)) * scales.get(i / self.block));
        }
    }
}
