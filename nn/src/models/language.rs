//! Causal language models: embeddings, blocks, a norm and a head. Families differ in the layers that they put there.

use std::any::Any;
use std::sync::Arc;

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{Concat, Map, MatMul, Reduce, Reshape, Slice};
use tightrope_core::{DType, Tensor};

use super::config::{Family, ModelConfig};
use super::decoder::{self, Style};
use super::parts::Parts;
use super::{gemma, gpt2, olmo2, phi3, qwen};
use crate::error::{Result, ensure};
use crate::inputs::{DOCUMENTS, Input, POSITIONS, REFERENCE, START, TARGETS, TOKENS};
use crate::layers::{self, Distillation, Layer, Projected};
use crate::model::{Decoder, Model};
use crate::params::Parameter;
use crate::pass::Pass;

/// A language model of one of the families, for sequences of one length.
#[derive(Debug)]
pub struct LanguageModel {
    config: ModelConfig,
    seq_len: usize,
    sample: Sample,
    /// What it learns of, and how.
    teacher: Option<(Arc<Self>, Distillation)>,
    parts: Parts,
}

/// What a sample is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sample {
    /// A sequence of one document.
    Document,
    /// A sequence of several documents.
    Packed,
    /// A sequence with the chosen answer and one with the rejected answer, of which preferences are learned with this β.
    Pair { beta: f64 },
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
        let parts = parts(config);
        Ok(Self { config: config.clone(), seq_len, sample: Sample::Document, teacher: None, parts })
    }

    /// With sequences of several documents each, whose positions begin anew: it reads [`DOCUMENTS`], and [`POSITIONS`] of each token.
    /// What's decoded is one document.
    pub fn packed(self) -> Self {
        Self { sample: Sample::Packed, ..self }
    }

    /// With pairs of sequences, (B, 2, T), of which the first is preferred: it's trained by [`layers::preference`] with this `beta`, and
    /// reads [`REFERENCE`] (B, 2). Log-likelihoods are of the targets that count.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where `beta` isn't above 0.
    pub fn of_pairs(self, beta: f64) -> Result<Self> {
        ensure(beta.is_finite() && beta > 0.0, "train.dpo_beta", || {
            format!("{beta} must be above 0")
        })?;
        Ok(Self { sample: Sample::Pair { beta }, ..self })
    }

    /// Which learns of a model of the settings `teacher` while it's trained, by [`layers::linear_distillation`]. Evaluation is by
    /// its own loss.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where samples are pairs, sequences are longer than the teacher's context, or `how` is out of range.
    pub fn taught_by(self, teacher: &ModelConfig, how: Distillation) -> Result<Self> {
        how.check()?;
        ensure(!self.is_of_pairs(), "train.teacher", || {
            "a model learns of preferences or of a teacher, not of both".to_owned()
        })?;
        ensure(self.seq_len <= teacher.context, "train.teacher", || {
            let (context, seq_len) = (teacher.context, self.seq_len);
            format!(
                "its context of {context} tokens is shorter than sequences of {seq_len}: give a smaller --context"
            )
        })?;
        let teacher = Arc::new(Self::new(teacher, self.seq_len)?);
        Ok(Self { teacher: Some((teacher, how)), ..self })
    }

    /// A model of other settings, with samples as this one's but of other lengths.
    ///
    /// # Errors
    /// As [`LanguageModel::new`].
    pub fn with_settings(&self, config: &ModelConfig, seq_len: usize) -> Result<Self> {
        let other = Self { sample: self.sample, ..Self::new(config, seq_len)? };
        match &self.teacher {
            Some((teacher, how)) => other.taught_by(&teacher.config, *how),
            None => Ok(other),
        }
    }

    /// Whether its samples are pairs: see [`LanguageModel::of_pairs`].
    pub fn is_of_pairs(&self) -> bool {
        matches!(self.sample, Sample::Pair { .. })
    }

    /// Tokens of the longest sequence that its teacher reads, where it has one.
    pub fn taught_context(&self) -> Option<usize> {
        self.teacher.as_ref().map(|(teacher, _)| teacher.config.context)
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
        // Before the blocks, so that it's of none of them.
        layers::documents(pass)?;
        let tokens = sequences(pass, TOKENS)?;
        self.parts.hidden(pass, tokens, self.config.dropout)
    }

    /// What its logits are made of.
    fn projected(&self, pass: &mut Pass<'_>) -> Result<Projected> {
        let x = self.hidden(pass)?;
        let x = self.parts.norm_f.apply(pass, x)?;
        let (x, head) = layers::adapted_head(pass, x, self.head())?;
        Ok(Projected { x, head, vocab: self.config.vocab, cap: self.config.details.logit_cap })
    }

    /// The mean loss of `targets` under normed values.
    fn loss_of(&self, pass: &mut Pass<'_>, x: Tensor, targets: Tensor) -> Result<Tensor> {
        let (head, vocab) = (self.head(), self.config.vocab);
        match self.config.details.logit_cap {
            None => layers::linear_cross_entropy(pass, x, head, targets, vocab),
            Some(cap) => layers::capped_linear_cross_entropy(pass, x, head, targets, vocab, cap),
        }
    }

    /// The mean loss of each sequence, f32.
    fn losses_of_sequences(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = self.hidden(pass)?;
        let x = self.parts.norm_f.apply(pass, x)?;
        let targets = sequences(pass, TARGETS)?;
        let batch = pass.shape(x)[0];
        let mut losses = Vec::with_capacity(batch);
        // The head goes over each sample by itself: its loss is a mean, and no logits are kept.
        for start in 0..batch {
            let sample = Slice { axis: 0, start, len: 1 };
            let x = pass.one(sample.clone(), &[x], "sample")?;
            let targets = pass.one(sample, &[targets], "sample.targets")?;
            losses.push(pass.without_rows(|pass| self.loss_of(pass, x, targets))?);
        }
        pass.one(Concat { axis: 0 }, &losses, "losses")
    }

    /// The loss of pairs, by the log-likelihoods of their answers.
    fn preference(&self, pass: &mut Pass<'_>, beta: f64) -> Result<Tensor> {
        let losses = self.losses_of_sequences(pass)?;
        let targets = sequences(pass, TARGETS)?;
        let counts = constant(1.0) - input(0).less(constant(0.0));
        let counts = pass.one(Map::new(counts, DType::F32), &[targets], "targets.counted")?;
        let counts = pass.one(Reduce::last(DType::F32), &[counts], "targets.count")?;
        let sums = Map::new(-input(0) * input(1), DType::F32);
        let sums = pass.one(sums, &[losses, counts], "log_likelihoods.rows")?;
        let shape = vec![pass.ty(sums).elements() / 2, 2];
        let mut in_pairs = |rows, name| pass.one(Reshape { shape: shape.clone() }, &[rows], name);
        let found = in_pairs(sums, "log_likelihoods")?;
        let tokens = in_pairs(counts, "answers.tokens")?;
        let reference = pass.input(REFERENCE)?;
        layers::preference(pass, [found, reference, tokens], beta)
    }

    /// Logits (B, T, padded vocabulary) of normed values, whose padding means nothing.
    fn project(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let (x, head) = layers::adapted_head(pass, x, self.head())?;
        let matmul = MatMul::linear(false, DType::F32);
        let Some(cap) = self.config.details.logit_cap else {
            return pass.one(matmul, &[x, head], "logits");
        };
        let logits = pass.one(matmul, &[x, head], "logits.free")?;
        let capped = constant(cap) * (input(0) * constant(1.0 / cap)).tanh();
        pass.one(Map::new(capped, DType::F32), &[logits], "logits")
    }
}

