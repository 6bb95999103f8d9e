//! A transformer block.

use tightrope_core::Tensor;

use super::{Attention, Layer, Mlp};
use crate::error::Result;
use crate::params::Parameter;
use crate::pass::Pass;

/// A pre-norm transformer block (Xiong et al. 2020).   x (B, T, C) → the same shape
///
/// ```text
/// x += dropout(attention(norm_1(x)))
/// x += dropout(mlp(norm_2(x)))
/// ```
#[derive(Debug)]
pub struct Block {
    /// Name, which its own outputs begin with.
    pub name: String,
    /// Before attention.
    pub norm_1: Box<dyn Layer>,
    /// Between positions.
    pub attention: Attention,
    /// Before the feed-forward layers.
    pub norm_2: Box<dyn Layer>,
    /// Within each position.
    pub mlp: Mlp,
    /// Probability of zeroing an element of what a branch adds, in training.
    pub dropout: f64,
}

impl Layer for Block {
    fn parameters(&self) -> Vec<Parameter> {
        super::parameters([&*self.norm_1, &self.attention, &*self.norm_2, &self.mlp])
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let Self { name, norm_1, attention, norm_2, mlp, dropout } = self;
        let normed = norm_1.apply(pass, x)?;
        let branch = attention.apply(pass, normed)?;
        let x = pass.residual(x, branch, *dropout, &format!("{name}.attn.residual"))?;
        let normed = norm_2.apply(pass, x)?;
        let branch = mlp.apply(pass, normed)?;
        pass.residual(x, branch, *dropout, &format!("{name}.mlp.residual"))
    }
}
