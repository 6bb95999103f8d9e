//! GPT-2 (Radford et al. 2019).   B sequences, T positions, C channels
//!
//!   x  = wte[tokens] + wpe[positions]
//!   x += proj(attention(qkv(norm_1(x))))
//!   x += down(gelu(up(norm_2(x))))           for every block
//!   logits = norm_f(x) · headᵀ

use tightrope_core::expr::input;
use tightrope_core::{Graph, Tensor};

use crate::config::ModelConfig;
use crate::error::Result;
use crate::layers::{Linear, Norm, Pass, Weights};
use crate::params::{Init, Parameter, residual_init, vocab_rows};
use tightrope_core::activation::gelu_tanh;

/// Parameters with their Hugging Face names. The four weights of a block are `Conv1D`s there, stored as
/// (in, out).
pub(crate) fn parameters(config: &ModelConfig) -> Vec<Parameter> {
    let ModelConfig { layers, channels, hidden, context, tied, .. } = *config;
    let normal = Init::Normal { std: 0.02 };
    let residual = residual_init(config);
    let mut list = vec![
        vocab_rows("wte.weight", "transformer.wte.weight", config).looked_up(),
        Parameter::new("wpe.weight", &[context, channels], normal)
            .looked_up()
            .whole("transformer.wpe.weight"),
    ];
    for index in 0..layers {
        let names = |own: &str, theirs: &str| {
            (format!("h.{index}.{own}"), format!("transformer.h.{index}.{theirs}"))
        };
        let packed = [config.packed(), channels];
        list.extend(norm(names("norm_1", "ln_1"), channels));
        list.extend(linear(names("attn.qkv", "attn.c_attn"), packed, normal));
        list.extend(linear(names("attn.proj", "attn.c_proj"), [channels, channels], residual));
        list.extend(norm(names("norm_2", "ln_2"), channels));
        list.extend(linear(names("mlp.up", "mlp.c_fc"), [hidden, channels], normal));
        list.extend(linear(names("mlp.down", "mlp.c_proj"), [channels, hidden], residual));
    }
    list.extend(norm(("norm_f".into(), "transformer.ln_f".into()), channels));
    if !tied {
        list.push(vocab_rows("lm_head.weight", "lm_head.weight", config));
    }
    list
}

fn norm((own, theirs): (String, String), channels: usize) -> [Parameter; 2] {
    [("weight", Init::Ones), ("bias", Init::Zeros)].map(|(part, init)| {
        Parameter::new(format!("{own}.{part}"), &[channels], init).whole(format!("{theirs}.{part}"))
    })
}

fn linear((own, theirs): (String, String), shape: [usize; 2], init: Init) -> [Parameter; 2] {
    let weight = Parameter::new(format!("{own}.weight"), &shape, init);
    let bias = Parameter::new(format!("{own}.bias"), &shape[..1], Init::Zeros);
    [weight.transposed(format!("{theirs}.weight")), bias.whole(format!("{theirs}.bias"))]
}

/// One block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    index: usize,
    norm_1: Norm,
    qkv: Linear,
    proj: Linear,
    norm_2: Norm,
    up: Linear,
    down: Linear,
}

impl Block {
    pub fn new(weights: &Weights<'_>, index: usize) -> Self {
        let name = |part: &str| format!("h.{index}.{part}");
        Self {
            index,
            norm_1: weights.norm(&name("norm_1")),
            qkv: weights.linear(&name("attn.qkv")),
            proj: weights.linear(&name("attn.proj")),
            norm_2: weights.norm(&name("norm_2")),
            up: weights.linear(&name("mlp.up")),
            down: weights.linear(&name("mlp.down")),
        }
    }

    /// x (B, T, C) to the same shape.
    pub fn forward(&self, graph: &mut Graph, pass: &Pass<'_>, x: Tensor) -> Result<Tensor> {
        let normed = self.norm_1.apply(graph, x, "norm_1")?;
        let qkv = self.qkv.apply(graph, pass, normed, "attn.qkv")?;
        let mixed = pass.attend(graph, self.index, qkv)?;
        let branch = self.proj.apply(graph, pass, mixed, "attn.proj")?;
        let x = pass.residual(graph, x, branch, "attn.residual")?;

        let normed = self.norm_2.apply(graph, x, "norm_2")?;
        let up = self.up.apply(graph, pass, normed, "mlp.up")?;
        let active = pass.map(graph, gelu_tanh(input(0)), &[up], "mlp.gelu")?;
        let branch = self.down.apply(graph, pass, active, "mlp.down")?;
        pass.residual(graph, x, branch, "mlp.residual")
    }
}
