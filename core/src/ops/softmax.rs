//! Softmax over the last axis.
//!
//!   y[r,c] = exp(x[r,c] − max) / Σ exp(x[r,·] − max);   dx = y·(dy − Σ y·dy)

use serde::{Deserialize, Serialize};

use super::windows::row_windows;
use super::{Array, Case, Cost, Inferred, Rule, arity, ensure, float, range, traffic, typed, unit};
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Softmax. Input: (…, C). Output: like it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Softmax;

/// Gradient of [`Softmax`]. Inputs: y, dy. Output: dx.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftmaxGrad;

/// Operations of an element, for the cost.
const SOFTMAX_FLOPS: u64 = 5;
const GRADIENT_FLOPS: u64 = 4;

/// Threads that make a row.
const THREADS: u32 = 64;

/// Launches of `entry` over the rows of x and, in the gradient, dy. One workgroup a row.
fn by_row(
    limits: &Limits,
    entry: &'static str,
    inputs: &[&Type],
    output: &Type,
    flops: u64,
) -> Launches {
    let (rows, columns) = (output.rows() as u64, output.last() as u64);
    let x = Place::input(0, inputs[0]);
    // Softmax has no dy: another name for x takes no further binding.
    let dy = inputs.get(1).map_or(x, |ty| Place::input(1, ty));
    let mut launches = Launches::new();
    launches.by_rows(limits, Place::output(0, output), columns, false, |launches, out| {
        for range in row_windows(limits, rows, &[(x.dtype, columns), (out.dtype, columns)]) {
            let count = range.end - range.start;
            let window = |place: Place| place.window(range.start * columns..range.end * columns);
            let aligned = columns.is_multiple_of(4);
            let threads = THREADS.min(limits.workgroup);
            let launch = Launch::new("softmax", entry, threads, count)
                .constant("LANES", threads)
                .constant("SUBGROUP", limits.webgpu().subgroup_threads())
                .param("columns", columns)
                .bind_four("x", window(x), aligned)
                .bind_four("dy", window(dy), aligned)
                .bind_four("out", window(out), aligned);
            launches.push(launch.costing(flops * count * columns));
        }
    });
    launches
}

const SIZES: [[usize; 2]; 4] = [[1, 1], [3, 5], [7, 257], [64, 33]];

impl Softmax {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let of =
            |dtype| move |shape: [usize; 2]| Case::new(Self, vec![range(dtype, &shape, -9.0, 9.0)]);
        let mut cases: Vec<Case> = SIZES.into_iter().map(of(DType::F32)).collect();
        cases.extend(SIZES.into_iter().map(of(DType::BF16)));
        cases.push(Case::new(Self, vec![range(DType::F32, &[4, 9], -1e4, 1e4)]));
        cases
    }
}

impl Rule for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        float("x", x)?;
        ensure(!x.shape.is_empty(), || "x needs an axis".into())?;
        Ok(vec![x.clone()])
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let name = format!("grad.{}", graph.info(node.inputs[0]).name);
        Ok(vec![Some(graph.one(SoftmaxGrad, &[node.outputs[0], dy], &name)?)])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let flops = SOFTMAX_FLOPS * inputs[0].elements() as u64;
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        Ok(by_row(limits, "softmax", inputs, outputs[0], SOFTMAX_FLOPS))
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let columns = inputs[0].ty().last();
        for r in 0..inputs[0].ty().rows() {
            let row: Vec<f64> = (0..columns).map(|c| inputs[0].get(r * columns + c)).collect();
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            for (c, x) in row.iter().enumerate() {
                outputs[0].set(r * columns + c, (x - max).exp() / sum);
            }
        }
    }
}

impl SoftmaxGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let of = |dtype| {
            move |shape: [usize; 2]| {
                Case::new(Self, vec![range(dtype, &shape, 0.0, 1.0), unit(dtype, &shape)])
            }
        };
        SIZES
            .into_iter()
            .map(of(DType::F32))
            .chain(SIZES.into_iter().map(of(DType::BF16)))
            .collect()
    }
}

impl Rule for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [y, dy] = arity(inputs)?;
        float("y", y)?;
        typed("dy", dy, y)?;
        Ok(vec![y.clone()])
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(0, 0), (0, 1)]
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let flops = GRADIENT_FLOPS * inputs[0].elements() as u64;
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        Ok(by_row(limits, "gradient", inputs, outputs[0], GRADIENT_FLOPS))
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (y, dy) = (inputs[0], inputs[1]);
        let columns = y.ty().last();
        for r in 0..y.ty().rows() {
            let at = |c| r * columns + c;
            let inner: f64 = (0..columns).map(|c| y.get(at(c)) * dy.get(at(c))).sum();
            for c in 0..columns {
                outputs[0].set(at(c), y.get(at(c)) * (dy.get(at(c)) - inner));
            }
        }
    }
}
