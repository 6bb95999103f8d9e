//! Llama (Touvron et al. 2023).   B sequences, T positions, C channels
//!
//!   x  = wte[tokens]
//!   x += proj(attention(rope(qkv(norm_1(x)))))
//!   x += down(silu(gate(norm_2(x))) · up(norm_2(x)))     for every block
//!   logits = norm_f(x) · headᵀ

use tightrope_core::expr::input;
use tightrope_core::ops::Rope;
use tightrope_core::{Graph, Tensor};

use crate::config::ModelConfig;
use crate::error::Result;
use crate::layers::{Linear, Norm, Pass, Weights};
use crate::params::{Init, Parameter, residual_init, vocab_rows};
use tightrope_core::activation::swiglu;

/// Parameters with their Hugging Face names. The packed projection's rows are `q_proj`, `k_proj`, `v_proj`.
pub(crate) fn parameters(config: &ModelConfig) -> Vec<Parameter> {
    let ModelConfig { layers, channels, hidden, tied, .. } = *config;
    let queries = config.heads * config.head_dim();
    let values = queries + config.kv_heads * config.head_dim();
    let normal = Init::Normal { std: 0.02 };
    let residual = residual_init(config);
    let mut list = vec![vocab_rows("wte.weight", "model.embed_tokens.weight", config).looked_up()];
    for index in 0..layers {
        let own = |part: &str| format!("h.{index}.{part}.weight");
        let theirs = |part: &str| format!("model.layers.{index}.{part}.weight");
        let weight = |part: &str, shape: &[usize], init| Parameter::new(own(part), shape, init);
        list.extend([
            weight("norm_1", &[channels], Init::Ones).whole(theirs("input_layernorm")),
            weight("attn.qkv", &[config.packed(), channels], normal)
                .rows(theirs("self_attn.q_proj"), 0..queries)
                .rows(theirs("self_attn.k_proj"), queries..values)
                .rows(theirs("self_attn.v_proj"), values..config.packed()),
            weight("attn.proj", &[channels, channels], residual).whole(theirs("self_attn.o_proj")),
            weight("norm_2", &[channels], Init::Ones).whole(theirs("post_attention_layernorm")),
            weight("mlp.gate", &[hidden, channels], normal).whole(theirs("mlp.gate_proj")),
            weight("mlp.up", &[hidden, channels], normal).whole(theirs("mlp.up_proj")),
            weight("mlp.down", &[channels, hidden], residual).whole(theirs("mlp.down_proj")),
        ]);
    }
    list.push(Parameter::new("norm_f.weight", &[channels], Init::Ones).whole("model.norm.weight"));
    if !tied {
        list.push(vocab_rows("lm_head.weight", "lm_head.weight", config));
    }
    list
}

/// One block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    index: usize,
    norm_1: Norm,
    qkv: Linear,
    proj: Linear,
    norm_2: Norm,
    gate: Linear,
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
            gate: weights.linear(&name("mlp.gate")),
            up: weights.linear(&name("mlp.up")),
            down: weights.linear(&name("mlp.down")),
        }
    }

    /// x (B, T, C) to the same shape.
    pub fn forward(&self, graph: &mut Graph, pass: &Pass<'_>, x: Tensor) -> Result<Tensor> {
        let normed = self.norm_1.apply(graph, x, "norm_1")?;
        let qkv = self.qkv.apply(graph, pass, normed, "attn.qkv")?;
        let rope = Rope {
            rotated: pass.config.heads + pass.config.kv_heads,
            head_dim: pass.config.head_dim(),
            theta: pass.config.rope_theta,
            inverse: false,
        };
        let turned = graph.one(rope, &[qkv, pass.start], "attn.rope")?;
        let mixed = pass.attend(graph, self.index, turned)?;
        let branch = self.proj.apply(graph, pass, mixed, "attn.proj")?;
        let x = pass.residual(graph, x, branch, "attn.residual")?;

        let normed = self.norm_2.apply(graph, x, "norm_2")?;
        let gate = self.gate.apply(graph, pass, normed, "mlp.gate")?;
        let up = self.up.apply(graph, pass, normed, "mlp.up")?;
        let active = pass.map(graph, swiglu(input(0), input(1)), &[gate, up], "mlp.swiglu")?;
        let branch = self.down.apply(graph, pass, active, "mlp.down")?;
        pass.residual(graph, x, branch, "mlp.residual")
    }
}
