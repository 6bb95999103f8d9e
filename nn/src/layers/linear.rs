//! Linear layers, with what adapters add to them.

use std::ops::Range;

use tightrope_core::expr::{Binary, Expr, Unary, constant, input};
use tightrope_core::ops::{Concat, Map, MatMul, Reduce, Slice};
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
        let delta = delta(adapters, pass, (x, weight), base, name)?;
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
    (x, weight): (Tensor, Tensor),
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
        parts.push(adapted(adapter, pass, (x, weight), &name)?);
        done = adapter.rows.end;
    }
    zeros(pass, done..width, &mut parts)?;
    match parts[..] {
        [whole] => Ok(whole),
        _ => pass.one(Concat { axis }, &parts, &format!("{name}.delta")),
    }
}

/// scale·dropout(x)·Aᵀ·Bᵀ; with learned lengths of rows, (m/n − 1)·dropout(x)·Wᵀ more and m/n times as much.
fn adapted(
    adapter: &Adapter,
    pass: &mut Pass<'_>,
    (x, weight): (Tensor, Tensor),
    name: &str,
) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    let x = dropped(adapter, pass, x, name)?;
    let low = low(adapter, pass, x, name)?;
    let matmul = MatMul::linear(false, pass.dtype());
    let high = pass.one(matmul.clone(), &[low, adapter.b], &named("high"))?;
    let Some(magnitude) = adapter.magnitude else { return Ok(high) };
    let rows = &adapter.rows;
    let weight = match rows.len() == pass.shape(weight)[0] {
        true => weight,
        false => {
            let slice = Slice { axis: 0, start: rows.start, len: rows.len() };
            pass.one(slice, &[weight], &named("weight"))?
        }
    };
    let factor = length_factor(adapter, pass, (weight, magnitude), name)?;
    let base = pass.one(matmul, &[x, weight], &named("again"))?;
    let more = (input(2) - constant(1.0)) * input(0) + input(2) * input(1);
    pass.map(more, &[base, high, factor], &named("lengthened"))
}

/// Learned lengths of the rows of W + scale·B·A over the lengths that they have, f32 (rows). The latter are a constant to the gradient (Liu et al. 2024,
/// section 4.3).
fn length_factor(
    adapter: &Adapter,
    pass: &mut Pass<'_>,
    (weight, magnitude): (Tensor, Tensor),
    name: &str,
) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    let update = MatMul::new(DType::F32);
    let update = pass.one(update, &[adapter.b, adapter.a], &named("update"))?;
    let sum = input(0) + input(1) * constant(adapter.scale);
    let squares = Map::new(sum.clone() * sum, DType::F32);
    let squares = pass.one(squares, &[weight, update], &named("squares"))?;
    let squares = pass.one(Reduce::last(DType::F32), &[squares], &named("lengths"))?;
    let factor = Map::new(input(0) / without_gradient(input(1).sqrt()), DType::F32);
    pass.one(factor, &[magnitude, squares], &named("factor"))
}

/// An f32 as it is, of which no gradient is made: both of its halves are steps.
fn without_gradient(x: Expr) -> Expr {
    x.clone().unary(Unary::HighHalf).binary(Binary::JoinHalves, x.unary(Unary::LowHalf))
}

fn dropped(adapter: &Adapter, pass: &mut Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
    let kept = pass.dropped(adapter.dropout, input(0));
    match kept == input(0) {
        true => Ok(x),
        false => pass.map(kept, &[x], &format!("{name}.dropped")),
    }
}

/// scale·x·Aᵀ: scaled where it's narrow.
fn low(adapter: &Adapter, pass: &mut Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    let low = MatMul::linear(false, pass.dtype());
    let low = pass.one(low, &[x, adapter.a], &named("low"))?;
    match adapter.scale {
        1.0 => Ok(low),
        scale => pass.map(input(0) * constant(scale), &[low], &named("scaled")),
    }
}

/// Columns that matmuls take at a time.
pub(super) const TILE: usize = 32;

/// Normed values and the head that logits are their matmul of, for losses that read both. Where the head has an adapter, it's columns of both: of
/// scale·dropout(x)·Aᵀ, and of B.
///
/// # Errors
/// A head that the model doesn't list.
pub fn adapted_head(pass: &mut Pass<'_>, x: Tensor, head: &Parameter) -> Result<(Tensor, Tensor)> {
    let weight = pass.parameter(&head.name)?;
    let [adapter] = pass.adapters(&head.name) else { return Ok((x, weight)) };
    let name = head.layer();
    let dropped = dropped(adapter, pass, x, name)?;
    let low = low(adapter, pass, dropped, name)?;
    let (rows, rank) = (pass.shape(weight)[0], pass.ty(low).last());
    // Columns of zeros fill a tile.
    let width = pass.ty(x).last() + rank;
    let more = width.next_multiple_of(TILE) - width;
    let zeros = |pass: &mut Pass<'_>, shape: Vec<usize>, part: &str| {
        let ty = Type::new(pass.dtype(), shape);
        pass.one(Map::fill(0.0, &ty), &[], &format!("{name}.{part}"))
    };
    let mut high = adapter.b;
    if adapter.rows.len() < rows {
        let padding = zeros(pass, vec![rows - adapter.rows.len(), rank], "padding")?;
        high = pass.one(Concat { axis: 0 }, &[high, padding], &format!("{name}.rows"))?;
    }
    let (mut columns, mut of_head) = (vec![x, low], vec![weight, high]);
    let mut shape = pass.shape(x).to_vec();
    let axis = shape.len() - 1;
    if more > 0 {
        shape[axis] = more;
        columns.push(zeros(pass, shape, "zeros")?);
        of_head.push(zeros(pass, vec![rows, more], "zeros.rows")?);
    }
    let x = pass.one(Concat { axis }, &columns, &format!("{name}.input"))?;
    let head = pass.one(Concat { axis: 1 }, &of_head, &format!("{name}.adapted"))?;
    Ok((x, head))
}
