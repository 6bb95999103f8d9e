//! Rotary position embedding (Su et al. 2021) in Hugging Face's half-split layout.
//!
//!   For the first `rotated` heads of (B, T, N·D), pair (x[d], x[d + D/2]) at position p turns by the angle
//!   p·theta^(−2d/D). The other heads pass unchanged, so that packed projections rotate in one pass.

use super::windows::row_windows;
use super::{
    Array, Case, Cost, Indices, Inferred, Rule, arity, ensure, float, traffic, unit, whole,
};
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Rotation by position. Inputs: x (B, T, N·D), position of the first row (I32, 1). Output: like x.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Heads that turn, from the first.
    pub rotated: usize,
    /// Channels of a head, D; even.
    pub head_dim: usize,
    /// Base of the angles.
    pub theta: f64,
    /// Turn back, as the gradient does.
    pub inverse: bool,
}

/// Threads of a workgroup, and operations of an element.
const THREADS: u32 = 64;
const FLOPS: u64 = 6;

impl Rope {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (b, t, heads, rotated, head_dim) in
            [(1, 1, 1, 1, 2), (2, 7, 4, 3, 8), (1, 33, 3, 2, 64)]
        {
            for dtype in [DType::F32, DType::BF16] {
                for inverse in [false, true] {
                    let op = Self { rotated, head_dim, theta: 1e4, inverse };
                    let x = unit(dtype, &[b, t, heads * head_dim]);
                    cases.push(Case::new(op, vec![x, whole(DType::I32, &[1], 0, 50)]));
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
        ensure(*position == Type::new(DType::I32, [1]), || {
            format!("the position must be i32[1], is {position}")
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
        launches.by_rows(limits, y, if even { 2 } else { 1 }, false, |launches, y| {
            for range in row_windows(limits, rows, &[(x.dtype, columns), (y.dtype, columns)]) {
                let count = range.end - range.start;
                let threads = THREADS.min(limits.workgroup);
                let groups = (count * (turning + rest.div_ceil(4))).div_ceil(threads.into());
                let elements = range.start * columns..range.end * columns;
                let launch = Launch::new("rope", "rotate", threads, groups)
                    .constant("ROTATED", self.rotated as u64)
                    .constant("HEAD_DIM", self.head_dim as u64)
                    .param("rows", count)
                    .param("first_row", range.start)
                    .param("time", inputs[0].shape[1] as u64)
                    .param("columns", columns)
                    .real("log2_step", -2.0 * self.theta.log2() / self.head_dim as f64)
                    .real("direction", if self.inverse { -1.0 } else { 1.0 })
                    .bind_four("x", x.window(elements.clone()), aligned)
                    .bind("start", start)
                    .bind_four("y", y.window(elements), aligned);
                launches.push(launch.costing(FLOPS * count * columns));
            }
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, start, out) = (inputs[0], inputs[1].get(0), outputs[0]);
        let (seq_len, columns) = (x.ty().shape[1], x.ty().last());
        let half = self.head_dim / 2;
        for r in 0..x.ty().rows() {
            let position = start + (r % seq_len) as f64;
            for head in 0..self.rotated {
                for d in 0..half {
                    let frequency = self.theta.powf(-2.0 * d as f64 / self.head_dim as f64);
                    let angle = if self.inverse { -position } else { position } * frequency;
                    let first = r * columns + head * self.head_dim + d;
                    let (a, b) = (x.get(first), x.get(first + half));
                    out.set(first, a * angle.cos() - b * angle.sin());
                    out.set(first + half, b * angle.cos() + a * angle.sin());
                }
            }
            for c in self.rotated * self.head_dim..columns {
                out.set(r * columns + c, x.get(r * columns + c));
            }
        }
    }
}
