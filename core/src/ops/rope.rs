//! Rotary position embedding (Su et al. 2021) in Hugging Face's half-split layout.
//!
//!   For the first `rotated` heads of (B, T, N·D), pair d, (x[d], x[d + D/2]), at position p turns by the angle p·f[d],
//!   where f[d] = theta^(−2d/D), or what [`Stretch`] makes of it. The other heads pass unchanged, so that packed
//!   projections rotate in one pass.

use serde::{Deserialize, Serialize};

use super::windows::row_windows;
use super::{
    Array, Case, Cost, Indices, Inferred, Rule, Work, arity, ensure, float, traffic, unit, whole,
};
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Lower frequencies, for sequences longer than those that a model was first trained on. With f = theta^(−2d/D) of pair d:
///
/// ```text
/// kept = clamp(kept.base + kept.frequency·f + kept.pair·d, 0, 1)
/// f[d] = f·(kept + (1 − kept)·rest),   and the rotated values are multiplied by `amplitude`
/// ```
///
/// Linear interpolation (Chen et al. 2023) keeps nothing; Llama 3 keeps what turns often enough within the first length; YaRN
/// (Peng et al. 2023) keeps the first pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// What share of a frequency is kept.
    pub kept: Kept,
    /// Factor on the rest of it.
    pub rest: f64,
    /// Factor on rotated values.
    pub amplitude: f64,
}

/// The share of a frequency that is kept, before it's clamped to 0 … 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Of every pair.
    pub base: f64,
    /// For each radian that the pair turns with a position.
    pub frequency: f64,
    /// For each pair before it.
    pub pair: f64,
}

impl Stretch {
    /// Leaves frequencies as they are.
    pub const NONE: Self =
        Self { kept: Kept { base: 1.0, frequency: 0.0, pair: 0.0 }, rest: 1.0, amplitude: 1.0 };

    /// What becomes of frequency `f` of pair `d`.
    pub fn frequency(&self, f: f64, d: usize) -> f64 {
        let Kept { base, frequency, pair } = self.kept;
        let kept = (base + frequency * f + pair * d as f64).clamp(0.0, 1.0);
        f * (kept + (1.0 - kept) * self.rest)
    }
}

/// Rotation by position. Inputs: x (B, T, N·D), and the position of the first row (I32, (1)) or of each one (I32, (B, T)).
/// Output: like x.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Heads that turn, from the first.
    pub rotated: usize,
    /// Channels of a head, D; even.
    pub head_dim: usize,
    /// Base of the angles.
    pub theta: f64,
    /// What lowers the frequencies.
    pub stretch: Stretch,
    /// Turn back, as the gradient does.
    pub inverse: bool,
}

/// Threads of a workgroup, and operations of an element.
const THREADS: u32 = 64;
const FLOPS: u64 = 6;

impl Rope {
    /// Rotation of the first heads, with frequencies as they are.
    pub fn new(rotated: usize, head_dim: usize, theta: f64) -> Self {
        Self { rotated, head_dim, theta, stretch: Stretch::NONE, inverse: false }
    }

    /// Radians that pair `d` turns with a position.
    pub fn frequency(&self, d: usize) -> f64 {
        let plain = self.theta.powf(-2.0 * d as f64 / self.head_dim as f64);
        self.stretch.frequency(plain, d)
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (b, t, heads, rotated, head_dim) in
            [(1, 1, 1, 1, 2), (2, 7, 4, 3, 8), (1, 33, 3, 2, 64)]
        {
            for dtype in [DType::F32, DType::BF16] {
                let x = unit(dtype, &[b, t, heads * head_dim]);
                let first = whole(DType::I32, &[1], 0, 50);
                let each = whole(DType::I32, &[b, t], 0, 50);
                let plain = Self::new(rotated, head_dim, 1e4);
                let kept = Kept { base: -0.2, frequency: 2.0, pair: 0.1 };
                let stretch = Stretch { kept, rest: 0.125, amplitude: 1.2 };
                for inverse in [false, true] {
                    let op = Self { inverse, ..plain.clone() };
                    cases.push(Case::new(op.clone(), vec![x.clone(), first.clone()]));
                    let stretched = Self { stretch, ..op.clone() };
                    cases.push(Case::new(stretched, vec![x.clone(), first.clone()]));
                    cases.push(Case::new(op, vec![x.clone(), each.clone()]));
                }
            }
        }
        cases
    }
}

