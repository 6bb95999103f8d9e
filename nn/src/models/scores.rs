//! Scores of classes: loss and output of classifiers, of images and of texts.

use tightrope_core::Tensor;
use tightrope_core::ops::Reshape;

use crate::error::Result;
use crate::layers;
use crate::pass::Pass;

/// Name of the input of classes, I32; negative ones don't count.
pub const LABELS: &str = "labels";

/// Cross-entropy of `scores` (B, 1, classes) against the labels.
pub(super) fn loss(pass: &mut Pass<'_>, scores: Tensor) -> Result<Tensor> {
    let labels = pass.input(LABELS)?;
    layers::cross_entropy(pass, scores, labels)
}

/// `scores` as logits (B, classes).
pub(super) fn logits(pass: &mut Pass<'_>, scores: Tensor, classes: usize) -> Result<Tensor> {
    let shape = vec![pass.shape(scores)[0], classes];
    pass.one(Reshape { shape }, &[scores], "logits")
}
