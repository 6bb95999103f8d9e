//! Losses: means over what counts, f32 (1).

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{
    Concat, CrossEntropy, CrossEntropyRows, LinearCrossEntropy, LinearCrossEntropyRows, Map,
    Reduce, Reshape, Slice,
};
use tightrope_core::{DType, Tensor};

use super::linear::{TILE, adapted_head};
use crate::error::Result;
use crate::figure::RowMean;
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
    let (x, head) = adapted_head(pass, x, head)?;
    chunked(pass, x, head, targets, vocab, None)
}

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
    let (x, head) = adapted_head(pass, x, head)?;
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
    if !pass.is_by_row() {
        return pass.one(op, &[x, head, targets], "loss");
    }
    let each = pass.one(LinearCrossEntropyRows(op), &[x, head, targets], "loss.rows")?;
    mean_over_targets(pass, each, targets, "loss")
}

/// Mean of a number of each row over those whose target isn't negative.
fn mean_over_targets(
    pass: &mut Pass<'_>,
    each: Tensor,
    targets: Tensor,
    name: &str,
) -> Result<Tensor> {
    let counted = Map::new(constant(1.0) - input(0).less(constant(0.0)), DType::F32);
    let counted = pass.one(counted, &[targets], "targets.counted")?;
    let shape = vec![pass.ty(counted).elements()];
    let each = pass.one(Reshape { shape: shape.clone() }, &[each], "rows")?;
    let counted = pass.one(Reshape { shape }, &[counted], "rows.counted")?;
    pass.row_mean(each, counted, name)
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
    let [loss, accuracy] = match pass.is_by_row() {
        true => {
            let rows = pass.one(CrossEntropyRows, &[scores, labels], "loss.rows")?;
            let mut mean = |start, name: &str| {
                let each = pass.one(Slice { axis: 0, start, len: 1 }, &[rows], name)?;
                mean_over_targets(pass, each, labels, name)
            };
            [mean(0, "loss")?, mean(1, "accuracy")?]
        }
        false => {
            let outputs = pass.push(CrossEntropy, &[scores, labels], "loss")?;
            [outputs[0], outputs[1]]
        }
    };
    pass.figure("accuracy", accuracy);
    Ok(loss)
}

/// Mean of (found − expected)², over all elements of two tensors of one shape.
///
/// # Errors
/// Tensors of other shapes.
pub fn mean_squared_error(pass: &mut Pass<'_>, found: Tensor, expected: Tensor) -> Result<Tensor> {
    let off = || input(0) - input(1);
    let squares =
        pass.one(Map::new(off() * off(), DType::F32), &[found, expected], "loss.squares")?;
    let (elements, rows) = (pass.ty(squares).elements(), pass.shape(squares)[0]);
    if pass.is_by_row() {
        let columns = elements / rows;
        let squares =
            pass.one(Reshape { shape: vec![rows, columns] }, &[squares], "rows.squares")?;
        let mean = Reduce { scale: 1.0 / columns as f64, ..Reduce::last(DType::F32) };
        let each = pass.one(mean, &[squares], "loss.rows")?;
        let all = Map::fill(1.0, pass.ty(each));
        let counted = pass.one(all, &[], "rows.counted")?;
        return pass.row_mean(each, counted, "loss");
    }
    let scale = 1.0 / elements as f64;
    pass.one(Reduce { scale, ..Reduce::to_suffix(vec![1], DType::F32) }, &[squares], "loss")
}

impl Pass<'_> {
    /// Appends the mean of `each`, f32, over the rows where `counted` is 1, and has evaluation read both.
    ///
    /// # Errors
    /// Tensors of different shapes.
    pub(crate) fn row_mean(&mut self, each: Tensor, counted: Tensor, name: &str) -> Result<Tensor> {
        let one = vec![1];
        let f32_map = |formula| Map::new(formula, DType::F32);
        let weighed = self.one(f32_map(input(0) * input(1)), &[each, counted], "rows.weighed")?;
        let sum = self.one(Reduce::to_suffix(one.clone(), DType::F32), &[weighed], "rows.sum")?;
        let count = self.one(Reduce::to_suffix(one, DType::F32), &[counted], "rows.count")?;
        let mean = f32_map(input(0) / input(1).max(constant(1.0)));
        let mean = self.one(mean, &[sum, count], name)?;
        self.keep_rows(RowMean { mean, each, counted });
        Ok(mean)
    }
}
