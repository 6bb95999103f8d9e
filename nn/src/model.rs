//! `Model`: a configured network whose weights are tensors of a graph.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tightrope_core::expr::input;
use tightrope_core::ops::{Attention, Embedding, LinearCrossEntropy, MatMul, Slice};
use tightrope_core::{Class, DType, Graph, Tensor, Type};

use crate::config::{Family, ModelConfig};
use crate::error::{Result, ensure};
use crate::layers::{Adapted, Norm, Pass, Weights};
use crate::lora::{self, Adapter, Lora, is_linear};
use crate::params::{Parameter, parameters};
use crate::{gpt2, llama};

/// Storage of weights and activations. Gradients of weights and arithmetic are f32 in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32 throughout.
    F32,
    /// bf16; the f32 master is the weight and its 16-bit remainder.
    BF16,
    /// f16, beside an f32 master.
    F16,
}

impl Precision {
    /// Storage of weights and activations.
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::BF16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    /// What is kept beside each weight, so that small updates aren't lost: the lower half of a bf16
    /// weight's f32 master, or the whole master of an f16 weight.
    pub const fn low(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::BF16 => Some(DType::I16),
            Self::F16 => Some(DType::F32),
        }
    }
}

/// What a pass over whole sequences reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Token ids, I32 (B, T).
    pub tokens: Tensor,
    /// Ids to predict, I32 (B, T); negative ones don't count.
    pub targets: Tensor,
    /// Positions 0..T, I32 (T); GPT-2 looks its position embedding up with them.
    pub positions: Tensor,
    /// Position of the first token, I32 (1); Llama's rotary angles count from it.
    pub start: Tensor,
    /// Seed (low, high), step and micro-step, U32 (4), for dropout; without it nothing is dropped.
    pub key: Option<Tensor>,
}

/// What a decoding pass reads.
#[derive(Clone, Copy, Debug)]
pub struct DecodeInputs {
    /// New token ids, I32 (B, S).
    pub tokens: Tensor,
    /// Their positions, I32 (S).
    pub positions: Tensor,
    /// Position of the first of them, I32 (1).
    pub start: Tensor,
}

/// Keys and values of one block's past positions, each (B, Tmax, key-value heads · D).
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    /// Keys, rotated where the family rotates them.
    pub keys: Tensor,
    /// Values.
    pub values: Tensor,
}

/// Sizes that trade memory for time and leave results as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Rows of logits held at a time; 0 for all.
    pub loss_chunk: usize,
    /// Queries in one tile of attention; 0 leaves the choice to the backend.
    pub attention_chunk: usize,
}

#[derive(Clone, Debug)]
enum Block {
    Gpt2(gpt2::Block),
    Llama(llama::Block),
}

/// A configured network whose weights are persistent tensors of a graph.
#[derive(Clone, Debug)]
pub struct Model {
    config: ModelConfig,
    precision: Precision,
    parameters: Vec<Parameter>,
    weights: Vec<Tensor>,
    /// Scales of the weights that are stored as codes.
    scales: Vec<Option<Tensor>>,
    /// What is trained in place of the parameters.
    adapters: Option<(Vec<Parameter>, Vec<Tensor>)>,
    wte: Tensor,
    wpe: Option<Tensor>,
    blocks: Vec<Block>,
    norm_f: Norm,
    head: Tensor,
}

impl Model {
    /// Declares the weights of a model in `graph`, one persistent tensor a parameter, named after it.
    ///
    /// # Errors
    /// As [`ModelConfig::check`].
    pub fn declare(graph: &mut Graph, config: &ModelConfig, precision: Precision) -> Result<Self> {
        Self::adapted(graph, config, precision, None)
    }

