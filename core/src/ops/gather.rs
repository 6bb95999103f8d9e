//! Embedding: rows of a table by index.   V rows, C channels
//!
//!   out[r,:] = table[ids[r],:];   dtable[v,:] = Σ over r with ids[r] = v of dy[r,:], in the order of r

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::layout::bits;
use super::reduce::{QUAD, THREADS};
use super::windows::{part, row_windows, windows_with_vectors};
use super::{
    Array, Case, Cost, Indices, Inferred, Rule, Work, arity, ensure, float, traffic, unit, whole,
};
use crate::dialect::Dialect;
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Map, Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Gather. Inputs: table (V, C), ids (I32). Output: (ids…, C).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding;

/// Scatter-add in fixed order. Inputs: ids, dy (ids…, C), and where `accumulate` the table to add to.
/// Output: (rows, C), each element rounded once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingGrad {
    /// Rows of the table, V.
    pub rows: usize,
    /// The sums are added to the last input, in place.
    pub accumulate: bool,
    /// Storage of the output.
    pub dtype: DType,
}

fn ids(ty: &Type) -> std::result::Result<(), String> {
    ensure(ty.dtype == DType::I32, || format!("ids must be i32, are {ty}"))
}

/// Pairs of an id and its position that a workgroup sorts at once, one a thread: more where that saves launches.
fn block(limits: &Limits) -> u32 {
    match limits.dialect() {
        Dialect::Cuda => 1024.min(limits.workgroup),
        Dialect::Wgsl => 128,
    }
}

/// Sorted pairs that a thread sums.
const CHUNK: u64 = 32;

/// Whole numbers up to this are exact in the f32 that kernels store them from.
const LARGEST_INDEX: u64 = 1 << 24;

/// What the launches of either op bind. What an op lacks is another of its tensors, which takes no further
/// binding.
#[derive(Clone, Copy)]
struct Bound {
    ids: Place,
    /// Rows of the table that are bound, and where its window begins.
    table: Place,
    first_row: u64,
    out: Place,
    dy: Place,
    /// Pairs of an id and its position: runs of `run` that are sorted, and these merged.
    blocks: Place,
    sorted: Place,
    run: u64,
    heads: Place,
    /// Columns of the table.
    columns: u64,
}

impl Bound {
    /// A launch of this many threads, over a table of `table_rows` and `ids` from `first_id` on.
    fn launch(
        &self,
        entry: &'static str,
        (workgroup, threads): (u32, u64),
        (first_id, count): (u64, u64),
        table_rows: u64,
    ) -> Launch {
        let aligned = self.columns.is_multiple_of(QUAD);
        // What pads the last four of an output by rows is its own.
        let whole = aligned || self.out != self.table;
        Launch::new("gather", entry, workgroup, threads.div_ceil(workgroup.into()))
            .constant("COLUMNS", self.columns)
            .constant("CLEAR", u64::from(self.first_row == 0))
            .constant("CHUNK", CHUNK)
            .bind("ids", self.ids)
            .bind_four("table", self.table, aligned)
            .bind_four("out", self.out, whole)
            .bind_four("dy", self.dy, aligned)
            .bind("blocks", self.blocks)
            .bind("sorted", self.sorted)
            .bind_four("heads", self.heads, aligned)
            .param("elements", self.out.elements)
            .param("run", self.run)
            .param("first_id", first_id)
            .param("count", count)
            .param("first_row", self.first_row)
            .param("rows", self.table.elements / self.columns.max(1))
            .param("table_rows", table_rows)
            .costing(count * self.columns)
    }
}

impl Embedding {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (v, c, shape) in [(1, 1, &[1][..]), (11, 7, &[2, 5]), (257, 64, &[3, 33])] {
            for dtype in [DType::F32, DType::BF16] {
                let ids = whole(DType::I32, shape, 0, v as i64);
                cases.push(Case::new(Self, vec![unit(dtype, &[v, c]), ids]));
            }
        }
        cases
    }
}

