//! BERT (Devlin et al. 2019), an encoder.   B texts, T positions, C channels
//!
//!   x = norm(wte[tokens] + wtt[types] + wpe[positions])
//!   x = norm_1(x + proj(attention(qkv(x))))               every position attends to all of its own document
//!   x = norm_2(x + down(gelu(up(x))))                     for every block
//!   logits = norm_t(gelu(transform(x))) · wteᵀ + b        of masked tokens, or
//!   scores = classifier(tanh(pooler(x of the first token)))
//!
//! Padding is a document of its own, so no token attends to it.

mod files;

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tightrope_core::expr::input;
use tightrope_core::ops::{Mask, MatMul, Reshape, Slice};
use tightrope_core::{DType, Tensor};

use super::config::padded_vocab;
use super::encoders::check_labels;
use super::scores::{self, LABELS};
use crate::error::{Result, ensure};
use crate::inputs::{DOCUMENTS, Input, POSITIONS, TARGETS, TOKENS, TYPES};
use crate::layers::{
    self, Activation, Attention, Dropout, Embedding, Layer, LayerNorm, Linear, Mlp,
};
use crate::model::Model;
use crate::params::{Init, Kind, Parameter};
use crate::pass::Pass;

pub use files::bert_presets;

const NORMAL: Init = Init::Normal { std: 0.02 };

/// Extents of a BERT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BertConfig {
    /// Blocks.
    pub layers: usize,
    /// Width of the residual stream, C.
    pub channels: usize,
    /// Heads; divides the channels.
    pub heads: usize,
    /// Width inside the feed-forward layers.
    pub hidden: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Tokens.
    pub vocab: usize,
    /// Texts that a sequence may hold.
    pub types: usize,
    /// Classes of texts; `None` of a model that predicts masked tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// Names of the classes, in order; empty where they have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Activation of the feed-forward layers.
    pub activation: Activation,
    /// Probability of zeroing elements of the embedding and of what each layer adds to the residual stream, in training;
    /// 0 for none.
    pub dropout: f64,
    /// Probability of zeroing what a query gives to a key, in training.
    pub attention_dropout: f64,
    /// Probability of zeroing elements of what is classified, in training, where it isn't `dropout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier_dropout: Option<f64>,
    /// Added to the variance in norms.
    pub norm_eps: f64,
}

impl BertConfig {
    /// Most classes that texts can have.
    pub const MOST_CLASSES: usize = 1 << 16;

    /// Channels of a head, D.
    pub fn head_dim(&self) -> usize {
        self.channels / self.heads.max(1)
    }

    /// Numbers of a model that passes [`BertConfig::check`], padding apart.
    pub fn parameters(&self) -> u64 {
        let parameters = Bert::of_checked(self, 1).parameters();
        parameters.iter().map(|parameter| parameter.stored() as u64).sum()
    }

    /// The model of these settings, trained on sequences of `seq_len` tokens.
    ///
    /// # Errors
    /// As [`Bert::new`].
    pub fn build(&self, seq_len: usize) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(Bert::new(self, seq_len)?))
    }

    /// # Errors
    /// [`crate::Error::Setting`] for the first setting that is out of range or doesn't fit another.
    pub fn check(&self) -> Result<()> {
        for (key, value, limit) in [
            ("layers", self.layers, 1 << 12),
            ("channels", self.channels, 1 << 16),
            ("heads", self.heads, 1 << 16),
            ("hidden", self.hidden, 1 << 18),
            ("context", self.context, 1 << 24),
            ("vocab", self.vocab, 1 << 24),
            ("types", self.types, 1 << 10),
            ("classes", self.classes.unwrap_or(1), Self::MOST_CLASSES),
        ] {
            ensure((1..=limit).contains(&value), key, || {
                format!("{value} must lie between 1 and {limit}")
            })?;
        }
        // No tensor of a model may be larger than the address space, which in a browser is 4 GiB.
        let rows = self.context.max(self.vocab + 64);
        let bytes = rows.checked_mul(self.channels).and_then(|elements| elements.checked_mul(4));
        ensure(bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()), "channels", || {
            let channels = self.channels;
            format!("{channels}, with the model's other extents, make tensors beyond all memory")
        })?;
        check_labels(&self.labels, self.classes.unwrap_or(0))?;
        ensure(self.channels.is_multiple_of(self.heads), "heads", || {
            format!("{} heads don't divide {} channels", self.heads, self.channels)
        })?;
        let classifier = self.classifier_dropout.unwrap_or_default();
        for probability in [self.dropout, self.attention_dropout, classifier] {
            ensure((0.0..1.0).contains(&probability), "dropout", || {
                format!("{probability} must be at least 0 and below 1")
            })?;
        }
        ensure(self.norm_eps.is_finite() && self.norm_eps > 0.0, "norm_eps", || {
            format!("{} must be above 0", self.norm_eps)
        })
    }
}

