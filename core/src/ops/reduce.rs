//! Sums in a fixed order.
//!
//!   suffix: out[s] = scale · Σ over leading axes of x[…,s]      (bias gradients, repeated inputs)
//!   last:   out[r] = scale · Σ_c x[r,c]
//!   axis:   out[o,i] = scale · Σ_n x[o,n,i]            (means over positions)
//!   squares: out[slot + b] = Σ x² over block b of x, the rest of out unchanged        (global gradient norm)

use serde::{Deserialize, Serialize};

use super::layout::around;
use super::windows::{part, row_windows, windows_with_vectors};
use super::{Array, Case, Cost, Inferred, Rule, Work, arity, ensure, float, traffic, unit};
use crate::dialect::Dialect;
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Expand, Map, Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Which axes are summed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Axes {
    /// All but the trailing axes of this shape; the empty shape sums everything.
    ToSuffix(Vec<usize>),
    /// The last one.
    Last,
    /// This one.
    Axis(usize),
}

/// A sum. Input: x. Output: the axes that are left, in `dtype`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    /// What is summed.
    pub axes: Axes,
    /// Factor on the sum.
    pub scale: f64,
    /// Storage of the output.
    pub dtype: DType,
}

/// Sums of squares of the blocks of some tensors, in slots of a vector. Inputs: sums (N, f32), the tensors. Output: sums, in
/// place. A block is [`SquareSum::BLOCK`] elements, and the last of a tensor what is left: whoever has some blocks of a tensor makes the
/// same sums as who has all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SquareSum {
    /// Index of the sum of the first tensor's first block; all others follow.
    pub slot: usize,
}

/// Neighbours that a thread reads at once.
pub(super) const QUAD: u64 = 4;

/// Threads that own a row of `columns` elements, a power of two: few enough for each to have work of its own
/// between barriers, and enough for neighbours to read whole cache lines.
pub(super) fn lanes(columns: u64, workgroup: u32) -> u64 {
    const QUADS_A_LANE: u64 = 16;
    const LINE_QUADS: u64 = 8;
    let quads = columns.div_ceil(QUAD);
    let busy = quads.div_ceil(QUADS_A_LANE).next_power_of_two();
    busy.max(LINE_QUADS).min(quads.next_power_of_two()).min(workgroup.into())
}

/// How a sum over the rows of a matrix is cut into strips of rows and blocks of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strips {
    /// Rows of a strip; the last may have fewer.
    pub rows: u64,
    /// Number of strips.
    pub count: u64,
    /// Threads of a workgroup, and how many of them own a quad of columns of one row.
    pub workgroup: u32,
    pub quads: u64,
    /// Workgroups across the columns.
    pub blocks: u64,
}

impl Strips {
    /// How `rows` of `columns` elements are cut. Depends on the shape and nothing else.
    pub fn of(rows: u64, columns: u64, limits: &Limits) -> Self {
        const SHORTEST: u64 = 64;
        const MOST: u64 = 128;
        const QUADS: u64 = 16;
        let workgroup = THREADS.min(limits.workgroup);
        let all = columns.div_ceil(QUAD).max(1);
        let quads = all.next_power_of_two().min(QUADS).min(workgroup.into());
        let strip = if rows <= MOST { rows.max(1) } else { rows.div_ceil(MOST).max(SHORTEST) };
        let (count, blocks) = (rows.div_ceil(strip).max(1), all.div_ceil(quads));
        Self { rows: strip, count, workgroup, quads, blocks }
    }

    /// Threads of a workgroup that own a quad of columns, each of every so many rows of a strip. Their sums are added in order.
    pub fn parts(&self) -> u64 {
        u64::from(self.workgroup) / self.quads
    }

    /// A launch over all strips.
    pub fn launch(&self, kernel: &'static str, entry: &'static str) -> Launch {
        Launch::new(kernel, entry, self.workgroup, self.count * self.blocks)
            .constant("QUADS", self.quads)
    }
}

/// What the kernel file's other entry is told; each entry declares all names of the file.
const UNUSED: u32 = 1;

/// Threads of a workgroup where the device takes as many.
pub(super) const THREADS: u32 = 64;

/// Most blocks of columns whose strips are counted.
const COUNTERS: u64 = 1024;

