//! The feed-forward layers of a block.

use tightrope_core::expr::input;
use tightrope_core::{Tensor, ops};

use super::{Activation, Layer, Linear};
use crate::error::Result;
use crate::params::Parameter;
use crate::pass::Pass;

/// down(activation(up(x))), or down(activation(gate(x)) · up(x)) with a gate (Shazeer 2020).
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    name: String,
    up: Up,
    activation: Activation,
    down: Linear,
}

/// What leads to the hidden channels.
#[derive(Clone, Debug, PartialEq)]
enum Up {
    Plain(Linear),
    Gated {
        gate: Box<Linear>,
        up: Box<Linear>,
    },
    /// Both in one layer: the gate's channels, then the others.
    Packed(Linear),
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
        let up = match gate {
            None => Up::Plain(up),
            Some(gate) => Up::Gated { gate: Box::new(gate), up: Box::new(up) },
        };
        Self { name: name.into(), up, activation, down }
    }

    /// With a gate, where `gate_up` makes the gate's channels and the others, packed in this order.
    pub fn packed(
        name: impl Into<String>,
        gate_up: Linear,
        activation: Activation,
        down: Linear,
    ) -> Self {
        Self { name: name.into(), up: Up::Packed(gate_up), activation, down }
    }
}

impl Layer for Mlp {
    fn parameters(&self) -> Vec<Parameter> {
        match &self.up {
            Up::Plain(up) | Up::Packed(up) => super::parameters([up as &dyn Layer, &self.down]),
            Up::Gated { gate, up } => super::parameters([&**gate as &dyn Layer, &**up, &self.down]),
        }
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let Self { name, up, activation, down } = self;
        let (gate, up) = match up {
            Up::Plain(up) => {
                let up = up.apply(pass, x)?;
                let active =
                    activation.apply(pass, up, &format!("{name}.{}", activation.name()))?;
                return down.apply(pass, active);
            }
            Up::Gated { gate, up } => (gate.apply(pass, x)?, up.apply(pass, x)?),
            Up::Packed(gate_up) => {
                let both = gate_up.apply(pass, x)?;
                let len = pass.ty(both).last() / 2;
                let axis = pass.shape(both).len() - 1;
                let mut half = |start, part: &str| {
                    pass.one(ops::Slice { axis, start, len }, &[both], &format!("{name}.{part}"))
                };
                (half(0, "gate")?, half(len, "up")?)
            }
        };
        let formula = activation.of(input(0)) * input(1);
        let active = format!("{name}.{}", gated_name(*activation));
        let active = pass.map(formula, &[gate, up], &active)?;
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
