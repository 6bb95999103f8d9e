//! Causal self-attention with grouped-query heads.   B sequences, T positions, H query heads, G key-value
//! heads, D channels a head
//!
//!   score[i,j] = scale · query[i] · key[j],  j ≤ i
//!   out[i]     = Σⱼ exp(score[i,j] − lse[i]) · value[j],  lse[i] = log Σⱼ exp(score[i,j])
//!
//! Queries, keys and values come packed in one tensor (B, T, (H + 2·G)·D), as the projection leaves them:
//! H queries, then G keys, then G values. Query head h reads key-value head ⌊h·G/H⌋. No backend may store
//! more scores than one tile of queries against its keys (Dao et al. 2022).

mod cached;

use std::ops::Range;

use super::windows::row_windows;
use super::{
    Array, Case, Cost, Inferred, Rule, arity, convert, ensure, float, traffic, typed, unit,
};
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Operand, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

pub use cached::CachedAttention;

/// Attention over whole sequences. Input: packed projections. Outputs: values (B, T, H·D) and the log of
/// each query's normaliser (B, H, T).
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, H.
    pub heads: usize,
    /// Key-value heads, G; divides H.
    pub kv_heads: usize,
    /// Channels of a head, D.
    pub head_dim: usize,
    /// Queries in one tile; 0 leaves the choice to the backend.
    pub chunk: usize,
}

/// Gradient of [`Attention`]. Inputs: packed projections, out, lse, gradient of out. Output: gradient of
/// the packed projections. Probabilities are recomputed tile by tile.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGrad(pub Attention);

impl Attention {
    /// Factor on the scores: 1/√D.
    pub fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// Columns of the packed projections.
    pub fn packed(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn check(&self, qkv: &Type) -> std::result::Result<(usize, usize), String> {
        float("the packed projections", qkv)?;
        let Self { heads, kv_heads, head_dim, .. } = *self;
        ensure(kv_heads > 0 && heads.is_multiple_of(kv_heads), || {
            format!("{kv_heads} key-value heads don't divide {heads} query heads")
        })?;
        ensure(qkv.shape.len() == 3 && qkv.last() == self.packed(), || {
            format!(
                "takes (B, T, {}) for {heads} + 2·{kv_heads} heads of {head_dim}, got {qkv}",
                self.packed()
            )
        })?;
        Ok((qkv.shape[0], qkv.shape[1]))
    }

    fn cost(&self, qkv: &Type, products: u64) -> u64 {
        let (batch, time) = (qkv.shape[0] as u64, qkv.shape[1] as u64);
        let pairs = time * (time + 1) / 2;
        2 * products * batch * self.heads as u64 * pairs * self.head_dim as u64
    }

    fn sizes() -> Vec<(usize, usize, Self)> {
        let size = |b, t, heads, kv_heads, head_dim, chunk| {
            (b, t, Self { heads, kv_heads, head_dim, chunk })
        };
        vec![
            size(1, 1, 1, 1, 1, 0),
            size(2, 5, 3, 3, 4, 0),
            size(1, 37, 4, 2, 8, 0),
            size(2, 65, 2, 1, 16, 16),
            size(1, 130, 1, 1, 64, 0),
            size(1, 19, 6, 3, 5, 7),
        ]
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (b, t, op) in Self::sizes() {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                cases.push(Case::new(op.clone(), vec![unit(dtype, &[b, t, op.packed()])]));
            }
        }
        let op = Self { heads: 2, kv_heads: 2, head_dim: 8, chunk: 0 };
        cases.push(Case::new(
            op.clone(),
            vec![super::range(DType::F32, &[1, 33, op.packed()], -60.0, 60.0)],
        ));
        cases
    }
}

/// Rows of a tile of scores, as many columns, and products of a thread along each.
const TILE: u32 = 32;
const PER_THREAD: u32 = 4;
/// Threads of a workgroup where each makes rows of its own, on a processor that emulates a GPU: few, because all
/// go on until the last has met the diagonal. And the rows that each makes.
const STRIP: u32 = 8;
const ROWS_PER_THREAD: u32 = 2;
/// Most channels of a head that such a thread's registers hold.
const MOST_IN_REGISTERS: usize = 128;
/// Rows of a tile on tensor cores, its threads, and channels of heads whose vectors suit them.
const TENSOR_TILE: u32 = 64;
const TENSOR_THREADS: u32 = 128;
const TENSOR_HEADS: [usize; 4] = [16, 32, 64, 128];
/// Threads of a workgroup of any other entry.
const THREADS: u32 = 64;