/// Appends launches that leave scale · Σ over the rows of `x` in `out`, or add it to what is there.
pub(super) fn sum_columns(
    limits: &Limits,
    launches: &mut Launches,
    (x, rows, columns): (Place, u64, u64),
    scale: f64,
    out: Place,
    add: bool,
) {
    let windows = row_windows(limits, rows, &[(x.dtype, columns)]);
    if windows.len() > 1 && out.dtype != DType::F32 {
        let wide = launches.scratch(DType::F32, columns);
        sum_columns(limits, launches, (x, rows, columns), scale, wide, false);
        launches.push(super::convert(limits, wide, out));
        return;
    }
    for window in windows {
        let rows = window.end - window.start;
        let add = add || window.start > 0;
        let x = x.window(window.start * columns..window.end * columns);
        let strips = Strips::of(rows, columns, limits);
        // Where blocks may come last, those that do add up the strips.
        let at_once = limits.dialect() == Dialect::Cuda && strips.blocks <= COUNTERS;
        let last = strips.count == 1 || at_once;
        let sums = (strips.count > 1).then(|| launches.scratch(DType::F32, strips.count * columns));
        let to = if last { out } else { sums.unwrap_or(out) };
        let aligned = columns.is_multiple_of(QUAD);
        let launch = strips
            .launch("reduce", "sum_columns")
            .constant("ADD", u64::from(add && last))
            .constant("LANES", UNUSED)
            .constant("SUBGROUP", UNUSED)
            .constant("SEGMENT", UNUSED)
            .constant("SQUARE", UNUSED)
            .bind_four("x", x, aligned)
            // A single row of the output ends in padding of its own.
            .bind_four("out", to, aligned || last)
            .param("rows", rows)
            .param("columns", columns)
            .param("strip", strips.rows)
            .param("segments", UNUSED)
            .param("slot", UNUSED)
            .real("scale", if last { scale } else { 1.0 });
        let launch = with_counters(limits, launch, sums.filter(|_| at_once), aligned);
        launches.push(launch.costing(rows * columns));
        if !last {
            sum_columns(limits, launches, (to, strips.count, columns), scale, out, add);
        }
    }
}

/// Adds what the kernel file of a language with counters names: where sums of strips go that blocks add up themselves.
fn with_counters(limits: &Limits, launch: Launch, sums: Option<Place>, aligned: bool) -> Launch {
    match limits.dialect() {
        Dialect::Wgsl => launch,
        Dialect::Cuda => {
            let unused = launch.operands[0].place;
            launch.constant("COUNTERS", if sums.is_some() { COUNTERS } else { 0 }).bind_four(
                "sums",
                sums.unwrap_or(unused),
                aligned,
            )
        }
    }
}

/// Appends launches that leave scale · Σ over each row of `x`, of its elements or of their squares, in
/// elements `slot..` of `out`, f32.
pub(super) fn sum_rows(
    limits: &Limits,
    launches: &mut Launches,
    (x, rows, columns): (Place, u64, u64),
    squares: bool,
    scale: f64,
    (out, slot): (Place, u64),
) {
    let segment = segment(limits, x);
    let segments = columns.div_ceil(segment).max(1);
    if segments == 1 {
        sum_segments(limits, launches, (x, rows, columns), squares, scale, (out, slot));
        return;
    }
    let sums = launches.scratch(DType::F32, rows * segments);
    sum_segments(limits, launches, (x, rows, columns), squares, 1.0, (sums, 0));
    sum_rows(limits, launches, (sums, rows, segments), false, scale, (out, slot));
}

/// Elements of a row that a team of threads sums up; a power of two, so that windows of a single row begin where a segment does.
fn segment(limits: &Limits, x: Place) -> u64 {
    let largest = limits.binding_elements(x.dtype).max(x.granule());
    (SquareSum::BLOCK as u64).min(1 << largest.ilog2())
}

