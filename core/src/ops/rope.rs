//! Rotary position embedding (Su et al. 2021) in Hugging Face's half-split layout.
//!
//!   For the first `rotated` heads of (B, T, N·D), pair (x[d], x[d + D/2]) at position p turns by the angle
//!   p·theta^(−2d/D). The other heads pass unchanged, so that packed projections rotate in one pass.

use super::{Array, Case, Cost, Inferred, Rule, arity, ensure, float, traffic, unit, whole};
use crate::error::Result;
use crate::graph::{Graph, Node, Tensor};
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

    fn grad(
        &self,
        graph: &mut Graph,
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
        Cost { flops: 6 * inputs[0].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, start, out) = (inputs[0], inputs[1].get(0), outputs[0]);
        let (time, columns) = (x.ty().shape[1], x.ty().last());
        let half = self.head_dim / 2;
        for r in 0..x.ty().rows() {
            let position = start + (r % time) as f64;
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
