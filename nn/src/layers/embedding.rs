//! A table whose rows are looked up.

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::MatMul;
use tightrope_core::{Tensor, ops};

use super::Layer;
use crate::error::Result;
use crate::params::{Init, Kind, Parameter};
use crate::pass::Pass;

/// Row `ids[i]` of a table for every id.   ids I32 (…) → (…, columns)
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    weight: Parameter,
}

impl Embedding {
    /// A table of `rows`, which begins with the standard normal distribution as `torch.nn.Embedding` does.
    pub fn new(name: &str, rows: usize, columns: usize) -> Self {
        let weight = Init::Normal { std: 1.0 };
        Self::of(Parameter::new(format!("{name}.weight"), &[rows, columns], weight))
    }

    /// Over the rows of this parameter.
    pub fn of(weight: Parameter) -> Self {
        Self { weight: weight.of_kind(Kind::Table) }
    }

    /// The table.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
}

impl Layer for Embedding {
    fn parameters(&self) -> Vec<Parameter> {
        vec![self.weight.clone()]
    }

    fn apply(&self, pass: &mut Pass<'_>, ids: Tensor) -> Result<Tensor> {
        let table = pass.parameter(&self.weight.name)?;
        let name = self.weight.layer();
        let [adapter] = pass.adapters(&self.weight.name) else {
            return pass.one(ops::Embedding, &[table, ids], name);
        };
        let base = pass.one(ops::Embedding, &[table, ids], &format!("{name}.base"))?;
        let low = pass.one(ops::Embedding, &[adapter.a, ids], &format!("{name}.low"))?;
        let matmul = MatMul::linear(false, pass.dtype());
        let high = pass.one(matmul, &[low, adapter.b], &format!("{name}.high"))?;
        pass.map(input(0) + input(1) * constant(adapter.scale), &[base, high], name)
    }
}