/// As [`sum_rows`], but leaves the sum of each [`segment`] of each row, one after the other.
fn sum_segments(
    limits: &Limits,
    launches: &mut Launches,
    (x, rows, columns): (Place, u64, u64),
    squares: bool,
    scale: f64,
    (out, slot): (Place, u64),
) {
    let segment = segment(limits, x);
    let segments = columns.div_ceil(segment).max(1);
    let workgroup = THREADS.min(limits.workgroup);
    let lanes = lanes(segment.min(columns), workgroup);
    let teams = u64::from(workgroup) / lanes;
    // Windows are whole rows, or segments of the only one.
    let (pieces, width, sums) =
        if rows == 1 { (segments, segment, 1) } else { (rows, columns, segments) };
    for window in windows_with_vectors(limits, pieces, &[(x.dtype, width)], &[(DType::F32, sums)]) {
        let range = window.start * width..(window.end * width).min(rows * columns);
        let elements = range.end - range.start;
        let made = slot + window.start * sums..slot + window.end * sums;
        let count = made.end - made.start;
        let (to, first) = part(limits, out, made);
        let row = if rows == 1 { elements } else { columns };
        let launch = Launch::new("reduce", "sum_rows", workgroup, count.div_ceil(teams))
            .constant("LANES", lanes)
            .constant("SUBGROUP", limits.webgpu().subgroup_threads())
            .constant("SEGMENT", segment)
            .constant("SQUARE", u64::from(squares))
            .constant("QUADS", UNUSED)
            .constant("ADD", UNUSED)
            .bind_four("x", x.window(range), rows == 1 || columns.is_multiple_of(QUAD))
            .bind("out", to)
            .param("rows", UNUSED)
            .param("columns", row)
            .param("strip", UNUSED)
            .param("segments", count)
            .param("slot", first)
            .real("scale", scale);
        let launch = with_counters(limits, launch, None, false);
        launches.push(launch.costing(2 * elements));
    }
}

/// Appends launches that leave the sum of squares of each block of `x` in elements `slot..` of `out`, f32.
fn sum_block_squares(
    limits: &Limits,
    launches: &mut Launches,
    x: Place,
    (out, slot): (Place, u64),
) {
    let block = SquareSum::BLOCK as u64;
    if segment(limits, x) == block {
        sum_segments(limits, launches, (x, 1, x.elements), true, 1.0, (out, slot));
        return;
    }
    let (whole, end) = (x.elements / block, x.elements);
    let blocks = x.window(0..whole * block);
    if whole > 0 {
        sum_rows(limits, launches, (blocks, whole, block), true, 1.0, (out, slot));
    }
    if whole * block < end {
        let rest = x.window(whole * block..end);
        sum_rows(limits, launches, (rest, 1, rest.elements), true, 1.0, (out, slot + whole));
    }
}

/// Appends launches that leave scale · Σ over the middle axis of `x`, of these three extents, in `out`, each sum in the order of that axis;
/// or that go on with the sums that are there.
pub(super) fn sum_in_order(
    limits: &Limits,
    launches: &mut Launches,
    (x, [outer, summed, inner]): (Place, [u64; 3]),
    scale: f64,
    out: Place,
    begun: bool,
) {
    let tensors = [(x.dtype, summed * inner), (out.dtype, inner)];
    for range in row_windows(limits, outer, &tensors) {
        let window = |place: Place, n| place.window(range.start * n..range.end * n);
        let count = range.end - range.start;
        let workgroup = THREADS.min(limits.workgroup);
        let groups = (count * inner.div_ceil(QUAD)).div_ceil(workgroup.into());
        let aligned = inner.is_multiple_of(QUAD);
        let launch = Launch::new("reduce", "sum_middle", workgroup, groups)
            .constant("ADD", u64::from(begun))
            .constant("LANES", UNUSED)
            .constant("SUBGROUP", UNUSED)
            .constant("SEGMENT", UNUSED)
            .constant("SQUARE", UNUSED)
            .constant("QUADS", UNUSED)
            .bind_four("x", window(x, summed * inner), aligned)
            .bind_four("out", window(out, inner), aligned)
            .param("rows", summed)
            .param("columns", inner)
            .param("strip", UNUSED)
            .param("segments", count)
            .param("slot", UNUSED)
            .real("scale", scale);
        let launch = with_counters(limits, launch, None, false);
        launches.push(launch.costing(count * summed * inner));
    }
}

/// Appends the launches that leave scale · Σ over the middle axis of `x`, of these three extents, in `out`.
pub(super) fn sum(
    limits: &Limits,
    launches: &mut Launches,
    x: Place,
    extents: [u64; 3],
    scale: f64,
    out: Place,
) {
    match extents {
        [outer, summed, 1] => launches.by_rows(limits, out, 1, false, |launches, out| {
            sum_rows(limits, launches, (x, outer, summed), false, scale, (out, 0));
        }),
        [1, summed, inner] => {
            sum_columns(limits, launches, (x, summed, inner), scale, out, false);
        }
        [_, _, inner] => launches.by_rows(limits, out, inner, false, |launches, out| {
            sum_in_order(limits, launches, (x, extents), scale, out, false);
        }),
    }
}

