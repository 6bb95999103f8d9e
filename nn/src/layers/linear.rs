//! Linear layers, with what adapters add to them.

use std::ops::Range;

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{Concat, Map, MatMul};
use tightrope_core::{DType, Tensor, Type};

use super::Layer;
use crate::error::Result;
use crate::params::{Init, Kind, Parameter};
use crate::pass::Pass;
use crate::weights::Adapter;

/// x·Wᵀ + b.   x (…, in) → (…, out)
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
}

impl Linear {
    /// A layer with a bias, which begins as `torch.nn.Linear` does.
    pub fn new(name: &str, inputs: usize, outputs: usize) -> Self {
        let init = Init::linear(inputs);
        let weight = Parameter::new(format!("{name}.weight"), &[outputs, inputs], init);
        let bias = Parameter::new(format!("{name}.bias"), &[outputs], init);
        Self::of(weight, Some(bias))
    }

    /// Of these parameters: a weight (out, in), and a bias (out) where there is one.
    pub fn of(weight: Parameter, bias: Option<Parameter>) -> Self {
        let bias = bias.map(|bias| bias.of_kind(Kind::Bias));
        Self { weight: weight.of_kind(Kind::Linear), bias }
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }

    /// With a weight that begins so.
    pub fn with_init(mut self, init: Init) -> Self {
        self.weight.init = init;
        self
    }

    /// As the layer that makes the model's output (see [`Kind::Head`]).
    pub fn as_head(self) -> Self {
        self.of_kind(Kind::Head)
    }

    /// With a weight of another kind.
    pub(super) fn of_kind(self, kind: Kind) -> Self {
        Self { weight: self.weight.of_kind(kind), ..self }
    }

    /// The weight, (out, in).
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }

    /// Appends it with its output in f32, as losses take scores.
    ///
    /// # Errors
    /// As [`Layer::apply`].
    pub fn scores(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        self.stored_in(pass, x, DType::F32)
    }

    fn stored_in(&self, pass: &mut Pass<'_>, x: Tensor, dtype: DType) -> Result<Tensor> {
        let name = self.weight.layer();
        let x = pass.activation(x, &format!("{name}.input"))?;
        let weight = pass.parameter(&self.weight.name)?;
        let mut inputs = vec![x, weight];
        if let Some(bias) = &self.bias {
            inputs.push(pass.parameter(&bias.name)?);
        }
        let op = MatMul::linear(self.bias.is_some(), dtype);
        let adapters = pass.adapters(&self.weight.name);
        if adapters.is_empty() {
            return pass.one(op, &inputs, name);
        }
        let base = pass.one(op, &inputs, &format!("{name}.base"))?;
        let delta = delta(adapters, pass, x, base, name)?;
        pass.one(Map::add(dtype), &[base, delta], name)
    }
}

impl Layer for Linear {
    fn parameters(&self) -> Vec<Parameter> {
        [&self.weight].into_iter().chain(&self.bias).cloned().collect()
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        self.stored_in(pass, x, pass.dtype())
    }
}

/// What all adapters add to `base`, zeros in columns that have none.
fn delta(
    adapters: &[Adapter],
    pass: &mut Pass<'_>,
    x: Tensor,
    base: Tensor,
    name: &str,
) -> Result<Tensor> {
    let shape = pass.shape(base).to_vec();
    let (axis, width) = (shape.len() - 1, pass.ty(base).last());
    let mut parts = vec![];
    let mut done = 0;
    let zeros = |pass: &mut Pass<'_>, columns: Range<usize>, parts: &mut Vec<Tensor>| {
        if !columns.is_empty() {
            let ty = Type::new(pass.dtype(), [&shape[..axis], &[columns.len()]].concat());
            let name = format!("{name}.{}.none", columns.start);
            parts.push(pass.one(Map::fill(0.0, &ty), &[], &name)?);
        }
        Result::Ok(())
    };
    for adapter in adapters {
        zeros(pass, done..adapter.rows.start, &mut parts)?;
        let whole = adapter.rows.len() == width;
        let name = if whole { name.to_owned() } else { format!("{name}.{}", adapter.rows.start) };
        parts.push(adapted(adapter, pass, x, &name)?);
        done = adapter.rows.end;
    }
    zeros(pass, done..width, &mut parts)?;
    match parts[..] {
        [whole] => Ok(whole),
        _ => pass.one(Concat { axis }, &parts, &format!("{name}.delta")),
    }
}

/// scale·dropout(x)·Aᵀ·Bᵀ.
fn adapted(adapter: &Adapter, pass: &mut Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    let kept = pass.dropped(adapter.dropout, input(0));
    let x = match kept == input(0) {
        true => x,
        false => pass.map(kept, &[x], &named("dropped"))?,
    };
    let matmul = MatMul::linear(false, pass.dtype());
    let low = pass.one(matmul.clone(), &[x, adapter.a], &named("low"))?;
    // Scaled where it's narrow.
    let low = match adapter.scale {
        1.0 => low,
        scale => pass.map(input(0) * constant(scale), &[low], &named("scaled"))?,
    };
    pass.one(matmul, &[low, adapter.b], &named("high"))
}
