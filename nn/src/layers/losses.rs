//! Losses: means over what counts, f32 (1).

use tightrope_core::expr::input;
use tightrope_core::ops::{CrossEntropy, LinearCrossEntropy, Map, Reduce};
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
    let rows = pass.ty(x).rows();
    let chunk = match pass.options().loss_chunk {
        0 => rows,
        chunk => chunk.min(rows),
    };
    let head = pass.parameter(&head.name)?;
    let op = LinearCrossEntropy { vocab, chunk: chunk.max(1) };
    pass.one(op, &[x, head, targets], "loss")
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
