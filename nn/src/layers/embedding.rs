//! A table whose rows are looked up.

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
        pass.one(ops::Embedding, &[table, ids], self.weight.layer())
    }
}
