//! Block-wise 8-bit storage (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization").
//!
//!   scale[k] = max |x| over block k / largest;   x[i] ≈ value(code[i])·scale[i div block]
//!
//! The code of x is the one whose value is nearest to x/scale; [`Code`] says which values there are, and how far
//! off the nearest is at most. A block of zeros has scale 0 and the code of 0. Codes and scales that are all 0, as
//! memory starts, mean zeros.

mod code;

use std::ops::Range;

use super::reduce::{QUAD, THREADS, lanes};
use super::windows::{part, windows_with_vectors};
use super::{Array, Case, Inferred, Rule, arity, ensure, float, range, unit, whole};
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::types::{DType, Type};

pub use code::{Code, DECADES};

/// Values to codes. Inputs: x, and where it updates: codes, scales, whether to. Outputs: codes (like x), scales
/// (one f32 a block).
#[derive(Clone, Debug, PartialEq)]
pub struct Quantize {
    /// Consecutive elements that share a scale.
    pub block: usize,
    /// What the codes stand for.
    pub code: Code,
    /// Writes over the codes and scales of inputs 1 and 2, and leaves them alone where input 3, one number,
    /// is 0.
    pub update: bool,
}

/// Codes to values. Inputs: codes, scales. Output: like the codes, in `dtype`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dequantize {
    /// Consecutive elements that share a scale.
    pub block: usize,
    /// What the codes stand for.
    pub code: Code,
    /// Storage of the output.
    pub dtype: DType,
}

/// The tensors of an op, in blocks of `block` elements.
struct Blocks<'a> {
    limits: &'a Limits,
    block: u64,
    code: Code,
    x: Place,
    codes: Place,
    scales: Place,
    /// One number: 0 leaves codes and scales as they are.
    ok: Option<Place>,
}

impl Blocks<'_> {
    /// Ranges of blocks that are bound at once.
    fn windows(&self) -> Vec<Range<u64>> {
        let elements = [(self.x.dtype, self.block), (self.codes.dtype, self.block)];
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
            .constant("BASE", self.code.base())
            .constant("ZERO", self.code.zero() as u32)
            .constant("DECADES", DECADES)
            .constant("UPDATE", self.ok.is_some())
            .bind_four("x", self.x.window(elements.clone()), self.block.is_multiple_of(QUAD))
            .bind_four("code", self.codes.window(elements), true)
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
        for code in Code::ALL {
            let low = if code == Code::Unsigned { 0.0 } else { -3.0 };
            for (n, block) in [(1, 256), (256, 256), (1000, 256), (33, 16)] {
                let x = range(DType::F32, &[n], low, 3.0);
                cases.push(Case::new(Self { block, code, update: false }, vec![x]));
            }
            for ok in [0.0, 1.0] {
                let x = range(DType::F32, &[700], low, 3.0);
                let codes = whole(code.dtype(), &[700], 0, 128);
                let ok = range(DType::F32, &[1], ok, ok);
                let inputs = vec![x, codes, unit(DType::F32, &[3]), ok];
                cases.push(Case::new(Self { block: 256, code, update: true }, inputs));
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
        Ok(vec![x.with_dtype(self.code.dtype()), scales])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.update { vec![(0, 1), (1, 2)] } else { vec![] }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let [x, codes, scales] = [
            Place::input(0, inputs[0]),
            Place::output(0, outputs[0]),
            Place::output(1, outputs[1]),
        ];
        let ok = self.update.then(|| Place::input(3, inputs[3]));
        let (block, code) = (self.block as u64, self.code);
        let blocks = Blocks { limits, block, code, x, codes, scales, ok };
        for window in blocks.windows() {
            let threads = (window.end - window.start) * blocks.lanes();
            launches.push(blocks.launch("scales", &window, threads));
            launches.push(blocks.elementwise("codes", &window));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, codes, scales) = (inputs[0], outputs[0], outputs[1]);
        if self.update && inputs[3].get(0) == 0.0 {
            return;
        }
        for k in 0..scales.len() {
            let block = k * self.block..((k + 1) * self.block).min(x.len());
            let largest = block.clone().map(|i| x.get(i).abs()).fold(0.0, f64::max);
            scales.set(k, largest / self.code.largest());
            let scale = scales.get(k);
            for i in block {
                let part = if scale > 0.0 { x.get(i) / scale } else { 0.0 };
                codes.set(i, self.code.nearest(part));
            }
        }
    }
}

impl Dequantize {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for code in Code::ALL {
            let (low, high) = if code == Code::Linear { (-127, 128) } else { (0, 256) };
            for (n, block) in [(1, 256), (1000, 256), (33, 16)] {
                for dtype in [DType::F32, DType::BF16] {
                    let codes = whole(code.dtype(), &[n], low, high);
                    let scales = unit(DType::F32, &[n.div_ceil(block)]);
                    cases.push(Case::new(Self { block, code, dtype }, vec![codes, scales]));
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
        let [codes, scales] = arity(inputs)?;
        ensure(self.block > 0, || "a block needs at least one element".into())?;
        let stored = self.code.dtype();
        ensure(codes.dtype == stored, || format!("codes must be {stored}, are {codes}"))?;
        float("scales", scales)?;
        let blocks = codes.elements().div_ceil(self.block);
        ensure(scales.elements() == blocks, || format!("needs {blocks} scales, got {scales}"))?;
        Ok(vec![codes.with_dtype(self.dtype)])
    }

    fn made_again(&self) -> bool {
        true
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.dtype = with(self.dtype);
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let [codes, scales, x] =
            [Place::input(0, inputs[0]), Place::input(1, inputs[1]), Place::output(0, outputs[0])];
        let (block, code) = (self.block as u64, self.code);
        let blocks = Blocks { limits, block, code, x, codes, scales, ok: None };
        for window in blocks.windows() {
            launches.push(blocks.elementwise("values", &window));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (codes, scales) = (inputs[0], inputs[1]);
        for i in 0..codes.len() {
            outputs[0].set(i, self.code.value(codes.get(i)) * scales.get(i / self.block));
        }
    }
}