impl Model for LanguageModel {
    fn parameters(&self) -> Vec<Parameter> {
        listed(&self.parts)
    }

    fn inputs(&self) -> Vec<Input> {
        let ids = |name: &str| Input::new(name, DType::I32, &[self.seq_len]);
        let places = [Input::range(POSITIONS, 0..self.seq_len as i32), Input::range(START, 0..1)];
        match self.sample {
            Sample::Document => [TOKENS, TARGETS].map(ids).into_iter().chain(places).collect(),
            Sample::Packed => [TOKENS, TARGETS, DOCUMENTS, POSITIONS].map(ids).into(),
            Sample::Pair { .. } => {
                let pair = |name: &str| Input::new(name, DType::I32, &[2, self.seq_len]);
                let reference = Input::new(REFERENCE, DType::F32, &[2]);
                [pair(TOKENS), pair(TARGETS), reference].into_iter().chain(places).collect()
            }
        }
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        if let Sample::Pair { beta } = self.sample {
            return self.preference(pass, beta);
        }
        // The teacher comes first, so that none of its activations live beside those that are kept for the backward pass.
        if let Some((teacher, how)) = &self.teacher
            && let Some(teacher) = pass.teacher(|pass| teacher.projected(pass))?
        {
            let student = self.projected(pass)?;
            let targets = pass.input(TARGETS)?;
            return layers::linear_distillation(pass, student, teacher, targets, *how);
        }
        let x = self.hidden(pass)?;
        let x = self.parts.norm_f.apply(pass, x)?;
        let targets = pass.input(TARGETS)?;
        self.loss_of(pass, x, targets)
    }