impl Reduce {
    /// Sum over leading axes, leaving the trailing axes of shape `suffix`.
    pub fn to_suffix(suffix: Vec<usize>, dtype: DType) -> Self {
        Self { axes: Axes::ToSuffix(suffix), scale: 1.0, dtype }
    }

    /// Sum over the last axis.
    pub fn last(dtype: DType) -> Self {
        Self { axes: Axes::Last, scale: 1.0, dtype }
    }

    /// Mean over one axis of a tensor like `x`, stored as `x` is.
    ///
    /// # Panics
    /// Where `x` has no such axis.
    pub fn mean(x: &Type, axis: usize) -> Self {
        Self { axes: Axes::Axis(axis), scale: 1.0 / x.shape[axis] as f64, dtype: x.dtype }
    }

    /// Elements of `x` outside of what is summed, along it and inside of it, as if `x` had these three axes.
    pub fn extents(&self, x: &Type) -> [usize; 3] {
        match &self.axes {
            Axes::Axis(axis) => {
                let (outer, inner) = around(&x.shape, *axis);
                [outer, x.shape[*axis], inner]
            }
            Axes::ToSuffix(suffix) => {
                let left: usize = suffix.iter().product();
                [1, x.elements() / left.max(1), left]
            }
            Axes::Last => [x.rows(), x.last(), 1],
        }
    }

    /// Appends the launches that leave the sums of `x` in `out`.
    pub(super) fn push(
        &self,
        limits: &Limits,
        launches: &mut Launches,
        (x, ty): (Place, &Type),
        out: Place,
    ) {
        let extents = self.extents(ty).map(|extent| extent as u64);
        sum(limits, launches, x, extents, self.scale, out);
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (shape, suffix) in [
            (vec![1], vec![1]),
            (vec![3, 5, 7], vec![7]),
            (vec![67, 129], vec![129]),
            (vec![4, 3, 5], vec![3, 5]),
            (vec![70, 3], vec![]),
        ] {
            for dtype in [DType::F32, DType::BF16] {
                let op = Self::to_suffix(suffix.clone(), DType::F32);
                cases.push(Case::new(Self { scale: 0.5, ..op }, vec![unit(dtype, &shape)]));
                let op = Self::to_suffix(suffix.clone(), dtype);
                cases.push(Case::new(op, vec![unit(dtype, &shape)]));
                cases.push(Case::new(Self::last(dtype), vec![unit(dtype, &shape)]));
            }
        }
        for (shape, axis) in [
            (vec![1], 0),
            (vec![5, 3], 0),
            (vec![5, 3], 1),
            (vec![2, 7, 12], 1),
            (vec![3, 65, 5], 1),
            (vec![2, 3, 4, 5], 2),
        ] {
            for dtype in [DType::F32, DType::BF16] {
                let x = unit(dtype, &shape);
                cases.push(Case::new(Self::mean(&x.ty, axis), vec![x]));
            }
        }
        cases
    }
}