/// Names that the kernel file has for tensors.
const OPERANDS: [&str; 7] = ["qkv", "out", "dout", "statistics", "keys", "values", "position"];

/// Sequences of one launch, the first of them, their positions, and those that a cache has room for.
#[derive(Clone, Copy)]
struct Extents {
    first: u64,
    sequences: u64,
    time: u64,
    capacity: u64,
    /// Where the second kind of statistics begins.
    deltas: u64,
}

impl Extents {
    fn new(range: &Range<u64>, time: u64) -> Self {
        let sequences = range.end - range.start;
        Self { first: range.start, sequences, time, capacity: 0, deltas: 0 }
    }
}

impl Attention {
    /// A launch of `entry` that binds `operands`.
    fn kernel(
        &self,
        (entry, threads, groups): (&'static str, u32, u64),
        extents: Extents,
        operands: &[(&'static str, Place)],
        flops: u64,
    ) -> Launch {
        let (kernel, tile) = if entry.ends_with("_mma") {
            ("attention_mma", TENSOR_TILE)
        } else {
            ("attention", TILE)
        };
        let mut launch = Launch::new(kernel, entry, threads, groups)
            .constant("HEADS", self.heads as u64)
            .constant("KV_HEADS", self.kv_heads as u64)
            .constant("HEAD_DIM", self.head_dim as u64)
            .constant("ROWS", tile)
            .param("first", extents.first)
            .param("sequences", extents.sequences)
            .param("time", extents.time)
            .param("capacity", extents.capacity)
            .param("deltas", extents.deltas)
            .real("scale", self.scale())
            .real("scale2", self.scale() * std::f64::consts::LOG2_E);
        let numbers = |name: &str| matches!(name, "statistics" | "position");
        for &(name, place) in operands {
            let aligned = self.head_dim.is_multiple_of(4) && !numbers(name);
            launch = launch.bind_four(name, place, aligned);
        }
        launch = launch.costing(flops);
        // What an entry doesn't name is bound as something it does, which takes no further binding.
        for name in OPERANDS {
            let bound = |wanted: &dyn Fn(&str) -> bool| {
                launch.operands.iter().find(|operand| wanted(&operand.name)).cloned()
            };
            if bound(&|other| other == name).is_none() {
                let like = bound(&|other| name != "statistics" || numbers(other));
                launch.operands.extend(like.map(|like| Operand { name: name.into(), ..like }));
            }
        }
        launch
    }

    /// Entry, threads and workgroups that make the rows of `heads` heads: in tiles, or where processors emulate a
    /// GPU, in registers of one thread.
    fn rows_of(
        &self,
        limits: &Limits,
        [tiled, direct, tensor]: [&'static str; 3],
        heads: usize,
        extents: Extents,
        dtype: DType,
    ) -> (&'static str, u32, u64) {
        let direct_pays = !limits.tile.shares();
        let (entry, threads, rows) =
            if limits.tensor_cores.contains(&dtype) && TENSOR_HEADS.contains(&self.head_dim) {
                (tensor, TENSOR_THREADS, TENSOR_TILE)
            } else if direct_pays && self.head_dim <= MOST_IN_REGISTERS {
                (direct, STRIP, STRIP * ROWS_PER_THREAD)
            } else {
                (tiled, (TILE / PER_THREAD).pow(2), TILE)
            };
        let groups = extents.sequences * heads as u64 * extents.time.div_ceil(rows.into());
        (entry, threads, groups)
    }
}

/// Where a head's vectors start in the packed projections.
struct Packed<'a> {
    op: &'a Attention,
    time: usize,
}

impl Packed<'_> {
    fn row(&self, b: usize, t: usize) -> usize {
        (b * self.time + t) * self.op.packed()
    }
    fn query(&self, b: usize, t: usize, head: usize) -> usize {
        self.row(b, t) + head * self.op.head_dim
    }
    fn kv(&self, head: usize) -> usize {
        head * self.op.kv_heads / self.op.heads
    }
    fn key(&self, b: usize, t: usize, head: usize) -> usize {
        self.row(b, t) + (self.op.heads + self.kv(head)) * self.op.head_dim
    }
    fn value(&self, b: usize, t: usize, head: usize) -> usize {
        self.row(b, t) + (self.op.heads + self.op.kv_heads + self.kv(head)) * self.op.head_dim
    }
}

fn dot(a: &Array<'_>, at_a: usize, b: &Array<'_>, at_b: usize, len: usize) -> f64 {
    (0..len).map(|d| a.get(at_a + d) * b.get(at_b + d)).sum()
}

/// Log of the sum of exponentials.
fn log_sum_exp(scores: &[f64]) -> f64 {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + scores.iter().map(|score| (score - max).exp()).sum::<f64>().ln()
}

impl Rule for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [qkv] = arity(inputs)?;
        let (batch, time) = self.check(qkv)?;
        let out = Type::new(qkv.dtype, [batch, time, self.heads * self.head_dim]);
        Ok(vec![out, Type::new(qkv.dtype.statistics(), [batch, self.heads, time])])
    }