impl Rule for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [table, index] = arity(inputs)?;
        float("the table", table)?;
        ids(index)?;
        ensure(table.shape.len() == 2, || format!("the table must be (V, C), is {table}"))?;
        Ok(vec![Type::new(table.dtype, [&index.shape[..], &[table.last()]].concat())])
    }

    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        vec![Indices { input: 1, end: inputs[0].shape[0], negative: false }]
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None; 2]) };
        let table = node.inputs[0];
        let dtype = graph.grad_dtype(table);
        let op = EmbeddingGrad { rows: graph.ty(table).shape[0], accumulate: false, dtype };
        let name = format!("grad.{}", graph.info(table).name);
        Ok(vec![Some(graph.one(op, &[node.inputs[1], dy], &name)?), None])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: 0, bytes: 2 * outputs[0].bytes() as u64 + inputs[1].bytes() as u64 }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let (table, _) = bits(Place::input(0, inputs[0]))?;
        let (out, _) = bits(Place::output(0, outputs[0]))?;
        let ids = Place::input(1, inputs[1]);
        let (rows, columns) = (inputs[0].shape[0] as u64, inputs[0].last() as u64);
        let row = [(table.dtype, columns)];
        for made in windows_with_vectors(limits, ids.elements, &row, &[(ids.dtype, 1)]) {
            let (ids, first_id) = part(limits, ids, made.clone());
            let out = out.window(made.start * columns..made.end * columns);
            let threads = (THREADS.min(limits.workgroup), out.elements.div_ceil(QUAD));
            for window in row_windows(limits, rows, &row) {
                let table = table.window(window.start * columns..window.end * columns);
                let bound = Bound {
                    ids,
                    table,
                    first_row: window.start,
                    out,
                    dy: table,
                    blocks: ids,
                    sorted: ids,
                    run: 1,
                    heads: table,
                    columns,
                };
                let made = (first_id, made.end - made.start);
                launches.push(bound.launch("embedding", threads, made, rows));
            }
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (table, ids, out) = (inputs[0], inputs[1], outputs[0]);
        let columns = table.ty().last();
        for r in 0..ids.len() {
            for c in 0..columns {
                out.set(r * columns + c, table.get(ids.index(r) as usize * columns + c));
            }
        }
    }
}

impl EmbeddingGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (rows, c, n) in [(1, 1, 3), (11, 7, 40), (64, 33, 17), (5, 12, 401), (90, 5, 2100)] {
            use DType::{BF16, F32};
            for (of_dy, dtype) in [(F32, F32), (BF16, F32), (BF16, BF16)] {
                let op = Self { rows, accumulate: false, dtype };
                let mut inputs =
                    vec![whole(DType::I32, &[n], 0, rows as i64), unit(of_dy, &[n, c])];
                cases.push(Case::new(op.clone(), inputs.clone()));
                inputs.push(unit(dtype, &[rows, c]));
                cases.push(Case::new(Self { accumulate: true, ..op }, inputs));
            }
        }
        cases
    }
}