impl Rule for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        float("x", x)?;
        let shape = match self.axes {
            Axes::ToSuffix(ref suffix) => {
                let scalar = suffix.iter().product::<usize>() == 1;
                ensure(x.shape.ends_with(suffix) || scalar, || {
                    format!("{suffix:?} is not a suffix of x {x}")
                })?;
                suffix.clone()
            }
            Axes::Last => {
                ensure(!x.shape.is_empty(), || "x needs an axis".into())?;
                x.shape[..x.shape.len() - 1].to_vec()
            }
            Axes::Axis(axis) => {
                ensure(axis < x.shape.len(), || format!("{x} has no axis {axis}"))?;
                [&x.shape[..axis], &x.shape[axis + 1..]].concat()
            }
        };
        Ok(vec![Type::new(self.dtype, shape)])
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.dtype = with(self.dtype);
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        use crate::expr::{constant, input};
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let x = node.inputs[0];
        let (ty, dtype) = (graph.ty(x).clone(), graph.grad_dtype(x));
        let name = format!("grad.{}", graph.info(x).name);
        let map = Map::new(input(0) * constant(self.scale), dtype);
        let axis = match self.axes {
            Axes::Last => ty.shape.len() - 1,
            Axes::Axis(axis) => axis,
            Axes::ToSuffix(_) => 0,
        };
        // A map repeats along leading axes.
        if axis == 0 {
            let map = Map { shape: Some(ty.shape), ..map };
            return Ok(vec![Some(graph.one(map, &[dy], &name)?)]);
        }
        let scaled = match self.scale == 1.0 && graph.dtype(dy) == dtype {
            true => dy,
            false => graph.one(map, &[dy], &format!("{name}.scaled"))?,
        };
        let spread = graph.one(Expand { axis, extent: ty.shape[axis] }, &[scaled], &name)?;
        Ok(vec![Some(spread)])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: inputs[0].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Work::on(&inputs[..1])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let (x, out) = (Place::input(0, inputs[0]), Place::output(0, outputs[0]));
        self.push(limits, &mut launches, (x, inputs[0]), out);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        let [_, summed, inner] = self.extents(x.ty());
        for group in 0..out.len() {
            let first = group / inner * summed * inner + group % inner;
            let sum: f64 = (0..summed).map(|i| x.get(first + i * inner)).sum();
            out.set(group, sum * self.scale);
        }
    }
}

impl SquareSum {
    /// Elements of a block.
    pub const BLOCK: usize = 4096;

    /// Blocks of a tensor of so many elements.
    pub fn blocks(elements: usize) -> usize {
        elements.div_ceil(Self::BLOCK)
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for dtype in [DType::F32, DType::BF16] {
            for (n, slot, slots) in [(1, 0, 1), (1000, 1, 2), (4099, 2, 4), (3 * 4096, 0, 3)] {
                let inputs = vec![unit(DType::F32, &[slots]), unit(dtype, &[n])];
                cases.push(Case::new(Self { slot }, inputs));
            }
            // Tensors of one and of several blocks.
            let shapes = [&[1][..], &[70, 65], &[1031], &[8200], &[3]];
            let tensors = shapes.iter().map(|shape| unit(dtype, shape));
            let inputs = [unit(DType::F32, &[9])].into_iter().chain(tensors).collect();
            cases.push(Case::new(Self { slot: 1 }, inputs));
        }
        cases
    }
}

impl Rule for SquareSum {
    fn name(&self) -> &'static str {
        "square_sum"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let Some((sums, tensors)) = inputs.split_first().filter(|(_, tensors)| !tensors.is_empty())
        else {
            return Err(format!("takes sums and tensors, got {} inputs", inputs.len()));
        };
        for x in tensors {
            float("x", x)?;
            ensure(sums.dtype == x.dtype.statistics(), || format!("{sums} holds no sums of {x}"))?;
        }
        let blocks: usize = tensors.iter().map(|x| Self::blocks(x.elements())).sum();
        let end = self.slot + blocks;
        ensure(end <= sums.elements(), || {
            format!("slots {} to {end} are not in sums {sums}", self.slot)
        })?;
        Ok(vec![(*sums).clone()])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn cost(&self, inputs: &[&Type], _outputs: &[&Type]) -> Cost {
        let tensors = &inputs[1..];
        let elements: usize = tensors.iter().map(|ty| ty.elements()).sum();
        Cost { flops: 2 * elements as u64, bytes: traffic(tensors, &[]) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Work::on(&inputs[1..])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let sums = Place::output(0, outputs[0]);
        let mut slot = self.slot;
        let of = |index: usize| {
            let x = Place::input(index, inputs[index]);
            let mut own = Launches { list: vec![], scratch_bytes: launches.scratch_bytes };
            sum_block_squares(limits, &mut own, x, (sums, slot as u64));
            slot += Self::blocks(inputs[index].elements());
            launches.scratch_bytes = own.scratch_bytes;
            own.list
        };
        let lists = (1..inputs.len()).map(of).collect();
        launches.push_concurrent(lists);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let mut slot = self.slot;
        for x in &inputs[1..] {
            for first in (0..x.len()).step_by(Self::BLOCK) {
                let block = first..x.len().min(first + Self::BLOCK);
                outputs[0].set(slot, block.map(|i| x.get(i).powi(2)).sum());
                slot += 1;
            }
        }
    }
}
