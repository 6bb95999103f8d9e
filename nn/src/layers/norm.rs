//! Norms over the last axis.

use tightrope_core::expr::{constant, input};
use tightrope_core::{DType, Tensor, ops};

use super::Layer;
use crate::error::Result;
use crate::params::{Init, Kind, Parameter};
use crate::pass::Pass;

/// Term in a norm's denominator that PyTorch takes.
const EPS: f64 = 1e-5;

/// Layer norm with a gain and a bias (Ba et al. 2016).   x (…, C) → the same shape
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    gain: Parameter,
    bias: Parameter,
    eps: f64,
}

impl LayerNorm {
    /// A norm over so many channels, whose gain begins with ones and whose bias with zeros.
    pub fn new(name: &str, channels: usize) -> Self {
        let parameter = |part, init| Parameter::new(format!("{name}.{part}"), &[channels], init);
        Self::of(parameter("weight", Init::Ones), parameter("bias", Init::Zeros), EPS)
    }

    /// Of these parameters, both (C), with `eps` added to the variance.
    pub fn of(gain: Parameter, bias: Parameter, eps: f64) -> Self {
        Self { gain: gain.of_kind(Kind::Gain), bias: bias.of_kind(Kind::Bias), eps }
    }
}

impl Layer for LayerNorm {
    fn parameters(&self) -> Vec<Parameter> {
        vec![self.gain.clone(), self.bias.clone()]
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let (gain, bias) = (pass.parameter(&self.gain.name)?, pass.parameter(&self.bias.name)?);
        let op = ops::LayerNorm { eps: self.eps };
        Ok(pass.push(op, &[x, gain, bias], self.gain.layer())?[0])
    }
}

/// Root-mean-square norm with a gain (Zhang and Sennrich 2019).   x (…, C) → the same shape
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    gain: Parameter,
    eps: f64,
    offset: f64,
}

impl RmsNorm {
    /// A norm over so many channels, whose gain begins with ones.
    pub fn new(name: &str, channels: usize) -> Self {
        Self::of(Parameter::new(format!("{name}.weight"), &[channels], Init::Ones), EPS)
    }

    /// Of this gain, (C), with `eps` added to the mean square.
    pub fn of(gain: Parameter, eps: f64) -> Self {
        Self { gain: gain.of_kind(Kind::Gain), eps, offset: 0.0 }
    }

    /// With this number added to the gain, as Gemma's norms add 1.
    pub fn with_offset(self, offset: f64) -> Self {
        Self { offset, ..self }
    }
}

impl Layer for RmsNorm {
    fn parameters(&self) -> Vec<Parameter> {
        vec![self.gain.clone()]
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let mut gain = pass.parameter(&self.gain.name)?;
        if self.offset != 0.0 {
            // In f32, or a gain of 16 bits would lose digits next to the offset.
            let sum = ops::Map::new(input(0) + constant(self.offset), DType::F32);
            gain = pass.one(sum, &[gain], &format!("{}.gain", self.gain.layer()))?;
        }
        let op = ops::RmsNorm { eps: self.eps };
        Ok(pass.push(op, &[x, gain], self.gain.layer())?[0])
    }
}
