//! Layers that every family is made of.

use std::collections::HashMap;

use tightrope_core::expr::{constant, input, random};
use tightrope_core::ops::{Attention, CachedAttention, LayerNorm, Map, MatMul, RmsNorm};
use tightrope_core::{DType, Expr, Graph, Tensor};

use crate::config::ModelConfig;
use crate::error::Result;
use crate::model::Cache;

/// The tensors of a model's parameters by name.
pub(crate) struct Weights<'a> {
    pub by_name: HashMap<&'a str, Tensor>,
    pub norm_eps: f64,
}

impl Weights<'_> {
    pub fn get(&self, name: &str) -> Tensor {
        self.by_name[name]
    }

    pub fn linear(&self, name: &str) -> Linear {
        Linear { weight: self.get(&format!("{name}.weight")), bias: self.bias(name) }
    }

    pub fn norm(&self, name: &str) -> Norm {
        let gain = self.get(&format!("{name}.weight"));
        Norm { gain, bias: self.bias(name), eps: self.norm_eps }
    }

    fn bias(&self, name: &str) -> Option<Tensor> {
        self.by_name.get(format!("{name}.bias").as_str()).copied()
    }
}

/// x·Wᵀ, plus a bias where the model has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    pub fn apply(&self, graph: &mut Graph, x: Tensor, name: &str) -> Result<Tensor> {
        let mut inputs = vec![x, self.weight];
        inputs.extend(self.bias);
        let op = MatMul::linear(self.bias.is_some(), graph.dtype(x));
        Ok(graph.one(op, &inputs, name)?)
    }
}

/// Layer norm where the model has a bias, else RMS norm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    gain: Tensor,
    bias: Option<Tensor>,
    eps: f64,
}

impl Norm {
    pub fn apply(&self, graph: &mut Graph, x: Tensor, name: &str) -> Result<Tensor> {
        let outputs = match self.bias {
            Some(bias) => graph.push(LayerNorm { eps: self.eps }, &[x, self.gain, bias], name)?,
            None => graph.push(RmsNorm { eps: self.eps }, &[x, self.gain], name)?,
        };
        Ok(outputs[0])
    }
}

/// What the blocks of one forward pass share.
pub(crate) struct Pass<'a> {
    pub config: &'a ModelConfig,
    /// Storage of activations.
    pub dtype: DType,
    /// Position of the first token, I32 (1).
    pub start: Tensor,
    /// Key for dropout, U32 (4); without it nothing is dropped.
    pub key: Option<Tensor>,
    pub attention: Attention,
    /// One a block, in a pass that appends to them.
    pub caches: Option<&'a [Cache]>,
}

impl Pass<'_> {
    /// Causal attention of block `index` over packed projections.
    pub fn attend(&self, graph: &mut Graph, index: usize, qkv: Tensor) -> Result<Tensor> {
        let attention = self.attention.clone();
        let outputs = match self.caches {
            None => graph.push(attention, &[qkv], "attn.out")?,
            Some(caches) => {
                let Cache { keys, values } = caches[index];
                let inputs = [qkv, keys, values, self.start];
                graph.push(CachedAttention(attention), &inputs, "attn.out")?
            }
        };
        Ok(outputs[0])
    }

    /// What a block's branch adds to the residual stream.
    pub fn residual(
        &self,
        graph: &mut Graph,
        x: Tensor,
        branch: Tensor,
        name: &str,
    ) -> Result<Tensor> {
        let kept = self.dropped(graph, input(1));
        self.map(graph, input(0) + kept, &[x, branch], name)
    }

    /// `formula` with dropout, where this pass has any (Srivastava et al. 2014).
    pub fn dropped(&self, graph: &mut Graph, formula: Expr) -> Expr {
        let p = self.config.dropout;
        if self.key.is_none() || p == 0.0 {
            return formula;
        }
        let dropped = random(graph.new_stream()).less(constant(p));
        dropped.select(constant(0.0), formula * constant(1.0 / (1.0 - p)))
    }

    /// `formula` over `inputs`, stored as activations are.
    pub fn map(
        &self,
        graph: &mut Graph,
        formula: Expr,
        inputs: &[Tensor],
        name: &str,
    ) -> Result<Tensor> {
        let map = Map::new(formula, self.dtype);
        let mut inputs = inputs.to_vec();
        inputs.extend(self.key.filter(|_| map.is_random()));
        Ok(graph.one(map, &inputs, name)?)
    }
}
