//! Another shape for the same elements, and a tensor repeated along a new axis.

use serde::{Deserialize, Serialize};

use super::super::windows::row_windows;
use super::super::{Array, Axes, Case, Inferred, Reduce, Rule, arity, ensure};
use super::{Move, around, bits, copy, samples};
use crate::error::Result;
use crate::launch::{Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::Type;

/// The same elements in another shape. Where the input dies here, the output takes over its storage and nothing runs; else
/// it's a copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reshape {
    /// Extents of the output, as many elements as the input has.
    pub shape: Vec<usize>,
}

/// Repeats a tensor along a new axis: `out[…, i, …] = x[…, …]` for each i below `extent`. The gradient is the sum over that
/// axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expand {
    /// Where the new axis is in the output; the number of the input's axes makes it the last.
    pub axis: usize,
    /// Extent of the new axis.
    pub extent: usize,
}

impl Reshape {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [(vec![1], vec![]), (vec![7, 6], vec![2, 3, 7]), (vec![5, 1, 3], vec![15])]
            .into_iter()
            .flat_map(|(from, to): (Vec<usize>, Vec<usize>)| {
                samples(&from).map(|x| Case::new(Self { shape: to.clone() }, vec![x]))
            })
            .collect()
    }
}

impl Rule for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        let out = Type::new(x.dtype, self.shape.clone());
        ensure(out.elements() == x.elements(), || {
            format!("{x} has {} elements, {:?} has {}", x.elements(), self.shape, out.elements())
        })?;
        Ok(vec![out])
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
        let x = graph.info(node.inputs[0]);
        let (name, shape) = (format!("grad.{}", x.name), x.ty.shape.clone());
        Ok(vec![Some(graph.one(Self { shape }, &[dy], &name)?)])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        copy(limits, inputs[0], outputs[0])
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        (0..out.len()).for_each(|index| out.set(index, x.get(index)));
    }
}

impl Expand {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [(vec![1], 0, 1), (vec![3, 5], 1, 4), (vec![2, 8], 1, 3), (vec![7], 1, 5), (vec![4], 0, 67)]
            .into_iter()
            .flat_map(|(shape, axis, extent): (Vec<usize>, _, _)| {
                samples(&shape).map(|x| Case::new(Self { axis, extent }, vec![x]))
            })
            .collect()
    }

    /// Elements of the input before the new axis and after it.
    pub fn around(&self, x: &Type) -> (usize, usize) {
        (x.shape[..self.axis].iter().product(), x.shape[self.axis..].iter().product())
    }
}

impl Rule for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        ensure(self.axis <= x.shape.len() && self.extent > 0, || {
            format!("{x} can't be repeated {} times along axis {}", self.extent, self.axis)
        })?;
        let mut shape = x.shape.clone();
        shape.insert(self.axis, self.extent);
        Ok(vec![Type::new(x.dtype, shape)])
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let x = node.inputs[0];
        let sum = Reduce { axes: Axes::Axis(self.axis), scale: 1.0, dtype: graph.grad_dtype(x) };
        let name = format!("grad.{}", graph.info(x).name);
        Ok(vec![Some(graph.one(sum, &[dy], &name)?)])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let (x, factor) = bits(Place::input(0, inputs[0]))?;
        let (out, _) = bits(Place::output(0, outputs[0]))?;
        let (outer, inner) = self.around(inputs[0]);
        let (outer, inner, extent) = (outer as u64, inner as u64 * factor, self.extent as u64);
        for range in row_windows(limits, outer, &[(x.dtype, inner), (out.dtype, inner * extent)]) {
            let window = |place: Place, n| place.window(range.start * n..range.end * n);
            let part = Move::permuted(&[(range.end - range.start, inner), (extent, 0), (inner, 1)]);
            launches.push(part.launch(limits, window(x, inner), window(out, inner * extent)));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        let (_, inner) = around(&out.ty().shape, self.axis);
        for index in 0..out.len() {
            let outer = index / (inner * self.extent);
            out.set(index, x.get(outer * inner + index % inner));
        }
    }
}
