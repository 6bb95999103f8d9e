//! Self-attention with grouped-query heads.   B sequences, T positions, H query heads, G key-value heads, D channels a head
//!
//!   score[i,j] = scale · query[i] · key[j],  for the j that i attends to;
//!                cap · tanh(that / cap) where scores are capped (Gemma Team 2024)
//!   p[i,j]     = exp(score[i,j] − lse[i]),  lse[i] = log Σⱼ exp(score[i,j])
//!   out[i]     = Σⱼ kept[i,j] · p[i,j] · value[j],  kept[i,j] = 0 where dropped, else 1/(1 − rate); 1 without dropout
//!
//! Queries, keys and values come packed in one tensor (B, T, (H + 2·G)·D), as the projection leaves them:
//! H queries, then G keys, then G values. Query head h reads key-value head ⌊h·G/H⌋. No backend may store
//! more scores than one tile of queries against its keys (Dao et al. 2022). Tiles that the mask leaves empty are skipped.

mod cached;
mod entries;
mod launches;
mod mask;
mod wgmma;

use serde::{Deserialize, Serialize};

use super::windows::row_windows;
use super::{
    Array, Case, Cost, Inferred, Rule, Work, convert, ensure, float, traffic, typed, unit, whole,
};
use crate::error::Result;
use crate::launch::{Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

pub use cached::CachedAttention;
pub use mask::{Dropout, Mask};

use launches::{Extents, THREADS};
use mask::Extra;

/// Attention over whole sequences. Inputs: packed projections, where the mask is of documents the document of each position
/// (I32, (B, T)), and with dropout a key of four u32. Outputs: values (B, T, H·D) and the log of each query's normaliser
/// (B, H, T).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Query heads, H.
    pub heads: usize,
    /// Key-value heads, G; divides H.
    pub kv_heads: usize,
    /// Channels of a head, D.
    pub head_dim: usize,
    /// Factor on the products of queries and keys.
    pub scale: f64,
    /// What scores stay below in size, where they are capped.
    pub cap: Option<f64>,
    /// Which keys a query attends to.
    pub mask: Mask,
    /// Dropout of probabilities.
    pub dropout: Option<Dropout>,
}

/// Gradient of [`Attention`]. Inputs: packed projections, out, lse, gradient of out, then what the mask and dropout read as in
/// [`Attention`]. Output: gradient of the packed projections. Probabilities are recomputed tile by tile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionGrad(pub Attention);

impl Attention {
    /// Attention to all keys up to the query's own, with scores scaled by 1/√D.
    pub fn causal(heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        let scale = 1.0 / (head_dim as f64).sqrt();
        Self { heads, kv_heads, head_dim, scale, cap: None, mask: Mask::CAUSAL, dropout: None }
    }

    /// The score of a product of a query and a key.
    fn score(&self, product: f64) -> f64 {
        let score = self.scale * product;
        self.cap.map_or(score, |cap| cap * (score / cap).tanh())
    }

    /// What a score grows by with the product of its query and key.
    fn slope(&self, score: f64) -> f64 {
        self.scale * self.cap.map_or(1.0, |cap| 1.0 - (score / cap).powi(2))
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
        ensure(self.mask.window != Some(0), || "a window of 0 keys leaves nothing".into())?;
        ensure(self.scale.is_finite(), || format!("the scale {} isn't finite", self.scale))?;
        ensure(self.cap.is_none_or(|cap| cap.is_finite() && cap > 0.0), || {
            format!("scores are capped above 0, not at {}", self.cap.unwrap_or_default())
        })?;
        Ok((qkv.shape[0], qkv.shape[1]))
    }

    /// Checks the inputs of which the first `own` are the op's own, the packed projections before all.
    fn check_all(
        &self,
        inputs: &[&Type],
        own: usize,
    ) -> std::result::Result<(usize, usize), String> {
        let expected = own + Extra::<()>::count(self.mask, self.dropout);
        ensure(inputs.len() == expected, || {
            format!("takes {expected} inputs, got {}", inputs.len())
        })?;
        let (batch, seq_len) = self.check(inputs[0])?;
        Extra::of(self.mask, self.dropout, own, inputs).check(batch, seq_len)?;
        let rows = (batch * self.heads * seq_len) as u64;
        self.dropout.map_or(Ok(()), |dropout| dropout.check(rows, seq_len as u64))?;
        Ok((batch, seq_len))
    }

    fn cost(&self, qkv: &Type, matmuls: u64) -> u64 {
        2 * matmuls * self.work(qkv).elements * self.head_dim as u64
    }

    /// Queries of all heads, and their scores.
    fn work(&self, qkv: &Type) -> Work {
        let (batch, seq_len) = (qkv.shape[0] as u64, qkv.shape[1] as u64);
        let heads = batch * self.heads as u64;
        Work { rows: heads * seq_len, elements: heads * self.mask.pairs(seq_len) }
    }

