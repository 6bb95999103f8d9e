//! Dropout (Srivastava et al. 2014).

use tightrope_core::Tensor;
use tightrope_core::expr::input;

use super::Layer;
use crate::error::Result;
use crate::params::Parameter;
use crate::pass::Pass;

/// Zeroes elements with probability `p` in training, and scales the rest by 1/(1 − p).
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    name: String,
    p: f64,
}

impl Dropout {
    /// Dropout with this probability, at least 0 and below 1.
    pub fn new(name: impl Into<String>, p: f64) -> Self {
        Self { name: name.into(), p }
    }
}

impl Layer for Dropout {
    fn parameters(&self) -> Vec<Parameter> {
        vec![]
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let kept = pass.dropped(self.p, input(0));
        if kept == input(0) { Ok(x) } else { pass.map(kept, &[x], &self.name) }
    }
}
