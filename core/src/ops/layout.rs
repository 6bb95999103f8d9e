//! Moving elements without changing them: permute, slice, place into zeros, concatenate.

use super::{Array, Case, Inferred, Rule, arity, ensure, unit};
use crate::error::Result;
use crate::graph::{Graph, Node, Tensor};
use crate::types::{DType, Type};

/// Reorders axes: axis i of the output is axis `axes[i]` of the input. The identity copies.
#[derive(Clone, Debug, PartialEq)]
pub struct Permute {
    /// A permutation of the input's axes.
    pub axes: Vec<usize>,
}

/// Elements `start .. start + len` along one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// First index kept.
    pub start: usize,
    /// Number of indices kept.
    pub len: usize,
}

/// Places the input at `start` of an axis of extent `extent`, zeros elsewhere: gradient of [`Slice`].
#[derive(Clone, Debug, PartialEq)]
pub struct SliceGrad {
    /// The axis.
    pub axis: usize,
    /// Index where the input begins.
    pub start: usize,
    /// Extent of the axis in the output.
    pub extent: usize,
}

/// Joins tensors along one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

/// Extents before and after an axis.
fn around(shape: &[usize], axis: usize) -> (usize, usize) {
    (shape[..axis].iter().product(), shape[axis + 1..].iter().product())
}

fn resized(ty: &Type, axis: usize, extent: usize) -> Type {
    let mut shape = ty.shape.clone();
    shape[axis] = extent;
    Type::new(ty.dtype, shape)
}

impl Permute {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [
            (vec![5], vec![0]),
            (vec![3, 7], vec![1, 0]),
            (vec![2, 3, 5, 4], vec![0, 2, 1, 3]),
            (vec![2, 3, 5], vec![2, 0, 1]),
        ]
        .into_iter()
        .flat_map(|(shape, axes)| {
            [DType::F32, DType::BF16]
                .map(|dtype| Case::new(Self { axes: axes.clone() }, vec![unit(dtype, &shape)]))
        })
        .collect()
    }
}

impl Rule for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        ensure(sorted.iter().copied().eq(0..x.shape.len()), || {
            format!("{:?} is not a permutation of the {} axes", self.axes, x.shape.len())
        })?;
        let shape: Vec<usize> = self.axes.iter().map(|&axis| x.shape[axis]).collect();
        Ok(vec![Type::new(x.dtype, shape)])
    }

    fn grad(
        &self,
        graph: &mut Graph,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let mut axes = vec![0; self.axes.len()];
        self.axes.iter().enumerate().for_each(|(to, &from)| axes[from] = to);
        let name = format!("grad.{}", graph.info(node.inputs[0]).name);
        Ok(vec![Some(graph.one(Self { axes }, &[dy], &name)?)])
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        let strides: Vec<usize> =
            (0..x.ty().shape.len()).map(|axis| x.ty().shape[axis + 1..].iter().product()).collect();
        for index in 0..out.len() {
            let (mut rest, mut from) = (index, 0);
            for (to, &axis) in self.axes.iter().enumerate().rev() {
                from += rest % out.ty().shape[to] * strides[axis];
                rest /= out.ty().shape[to];
            }
            out.set(index, x.get(from));
        }
    }
}

impl Slice {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [(vec![5], 0, 1, 3), (vec![3, 7], 1, 0, 7), (vec![2, 9, 5], 1, 4, 5), (vec![4, 6], 0, 3, 1)]
            .into_iter()
            .flat_map(|(shape, axis, start, len)| {
                [DType::F32, DType::BF16]
                    .map(|dtype| Case::new(Self { axis, start, len }, vec![unit(dtype, &shape)]))
            })
            .collect()
    }
}