    fn losses(&self, pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        self.losses_of_sequences(pass).map(Some)
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
        match self.sample {
            Sample::Pair { .. } => 2 * self.seq_len,
            Sample::Document | Sample::Packed => self.seq_len,
        }
    }

    fn seq_len(&self) -> usize {
        self.seq_len
    }

    fn with_seq_len(&self, seq_len: usize) -> Result<Option<Arc<dyn Model>>> {
        Ok(Some(Arc::new(self.with_settings(&self.config, seq_len)?)))
    }

    fn with_context_ranks(&self, ranks: usize) -> Result<Option<Arc<dyn Model>>> {
        // A browser's tab has no others to train with.
        if cfg!(target_family = "wasm") {
            return Ok(None);
        }
        let seq_len = self.seq_len;
        ensure(seq_len.is_multiple_of(ranks), "run.context_ranks", || {
            format!(
                "{ranks} ranks don't share sequences of {seq_len} tokens evenly; a context that is a multiple of {ranks} is shared"
            )
        })?;
        // What a pair comes to is a sum over each sequence.
        if self.is_of_pairs() { Ok(None) } else { self.with_seq_len(seq_len / ranks) }
    }

    fn teacher(&self) -> Option<&dyn Model> {
        self.teacher.as_ref().map(|(teacher, _)| &**teacher as &dyn Model)
    }

    fn prefix(&self) -> &str {
        prefix(self.config.family)
    }

    fn passes_over(&self, name: &str) -> bool {
        is_buffer(name)
    }

    fn shared_with(&self, name: &str) -> Option<&str> {
        let tied = self.config.tied && name == "lm_head.weight";
        tied.then(|| self.parts.wte.weight().parts[0].name.as_str())
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
    /// parameter that is multiplied (so not for an untied embedding) and 6·L·H·D·T for causal attention, as
    /// llm.c counts.
    pub fn flops_per_token(&self, seq_len: usize) -> u64 {
        let looked_up = if self.tied { 0 } else { self.vocab as u64 * self.channels as u64 };
        let attention = self.layers as u64 * self.queries() as u64 * seq_len as u64;
        6 * (self.parameters() - looked_up) + 6 * attention
    }
}

/// All parameters of a model that passes [`ModelConfig::check`], in a fixed order: embeddings, blocks, final
/// norm, and the head where it's untied.
pub fn parameters(config: &ModelConfig) -> Vec<Parameter> {
    listed(&parts(config))
}

/// The prefix that names in a family's files may lack.
pub(super) const fn prefix(family: Family) -> &'static str {
    match family {
        Family::Gpt2 => gpt2::PREFIX,
        _ => decoder::PREFIX,
    }
}

/// True of causal masks and rotary frequencies, which older files hold with the weights.
pub(super) fn is_buffer(name: &str) -> bool {
    let buffers = [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"];
    buffers.iter().any(|buffer| name.ends_with(buffer))
}

/// The layers of a model that passes [`ModelConfig::check`].
pub(super) fn parts(config: &ModelConfig) -> Parts {
    match config.family {
        Family::Gpt2 => gpt2::parts(config),
        Family::Llama | Family::Mistral | Family::SmolLm3 => decoder::parts(config, Style::LLAMA),
        Family::Qwen2 => decoder::parts(config, qwen::QWEN2),
        Family::Qwen3 => decoder::parts(config, qwen::QWEN3),
        Family::Gemma2 => decoder::parts(config, gemma::GEMMA2),
        Family::Gemma3 => decoder::parts(config, gemma::GEMMA3),
        Family::Phi3 => decoder::parts(config, phi3::PHI3),
        Family::Olmo2 => decoder::parts(config, olmo2::OLMO2),
    }
}

pub(super) fn listed(parts: &Parts) -> Vec<Parameter> {
    let Parts { wte, wpe, blocks, norm_f, head, .. } = parts;
    let embeddings = [wte].into_iter().chain(wpe).map(|layer| layer as &dyn Layer);
    let blocks = blocks.iter().map(|block| block as &dyn Layer);
    let mut list = layers::parameters(embeddings.chain(blocks).chain([&**norm_f]));
    list.extend(head.clone());
    list
}

/// The ids of an input, a row for each sequence.
fn sequences(pass: &mut Pass<'_>, name: &str) -> Result<Tensor> {
    let ids = pass.input(name)?;
    let &[pairs, each, length] = pass.shape(ids) else { return Ok(ids) };
    let shape = vec![pairs * each, length];
    pass.one(Reshape { shape }, &[ids], &format!("{name}.rows"))
}

pub(super) fn fits_context(config: &ModelConfig, positions: usize) -> Result<()> {
    let context = config.context;
    ensure(positions <= context, "context", || {
        format!("a sequence of {positions} tokens is longer than the model's context of {context}")
    })
}
