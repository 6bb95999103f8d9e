//! A transformer block.

use tightrope_core::Tensor;

use super::{Attention, Layer, Mlp};
use crate::error::Result;
use crate::params::Parameter;
use crate::pass::Pass;

/// A transformer block with norms before its branches (Xiong et al. 2020), after them, or both.   x (B, T, C) → the same shape
///
/// ```text
/// x += dropout(after_1(attention(norm_1(x))))
/// x += dropout(after_2(mlp(norm_2(x))))
/// ```
#[derive(Debug)]
pub struct Block {
    /// Name, which its own outputs begin with.
    pub name: String,
    /// Before attention.
    pub norm_1: Option<Box<dyn Layer>>,
    /// Between positions.
    pub attention: Attention,
    /// After attention.
    pub after_1: Option<Box<dyn Layer>>,
    /// Before the feed-forward layers.
    pub norm_2: Option<Box<dyn Layer>>,
    /// Within each position.
    pub mlp: Mlp,
    /// After the feed-forward layers.
    pub after_2: Option<Box<dyn Layer>>,
    /// Probability of zeroing an element of what a branch adds, in training.
    pub dropout: f64,
}

impl Block {
    /// With a norm before each branch.
    pub fn new(
        name: impl Into<String>,
        [norm_1, norm_2]: [Box<dyn Layer>; 2],
        attention: Attention,
        mlp: Mlp,
        dropout: f64,
    ) -> Self {
        let (norm_1, norm_2) = (Some(norm_1), Some(norm_2));
        Self {
            name: name.into(),
            norm_1,
            attention,
            after_1: None,
            norm_2,
            mlp,
            after_2: None,
            dropout,
        }
    }
}

/// What a branch adds to x.
fn branch(
    pass: &mut Pass<'_>,
    x: Tensor,
    before: Option<&dyn Layer>,
    layer: &dyn Layer,
    after: Option<&dyn Layer>,
) -> Result<Tensor> {
    let x = before.map_or(Ok(x), |norm| norm.apply(pass, x))?;
    let made = layer.apply(pass, x)?;
    after.map_or(Ok(made), |norm| norm.apply(pass, made))
}

impl Layer for Block {
    fn parameters(&self) -> Vec<Parameter> {
        let Self { norm_1, attention, after_1, norm_2, mlp, after_2, .. } = self;
        let norm = |norm: &'_ Option<Box<dyn Layer>>| -> Vec<Parameter> {
            norm.iter().flat_map(|norm| norm.parameters()).collect()
        };
        let first = [norm(norm_1), attention.parameters(), norm(after_1)];
        let second = [norm(norm_2), mlp.parameters(), norm(after_2)];
        first.into_iter().chain(second).flatten().collect()
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let Self { name, norm_1, attention, after_1, norm_2, mlp, after_2, dropout } = self;
        let added = branch(pass, x, norm_1.as_deref(), attention, after_1.as_deref())?;
        let x = pass.residual(x, added, *dropout, &format!("{name}.attn.residual"))?;
        let added = branch(pass, x, norm_2.as_deref(), mlp, after_2.as_deref())?;
        pass.residual(x, added, *dropout, &format!("{name}.mlp.residual"))
    }
}
