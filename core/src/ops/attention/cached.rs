//! Attention of new positions over a cache of keys and values, as decoding does it.

use serde::{Deserialize, Serialize};

use super::super::windows::row_windows;
use super::super::{
    Array, Case, Cost, Indices, Inferred, Rule, Work, arity, ensure, traffic, typed, unit, whole,
};
use super::{Attention, Extents, Mask, Packed, THREADS, dot, log_sum_exp};
use crate::launch::{Launched, Launches, Limits, Place};
use crate::types::{DType, Type};

/// Attention of S new positions over a cache that they are first appended to. Inputs: packed projections
/// (B, S, (H + 2·G)·D), key cache and value cache (B, Tmax, G·D), position of the first new one (I32, 1).
/// Outputs: values (B, S, H·D) and both caches, in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachedAttention(pub Attention);

impl CachedAttention {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        let window = |window, op| {
            let mask = Mask { window: Some(window), ..Mask::CAUSAL };
            Attention { mask, ..op }
        };
        let capped = |op| Attention { scale: 0.7, cap: Some(0.9), ..op };
        for (b, s, past, op) in [
            (1, 1, 0, Attention::causal(2, 1, 4)),
            (2, 3, 5, Attention::causal(4, 2, 8)),
            (1, 1, 36, Attention::causal(3, 3, 16)),
            (2, 4, 7, window(3, Attention::causal(4, 2, 8))),
            (1, 1, 36, window(30, capped(Attention::causal(3, 3, 16)))),
            (1, 5, 2, window(20, Attention::causal(2, 1, 5))),
        ] {
            for dtype in [DType::F32, DType::BF16] {
                let cache = unit(dtype, &[b, 40, op.kv_heads * op.head_dim]);
                let position = whole(DType::I32, &[1], past, past + 1);
                let inputs =
                    vec![unit(dtype, &[b, s, op.packed()]), cache.clone(), cache, position];
                cases.push(Case::new(Self(op.clone()), inputs));
            }
        }
        cases
    }
}