impl Rule for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        let fits = x.shape.get(self.axis).is_some_and(|&extent| self.start + self.len <= extent);
        ensure(fits && self.len > 0, || {
            format!("{}..{} of axis {} is not in {x}", self.start, self.start + self.len, self.axis)
        })?;
        Ok(vec![resized(x, self.axis, self.len)])
    }

    fn grad(
        &self,
        graph: &mut Graph,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let extent = graph.ty(node.inputs[0]).shape[self.axis];
        let op = SliceGrad { axis: self.axis, start: self.start, extent };
        let name = format!("grad.{}", graph.info(node.inputs[0]).name);
        Ok(vec![Some(graph.one(op, &[dy], &name)?)])
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        let (outer, inner) = around(&x.ty().shape, self.axis);
        let extent = x.ty().shape[self.axis];
        for o in 0..outer {
            for i in 0..self.len * inner {
                out.set(o * self.len * inner + i, x.get((o * extent + self.start) * inner + i));
            }
        }
    }
}

impl SliceGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [(vec![3], 0, 1, 5), (vec![3, 7], 1, 0, 7), (vec![2, 5, 5], 1, 4, 9)]
            .into_iter()
            .flat_map(|(shape, axis, start, extent)| {
                [DType::F32, DType::BF16]
                    .map(|dtype| Case::new(Self { axis, start, extent }, vec![unit(dtype, &shape)]))
            })
            .collect()
    }
}

impl Rule for SliceGrad {
    fn name(&self) -> &'static str {
        "slice_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        let fits = x.shape.get(self.axis).is_some_and(|&len| self.start + len <= self.extent);
        ensure(fits, || format!("{x} doesn't fit {} from {}", self.extent, self.start))?;
        Ok(vec![resized(x, self.axis, self.extent)])
    }

    fn grad(
        &self,
        graph: &mut Graph,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let len = graph.ty(node.inputs[0]).shape[self.axis];
        let op = Slice { axis: self.axis, start: self.start, len };
        let name = format!("grad.{}", graph.info(node.inputs[0]).name);
        Ok(vec![Some(graph.one(op, &[dy], &name)?)])
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        let (outer, inner) = around(&x.ty().shape, self.axis);
        let len = x.ty().shape[self.axis];
        out.fill(0.0);
        for o in 0..outer {
            for i in 0..len * inner {
                out.set((o * self.extent + self.start) * inner + i, x.get(o * len * inner + i));
            }
        }
    }
}

impl Concat {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [DType::F32, DType::BF16]
            .into_iter()
            .flat_map(|dtype| {
                [
                    Case::new(Self { axis: 0 }, vec![unit(dtype, &[3]), unit(dtype, &[1])]),
                    Case::new(
                        Self { axis: 1 },
                        vec![
                            unit(dtype, &[2, 3, 5]),
                            unit(dtype, &[2, 4, 5]),
                            unit(dtype, &[2, 1, 5]),
                        ],
                    ),
                    Case::new(Self { axis: 1 }, vec![unit(dtype, &[7, 9])]),
                ]
            })
            .collect()
    }
}

impl Rule for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let first = inputs.first().ok_or("takes at least one input")?;
        ensure(self.axis < first.shape.len(), || format!("{first} has no axis {}", self.axis))?;
        for ty in inputs {
            let alike = ty.shape.len() == first.shape.len()
                && resized(ty, self.axis, 1) == resized(first, self.axis, 1);
            ensure(alike, || format!("{ty} and {first} differ outside axis {}", self.axis))?;
        }
        let extent = inputs.iter().map(|ty| ty.shape[self.axis]).sum();
        Ok(vec![resized(first, self.axis, extent)])
    }

    fn grad(
        &self,
        graph: &mut Graph,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(dy) = outputs[0] else { return Ok(vec![None; node.inputs.len()]) };
        let (mut grads, mut start) = (vec![], 0);
        for (&part, &wanted) in node.inputs.iter().zip(wanted) {
            let len = graph.ty(part).shape[self.axis];
            let name = format!("grad.{}", graph.info(part).name);
            let slice = Slice { axis: self.axis, start, len };
            grads.push(if wanted { Some(graph.one(slice, &[dy], &name)?) } else { None });
            start += len;
        }
        Ok(grads)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let out = outputs[0];
        let (outer, inner) = around(&out.ty().shape, self.axis);
        let width = out.ty().shape[self.axis] * inner;
        let mut start = 0;
        for part in inputs {
            let len = part.ty().shape[self.axis] * inner;
            for o in 0..outer {
                (0..len).for_each(|i| out.set(o * width + start + i, part.get(o * len + i)));
            }
            start += len;
        }
    }
}
