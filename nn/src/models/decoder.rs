//! The decoder that families of after Llama share: rotary positions, RMS norms, a gated feed-forward layer.   B sequences,
//! T positions, C channels
//!
//!   x  = scale · wte[tokens]
//!   x += after_1(proj(attention(rope(norms(qkv(norm_1(x)))))))
//!   x += after_2(down(activation(gate(norm_2(x))) · up(norm_2(x))))     for every block
//!   logits = norm_f(x) · headᵀ
//!
//! A family's file says by a [`Style`] which of these it has.

use tightrope_core::ops::{Mask, Stretch};

use super::config::ModelConfig;
use super::parts::{Parts, residual_init, vocab_rows};
use crate::layers::{Activation, Attention, Block, Embedding, Layer, Linear, Mlp, Normed, RmsNorm};
use crate::params::{Init, Parameter};

/// What names in a file may lack.
pub(super) const PREFIX: &str = "model.";

const NORMAL: Init = Init::Normal { std: 0.02 };

/// What sets a family's blocks apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// What norms queries and keys.
    pub normed: Option<Normed>,
    /// Where norms lie.
    pub norms: Norms,
    /// What's added to the gains of norms.
    pub gain_offset: f64,
    /// Whether files hold queries, keys and values in one tensor, and the gate with what it gates.
    pub packed: bool,
    /// Of the gate.
    pub activation: Activation,
    /// Whether embeddings are multiplied by the root of their channels.
    pub scaled_embedding: bool,
}

/// Where norms lie in a block, and so what files call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norms {
    Before,
    After,
    Both,
}

impl Style {
    /// A Llama's.
    pub const LLAMA: Self = Self {
        qkv_bias: false,
        normed: None,
        norms: Norms::Before,
        gain_offset: 0.0,
        packed: false,
        activation: Activation::Silu,
        scaled_embedding: false,
    };
}

/// The layers of a decoder of this style, with their Hugging Face names.
pub(super) fn parts(config: &ModelConfig, style: Style) -> Parts {
    let norm = Maker { config, style, index: 0 };
    let norm_f = norm.norm("norm_f", "model.norm.weight", config.channels);
    let scale = if style.scaled_embedding { (config.channels as f64).sqrt() } else { 1.0 };
    Parts {
        wte: Embedding::of(vocab_rows("wte.weight", "model.embed_tokens.weight", config)),
        wpe: None,
        scale,
        blocks: (0..config.layers).map(|index| Maker { config, style, index }.block()).collect(),
        norm_f,
        head: (!config.tied).then(|| vocab_rows("lm_head.weight", "lm_head.weight", config)),
    }
}

/// Makes the layers of block `index`.
#[derive(Clone, Copy)]
struct Maker<'a> {
    config: &'a ModelConfig,
    style: Style,
    index: usize,
}