    /// Ops to try, each with its batch and sequence length.
    fn sizes() -> Vec<(usize, usize, Self)> {
        let size =
            |b, t, heads, kv_heads, head_dim| (b, t, Self::causal(heads, kv_heads, head_dim));
        let mut sizes: Vec<(usize, usize, Self)> = vec![
            size(1, 1, 1, 1, 1),
            size(2, 5, 3, 3, 4),
            size(1, 37, 4, 2, 8),
            size(2, 65, 2, 1, 16),
            size(1, 130, 1, 1, 64),
            size(1, 19, 6, 3, 5),
        ];
        let masked = |b, t, (heads, kv_heads, head_dim), causal, window, documents| {
            let mask = Mask { causal, window, documents };
            (b, t, Self { mask, ..Self::causal(heads, kv_heads, head_dim) })
        };
        sizes.extend([
            masked(2, 5, (3, 3, 4), false, None, false),
            masked(1, 97, (2, 1, 16), false, None, false),
            masked(2, 37, (4, 2, 8), true, Some(5), false),
            masked(1, 131, (1, 1, 16), true, Some(40), false),
            masked(1, 150, (2, 2, 5), false, Some(1), false),
            masked(1, 131, (2, 1, 16), false, Some(33), false),
            masked(2, 37, (2, 1, 8), true, None, true),
            masked(2, 70, (2, 2, 16), false, Some(20), true),
            masked(1, 140, (2, 1, 16), true, None, true),
        ]);
        let dropout = Some(Dropout { p: 0.25, stream: 7 });
        let varied = |indices: [usize; 4], vary: &dyn Fn(Self) -> Self| {
            let vary = |index: usize| {
                let (b, t, op) = sizes[index].clone();
                (b, t, vary(op))
            };
            indices.map(vary)
        };
        let dropped = varied([1, 7, 9, 12], &|op| Self { dropout, ..op });
        // Low, so that scores of numbers below 1 reach it.
        let capped = varied([2, 3, 5, 9], &|op| Self { scale: 0.7, cap: Some(0.9), ..op });
        let turned = varied([3, 6, 9, 12], &|op| Self { scale: -0.3, ..op });
        sizes.extend(turned);
        sizes.extend(dropped);
        sizes.extend(capped);
        sizes
    }

    /// What the mask and dropout read, in a case.
    fn extra_samples(&self, b: usize, t: usize) -> Vec<super::Sample> {
        let mut samples = vec![];
        if self.mask.documents {
            samples.push(whole(DType::I32, &[b, t], 0, 3));
        }
        samples.extend(self.dropout.map(|_| whole(DType::U32, &[4], 0, 1 << 31)));
        samples
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (b, t, op) in Self::sizes() {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let mut inputs = vec![unit(dtype, &[b, t, op.packed()])];
                inputs.extend(op.extra_samples(b, t));
                cases.push(Case::new(op.clone(), inputs));
            }
        }
        let op = Self::causal(2, 2, 8);
        cases.push(Case::new(
            op.clone(),
            vec![super::range(DType::F32, &[1, 33, op.packed()], -60.0, 60.0)],
        ));
        cases
    }
}

impl Attention {
    /// What the probability of a pair is multiplied by: of query `row`, counted over all heads and sequences.
    fn kept(&self, extra: &Extra<Array<'_>>, row: usize, key: usize, seq_len: usize) -> f64 {
        self.dropout.map_or(1.0, |dropout| {
            let element = Dropout::element(row as u64, key as u64, seq_len as u64);
            dropout.factor(extra.words(), element)
        })
    }
}

/// Where a head's vectors start in the packed projections.
struct Packed<'a> {
    op: &'a Attention,
    seq_len: usize,
}

