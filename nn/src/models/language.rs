//! Causal language models: embeddings, blocks, a norm and a head. Families differ in the layers that they put there.

use std::any::Any;
use std::sync::Arc;

use tightrope_core::expr::input;
use tightrope_core::ops::{MatMul, Slice};
use tightrope_core::{DType, Tensor};

use super::config::{Family, ModelConfig};
use super::parts::Parts;
use super::{gpt2, llama};
use crate::error::{Result, ensure};
use crate::inputs::{Input, POSITIONS, START, TARGETS, TOKENS};
use crate::layers::{self, Layer};
use crate::model::{Decoder, Model};
use crate::params::Parameter;
use crate::pass::Pass;

/// A GPT-2 or a Llama, for sequences of one length.
#[derive(Debug)]
pub struct LanguageModel {
    config: ModelConfig,
    seq_len: usize,
    parts: Parts,
}

impl LanguageModel {
    /// The model of these settings, trained on sequences of `seq_len` tokens.
    ///
    /// # Errors
    /// As [`ModelConfig::check`], and [`crate::Error::Setting`] where a sequence is empty or longer than the context.
    pub fn new(config: &ModelConfig, seq_len: usize) -> Result<Self> {
        config.check()?;
        ensure(seq_len > 0, TOKENS, || "a sequence has at least one token".to_owned())?;
        fits_context(config, seq_len)?;
        Ok(Self { config: config.clone(), seq_len, parts: parts(config) })
    }

    /// `model`, where it is a language model.
    pub fn of(model: &dyn Model) -> Option<&Self> {
        (model as &dyn Any).downcast_ref()
    }

    /// Its settings.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Tokens of a sequence, T.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    fn head(&self) -> &Parameter {
        self.parts.head.as_ref().unwrap_or(self.parts.wte.weight())
    }

    /// Values of the last block, (B, T, C).
    fn hidden(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = self.embed(pass)?;
        for (index, block) in self.parts.blocks.iter().enumerate() {
            x = pass.block(index, |pass| block.apply(pass, x))?;
        }
        Ok(x)
    }

    fn embed(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let tokens = pass.input(TOKENS)?;
        let token = self.parts.wte.apply(pass, tokens)?;
        let Some(wpe) = &self.parts.wpe else {
            let formula = pass.dropped(self.config.dropout, input(0));
            if formula == input(0) {
                return Ok(token);
            }
            return pass.map(formula, &[token], "embedding");
        };
        let positions = pass.input(POSITIONS)?;
        let position = wpe.apply(pass, positions)?;
        let formula = pass.dropped(self.config.dropout, input(0) + input(1));
        pass.map(formula, &[token, position], "embedding")
    }

    /// Logits (B, T, padded vocabulary) of normed values, whose padding means nothing.
    fn project(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let head = pass.parameter(&self.head().name)?;
        pass.one(MatMul::linear(false, DType::F32), &[x, head], "logits")
    }
}

impl Model for LanguageModel {
    fn parameters(&self) -> Vec<Parameter> {
        listed(&self.parts)
    }

    fn inputs(&self) -> Vec<Input> {
        let ids = |name: &str| Input::new(name, DType::I32, &[self.seq_len]);
        let positions = Input::range(POSITIONS, 0..self.seq_len as i32);
        vec![ids(TOKENS), ids(TARGETS), positions, Input::range(START, 0..1)]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = self.hidden(pass)?;
        let x = self.parts.norm_f.apply(pass, x)?;
        let targets = pass.input(TARGETS)?;
        layers::linear_cross_entropy(pass, x, self.head(), targets, self.config.vocab)
    }

    fn logits(&self, pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        let x = self.hidden(pass)?;
        let x = self.parts.norm_f.apply(pass, x)?;
        self.project(pass, x).map(Some)
    }

    fn decoder(&self) -> Option<&dyn Decoder> {
        Some(self)
    }

    fn tokens(&self) -> usize {
        self.seq_len
    }

    fn prefix(&self) -> &str {
        match self.config.family {
            Family::Gpt2 => gpt2::PREFIX,
            Family::Llama => llama::PREFIX,
        }
    }

    fn passes_over(&self, name: &str) -> bool {
        // Causal masks and rotary frequencies, which older files hold with the weights.
        let buffers = [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"];
        let tied = self.config.tied && name == "lm_head.weight";
        tied || buffers.iter().any(|buffer| name.ends_with(buffer))
    }
}

impl Decoder for LanguageModel {
    fn vocab(&self) -> usize {
        self.config.vocab
    }

    fn decode(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        fits_context(&self.config, pass.cached_positions().unwrap_or_default())?;
        let tokens = pass.input(TOKENS)?;
        let batch = pass.shape(tokens)[0];
        // All caches lie next to each other.
        for block in &self.parts.blocks {
            block.attention.cache(pass, batch);
        }
        let x = self.hidden(pass)?;
        let new = pass.shape(x)[1];
        let last = pass.one(Slice { axis: 1, start: new - 1, len: 1 }, &[x], "last")?;
        let last = self.parts.norm_f.apply(pass, last)?;
        self.project(pass, last)
    }
}

impl ModelConfig {
    /// The model of these settings, trained on sequences of `seq_len` tokens.
    ///
    /// # Errors
    /// As [`LanguageModel::new`].
    pub fn build(&self, seq_len: usize) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(LanguageModel::new(self, seq_len)?))
    }

    /// Trained numbers of a model that passes [`ModelConfig::check`], padding apart and tied weights counted
    /// once.
    pub fn parameters(&self) -> u64 {
        parameters(self).iter().map(|parameter| parameter.stored() as u64).sum()
    }

    /// Floating-point operations that training on one token of a sequence of `seq_len` takes: 6 for each
    /// parameter that is multiplied (so not for an untied embedding) and 6·L·C·T for causal attention, as
    /// llm.c counts.
    pub fn flops_per_token(&self, seq_len: usize) -> u64 {
        let looked_up = if self.tied { 0 } else { self.vocab as u64 * self.channels as u64 };
        let attention = self.layers as u64 * self.channels as u64 * seq_len as u64;
        6 * (self.parameters() - looked_up) + 6 * attention
    }
}

/// All parameters of a model that passes [`ModelConfig::check`], in a fixed order: embeddings, blocks, final
/// norm, and the head where it's untied.
pub fn parameters(config: &ModelConfig) -> Vec<Parameter> {
    listed(&parts(config))
}

fn parts(config: &ModelConfig) -> Parts {
    match config.family {
        Family::Gpt2 => gpt2::parts(config),
        Family::Llama => llama::parts(config),
    }
}

fn listed(parts: &Parts) -> Vec<Parameter> {
    let Parts { wte, wpe, blocks, norm_f, head } = parts;
    let embeddings = [wte].into_iter().chain(wpe).map(|layer| layer as &dyn Layer);
    let blocks = blocks.iter().map(|block| block as &dyn Layer);
    let mut list = layers::parameters(embeddings.chain(blocks).chain([&**norm_f]));
    list.extend(head.clone());
    list
}

fn fits_context(config: &ModelConfig, positions: usize) -> Result<()> {
    let context = config.context;
    ensure(positions <= context, "context", || {
        format!("a sequence of {positions} tokens is longer than the model's context of {context}")
    })
}
