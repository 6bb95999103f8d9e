//! Llama (Touvron et al. 2023).   B sequences, T positions, C channels
//!
//!   x  = wte[tokens]
//!   x += proj(attention(rope(qkv(norm_1(x)))))
//!   x += down(silu(gate(norm_2(x))) · up(norm_2(x)))     for every block
//!   logits = norm_f(x) · headᵀ

use super::config::ModelConfig;
use super::parts::{Parts, residual_init, vocab_rows};
use crate::layers::{Activation, Attention, Block, Embedding, Linear, Mlp, RmsNorm};
use crate::params::{Init, Parameter};

/// What names in a file may lack.
pub(super) const PREFIX: &str = "model.";

const NORMAL: Init = Init::Normal { std: 0.02 };

/// Its layers, with their Hugging Face names. The packed projection's rows are `q_proj`, `k_proj`, `v_proj`.
pub(super) fn parts(config: &ModelConfig) -> Parts {
    let norm_f = Parameter::new("norm_f.weight", &[config.channels], Init::Ones);
    Parts {
        wte: Embedding::of(vocab_rows("wte.weight", "model.embed_tokens.weight", config)),
        wpe: None,
        blocks: (0..config.layers).map(|index| block(config, index)).collect(),
        norm_f: Box::new(RmsNorm::of(norm_f.stored_as("model.norm.weight"), config.norm_eps)),
        head: (!config.tied).then(|| vocab_rows("lm_head.weight", "lm_head.weight", config)),
    }
}

fn block(config: &ModelConfig, index: usize) -> Block {
    let ModelConfig { channels, heads, kv_heads, hidden, dropout, norm_eps, rope_theta, .. } =
        *config;
    let (queries, keys) = (heads * config.head_dim(), kv_heads * config.head_dim());
    let own = |part: &str| format!("h.{index}.{part}");
    let theirs = |part: &str| format!("model.layers.{index}.{part}.weight");
    let weight = |part: &str, shape: &[usize], init| {
        Parameter::new(format!("h.{index}.{part}.weight"), shape, init)
    };
    let norm = |part: &str, there: &str| {
        Box::new(RmsNorm::of(
            weight(part, &[channels], Init::Ones).stored_as(theirs(there)),
            norm_eps,
        ))
    };
    let linear = |part: &str, there: &str, shape: [usize; 2], init| {
        Linear::of(weight(part, &shape, init).stored_as(theirs(there)), None)
    };
    let residual = residual_init(config);
    let packed = [("q_proj", queries), ("k_proj", keys), ("v_proj", keys)]
        .map(|(part, rows)| (theirs(&format!("self_attn.{part}")), rows));
    let qkv = weight("attn.qkv", &[config.packed(), channels], NORMAL).stored_in(packed);
    let (qkv, proj) = (
        Linear::of(qkv, None),
        linear("attn.proj", "self_attn.o_proj", [channels, channels], residual),
    );
    let gate = linear("mlp.gate", "mlp.gate_proj", [hidden, channels], NORMAL);
    let up = linear("mlp.up", "mlp.up_proj", [hidden, channels], NORMAL);
    let down = linear("mlp.down", "mlp.down_proj", [channels, hidden], residual);
    let attention = Attention::of(own("attn"), qkv, proj, [heads, kv_heads], config.head_dim());
    Block {
        name: format!("h.{index}"),
        norm_1: norm("norm_1", "input_layernorm"),
        attention: attention.with_rope(rope_theta),
        norm_2: norm("norm_2", "post_attention_layernorm"),
        mlp: Mlp::of(own("mlp"), Some(gate), up, Activation::Silu, down),
        dropout,
    }
}