/// A BERT, for sequences of one length.
#[derive(Debug)]
pub struct Bert {
    config: BertConfig,
    seq_len: usize,
    /// Of tokens, types and positions.
    embeddings: [Embedding; 3],
    norm_e: LayerNorm,
    blocks: Vec<Block>,
    head: Head,
}

/// A block with norms behind its sums.
#[derive(Debug)]
struct Block {
    name: String,
    attention: Attention,
    norm_1: LayerNorm,
    mlp: Mlp,
    norm_2: LayerNorm,
}

/// What is made of the last block's values.
#[derive(Debug)]
enum Head {
    Masked { transform: Box<Linear>, norm: LayerNorm, bias: Parameter },
    Classes { pooler: Box<Linear>, classifier: Linear },
}

impl Bert {
    /// The model of these settings, trained on sequences of `seq_len` tokens.
    ///
    /// # Errors
    /// As [`BertConfig::check`], and [`crate::Error::Setting`] where a sequence is empty or longer than the context.
    pub fn new(config: &BertConfig, seq_len: usize) -> Result<Self> {
        config.check()?;
        ensure(seq_len > 0, TOKENS, || "a sequence has at least one token".to_owned())?;
        let context = config.context;
        ensure(seq_len <= context, "context", || {
            format!(
                "a sequence of {seq_len} tokens is longer than the model's context of {context}"
            )
        })?;
        Ok(Self::of_checked(config, seq_len))
    }

    /// `model`, where it is a BERT.
    pub fn of(model: &dyn Model) -> Option<&Self> {
        (model as &dyn Any).downcast_ref()
    }

    /// Its settings.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    fn of_checked(config: &BertConfig, seq_len: usize) -> Self {
        let BertConfig { channels, context, vocab, types, .. } = *config;
        let table = |own: &str, there: &str, rows: usize, stored: usize| {
            let name = format!("bert.embeddings.{there}_embeddings.weight");
            let rows = Parameter::new(format!("{own}.weight"), &[rows, channels], NORMAL);
            Embedding::of(rows.stored_in([(name, stored)]))
        };
        let embeddings = [
            table("wte", "word", padded_vocab(vocab), vocab),
            table("wtt", "token_type", types, types),
            table("wpe", "position", context, context),
        ];
        Self {
            seq_len,
            embeddings,
            norm_e: norm(config, "norm_e", "bert.embeddings.LayerNorm"),
            blocks: (0..config.layers).map(|index| Block::new(config, index)).collect(),
            head: Head::new(config),
            config: config.clone(),
        }
    }

    /// Values of the last block, (B, T, C).
    fn hidden(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut found = vec![];
        for (embedding, name) in self.embeddings.iter().zip([TOKENS, TYPES, POSITIONS]) {
            let ids = pass.input(name)?;
            found.push(embedding.apply(pass, ids)?);
        }
        found[0] = pass.noised(found[0], 1.0)?;
        let sum = pass.map(input(0) + input(1) + input(2), &found, "embedding.sum")?;
        let normed = self.norm_e.apply(pass, sum)?;
        let mut x = Dropout::new("embedding", self.config.dropout).apply(pass, normed)?;
        for (index, block) in self.blocks.iter().enumerate() {
            x = pass.block(index, |pass| block.apply(pass, x, self.config.dropout))?;
        }
        Ok(x)
    }

    /// Scores of each text, f32 (B, 1, classes).
    fn scores(&self, pass: &mut Pass<'_>, [pooler, classifier]: [&Linear; 2]) -> Result<Tensor> {
        let x = self.hidden(pass)?;
        let first = pass.one(Slice { axis: 1, start: 0, len: 1 }, &[x], "first")?;
        let pooled = pooler.apply(pass, first)?;
        let dropout = self.config.classifier_dropout.unwrap_or(self.config.dropout);
        let formula = pass.dropped(dropout, input(0).tanh());
        let pooled = pass.map(formula, &[pooled], "pooled")?;
        classifier.scores(pass, pooled)
    }

    /// What the head of masked tokens multiplies, (B, T, C).
    fn transformed(
        &self,
        pass: &mut Pass<'_>,
        transform: &Linear,
        norm: &LayerNorm,
    ) -> Result<Tensor> {
        let x = self.hidden(pass)?;
        let x = transform.apply(pass, x)?;
        let x = self.config.activation.apply(pass, x, "transform.active")?;
        norm.apply(pass, x)
    }
}

