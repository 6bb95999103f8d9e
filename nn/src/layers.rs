//! Layers that every family is made of.

use std::collections::HashMap;
use std::ops::Range;

use tightrope_core::expr::{constant, input, random};
use tightrope_core::ops::{
    Attention, CachedAttention, Concat, Dequantize, LayerNorm, Map, MatMul, RmsNorm,
};
use tightrope_core::{Class, DType, Expr, Graph, Tensor, Type};

use crate::config::ModelConfig;
use crate::error::Result;
use crate::lora;
use crate::model::Cache;

/// The tensors of a model's parameters by name.
pub(crate) struct Weights<'a> {
    pub by_name: HashMap<&'a str, Tensor>,
    /// Scales of the weights that are stored as codes.
    pub scales: HashMap<&'a str, Tensor>,
    /// Adapters, by the weight that they are beside.
    pub adapted: HashMap<&'a str, Vec<Adapted>>,
    pub norm_eps: f64,
}

impl Weights<'_> {
    pub fn get(&self, name: &str) -> Tensor {
        self.by_name[name]
    }

    pub fn linear(&self, name: &str) -> Linear {
        let name_of_weight = format!("{name}.weight");
        Linear {
            weight: self.get(&name_of_weight),
            scales: self.scales.get(name_of_weight.as_str()).copied(),
            bias: self.bias(name),
            adapted: self.adapted.get(name_of_weight.as_str()).cloned().unwrap_or_default(),
        }
    }

    pub fn norm(&self, name: &str) -> Norm {
        let gain = self.get(&format!("{name}.weight"));
        Norm { gain, bias: self.bias(name), eps: self.norm_eps }
    }

    fn bias(&self, name: &str) -> Option<Tensor> {
        self.by_name.get(format!("{name}.bias").as_str()).copied()
    }
}

/// The tensors of an adapter of some columns of a linear layer's output.
#[derive(Clone, Debug)]
pub(crate) struct Adapted {
    pub rows: Range<usize>,
    pub a: Tensor,
    pub b: Tensor,
    /// Factor on its product.
    pub scale: f64,
    /// Probability of dropping an element of its input.
    pub dropout: f64,
}

impl Adapted {
    /// scale·dropout(x)·Aᵀ·Bᵀ.
    fn apply(&self, graph: &mut Graph, pass: &Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
        let named = |part: &str| format!("{name}.{part}");
        let kept = pass.dropped_with(graph, self.dropout, input(0));
        let x = match kept == input(0) {
            true => x,
            false => pass.map(graph, kept, &[x], &named("dropped"))?,
        };
        let product = MatMul::linear(false, pass.dtype);
        let low = graph.one(product.clone(), &[x, self.a], &named("low"))?;
        // Scaled where it's narrow.
        let low = match self.scale {
            1.0 => low,
            scale => pass.map(graph, input(0) * constant(scale), &[low], &named("scaled"))?,
        };
        Ok(graph.one(product, &[low, self.b], &named("high"))?)
    }
}

/// x·Wᵀ, plus a bias where the model has one, plus what adapters add.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    weight: Tensor,
    /// Where the weight is codes.
    scales: Option<Tensor>,
    bias: Option<Tensor>,
    /// In the order of their rows.
    adapted: Vec<Adapted>,
}

impl Linear {
    pub fn apply(
        &self,
        graph: &mut Graph,
        pass: &Pass<'_>,
        x: Tensor,
        name: &str,
    ) -> Result<Tensor> {
        let weight = match self.scales {
            None => self.weight,
            Some(scales) => {
                let (block, code) = (lora::BLOCK, lora::CODE);
                let op = Dequantize { block, code, dtype: pass.dtype };
                let weight = graph.one(op, &[self.weight, scales], &format!("{name}.weight"))?;
                graph.info_mut(weight).class = Class::Frozen;
                weight
            }
        };
        let mut inputs = vec![x, weight];
        inputs.extend(self.bias);
        let op = MatMul::linear(self.bias.is_some(), graph.dtype(x));
        if self.adapted.is_empty() {
            return Ok(graph.one(op, &inputs, name)?);
        }
        let base = graph.one(op, &inputs, &format!("{name}.base"))?;
        let delta = self.delta(graph, pass, x, base, name)?;
        Ok(graph.one(Map::add(pass.dtype), &[base, delta], name)?)
    }

    /// What all adapters add to `base`, zeros in columns that have none.
    fn delta(
        &self,
        graph: &mut Graph,
        pass: &Pass<'_>,
        x: Tensor,
        base: Tensor,
        name: &str,
    ) -> Result<Tensor> {
        let shape = graph.ty(base).shape.clone();
        let (axis, width) = (shape.len() - 1, graph.ty(base).last());
        let mut parts = vec![];
        let mut done = 0;
        let zeros = |graph: &mut Graph, columns: Range<usize>, parts: &mut Vec<Tensor>| {
            if !columns.is_empty() {
                let ty = Type::new(pass.dtype, [&shape[..axis], &[columns.len()]].concat());
                let name = format!("{name}.{}.none", columns.start);
                parts.push(graph.one(Map::fill(0.0, &ty), &[], &name)?);
            }
            Result::Ok(())
        };
        for adapted in &self.adapted {
            zeros(graph, done..adapted.rows.start, &mut parts)?;
            let whole = adapted.rows.len() == width;
            let name =
                if whole { name.to_owned() } else { format!("{name}.{}", adapted.rows.start) };
            parts.push(adapted.apply(graph, pass, x, &name)?);
            done = adapted.rows.end;
        }
        zeros(graph, done..width, &mut parts)?;
        match parts[..] {
            [whole] => Ok(whole),
            _ => Ok(graph.one(Concat { axis }, &parts, &format!("{name}.delta"))?),
        }
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
        self.dropped_with(graph, self.config.dropout, formula)
    }

    /// As [`Pass::dropped`], with probability `p`.
    fn dropped_with(&self, graph: &mut Graph, p: f64, formula: Expr) -> Expr {
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