impl Maker<'_> {
    fn own(&self, part: &str) -> String {
        format!("h.{}.{part}", self.index)
    }

    fn theirs(&self, part: &str) -> String {
        format!("model.layers.{}.{part}", self.index)
    }

    fn norm(&self, own: &str, theirs: &str, width: usize) -> Box<dyn Layer> {
        let offset = self.style.gain_offset;
        let init = if offset == 1.0 { Init::Zeros } else { Init::Ones };
        let gain = Parameter::new(format!("{own}.weight"), &[width], init).stored_as(theirs);
        Box::new(RmsNorm::of(gain, self.config.norm_eps).with_offset(offset))
    }

    /// Of this block.
    fn block_norm(&self, own: &str, theirs: &str) -> Box<dyn Layer> {
        let theirs = self.theirs(&format!("{theirs}.weight"));
        self.norm(&self.own(own), &theirs, self.config.channels)
    }

    /// A projection with the name `own` here and `theirs` in files.
    fn linear(&self, own: &str, theirs: &str, shape: [usize; 2], init: Init) -> Linear {
        let weight = Parameter::new(self.own(&format!("{own}.weight")), &shape, init);
        Linear::of(weight.stored_as(self.theirs(&format!("{theirs}.weight"))), None)
    }

    fn block(&self) -> Block {
        let norms = self.style.norms;
        let before = norms != Norms::After;
        let after = norms != Norms::Before;
        let second = if after { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
        let norm = |has: bool, own: &str, theirs: &str| has.then(|| self.block_norm(own, theirs));
        Block {
            name: format!("h.{}", self.index),
            norm_1: norm(before, "norm_1", "input_layernorm"),
            attention: self.attention(),
            after_1: norm(after, "after_1", "post_attention_layernorm"),
            norm_2: norm(before, "norm_2", second),
            mlp: self.mlp(),
            after_2: norm(after, "after_2", "post_feedforward_layernorm"),
            dropout: self.config.dropout,
        }
    }

    fn attention(&self) -> Attention {
        let ModelConfig { channels, heads, kv_heads, ref details, .. } = *self.config;
        let head_dim = self.config.head_dim();
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let residual = residual_init(self.config);
        let proj = self.linear("attn.proj", "self_attn.o_proj", [channels, queries], residual);
        let parts = [("q_proj", queries), ("k_proj", keys), ("v_proj", keys)];
        let attention = match self.style.normed {
            None => {
                let qkv = self.packed_projections(&parts);
                Attention::of(self.own("attn"), qkv, proj, [heads, kv_heads], head_dim)
            }
            Some(normed) => {
                let layer = |(theirs, rows): (&str, usize)| {
                    let own = format!("attn.{}", &theirs[..1]);
                    self.linear(&own, &format!("self_attn.{theirs}"), [rows, channels], NORMAL)
                };
                let norm = |part: &str, width: usize| {
                    let width = if normed == Normed::Heads { head_dim } else { width };
                    let theirs = self.theirs(&format!("self_attn.{part}.weight"));
                    self.norm(&self.own(&format!("attn.{part}")), &theirs, width)
                };
                let norms = ([norm("q_norm", queries), norm("k_norm", keys)], normed);
                let layers = parts.map(layer);
                let name = self.own("attn");
                Attention::of_normed(name, layers, norms, proj, [heads, kv_heads], head_dim)
            }
        };
        let windowed = details.windowed.contains(&self.index);
        let window = details.window.filter(|_| windowed);
        let scale = details.query_scale.unwrap_or(head_dim as f64).powf(-0.5);
        let attention = attention.with_mask(Mask { window, ..Mask::CAUSAL }).with_scale(scale);
        let attention = match details.attention_cap {
            Some(cap) => attention.with_cap(cap),
            None => attention,
        };
        if details.unrotated.contains(&self.index) {
            return attention;
        }
        let (theta, stretch) = match details.local_rope_theta.filter(|_| windowed) {
            Some(theta) => (theta, Stretch::NONE),
            None => {
                let theta = self.config.rope_theta;
                let scaled = details.rope_scaling.map(|scaling| scaling.stretch(head_dim, theta));
                (theta, scaled.unwrap_or(Stretch::NONE))
            }
        };
        attention.with_stretched_rope(theta, stretch)
    }

    fn packed_projections(&self, parts: &[(&str, usize); 3]) -> Linear {
        let (rows, channels) = (self.config.packed(), self.config.channels);
        let parameter = |kind: &str, shape: &[usize], init: Init| {
            let made = Parameter::new(self.own(&format!("attn.qkv.{kind}")), shape, init);
            if self.style.packed {
                return made.stored_as(self.theirs(&format!("self_attn.qkv_proj.{kind}")));
            }
            made.stored_in(
                parts.map(|(part, rows)| (self.theirs(&format!("self_attn.{part}.{kind}")), rows)),
            )
        };
        let bias = self.style.qkv_bias.then(|| parameter("bias", &[rows], Init::Zeros));
        Linear::of(parameter("weight", &[rows, channels], NORMAL), bias)
    }

    fn mlp(&self) -> Mlp {
        let ModelConfig { channels, hidden, .. } = *self.config;
        let (name, activation) = (self.own("mlp"), self.style.activation);
        let residual = residual_init(self.config);
        let down = self.linear("mlp.down", "mlp.down_proj", [channels, hidden], residual);
        if self.style.packed {
            let shape = [2 * hidden, channels];
            let gate_up = self.linear("mlp.gate_up", "mlp.gate_up_proj", shape, NORMAL);
            return Mlp::packed(name, gate_up, activation, down);
        }
        let gate = self.linear("mlp.gate", "mlp.gate_proj", [hidden, channels], NORMAL);
        let up = self.linear("mlp.up", "mlp.up_proj", [hidden, channels], NORMAL);
        Mlp::of(name, Some(gate), up, activation, down)
    }
}