impl Rule for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let expected = 2 + usize::from(self.accumulate);
        ensure(inputs.len() == expected, || {
            format!("takes {expected} inputs, got {}", inputs.len())
        })?;
        let (index, dy) = (inputs[0], inputs[1]);
        ids(index)?;
        float("dy", dy)?;
        ensure(dy.rows() == index.elements(), || format!("dy needs one row an id, is {dy}"))?;
        Ok(vec![Type::new(self.dtype, [self.rows, dy.last()])])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.accumulate { vec![(0, 2)] } else { vec![] }
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.dtype = with(self.dtype);
    }

    fn indices(&self, _inputs: &[&Type]) -> Vec<Indices> {
        vec![Indices { input: 0, end: self.rows, negative: false }]
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let (ids, dy, table) = (inputs[0], inputs[1], outputs[0]);
        // All rows of the table are written, or where the op accumulates, those that an id names are read and written.
        let named = (ids.elements().min(self.rows) * dy.last() * table.dtype.size()) as u64;
        let of_table = if self.accumulate { 2 * named } else { table.bytes() as u64 };
        Cost { flops: dy.elements() as u64, bytes: traffic(&[ids, dy], &[]) + of_table }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Work::on(&inputs[1..2])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let (ids, dy) = (Place::input(0, inputs[0]), Place::input(1, inputs[1]));
        let table = Place::output(0, outputs[0]);
        let columns = inputs[1].last() as u64;
        ensure(ids.elements.max(self.rows as u64) < LARGEST_INDEX, || {
            format!("ids and rows of a table are sorted by f32, which counts to {LARGEST_INDEX}")
        })?;
        let mut launches = Launches::new();
        let windows =
            windows_with_vectors(limits, ids.elements, &[(dy.dtype, columns)], &[(ids.dtype, 1)]);
        let cut = table.dtype != DType::F32 && windows.len() > 1;
        let by = (!cut).then_some(columns);
        launches.by_rows(limits, table, by, self.accumulate, |launches, table| {
            if !self.accumulate {
                Map::push_zeros(limits, launches, table);
            }
            let operands = (ids, dy, table);
            self.push(limits, launches, operands, (&windows, columns));
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (ids, dy, out) = (inputs[0], inputs[1], outputs[0]);
        let columns = dy.ty().last();
        let mut sums: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for r in 0..ids.len() {
            let sum = sums.entry(ids.index(r) as usize).or_insert_with(|| vec![0.0; columns]);
            sum.iter_mut().enumerate().for_each(|(c, sum)| *sum += dy.get(r * columns + c));
        }
        if !self.accumulate {
            out.fill(0.0);
        }
        for (row, sum) in sums {
            sum.into_iter().enumerate().for_each(|(c, sum)| out.add(row * columns + c, sum));
        }
    }
}

impl EmbeddingGrad {
    /// Appends the launches that add to `table` the sums of the rows of `dy`, in `windows` of ids.
    fn push(
        &self,
        limits: &Limits,
        launches: &mut Launches,
        (ids, dy, table): (Place, Place, Place),
        (windows, columns): (&[Range<u64>], u64),
    ) {
        let (rows, block) = (self.rows as u64, block(limits));
        let longest = windows.iter().map(|window| window.end - window.start).max().unwrap_or(0);
        let pairs = [(); 2].map(|()| launches.scratch(DType::I32, 2 * longest));
        let heads = launches.scratch(DType::F32, longest.div_ceil(CHUNK) * columns);
        let workgroup = THREADS.min(limits.workgroup);
        for window in windows {
            let count = window.end - window.start;
            let (ids, first_id) = part(limits, ids, window.clone());
            let made = (first_id, count);
            let dy = dy.window(window.start * columns..window.end * columns);
            let mut bound = Bound {
                ids,
                table: heads,
                first_row: 0,
                out: heads,
                dy,
                blocks: pairs[0],
                sorted: pairs[1],
                run: block.into(),
                heads,
                columns,
            };
            let sort = bound.launch("sort_block", (block, count), made, rows);
            launches.push(sort.costing(count * u64::from(block)));
            while bound.run < count {
                let merge = bound.launch("merge_runs", (block, count), made, rows);
                launches.push(merge.costing(count * u64::from(bound.run.ilog2())));
                (bound.blocks, bound.sorted) = (bound.sorted, bound.blocks);
                bound.run *= 2;
            }
            // What was merged last, or was one block from the start.
            bound.sorted = bound.blocks;
            let threads = (workgroup, count.div_ceil(CHUNK) * columns.div_ceil(QUAD));
            launches.push(bound.launch("sum_heads", threads, made, rows));
            for held in row_windows(limits, rows, &[(table.dtype, columns)]) {
                let table = table.window(held.start * columns..held.end * columns);
                let bound = Bound { table, out: table, first_row: held.start, ..bound };
                launches.push(bound.launch("sum_runs", threads, made, rows));
            }
        }
    }
}