    /// As [`Model::declare`], with adapters beside frozen weights where `lora` is given.
    ///
    /// # Errors
    /// As [`ModelConfig::check`] and [`Lora::check`].
    pub fn adapted(
        graph: &mut Graph,
        config: &ModelConfig,
        precision: Precision,
        lora: Option<&Lora>,
    ) -> Result<Self> {
        config.check()?;
        let parameters = parameters(config);
        let (mut weights, mut scales) = (vec![], vec![]);
        for parameter in &parameters {
            let coded = lora.is_some_and(|lora| lora.coded) && is_linear(parameter);
            let class = if lora.is_some() { Class::Frozen } else { Class::Weight };
            let (name, dtype) = match coded {
                true => (format!("{}.codes", parameter.name), lora::CODE.dtype()),
                false => (parameter.name.clone(), precision.dtype()),
            };
            weights.push(graph.persistent(&name, Type::new(dtype, parameter.shape.clone()), class));
            scales.push(coded.then(|| {
                let ty = Type::new(DType::F32, [parameter.elements().div_ceil(lora::BLOCK)]);
                graph.persistent(&format!("{}.scales", parameter.name), ty, class)
            }));
        }
        let mut adapted: HashMap<&str, Vec<Adapted>> = HashMap::new();
        let adapters = match lora {
            None => None,
            Some(lora) => {
                lora.check(config)?;
                let (mut list, mut tensors) = (vec![], vec![]);
                for Adapter { layer, rows, parameters: own } in lora.adapters(config) {
                    let [a, b] = own.clone().map(|parameter| {
                        let ty = Type::new(precision.dtype(), parameter.shape);
                        graph.persistent(&parameter.name, ty, Class::Weight)
                    });
                    let (scale, dropout) = (lora.scale(), lora.dropout);
                    let beside = adapted.entry(parameters[layer].name.as_str()).or_default();
                    beside.push(Adapted { rows, a, b, scale, dropout });
                    list.extend(own);
                    tensors.extend([a, b]);
                }
                Some((list, tensors))
            }
        };
        let names = || parameters.iter().map(|parameter| parameter.name.as_str());
        let scaled = names().zip(&scales).filter_map(|(name, scales)| Some((name, (*scales)?)));
        let by_name = Weights {
            by_name: names().zip(weights.iter().copied()).collect(),
            scales: scaled.collect(),
            adapted,
            norm_eps: config.norm_eps,
        };
        let block = |index| match config.family {
            Family::Gpt2 => Block::Gpt2(gpt2::Block::new(&by_name, index)),
            Family::Llama => Block::Llama(llama::Block::new(&by_name, index)),
        };
        let wte = by_name.get("wte.weight");
        let wpe = (config.family == Family::Gpt2).then(|| by_name.get("wpe.weight"));
        let blocks = (0..config.layers).map(block).collect();
        let norm_f = by_name.norm("norm_f");
        let head = if config.tied { wte } else { by_name.get("lm_head.weight") };
        let config = config.clone();
        Ok(Self {
            config,
            precision,
            parameters,
            weights,
            scales,
            adapters,
            wte,
            wpe,
            blocks,
            norm_f,
            head,
        })
    }

    /// Declares what is kept beside each trained weight (see [`Precision::low`]), one persistent tensor a parameter;
    /// empty in f32.
    pub fn declare_low(&self, graph: &mut Graph) -> Vec<Tensor> {
        let Some(dtype) = self.precision.low() else { return vec![] };
        self.trained()
            .0
            .iter()
            .map(|parameter| {
                let ty = Type::new(dtype, parameter.shape.clone());
                graph.persistent(&format!("{}.low", parameter.name), ty, Class::Weight)
            })
            .collect()
    }

    /// Settings of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Storage of weights and activations.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Parameters, in the order of [`crate::parameters`].
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// One tensor a parameter, in the same order.
    pub fn weights(&self) -> &[Tensor] {
        &self.weights
    }

    /// The scales of each weight that is stored as codes, in the same order.
    pub(crate) fn scales(&self) -> &[Option<Tensor>] {
        &self.scales
    }

    /// What training changes, and one tensor for each: the adapters where there are any, else all parameters.
    pub fn trained(&self) -> (&[Parameter], &[Tensor]) {
        match &self.adapters {
            Some((parameters, tensors)) => (parameters, tensors),
            None => (&self.parameters, &self.weights),
        }
    }

    /// Whether the parameters are frozen, and adapters trained.
    pub fn is_frozen(&self) -> bool {
        self.adapters.is_some()
    }

    /// Appends the mean cross-entropy of the targets, f32 (1), in nats.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where a sequence is longer than the context, and errors of the graph where
    /// inputs have other types than [`Inputs`] says.
    pub fn loss(
        &self,
        graph: &mut Graph,
        inputs: &Inputs,
        options: &BuildOptions,
    ) -> Result<Tensor> {
        let x = self.sequence(graph, inputs, options)?;
        let rows = graph.ty(x).rows();
        let chunk = if options.loss_chunk == 0 { rows } else { options.loss_chunk.min(rows) };
        let op = LinearCrossEntropy { vocab: self.config.vocab, chunk: chunk.max(1) };
        Ok(graph.one(op, &[x, self.head, inputs.targets], "loss")?)
    }

    /// Appends the logits, f32 (B, T, padded vocabulary), whose padding means nothing. Training takes
    /// [`Model::loss`], which never holds them all.
    ///
    /// # Errors
    /// As [`Model::loss`].
    pub fn logits(
        &self,
        graph: &mut Graph,
        inputs: &Inputs,
        options: &BuildOptions,
    ) -> Result<Tensor> {
        let x = self.sequence(graph, inputs, options)?;
        self.project(graph, x)
    }

