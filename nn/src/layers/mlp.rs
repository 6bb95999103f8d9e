//! The feed-forward layers of a block.

use tightrope_core::Tensor;
use tightrope_core::expr::input;

use super::{Activation, Layer, Linear};
use crate::error::Result;
use crate::params::Parameter;
use crate::pass::Pass;

/// down(activation(up(x))), or down(activation(gate(x)) · up(x)) with a gate (Shazeer 2020).
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    name: String,
    gate: Option<Linear>,
    up: Linear,
    activation: Activation,
    down: Linear,
}

impl Mlp {
    /// From `channels` to `hidden` and back, without a gate.
    pub fn new(name: &str, channels: usize, hidden: usize, activation: Activation) -> Self {
        let up = Linear::new(&format!("{name}.up"), channels, hidden);
        let down = Linear::new(&format!("{name}.down"), hidden, channels);
        Self::of(name, None, up, activation, down)
    }

    /// Of these layers.
    pub fn of(
        name: impl Into<String>,
        gate: Option<Linear>,
        up: Linear,
        activation: Activation,
        down: Linear,
    ) -> Self {
        Self { name: name.into(), gate, up, activation, down }
    }
}

impl Layer for Mlp {
    fn parameters(&self) -> Vec<Parameter> {
        let layers = self.gate.iter().chain([&self.up, &self.down]);
        super::parameters(layers.map(|layer| layer as &dyn Layer))
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let Self { name, gate, up, activation, down } = self;
        let active = match gate {
            None => {
                let up = up.apply(pass, x)?;
                activation.apply(pass, up, &format!("{name}.{}", activation.name()))?
            }
            Some(gate) => {
                let (gate, up) = (gate.apply(pass, x)?, up.apply(pass, x)?);
                let formula = activation.of(input(0)) * input(1);
                pass.map(formula, &[gate, up], &format!("{name}.{}", gated_name(*activation)))?
            }
        };
        down.apply(pass, active)
    }
}

/// Name of a gated activation's output.
const fn gated_name(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu => "reglu",
        Activation::Gelu | Activation::GeluTanh => "geglu",
        Activation::Silu => "swiglu",
    }
}