impl Model for Bert {
    fn parameters(&self) -> Vec<Parameter> {
        let embeddings = self.embeddings.iter().map(|layer| layer as &dyn Layer);
        let mut list = layers::parameters(embeddings.chain([&self.norm_e as &dyn Layer]));
        list.extend(self.blocks.iter().flat_map(Block::parameters));
        list.extend(self.head.parameters());
        list
    }

    fn inputs(&self) -> Vec<Input> {
        let ids = |name: &str| Input::new(name, DType::I32, &[self.seq_len]);
        let expected = match self.head {
            Head::Masked { .. } => ids(TARGETS),
            Head::Classes { .. } => Input::new(LABELS, DType::I32, &[]),
        };
        let positions = Input::range(POSITIONS, 0..self.seq_len as i32);
        vec![ids(TOKENS), ids(TYPES), ids(DOCUMENTS), expected, positions]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        match &self.head {
            Head::Masked { transform, norm, bias } => {
                let x = self.transformed(pass, transform, norm)?;
                let (targets, vocab) = (pass.input(TARGETS)?, self.config.vocab);
                let head = [self.embeddings[0].weight(), bias];
                layers::biased_linear_cross_entropy(pass, x, head, targets, vocab)
            }
            Head::Classes { pooler, classifier } => {
                let scores = self.scores(pass, [pooler, classifier])?;
                scores::loss(pass, scores)
            }
        }
    }

    fn logits(&self, pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        let logits = match &self.head {
            Head::Masked { transform, norm, bias } => {
                let x = self.transformed(pass, transform, norm)?;
                let head = pass.parameter(&self.embeddings[0].weight().name)?;
                let bias = pass.parameter(&bias.name)?;
                pass.one(MatMul::linear(true, DType::F32), &[x, head, bias], "logits")?
            }
            Head::Classes { pooler, classifier } => {
                let scores = self.scores(pass, [pooler, classifier])?;
                let shape = vec![pass.shape(scores)[0], classifier.weight().shape[0]];
                pass.one(Reshape { shape }, &[scores], "logits")?
            }
        };
        Ok(Some(logits))
    }

    fn tokens(&self) -> usize {
        self.seq_len
    }

    fn prefix(&self) -> &str {
        "bert."
    }

    fn renamed(&self, name: &str) -> Option<String> {
        // Files that were converted from TensorFlow's name the parameters of norms otherwise.
        let norm = |end: &str, own: &str| {
            let layer = name.strip_suffix(end).filter(|layer| layer.ends_with("LayerNorm"))?;
            Some(format!("{layer}.{own}"))
        };
        norm(".gamma", "weight").or_else(|| norm(".beta", "bias"))
    }

    fn made_anew(&self, name: &str) -> bool {
        is_of_head(name)
    }

    fn shared_with(&self, name: &str) -> Option<&str> {
        match name {
            "cls.predictions.decoder.weight" => Some("bert.embeddings.word_embeddings.weight"),
            "cls.predictions.decoder.bias" => Some("cls.predictions.bias"),
            _ => None,
        }
    }

    fn passes_over(&self, name: &str) -> bool {
        // Heads of other purposes, and positions, which older files hold with the weights.
        is_of_head(name) || name.ends_with("embeddings.position_ids")
    }
}

/// Whether a tensor of a file is one of a head.
fn is_of_head(name: &str) -> bool {
    ["cls.", "classifier.", "bert.pooler.", "pooler."].iter().any(|head| name.starts_with(head))
}