impl Rule for CachedAttention {
    fn name(&self) -> &'static str {
        "cached_attention"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [qkv, keys, values, position] = arity(inputs)?;
        let (batch, new) = self.0.check(qkv)?;
        let causal = Mask { window: self.0.mask.window, ..Mask::CAUSAL };
        ensure(self.0.mask == causal && self.0.dropout.is_none(), || {
            "decodes by causal attention alone, within a window or not: no documents, no dropout"
                .into()
        })?;
        let columns = self.0.kv_heads * self.0.head_dim;
        ensure(keys.shape.len() == 3 && keys.shape[1] >= new, || {
            format!("the cache {keys} doesn't hold {new} positions")
        })?;
        let cache = Type::new(qkv.dtype, [batch, keys.shape[1], columns]);
        typed("the key cache", keys, &cache)?;
        typed("the value cache", values, &cache)?;
        ensure(*position == Type::new(DType::I32, [1]), || {
            format!("the position must be i32[1], is {position}")
        })?;
        let out = Type::new(qkv.dtype, [batch, new, self.0.heads * self.0.head_dim]);
        Ok(vec![out, keys.clone(), values.clone()])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        vec![(1, 1), (2, 2)]
    }

    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        let (new, capacity) = (inputs[0].shape[1], inputs[1].shape[1]);
        vec![Indices { input: 3, end: capacity + 1 - new, negative: false }]
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let (batch, new, seq_len) = (inputs[0].shape[0], inputs[0].shape[1], inputs[1].shape[1]);
        let flops = 4 * (batch * new * seq_len * self.0.heads * self.0.head_dim) as u64;
        // The caches are read, and of their rows, those of new positions are written.
        let written = 2 * (inputs[1].bytes() / seq_len.max(1) * new) as u64;
        Cost { flops, bytes: traffic(inputs, &outputs[..1]) + written }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        let (batch, new, seq_len) = (inputs[0].shape[0], inputs[0].shape[1], inputs[1].shape[1]);
        let rows = (batch * new * self.0.heads) as u64;
        Work { rows, elements: rows * seq_len as u64 }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let op = &self.0;
        let [qkv, position] = [0, 3].map(|index| Place::input(index, inputs[index]));
        let [out, keys, values] = [0, 1, 2].map(|index| Place::output(index, outputs[index]));
        let (batch, new) = (inputs[0].shape[0] as u64, inputs[0].shape[1] as u64);
        let (capacity, row) = (inputs[1].shape[1] as u64, inputs[1].last() as u64);
        let [packed, columns] = [op.packed(), op.heads * op.head_dim].map(|n| n as u64 * new);
        let cache = row * capacity;
        // A thread for every four channels, at least.
        let fours = op.head_dim.div_ceil(4).next_power_of_two() as u32;
        let threads = fours.max(THREADS).min(limits.workgroup);
        if fours > threads {
            return Err(format!("a workgroup is too small for heads of {} channels", op.head_dim));
        }
        let flops = self.cost(inputs, outputs).flops / batch.max(1);
        let attend = |launches: &mut Launches, keys: Place, values: Place, out: Place| {
            let tensors = [(qkv.dtype, packed), (keys.dtype, cache), (values.dtype, cache)];
            let tensors = [&tensors[..], &[(out.dtype, columns)]].concat();
            for range in row_windows(limits, batch, &tensors) {
                let window = |place: Place, n| place.window(range.start * n..range.end * n);
                let extents = Extents { capacity, ..Extents::new(&range, new) };
                let sequences = extents.sequences;
                let operands = [
                    ("qkv", window(qkv, packed)),
                    ("keys", window(keys, cache)),
                    ("values", window(values, cache)),
                    ("position", position),
                    ("out", window(out, columns)),
                ];
                let groups = (sequences * new * row.div_ceil(4)).div_ceil(threads.into());
                let append = ("append", threads, groups);
                launches.push(op.kernel(append, extents, &operands[..4], 0));
                let cached = ("cached", threads, sequences * new * op.heads as u64);
                launches.push(op.kernel(cached, extents, &operands, flops * sequences));
            }
        };
        let mut launches = Launches::new();
        launches.by_rows(limits, keys, row, true, |launches, keys| {
            launches.by_rows(limits, values, row, true, |launches, values| {
                let dim = op.head_dim as u64;
                launches.by_rows(limits, out, dim, false, |launches, out| {
                    attend(launches, keys, values, out);
                });
            });
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let op = &self.0;
        let (qkv, past) = (inputs[0], inputs[3].index(0) as usize);
        let (out, keys, values) = (outputs[0], outputs[1], outputs[2]);
        let (batch, new, dim) = (qkv.ty().shape[0], qkv.ty().shape[1], op.head_dim);
        let (columns, seq_len) = (op.kv_heads * dim, keys.ty().shape[1]);
        let at = Packed { op, seq_len: new };
        for b in 0..batch {
            for s in 0..new {
                let packed = at.row(b, s) + op.heads * dim;
                let row = (b * seq_len + past + s) * columns;
                for c in 0..columns {
                    keys.set(row + c, qkv.get(packed + c));
                    values.set(row + c, qkv.get(packed + columns + c));
                }
            }
            let (qkv, keys, values) = (qkv.values(), keys.values(), values.values());
            for s in 0..new {
                for head in 0..op.heads {
                    let query = at.query(b, s, head);
                    let cached = |j: usize| (b * seq_len + j) * columns + at.kv(head) * dim;
                    let seen = op.mask.keys(past + s, seq_len);
                    let scores: Vec<f64> = seen
                        .clone()
                        .map(|j| op.score(dot(&qkv, query, &keys, cached(j), dim)))
                        .collect();
                    let normaliser = log_sum_exp(&scores);
                    for d in 0..dim {
                        let sum = seen
                            .clone()
                            .zip(&scores)
                            .map(|(j, score)| (score - normaliser).exp() * values[cached(j) + d]);
                        out.set(((b * new + s) * op.heads + head) * dim + d, sum.sum());
                    }
                }
            }
        }
    }
}
