//! Moving elements without changing them: permute, reshape, repeat, slice, place into zeros, concatenate.

mod shape;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::windows::row_windows;
use super::{Array, Case, Inferred, Rule, Sample, arity, ensure, unit, whole};
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

pub use shape::{Expand, Reshape};

/// Reorders axes: axis i of the output is axis `axes[i]` of the input. The identity copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permute {
    /// A permutation of the input's axes.
    pub axes: Vec<usize>,
}

/// Elements `start .. start + len` along one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// First index kept.
    pub start: usize,
    /// Number of indices kept.
    pub len: usize,
}

/// Places the input at `start` of an axis of extent `extent`, zeros elsewhere: gradient of [`Slice`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceGrad {
    /// The axis.
    pub axis: usize,
    /// Index where the input begins.
    pub start: usize,
    /// Extent of the axis in the output.
    pub extent: usize,
}

/// Joins tensors along one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

/// Elements before an axis and after it.
pub(super) fn around(shape: &[usize], axis: usize) -> (usize, usize) {
    (shape[..axis].iter().product(), shape[axis + 1..].iter().product())
}

fn resized(ty: &Type, axis: usize, extent: usize) -> Type {
    let mut shape = ty.shape.clone();
    shape[axis] = extent;
    Type::new(ty.dtype, shape)
}

/// Threads of a workgroup, and neighbours that each makes: whole words, whatever the dtype.
const THREADS: u32 = 64;
const PER_THREAD: u64 = 4;

/// Most axes of a permutation, not counting those that stay together: the kernel's source names each.
const AXES: usize = 6;
const EXTENTS: [&str; AXES] = ["EXTENT0", "EXTENT1", "EXTENT2", "EXTENT3", "EXTENT4", "EXTENT5"];
const STRIDES: [&str; AXES] = ["STRIDE0", "STRIDE1", "STRIDE2", "STRIDE3", "STRIDE4", "STRIDE5"];

/// A tensor's bits as values that a kernel can't change, and how many of them make an element: f32 as it is,
/// anything else as whole numbers of 16 or 8 bits, which f32 holds exactly.
pub(super) fn bits(place: Place) -> std::result::Result<(Place, u64), String> {
    let (dtype, factor) = match place.dtype {
        DType::F32 => (DType::F32, 1),
        DType::I32 | DType::U32 => (DType::I16, 2),
        DType::BF16 | DType::F16 | DType::I16 => (DType::I16, 1),
        DType::I8 | DType::U8 => (DType::I8, 1),
        DType::F64 => return Err("no device stores f64".into()),
    };
    let (first, elements) = (place.first * factor, place.elements * factor);
    Ok((Place { dtype, first, elements, ..place }, factor))
}

/// What a launch moves, in values of the bound dtype.
struct Move {
    /// Extents of the output and strides of the input, outermost first.
    axes: [(u64, u64); AXES],
    /// Columns along the output's last axis that receive something.
    columns: Range<u64>,
    /// The input's element that belongs at the first of them.
    first: u64,
    /// Whether the other columns become zero instead of staying.
    clear: bool,
}

impl Move {
    /// All of a permutation; `axes` are at most as many as a kernel takes.
    fn permuted(axes: &[(u64, u64)]) -> Self {
        let mut all = [(1, 0); AXES];
        all[AXES - axes.len()..].copy_from_slice(axes);
        Self { columns: 0..all[AXES - 1].0, axes: all, first: 0, clear: false }
    }

    fn launch(&self, limits: &Limits, x: Place, out: Place) -> Launch {
        let (last, outer) = self.axes.split_last().expect("a kernel takes at least one axis");
        let fours = |n: u64| n.is_multiple_of(PER_THREAD);
        let aligned = last.1 == 1
            && [last.0, self.columns.start, self.columns.end, self.first].into_iter().all(fours)
            && outer.iter().all(|&(_, stride)| fours(stride));
        let workgroup = THREADS.min(limits.workgroup);
        let groups = out.elements.div_ceil(PER_THREAD * u64::from(workgroup));
        let mut launch = Launch::new("layout", "strided", workgroup, groups)
            .constant("ALIGNED", u64::from(aligned))
            .constant("CLEAR", u64::from(self.clear))
            .bind_four("x", x, aligned)
            // What pads the last four is the tensor's own.
            .bind_four("out", out, true)
            .param("elements", out.elements)
            .param("start", self.columns.start)
            .param("len", self.columns.end - self.columns.start)
            .param("first", self.first);
        for (axis, &(extent, stride)) in self.axes.iter().enumerate() {
            launch = launch.constant(EXTENTS[axis], extent).constant(STRIDES[axis], stride);
        }
        launch.costing(out.elements)
    }
}

/// Columns of the rows of one tensor that go to columns of the rows of another, in elements.
struct Block {
    rows: u64,
    len: u64,
    /// Elements of a row of the input, and where the columns are.
    from: (u64, u64),
    /// Elements of a row of the output, and where the columns go.
    to: (u64, u64),
    /// Whether the other columns of the output become zero instead of staying.
    clear: bool,
}

