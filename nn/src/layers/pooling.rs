//! Means over an axis.

use tightrope_core::Tensor;
use tightrope_core::ops::{Axes, Reduce};

use crate::error::Result;
use crate::pass::Pass;

/// Mean of `x` over one axis, which the output lacks.
///
/// # Errors
/// [`crate::Error::Graph`] where `x` has no such axis.
pub fn mean(pass: &mut Pass<'_>, x: Tensor, axis: usize, name: &str) -> Result<Tensor> {
    let extent = pass.shape(x).get(axis).copied().unwrap_or(1);
    let (scale, dtype) = (1.0 / extent as f64, pass.dtype());
    pass.one(Reduce { axes: Axes::Axis(axis), scale, dtype }, &[x], name)
}