    fn differentiable(&self) -> usize {
        1
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dout), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let qkv = node.inputs[0];
        let name = format!("grad.{}", graph.info(qkv).name);
        let inputs = [qkv, node.outputs[0], node.outputs[1], dout];
        Ok(vec![Some(graph.one(AttentionGrad(self.clone()), &inputs, &name)?)])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: Attention::cost(self, inputs[0], 2), bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let [qkv, lse] = [Place::input(0, inputs[0]), Place::output(1, outputs[1])];
        let (batch, time) = (inputs[0].shape[0] as u64, inputs[0].shape[1] as u64);
        let [packed, columns] =
            [self.packed(), self.heads * self.head_dim].map(|n| n as u64 * time);
        let flops = Attention::cost(self, inputs[0], 2) / batch.max(1);
        let mut launches = Launches::new();
        let out = Place::output(0, outputs[0]);
        launches.by_rows(limits, out, self.head_dim as u64, false, |launches, out| {
            let tensors = [(qkv.dtype, packed), (out.dtype, columns)];
            for range in row_windows(limits, batch, &tensors) {
                let window = |place: Place, n| place.window(range.start * n..range.end * n);
                let extents = Extents::new(&range, time);
                let entries = ["forward", "forward_direct", "forward_mma"];
                launches.push(self.kernel(
                    self.rows_of(limits, entries, self.heads, extents, qkv.dtype),
                    extents,
                    &[
                        ("qkv", window(qkv, packed)),
                        ("out", window(out, columns)),
                        ("statistics", lse),
                    ],
                    flops * extents.sequences,
                ));
            }
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (qkv, out, lse) = (inputs[0], outputs[0], outputs[1]);
        let (batch, time, dim) = (qkv.ty().shape[0], qkv.ty().shape[1], self.head_dim);
        let at = Packed { op: self, time };
        for b in 0..batch {
            for head in 0..self.heads {
                for i in 0..time {
                    let query = at.query(b, i, head);
                    let scores: Vec<f64> = (0..=i)
                        .map(|j| self.scale() * dot(&qkv, query, &qkv, at.key(b, j, head), dim))
                        .collect();
                    let normaliser = log_sum_exp(&scores);
                    lse.set((b * self.heads + head) * time + i, normaliser);
                    for d in 0..dim {
                        let sum = scores.iter().enumerate().map(|(j, score)| {
                            (score - normaliser).exp() * qkv.get(at.value(b, j, head) + d)
                        });
                        out.set(((b * time + i) * self.heads + head) * dim + d, sum.sum());
                    }
                }
            }
        }
    }
}

impl AttentionGrad {
    /// Cases of this family. `out` and `lse` are free inputs here, so that the formula is checked and not
    /// only its value at a consistent point.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (b, t, op) in Attention::sizes() {
            let out = [b, t, op.heads * op.head_dim];
            for dtype in [DType::F32, DType::BF16] {
                let lse = super::range(DType::F32, &[b, op.heads, t], 2.0, 4.0);
                let inputs = vec![
                    unit(dtype, &[b, t, op.packed()]),
                    unit(dtype, &out),
                    lse,
                    unit(dtype, &out),
                ];
                cases.push(Case::new(Self(op.clone()), inputs));
            }
        }
        cases
    }
}

