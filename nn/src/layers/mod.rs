//! Layers, as values: each says its own parameters and applies itself in a [`Pass`].
//!
//! | layer | computes |
//! |---|---|
//! | [`Linear`] | x·Wᵀ + b, plus what adapters add |
//! | [`Embedding`] | rows of a table |
//! | [`Conv2d`] | a convolution, as patches and a linear layer |
//! | [`LayerNorm`], [`RmsNorm`] | x brought to one scale |
//! | [`Attention`] | projections and attention between positions, with a cache where a pass has one |
//! | [`Mlp`] | up, an [`Activation`], down; gated where it has a gate |
//! | [`Block`] | a transformer block of these |
//! | [`Dropout`] | x with some elements zeroed |
//!
//! Losses are functions: [`linear_cross_entropy`], [`biased_linear_cross_entropy`], [`capped_linear_cross_entropy`],
//! [`cross_entropy`], [`mean_squared_error`], [`preference`], [`linear_distillation`]. So is [`mean`].
//!
//! A layer is named where it's made, and its parameters and outputs are named after it. Names have to differ within a
//! model.

mod activation;
mod attention;
mod block;
mod conv;
mod distillation;
mod dropout;
mod embedding;
mod linear;
mod losses;
mod mlp;
mod norm;
mod pooling;
mod preference;

use std::fmt::Debug;

use tightrope_core::Tensor;

use crate::error::Result;
use crate::params::Parameter;
use crate::pass::Pass;

pub use crate::pass::AttentionKind;
pub use activation::Activation;
pub use attention::{Attention, Normed, documents};
pub use block::Block;
pub use conv::Conv2d;
pub use distillation::{Distillation, Projected, linear_distillation};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::{Linear, adapted_head};
pub use losses::{
    biased_linear_cross_entropy, capped_linear_cross_entropy, cross_entropy, linear_cross_entropy,
    mean_squared_error,
};
pub use mlp::Mlp;
pub use norm::{LayerNorm, RmsNorm};
pub use pooling::mean;
pub use preference::preference;

/// A part of a model with one input and one output.
pub trait Layer: Debug + Send + Sync {
    /// Its parameters, in the order in which it reads them.
    fn parameters(&self) -> Vec<Parameter>;

    /// Appends it to a pass.
    ///
    /// # Errors
    /// An input of another shape than it takes, and parameters that the model doesn't list.
    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor>;
}

/// The parameters of these layers, in order.
pub fn parameters<'a>(layers: impl IntoIterator<Item = &'a dyn Layer>) -> Vec<Parameter> {
    layers.into_iter().flat_map(Layer::parameters).collect()
}
