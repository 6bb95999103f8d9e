//! Attention that stores its scores.   B sequences, T positions, G key-value heads of R query heads, D channels a head
//!
//! A matmul, a mask, a softmax and a matmul, as PyTorch's eager mode and the first transformers did it (Vaswani et al. 2017).
//! The probabilities (G, B, R, T, T) wait for the backward pass: they are what fused attention saves. It's here to be
//! measured and taught.

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{
    self, Concat, Expand, Map, MatMul, Permute, Reshape, Rule as _, Slice, Softmax,
};
use tightrope_core::{DType, Tensor, Type};

use crate::error::{Error, Result};
use crate::pass::Pass;

/// What is added to the scores of keys that a query doesn't attend to: their probability is 0 then. Storage holds it, and
/// twice as much, as a finite number: no formula meets an infinity.
fn hidden(dtype: DType) -> f64 {
    if dtype == DType::F16 { -3e4 } else { -1e30 }
}

/// What `op` computes, (B, T, G·R·D), of packed projections (B, T, (G·R + 2·G)·D). `documents`, I32 (B, T), are of a mask
/// by documents; probabilities are dropped with probability `dropout` in training. Tensors are named after `name`.
pub(super) fn attend(
    pass: &mut Pass<'_>,
    (op, dropout): (&ops::Attention, f64),
    packed: Tensor,
    documents: Option<Tensor>,
    name: &str,
) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    // What fused attention refuses, in its words.
    let types: Vec<&Type> = [packed].into_iter().chain(documents).map(|it| pass.ty(it)).collect();
    op.infer(&types).map_err(|problem| Error::Setting {
        key: "model",
        problem: format!("attention `{name}` {problem}"),
    })?;
    let shape = pass.shape(packed).to_vec();
    let (batch, seq_len, dim) = (shape[0], shape[1], op.head_dim);
    let (groups, repeats) = (op.kv_heads, op.heads / op.kv_heads.max(1));
    // Heads of one group stand below each other, so that they meet their key-value head in one matmul.
    let heads = |pass: &mut Pass<'_>, first: usize, repeats: usize, part: &str| {
        let len = groups * repeats * dim;
        let slice = Slice { axis: 2, start: first * dim, len };
        let x = pass.one(slice, &[packed], &named(&format!("{part}.packed")))?;
        let apart = vec![batch, seq_len, groups, repeats, dim];
        let x = pass.one(Reshape { shape: apart }, &[x], &named(&format!("{part}.heads")))?;
        let x = pass.one(Permute { axes: vec![2, 0, 3, 1, 4] }, &[x], &named(part))?;
        let rows = vec![groups, batch, repeats * seq_len, dim];
        pass.one(Reshape { shape: rows }, &[x], &named(&format!("{part}.rows")))
    };
    let queries = heads(pass, 0, repeats, "queries")?;
    let keys = heads(pass, op.heads, 1, "keys")?;
    let values = heads(pass, op.heads + groups, 1, "values")?;

    let by_head = MatMul { batch: true, ..MatMul::new(pass.dtype()) };
    let products = MatMul { transpose_rhs: true, ..by_head.clone() };
    let products = pass.one(products, &[queries, keys], &named("products"))?;
    let pairs = vec![groups, batch, repeats, seq_len, seq_len];
    let products = pass.one(Reshape { shape: pairs }, &[products], &named("pairs"))?;
    let scaled = input(0) * constant(op.scale);
    let score = match op.cap {
        Some(cap) => constant(cap) * (scaled * constant(1.0 / cap)).tanh(),
        None => scaled,
    };
    let scores = match mask(pass, op, [repeats, seq_len], documents, name)? {
        Some(mask) => pass.map(score + input(1), &[products, mask], &named("scores"))?,
        None => pass.map(score, &[products], &named("scores"))?,
    };
    // They take this shape before the softmax, where it moves nothing: of probabilities, which the backward pass reads, it
    // would make a second copy.
    let rows = vec![groups, batch, repeats * seq_len, seq_len];
    let scores = pass.one(Reshape { shape: rows }, &[scores], &named("scores.rows"))?;
    let probabilities = pass.one(Softmax, &[scores], &named("probabilities"))?;
    let kept = pass.dropped(dropout, input(0));
    let kept = match kept.is_random() {
        true => pass.map(kept, &[probabilities], &named("kept"))?,
        false => probabilities,
    };

    let found = pass.one(by_head, &[kept, values], &named("found"))?;
    let apart = vec![groups, batch, repeats, seq_len, dim];
    let found = pass.one(Reshape { shape: apart }, &[found], &named("found.heads"))?;
    let found =
        pass.one(Permute { axes: vec![1, 3, 0, 2, 4] }, &[found], &named("found.packed"))?;
    let shape = vec![batch, seq_len, op.heads * dim];
    pass.one(Reshape { shape }, &[found], &named("out"))
}