impl Rule for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [qkv, out, lse, dout] = arity(inputs)?;
        let (batch, time) = self.0.check(qkv)?;
        let of_out = Type::new(qkv.dtype, [batch, time, self.0.heads * self.0.head_dim]);
        typed("out", out, &of_out)?;
        typed("the gradient of out", dout, &of_out)?;
        typed("lse", lse, &Type::new(qkv.dtype.statistics(), [batch, self.0.heads, time]))?;
        Ok(vec![qkv.clone()])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: self.0.cost(inputs[0], 5), bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let op = &self.0;
        let [qkv, out, lse, dout] = [0, 1, 2, 3].map(|index| Place::input(index, inputs[index]));
        let (batch, time) = (inputs[0].shape[0] as u64, inputs[0].shape[1] as u64);
        let [packed, columns] = [op.packed(), op.heads * op.head_dim].map(|n| n as u64 * time);
        let flops = |products| op.cost(inputs[0], products) / batch.max(1);
        let dtype = qkv.dtype;
        let mut launches = Launches::new();
        // The logs of normalisers, and after them what the gradients of scores subtract.
        let count = lse.elements;
        let statistics =
            launches.scratch(DType::F32, count.next_multiple_of(lse.granule()) + count);
        let deltas = statistics.elements - count;
        launches.push(convert(limits, lse, statistics.window(0..count)));
        let dqkv = Place::output(0, outputs[0]);
        launches.by_rows(limits, dqkv, op.head_dim as u64, false, |launches, dqkv| {
            let tensors = [(qkv.dtype, packed), (dqkv.dtype, packed), (dout.dtype, columns)];
            for range in row_windows(limits, batch, &tensors) {
                let window = |place: Place, n| place.window(range.start * n..range.end * n);
                let extents = Extents { deltas, ..Extents::new(&range, time) };
                let statistics = ("statistics", statistics);
                let [qkv, out] = [("qkv", window(qkv, packed)), ("out", window(out, columns))];
                let [dout, dqkv] = [("dout", window(dout, columns)), ("out", window(dqkv, packed))];
                let threads = THREADS.min(limits.workgroup);
                let rows = extents.sequences * op.heads as u64 * time;
                launches.push(op.kernel(
                    ("grad_delta", threads, rows.div_ceil(threads.into())),
                    extents,
                    &[out, dout, statistics],
                    2 * extents.sequences * columns,
                ));
                for (entries, heads, products) in [
                    (["grad_queries", "grad_queries_direct", "grad_queries_mma"], op.heads, 3),
                    (["grad_keys", "grad_keys_direct", "grad_keys_mma"], op.kv_heads, 4),
                ] {
                    launches.push(op.kernel(
                        op.rows_of(limits, entries, heads, extents, dtype),
                        extents,
                        &[qkv, dout, statistics, dqkv],
                        flops(products) * extents.sequences,
                    ));
                }
            }
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let op = &self.0;
        let [qkv, out, lse, dout] = [inputs[0], inputs[1], inputs[2], inputs[3]];
        let (batch, time, dim) = (qkv.ty().shape[0], qkv.ty().shape[1], op.head_dim);
        let at = Packed { op, time };
        // Contributions meet in f64 before the one rounding of the store.
        let mut dqkv = vec![0.0; outputs[0].len()];
        for b in 0..batch {
            for head in 0..op.heads {
                for i in 0..time {
                    let row = ((b * time + i) * op.heads + head) * dim;
                    let delta = dot(&out, row, &dout, row, dim);
                    let normaliser = lse.get((b * op.heads + head) * time + i);
                    let query = at.query(b, i, head);
                    for j in 0..=i {
                        let (key, value) = (at.key(b, j, head), at.value(b, j, head));
                        let score = op.scale() * dot(&qkv, query, &qkv, key, dim);
                        let p = (score - normaliser).exp();
                        let dp = dot(&dout, row, &qkv, value, dim);
                        let dscore = op.scale() * p * (dp - delta);
                        for d in 0..dim {
                            dqkv[query + d] += dscore * qkv.get(key + d);
                            dqkv[key + d] += dscore * qkv.get(query + d);
                            dqkv[value + d] += p * dout.get(row + d);
                        }
                    }
                }
            }
        }
        dqkv.iter().enumerate().for_each(|(index, &value)| outputs[0].set(index, value));
    }
}