impl Packed<'_> {
    fn row(&self, b: usize, t: usize) -> usize {
        (b * self.seq_len + t) * self.op.packed()
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

fn dot(a: &[f64], at_a: usize, b: &[f64], at_b: usize, len: usize) -> f64 {
    a[at_a..][..len].iter().zip(&b[at_b..][..len]).map(|(a, b)| a * b).sum()
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
        let (batch, seq_len) = self.check_all(inputs, 1)?;
        let qkv = inputs[0];
        let out = Type::new(qkv.dtype, [batch, seq_len, self.heads * self.head_dim]);
        Ok(vec![out, Type::new(qkv.dtype.statistics(), [batch, self.heads, seq_len])])
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
        let mut gradients = vec![None; node.inputs.len()];
        let (Some(dout), true) = (outputs[0], wanted[0]) else { return Ok(gradients) };
        let (qkv, extra) = (node.inputs[0], &node.inputs[1..]);
        let name = format!("grad.{}", graph.info(qkv).name);
        let inputs = [&[qkv, node.outputs[0], node.outputs[1], dout], extra].concat();
        gradients[0] = Some(graph.one(AttentionGrad(self.clone()), &inputs, &name)?);
        Ok(gradients)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: Attention::cost(self, inputs[0], 2), bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Attention::work(self, inputs[0])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let [qkv, lse] = [Place::input(0, inputs[0]), Place::output(1, outputs[1])];
        let (batch, seq_len) = (inputs[0].shape[0] as u64, inputs[0].shape[1] as u64);
        let [packed, columns] =
            [self.packed(), self.heads * self.head_dim].map(|n| n as u64 * seq_len);
        let flops = Attention::cost(self, inputs[0], 2) / batch.max(1);
        let mut launches = Launches::new();
        let out = Place::output(0, outputs[0]);
        launches.by_rows(limits, out, self.head_dim as u64, false, |launches, out| {
            let tensors = [(qkv.dtype, packed), (out.dtype, columns)];
            for range in row_windows(limits, batch, &tensors) {
                let window = |place: Place, n| place.window(range.start * n..range.end * n);
                let extents = Extents::new(&range, seq_len);
                let entries = ["forward", "forward_direct", "forward_mma"];
                let operands = [
                    &[
                        ("qkv", window(qkv, packed)),
                        ("out", window(out, columns)),
                        ("statistics", lse),
                    ],
                    &self.extra_operands(1, inputs)[..],
                ];
                let (operands, flops) = (operands.concat(), flops * extents.sequences);
                launches.push(if let Some(multiprocessors) = wgmma::takes(self, limits, qkv) {
                    self.forward_wgmma(multiprocessors, extents, &operands, flops)
                } else {
                    self.rows_kernel(limits, entries, self.heads, extents, &operands, flops)
                });
            }
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (qkv, out, lse) = (inputs[0], outputs[0], outputs[1]);
        let (batch, seq_len, dim) = (qkv.ty().shape[0], qkv.ty().shape[1], self.head_dim);
        let at = Packed { op: self, seq_len };
        let extra = Extra::of(self.mask, self.dropout, 1, inputs);
        let qkv = qkv.values();
        for b in 0..batch {
            for head in 0..self.heads {
                for i in 0..seq_len {
                    let query = at.query(b, i, head);
                    let row = (b * self.heads + head) * seq_len + i;
                    let keys = self.mask.keys(i, seq_len);
                    let keys: Vec<usize> =
                        keys.filter(|&j| extra.together(b, seq_len, i, j)).collect();
                    let scores: Vec<f64> = keys
                        .iter()
                        .map(|&j| self.score(dot(&qkv, query, &qkv, at.key(b, j, head), dim)))
                        .collect();
                    let normaliser = log_sum_exp(&scores);
                    lse.set(row, normaliser);
                    let mut sums = vec![0.0; dim];
                    for (&j, score) in keys.iter().zip(&scores) {
                        let p = (score - normaliser).exp() * self.kept(&extra, row, j, seq_len);
                        let value = &qkv[at.value(b, j, head)..][..dim];
                        sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += p * value);
                    }
                    for (d, &sum) in sums.iter().enumerate() {
                        out.set(((b * seq_len + i) * self.heads + head) * dim + d, sum);
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
                let mut inputs = vec![
                    unit(dtype, &[b, t, op.packed()]),
                    unit(dtype, &out),
                    lse,
                    unit(dtype, &out),
                ];
                inputs.extend(op.extra_samples(b, t));
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
        let (batch, seq_len) = self.0.check_all(inputs, 4)?;
        let [qkv, out, lse, dout] = [inputs[0], inputs[1], inputs[2], inputs[3]];
        let of_out = Type::new(qkv.dtype, [batch, seq_len, self.0.heads * self.0.head_dim]);
        typed("out", out, &of_out)?;
        typed("the gradient of out", dout, &of_out)?;
        typed("lse", lse, &Type::new(qkv.dtype.statistics(), [batch, self.0.heads, seq_len]))?;
        Ok(vec![qkv.clone()])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: self.0.cost(inputs[0], 5), bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        self.0.work(inputs[0])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let op = &self.0;
        let [qkv, out, lse, dout] = [0, 1, 2, 3].map(|index| Place::input(index, inputs[index]));
        let (batch, seq_len) = (inputs[0].shape[0] as u64, inputs[0].shape[1] as u64);
        let [packed, columns] = [op.packed(), op.heads * op.head_dim].map(|n| n as u64 * seq_len);
        let flops = |matmuls| op.cost(inputs[0], matmuls) / batch.max(1);
        let mut launches = Launches::new();
        // The logs of normalisers, and after them what the gradients of scores subtract.
        let count = lse.elements;
        let statistics =
            launches.scratch(DType::F32, count.next_multiple_of(lse.granule()) + count);
        let deltas = statistics.elements - count;
        let by_groups = wgmma::takes(op, limits, qkv);
        if by_groups.is_none() {
            launches.push(convert(limits, lse, statistics.window(0..count)));
        }
        let dqkv = Place::output(0, outputs[0]);
        launches.by_rows(limits, dqkv, op.head_dim as u64, false, |launches, dqkv| {
            let mut tensors =
                vec![(qkv.dtype, packed), (dqkv.dtype, packed), (dout.dtype, columns)];
            tensors.extend(by_groups.map(|_| (DType::F32, wgmma::Ordered::sums(op, seq_len))));
            let ranges = row_windows(limits, batch, &tensors);
            let most = ranges.first().map_or(0, |range| range.end - range.start);
            let ordered = by_groups.map(|_| wgmma::Ordered::new(launches, op, most, seq_len));
            for range in ranges {
                let window = |place: Place, n| place.window(range.start * n..range.end * n);
                let extents = Extents { deltas, ..Extents::new(&range, seq_len) };
                let statistics = ("statistics", statistics);
                let [qkv, out] = [("qkv", window(qkv, packed)), ("out", window(out, columns))];
                let [dout, dqkv] = [("dout", window(dout, columns)), ("out", window(dqkv, packed))];
                if let Some(ordered) = &ordered {
                    let (own, extra) =
                        ([qkv, dout, statistics, dqkv], op.extra_operands(4, inputs));
                    let begin = [out, dout, statistics, (entries::LSE, lse)];
                    launches.push(op.begin_grad_wgmma(ordered, extents, &begin));
                    let flops = flops(5) * extents.sequences;
                    let operands = [&own, &extra[..]].concat();
                    launches.push(op.grad_wgmma(ordered, extents, &operands, flops));
                    continue;
                }
                let threads = THREADS.min(limits.workgroup);
                let rows = extents.sequences * op.heads as u64 * seq_len;
                launches.push(op.kernel(
                    ("grad_delta", threads, rows.div_ceil(threads.into())),
                    extents,
                    &[out, dout, statistics],
                    2 * extents.sequences * columns,
                ));
                for (entries, heads, matmuls) in [
                    (["grad_queries", "grad_queries_direct", "grad_queries_mma"], op.heads, 3),
                    (["grad_keys", "grad_keys_direct", "grad_keys_mma"], op.kv_heads, 4),
                ] {
                    let own = [qkv, dout, statistics, dqkv];
                    launches.push(op.rows_kernel(
                        limits,
                        entries,
                        heads,
                        extents,
                        &[&own, &op.extra_operands(4, inputs)[..]].concat(),
                        flops(matmuls) * extents.sequences,
                    ));
                }
            }
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let op = &self.0;
        let [qkv, out, lse, dout] = [inputs[0], inputs[1], inputs[2], inputs[3]];
        let (batch, seq_len, dim) = (qkv.ty().shape[0], qkv.ty().shape[1], op.head_dim);
        let at = Packed { op, seq_len };
        let extra = Extra::of(op.mask, op.dropout, 4, inputs);
        let [qkv, out, dout] = [qkv, out, dout].map(|array| array.values());
        // Contributions meet in f64 before the one rounding of the store.
        let mut dqkv = vec![0.0; outputs[0].len()];
        for b in 0..batch {
            for head in 0..op.heads {
                for i in 0..seq_len {
                    let row = ((b * seq_len + i) * op.heads + head) * dim;
                    let delta = dot(&out, row, &dout, row, dim);
                    let of_query = (b * op.heads + head) * seq_len + i;
                    let normaliser = lse.get(of_query);
                    let query = at.query(b, i, head);
                    let keys = op.mask.keys(i, seq_len);
                    for j in keys.filter(|&j| extra.together(b, seq_len, i, j)) {
                        let kept = op.kept(&extra, of_query, j, seq_len);
                        let (key, value) = (at.key(b, j, head), at.value(b, j, head));
                        let score = op.score(dot(&qkv, query, &qkv, key, dim));
                        let p = (score - normaliser).exp();
                        let dp = kept * dot(&dout, row, &qkv, value, dim);
                        let dscore = op.slope(score) * p * (dp - delta);
                        for d in 0..dim {
                            dqkv[query + d] += dscore * qkv[key + d];
                            dqkv[key + d] += dscore * qkv[query + d];
                            dqkv[value + d] += kept * p * dout[row + d];
                        }
                    }
                }
            }
        }
        dqkv.iter().enumerate().for_each(|(index, &value)| outputs[0].set(index, value));
    }
}