/// What is added to scores, (T, T), or with documents (B, R, T, T); `None` where every query attends to all keys.
fn mask(
    pass: &mut Pass<'_>,
    op: &ops::Attention,
    [repeats, seq_len]: [usize; 2],
    documents: Option<Tensor>,
    name: &str,
) -> Result<Option<Tensor>> {
    let named = |part: &str| format!("{name}.mask.{part}");
    let window = op.mask.window.unwrap_or(seq_len).min(seq_len);
    let bounded = op.mask.causal || window < seq_len;
    let near =
        if bounded { Some(band(pass, op.mask.causal, window, seq_len, name)?) } else { None };
    let Some(documents) = documents else { return Ok(near) };
    let along = |axis| Expand { axis, extent: seq_len };
    let of_key = pass.one(along(1), &[documents], &named("key"))?;
    let of_query = pass.one(along(2), &[documents], &named("query"))?;
    let apart = (input(0) - input(1)).max(input(1) - input(0)).min(constant(1.0));
    let apart = apart * constant(hidden(pass.dtype()));
    let mask = match near {
        Some(near) => pass.map(apart + input(2), &[of_key, of_query, near], &named("documents"))?,
        None => pass.map(apart, &[of_key, of_query], &named("documents"))?,
    };
    let by_head = Expand { axis: 1, extent: repeats };
    Ok(Some(pass.one(by_head, &[mask], &named("heads"))?))
}

/// The mask (T, T) of keys less than `window` positions away, with `causal` up to the query's own.
///
/// Each row is the one before, moved by one. So they are cut, in rows of one element fewer, from repetitions of one row: 2·T
/// elements, by the distance of a key after its query, or of 2·T less where it's before.
fn band(
    pass: &mut Pass<'_>,
    causal: bool,
    window: usize,
    seq_len: usize,
    name: &str,
) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.mask.{part}");
    let (dtype, period) = (pass.dtype(), 2 * seq_len);
    let after = if causal { 1 } else { window };
    let before = window - 1;
    let mut parts = vec![];
    for (part, value, extent) in [
        ("after", 0.0, after),
        ("hidden", hidden(dtype), period - after - before),
        ("before", 0.0, before),
    ] {
        if extent > 0 {
            let filled = Map::fill(value, &Type::new(dtype, [extent]));
            parts.push(pass.one(filled, &[], &named(part))?);
        }
    }
    let row = pass.one(Concat { axis: 0 }, &parts, &named("row"))?;
    let rows = pass.one(Expand { axis: 0, extent: seq_len }, &[row], &named("rows"))?;
    let flat = |shape| Reshape { shape };
    let rows = pass.one(flat(vec![seq_len * period]), &[rows], &named("flat"))?;
    let len = seq_len * (period - 1);
    let moved = pass.one(Slice { axis: 0, start: 0, len }, &[rows], &named("cut"))?;
    let moved = pass.one(flat(vec![seq_len, period - 1]), &[moved], &named("moved"))?;
    pass.one(Slice { axis: 1, start: 0, len: seq_len }, &[moved], &named("band"))
}
