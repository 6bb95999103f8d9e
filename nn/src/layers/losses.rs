//! Losses: means over what counts, f32 (1).

use tightrope_core::expr::input;
use tightrope_core::ops::{Concat, CrossEntropy, LinearCrossEntropy, Map, Reduce, Reshape};
use tightrope_core::{DType, Tensor};

use crate::error::Result;
use crate::params::Parameter;
use crate::pass::Pass;

/// Mean cross-entropy of `targets` under logits x·Wᵀ, in nats, without ever holding all logits.
///
/// x (…, C); `head` (V, C), of whose rows the first `vocab` are classes and the rest is padding; `targets` I32 (…), of
/// which negative ones don't count.
///
/// # Errors
/// Tensors of other shapes, and a head that the model doesn't list.
pub fn linear_cross_entropy(
    pass: &mut Pass<'_>,
    x: Tensor,
    head: &Parameter,
    targets: Tensor,
    vocab: usize,
) -> Result<Tensor> {
    let head = pass.parameter(&head.name)?;
    chunked(pass, x, head, targets, vocab, None)
}

/// Columns that matmuls take at a time.
const TILE: usize = 32;

/// As [`linear_cross_entropy`], under logits x·Wᵀ + b. `bias` (V).
///
/// # Errors
/// As there.
pub fn biased_linear_cross_entropy(
    pass: &mut Pass<'_>,
    x: Tensor,
    [head, bias]: [&Parameter; 2],
    targets: Tensor,
    vocab: usize,
) -> Result<Tensor> {
    // The bias is a column of the weight that meets a 1 of x; columns of zeros behind it fill a tile.
    let width = pass.ty(x).last();
    let more = (width + 2).next_multiple_of(TILE) - width;
    let filled = |pass: &mut Pass<'_>, like: Tensor, columns: usize, value: f64, name: &str| {
        let mut ty = pass.ty(like).clone();
        ty.shape.pop();
        ty.shape.push(columns);
        pass.one(Map::fill(value, &ty), &[], name)
    };
    let ones = filled(pass, x, more, 1.0, "loss.ones")?;
    let axis = pass.shape(x).len() - 1;
    let x = pass.one(Concat { axis }, &[x, ones], "loss.input")?;
    let [weight, bias] = [pass.parameter(&head.name)?, pass.parameter(&bias.name)?];
    let column = Reshape { shape: vec![pass.ty(bias).elements(), 1] };
    let column = pass.one(column, &[bias], "loss.bias")?;
    let zeros = filled(pass, weight, more - 1, 0.0, "loss.zeros")?;
    let head = pass.one(Concat { axis: 1 }, &[weight, column, zeros], "loss.head")?;
    chunked(pass, x, head, targets, vocab, None)
}

/// As [`linear_cross_entropy`], with logits l that become cap·tanh(l / cap).
///
/// # Errors
/// As there.
pub fn capped_linear_cross_entropy(
    pass: &mut Pass<'_>,
    x: Tensor,
    head: &Parameter,
    targets: Tensor,
    vocab: usize,
    cap: f64,
) -> Result<Tensor> {
    let head = pass.parameter(&head.name)?;
    chunked(pass, x, head, targets, vocab, Some(cap))
}

fn chunked(
    pass: &mut Pass<'_>,
    x: Tensor,
    head: Tensor,
    targets: Tensor,
    vocab: usize,
    cap: Option<f64>,
) -> Result<Tensor> {
    let op = LinearCrossEntropy { vocab, chunk: chunk_of(pass, x), cap };
    pass.one(op, &[x, head, targets], "loss")
}

/// Rows of logits of `x` that are held at a time.
pub(super) fn chunk_of(pass: &Pass<'_>, x: Tensor) -> usize {
    let rows = pass.ty(x).rows();
    let chunk = match pass.options().loss_chunk {
        0 => rows,
        chunk => chunk.min(rows),
    };
    chunk.max(1)
}

/// Mean cross-entropy of `labels` under the softmax of `scores`, in nats, with the metric `accuracy`: the share of rows
/// whose largest score is the label's.
///
/// scores (…, V); labels I32 (…), of which negative ones don't count.
///
/// # Errors
/// Tensors of other shapes.
pub fn cross_entropy(pass: &mut Pass<'_>, scores: Tensor, labels: Tensor) -> Result<Tensor> {
    let outputs = pass.push(CrossEntropy, &[scores, labels], "loss")?;
    pass.figure("accuracy", outputs[1]);
    Ok(outputs[0])
}

/// Mean of (found − expected)², over all elements of two tensors of one shape.
///
/// # Errors
/// Tensors of other shapes.
pub fn mean_squared_error(pass: &mut Pass<'_>, found: Tensor, expected: Tensor) -> Result<Tensor> {
    let off = || input(0) - input(1);
    let squares =
        pass.one(Map::new(off() * off(), DType::F32), &[found, expected], "loss.squares")?;
    let scale = 1.0 / pass.ty(squares).elements() as f64;
    pass.one(Reduce { scale, ..Reduce::to_suffix(vec![1], DType::F32) }, &[squares], "loss")
}