impl Block {
    /// Appends launches that move the block, a range of rows at a time.
    fn push(
        &self,
        limits: &Limits,
        launches: &mut Launches,
        x: Place,
        out: Place,
    ) -> std::result::Result<(), String> {
        let ((x, factor), (out, _)) = (bits(x)?, bits(out)?);
        let [len, from, first, to, start] =
            [self.len, self.from.0, self.from.1, self.to.0, self.to.1].map(|n| n * factor);
        for rows in row_windows(limits, self.rows, &[(x.dtype, from), (out.dtype, to)]) {
            let part = Move {
                columns: start..start + len,
                first,
                clear: self.clear,
                ..Move::permuted(&[(rows.end - rows.start, from), (to, 1)])
            };
            let window = |place: Place, width| place.window(rows.start * width..rows.end * width);
            launches.push(part.launch(limits, window(x, from), window(out, to)));
        }
        Ok(())
    }
}

/// Launches that copy all elements, in their order.
fn copy(limits: &Limits, x: &Type, out: &Type) -> Launched {
    let mut launches = Launches::new();
    let ((x, _), (out, _)) = (bits(Place::input(0, x))?, bits(Place::output(0, out))?);
    for range in row_windows(limits, out.elements, &[(out.dtype, 1)]) {
        // Rounded up, since what pads both tensors may be copied along.
        let count = (range.end - range.start).next_multiple_of(PER_THREAD);
        let (x, out) = (x.window(range.clone()), out.window(range));
        let launch = Move::permuted(&[(count, 1)]).launch(limits, x, out);
        launches.push(Launch { identity: true, ..launch });
    }
    Ok(launches)
}

/// Inputs of every dtype that is moved. Every bit of an integer counts, so those are over all of each dtype's range.
fn samples(shape: &[usize]) -> [Sample; 6] {
    [
        unit(DType::F32, shape),
        unit(DType::BF16, shape),
        whole(DType::I32, shape, i32::MIN.into(), 1 << 31),
        whole(DType::U32, shape, 0, 1 << 32),
        whole(DType::I16, shape, i16::MIN.into(), 1 << 15),
        whole(DType::I8, shape, i8::MIN.into(), 1 << 7),
    ]
}

impl Permute {
    /// Extents of the output and the input's stride along each, outermost first, with axes of one left out and axes that
    /// stay together joined.
    pub fn joined(&self, x: &Type) -> Vec<(u64, u64)> {
        self.joined_values(x, 1)
    }

    /// As [`Permute::joined`], in `factor` values an element.
    fn joined_values(&self, x: &Type, factor: u64) -> Vec<(u64, u64)> {
        let stride =
            |axis: usize| x.shape[axis + 1..].iter().map(|&n| n as u64).product::<u64>() * factor;
        let own = self.axes.iter().map(|&axis| (x.shape[axis] as u64, stride(axis)));
        let mut axes: Vec<(u64, u64)> =
            own.chain([(factor, 1)]).filter(|&(extent, _)| extent != 1).collect();
        axes.dedup_by(|inner, outer| {
            let together = outer.1 == inner.0 * inner.1;
            if together {
                *outer = (outer.0 * inner.0, inner.1);
            }
            together
        });
        axes
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [
            (vec![5], vec![0]),
            (vec![3, 7], vec![1, 0]),
            (vec![2, 3, 5, 4], vec![0, 2, 1, 3]),
            (vec![2, 3, 5], vec![2, 0, 1]),
        ]
        .into_iter()
        .flat_map(|(shape, axes): (Vec<usize>, Vec<usize>)| {
            samples(&shape).map(|sample| Case::new(Self { axes: axes.clone() }, vec![sample]))
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
        graph: &mut dyn Tape,
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

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let (x, factor) = bits(Place::input(0, inputs[0]))?;
        let (out, _) = bits(Place::output(0, outputs[0]))?;
        let axes = self.joined_values(inputs[0], factor);
        ensure(axes.len() <= AXES, || {
            format!("{:?} moves more than {AXES} axes of {}", self.axes, inputs[0])
        })?;
        if axes.len() <= 1 {
            return copy(limits, inputs[0], outputs[0]);
        }
        let mut launches = Launches::new();
        launches.push(Move::permuted(&axes).launch(limits, x, out));
        Ok(launches)
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
        graph: &mut dyn Tape,
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

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let (rows, inner) = around(&inputs[0].shape, self.axis);
        let [width, start, len] =
            [inputs[0].shape[self.axis], self.start, self.len].map(|n| (n * inner) as u64);
        let block =
            Block { rows: rows as u64, len, from: (width, start), to: (len, 0), clear: false };
        let (x, out) = (Place::input(0, inputs[0]), Place::output(0, outputs[0]));
        block.push(limits, &mut launches, x, out)?;
        Ok(launches)
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
        graph: &mut dyn Tape,
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

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let (rows, inner) = around(&inputs[0].shape, self.axis);
        let [width, start, len] =
            [self.extent, self.start, inputs[0].shape[self.axis]].map(|n| (n * inner) as u64);
        let block =
            Block { rows: rows as u64, len, from: (len, 0), to: (width, start), clear: true };
        let (x, out) = (Place::input(0, inputs[0]), Place::output(0, outputs[0]));
        block.push(limits, &mut launches, x, out)?;
        Ok(launches)
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
        graph: &mut dyn Tape,
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

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let (rows, inner) = around(&outputs[0].shape, self.axis);
        let width = (outputs[0].shape[self.axis] * inner) as u64;
        let out = Place::output(0, outputs[0]);
        let mut start = 0;
        for (index, &part) in inputs.iter().enumerate() {
            let len = (part.shape[self.axis] * inner) as u64;
            let block =
                Block { rows: rows as u64, len, from: (len, 0), to: (width, start), clear: false };
            block.push(limits, &mut launches, Place::input(index, part), out)?;
            start += len;
        }
        Ok(launches)
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