impl Block {
    fn new(config: &BertConfig, index: usize) -> Self {
        let BertConfig { channels, heads, hidden, activation, .. } = *config;
        let own = |part: &str| format!("h.{index}.{part}");
        let there = |part: &str| format!("bert.encoder.layer.{index}.{part}");
        let layer = |part: &str, theirs: &str, shape| linear([own(part), there(theirs)], shape);
        let packed = |part: &str, shape: &[usize], init| {
            let name = |which: &str| there(&format!("attention.self.{which}.{part}"));
            let parts = ["query", "key", "value"].map(|which| (name(which), channels));
            Parameter::new(own(&format!("attn.qkv.{part}")), shape, init).stored_in(parts)
        };
        let bias = Parameter {
            without_gradient: channels..2 * channels,
            ..packed("bias", &[3 * channels], Init::Zeros)
        };
        let qkv = Linear::of(packed("weight", &[3 * channels, channels], NORMAL), Some(bias));
        let proj = layer("attn.proj", "attention.output.dense", [channels, channels]);
        let attention = Attention::of(own("attn"), qkv, proj, [heads, heads], config.head_dim());
        let up = layer("mlp.up", "intermediate.dense", [hidden, channels]);
        let down = layer("mlp.down", "output.dense", [channels, hidden]);
        let normed = |part: &str, theirs: &str| norm(config, &own(part), &there(theirs));
        Self {
            name: format!("h.{index}"),
            attention: attention.with_mask(Mask::NONE).with_dropout(config.attention_dropout),
            norm_1: normed("norm_1", "attention.output.LayerNorm"),
            mlp: Mlp::of(own("mlp"), None, up, activation, down),
            norm_2: normed("norm_2", "output.LayerNorm"),
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let Self { attention, norm_1, mlp, norm_2, .. } = self;
        layers::parameters([attention as &dyn Layer, norm_1, mlp, norm_2])
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor, dropout: f64) -> Result<Tensor> {
        let Self { name, attention, norm_1, mlp, norm_2 } = self;
        let added = attention.apply(pass, x)?;
        let x = pass.residual(x, added, dropout, &format!("{name}.attn.residual"))?;
        let x = norm_1.apply(pass, x)?;
        let added = mlp.apply(pass, x)?;
        let x = pass.residual(x, added, dropout, &format!("{name}.mlp.residual"))?;
        norm_2.apply(pass, x)
    }
}

impl Head {
    fn new(config: &BertConfig) -> Self {
        let BertConfig { channels, vocab, .. } = *config;
        let layer = |own: &str, there: &str, shape| linear([own, there].map(str::to_owned), shape);
        match config.classes {
            None => {
                let bias = Parameter::new("head.bias", &[padded_vocab(vocab)], Init::Zeros);
                let bias = bias.of_kind(Kind::Bias);
                let transform = "cls.predictions.transform.dense";
                Self::Masked {
                    transform: Box::new(layer("transform", transform, [channels, channels])),
                    norm: norm(config, "norm_t", "cls.predictions.transform.LayerNorm"),
                    bias: bias.stored_in([("cls.predictions.bias".to_owned(), vocab)]),
                }
            }
            Some(classes) => Self::Classes {
                pooler: Box::new(layer("pooler", "bert.pooler.dense", [channels, channels])),
                classifier: layer("classifier", "classifier", [classes, channels]).as_head(),
            },
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        match self {
            Self::Masked { transform, norm, bias } => {
                let mut list = layers::parameters([&**transform as &dyn Layer, norm]);
                list.push(bias.clone());
                list
            }
            Self::Classes { pooler, classifier } => {
                layers::parameters([&**pooler as &dyn Layer, classifier])
            }
        }
    }
}

/// A linear layer by its own name and that of Hugging Face.
fn linear([own, there]: [String; 2], shape: [usize; 2]) -> Linear {
    let parameter = |part: &str, shape: &[usize], init| {
        Parameter::new(format!("{own}.{part}"), shape, init).stored_as(format!("{there}.{part}"))
    };
    let bias = parameter("bias", &shape[..1], Init::Zeros);
    Linear::of(parameter("weight", &shape, NORMAL), Some(bias))
}

fn norm(config: &BertConfig, own: &str, there: &str) -> LayerNorm {
    let parameter = |part: &str, init| {
        Parameter::new(format!("{own}.{part}"), &[config.channels], init)
            .stored_as(format!("{there}.{part}"))
    };
    let (gain, bias) = (parameter("weight", Init::Ones), parameter("bias", Init::Zeros));
    LayerNorm::of(gain, bias, config.norm_eps)
}