impl Rule for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x, position] = arity(inputs)?;
        float("x", x)?;
        ensure(self.head_dim.is_multiple_of(2), || {
            format!("head dimension {} is odd", self.head_dim)
        })?;
        let wide = x.shape.len() == 3 && x.last() >= self.rotated * self.head_dim;
        ensure(wide, || format!("{} heads of {} don't fit x {x}", self.rotated, self.head_dim))?;
        let [batch, seq_len] = [x.shape[0], x.shape[1]];
        let fits = position.shape == [1] || position.shape == [batch, seq_len];
        ensure(position.dtype == DType::I32 && fits, || {
            format!("positions must be i32[1] or i32[{batch}, {seq_len}], are {position}")
        })?;
        Ok(vec![x.clone()])
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn indices(&self, _inputs: &[&Type]) -> Vec<Indices> {
        vec![Indices { input: 1, end: i32::MAX as usize, negative: false }]
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None; 2]) };
        let op = Self { inverse: !self.inverse, ..self.clone() };
        let name = format!("grad.{}", graph.info(node.inputs[0]).name);
        Ok(vec![Some(graph.one(op, &[dy, node.inputs[1]], &name)?), None])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: FLOPS * inputs[0].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        // A row is a head, and an element an angle, which the heads of a position share.
        let rows = inputs[0].rows() as u64;
        Work { rows: rows * self.rotated as u64, elements: rows * self.head_dim as u64 / 2 }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let (x, start) = (Place::input(0, inputs[0]), Place::input(1, inputs[1]));
        let (rows, columns) = (inputs[0].rows() as u64, inputs[0].last() as u64);
        let half = self.head_dim as u64 / 2;
        let turning = self.rotated as u64 * half.div_ceil(4);
        let rest = columns - (self.rotated * self.head_dim) as u64;
        let aligned = half.is_multiple_of(4) && columns.is_multiple_of(4);
        // A 32-bit word of the output must lie within a half of a head.
        let even = half.is_multiple_of(2) && columns.is_multiple_of(2);
        let mut launches = Launches::new();
        let y = Place::output(0, outputs[0]);
        let kept = self.stretch.kept;
        launches.by_rows(limits, y, if even { 2 } else { 1 }, false, |launches, y| {
            for range in row_windows(limits, rows, &[(x.dtype, columns), (y.dtype, columns)]) {
                let count = range.end - range.start;
                let threads = THREADS.min(limits.workgroup);
                let groups = (count * (turning + rest.div_ceil(4))).div_ceil(threads.into());
                let elements = range.start * columns..range.end * columns;
                let launch = Launch::new("rope", "rotate", threads, groups)
                    .constant("ROTATED", self.rotated as u64)
                    .constant("HEAD_DIM", self.head_dim as u64)
                    .constant("EACH", u64::from(inputs[1].shape.len() == 2))
                    .constant("STRETCHED", u64::from(self.stretch != Stretch::NONE))
                    .param("rows", count)
                    .param("first_row", range.start)
                    .param("time", inputs[0].shape[1] as u64)
                    .param("columns", columns)
                    .real("log2_step", -2.0 * self.theta.log2() / self.head_dim as f64)
                    .real("direction", if self.inverse { -1.0 } else { 1.0 })
                    .real("kept_base", kept.base)
                    .real("kept_frequency", kept.frequency)
                    .real("kept_pair", kept.pair)
                    .real("rest", self.stretch.rest)
                    .real("amplitude", self.stretch.amplitude)
                    .bind_four("x", x.window(elements.clone()), aligned)
                    .bind("start", start)
                    .bind_four("y", y.window(elements), aligned);
                launches.push(launch.costing(FLOPS * count * columns));
            }
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, positions, out) = (inputs[0], inputs[1], outputs[0]);
        let each = positions.ty().shape.len() == 2;
        let (seq_len, columns) = (x.ty().shape[1], x.ty().last());
        let half = self.head_dim / 2;
        for r in 0..x.ty().rows() {
            let position =
                if each { positions.get(r) } else { positions.get(0) + (r % seq_len) as f64 };
            for head in 0..self.rotated {
                for d in 0..half {
                    let angle = if self.inverse { -position } else { position } * self.frequency(d);
                    let (cos, sin) = (
                        self.stretch.amplitude * angle.cos(),
                        self.stretch.amplitude * angle.sin(),
                    );
                    let first = r * columns + head * self.head_dim + d;
                    let (a, b) = (x.get(first), x.get(first + half));
                    out.set(first, a * cos - b * sin);
                    out.set(first + half, b * cos + a * sin);
                }
            }
            for c in self.rotated * self.head_dim..columns {
                out.set(r * columns + c, x.get(r * columns + c));
            }
        }
    }
}
