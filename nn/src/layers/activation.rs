//! Activation functions by name.

use serde::{Deserialize, Serialize};
use tightrope_core::expr::{constant, input};
use tightrope_core::{Expr, Tensor, activation};

use crate::error::Result;
use crate::pass::Pass;

/// An activation function, of one input or of a gate and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x·Φ(x) (Hendrycks and Gimpel 2016).
    Gelu,
    /// GELU in its tanh form, as GPT-2's.
    GeluTanh,
    /// x·sigmoid(x).
    Silu,
}

impl Activation {
    /// Lower-case name, as tensors are named.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Gelu | Self::GeluTanh => "gelu",
            Self::Silu => "silu",
        }
    }

    /// Its formula.
    pub fn of(self, x: Expr) -> Expr {
        match self {
            Self::Relu => x.max(constant(0.0)),
            Self::Gelu => activation::gelu(x),
            Self::GeluTanh => activation::gelu_tanh(x),
            Self::Silu => activation::silu(x),
        }
    }

    /// Appends it, element by element.
    ///
    /// # Errors
    /// A tensor that holds no numbers.
    pub fn apply(self, pass: &mut Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
        pass.map(self.of(input(0)), &[x], name)
    }
}