    /// Declares empty caches of `time` positions for `batch` sequences, one a block.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where `time` is longer than the context.
    pub fn caches(&self, graph: &mut Graph, batch: usize, time: usize) -> Result<Vec<Cache>> {
        self.fits_context(time)?;
        let columns = self.config.kv_heads * self.config.head_dim();
        let ty = Type::new(self.precision.dtype(), [batch, time, columns]);
        let mut held = |index: usize, part: &str| {
            graph.held(&format!("h.{index}.attn.{part}"), ty.clone(), Class::Activation)
        };
        Ok((0..self.config.layers)
            .map(|index| Cache { keys: held(index, "keys"), values: held(index, "values") })
            .collect())
    }

    /// Appends a pass over S new positions, whose keys and values join the caches, and gives the logits after
    /// the last of them, f32 (B, 1, padded vocabulary).
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where there isn't one cache a block, and errors of the graph where inputs
    /// have other types than [`DecodeInputs`] says or a cache is too short.
    pub fn decode(
        &self,
        graph: &mut Graph,
        inputs: &DecodeInputs,
        caches: &[Cache],
    ) -> Result<Tensor> {
        let layers = self.config.layers;
        ensure(caches.len() == layers, "caches", || {
            format!("{} caches for {layers} layers; declare them with `caches`", caches.len())
        })?;
        let DecodeInputs { tokens, positions, start } = *inputs;
        let pass = self.pass(start, None, 0, Some(caches));
        let x = self.hidden(graph, tokens, positions, &pass)?;
        let new = graph.ty(x).shape[1];
        let last = graph.one(Slice { axis: 1, start: new - 1, len: 1 }, &[x], "last")?;
        let last = self.norm_f.apply(graph, last, "norm_f")?;
        self.project(graph, last)
    }

    fn pass<'a>(
        &'a self,
        start: Tensor,
        key: Option<Tensor>,
        chunk: usize,
        caches: Option<&'a [Cache]>,
    ) -> Pass<'a> {
        let ModelConfig { heads, kv_heads, .. } = self.config;
        let attention = Attention { heads, kv_heads, head_dim: self.config.head_dim(), chunk };
        let dtype = self.precision.dtype();
        Pass { config: &self.config, dtype, start, key, attention, caches }
    }

    /// Normed values of the last block, (B, T, C).
    fn sequence(
        &self,
        graph: &mut Graph,
        inputs: &Inputs,
        options: &BuildOptions,
    ) -> Result<Tensor> {
        let pass = self.pass(inputs.start, inputs.key, options.attention_chunk, None);
        let x = self.hidden(graph, inputs.tokens, inputs.positions, &pass)?;
        self.norm_f.apply(graph, x, "norm_f")
    }

    /// Values of the last block, (B, T, C).
    fn hidden(
        &self,
        graph: &mut Graph,
        tokens: Tensor,
        positions: Tensor,
        pass: &Pass<'_>,
    ) -> Result<Tensor> {
        let shape = graph.ty(tokens).shape.clone();
        ensure(shape.len() == 2 && !shape.contains(&0), "tokens", || {
            format!("must be (B, T) with at least one token, are {shape:?}")
        })?;
        self.fits_context(shape[1])?;
        let mut x = self.embed(graph, tokens, positions, pass)?;
        for (index, block) in self.blocks.iter().enumerate() {
            let scope = format!("h.{index}");
            let forward = |graph: &mut Graph| match block {
                Block::Gpt2(block) => block.forward(graph, pass, x),
                Block::Llama(block) => block.forward(graph, pass, x),
            };
            x = graph.in_block(index, |graph| graph.scope(&scope, forward))?;
        }
        Ok(x)
    }

    fn embed(
        &self,
        graph: &mut Graph,
        tokens: Tensor,
        positions: Tensor,
        pass: &Pass<'_>,
    ) -> Result<Tensor> {
        let token = graph.one(Embedding, &[self.wte, tokens], "wte")?;
        let Some(wpe) = self.wpe else {
            let formula = pass.dropped(graph, input(0));
            if formula == input(0) {
                return Ok(token);
            }
            return pass.map(graph, formula, &[token], "embedding");
        };
        let time = graph.ty(tokens).last();
        let found = graph.ty(positions).clone();
        ensure(found.shape == [time], "positions", || {
            format!("must be one a position, i32[{time}], are {found}")
        })?;
        let position = graph.one(Embedding, &[wpe, positions], "wpe")?;
        let formula = pass.dropped(graph, input(0) + input(1));
        pass.map(graph, formula, &[token, position], "embedding")
    }

    fn project(&self, graph: &mut Graph, x: Tensor) -> Result<Tensor> {
        Ok(graph.one(MatMul::linear(false, DType::F32), &[x, self.head], "logits")?)
    }

    fn fits_context(&self, time: usize) -> Result<()> {
        let context = self.config.context;
        ensure(time <= context, "context", || {
            format!("a sequence of {time} tokens is longer than the model's context of {context}")
        })
    }
}
