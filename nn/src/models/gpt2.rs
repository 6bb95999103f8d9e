//! GPT-2 (Radford et al. 2019).   B sequences, T positions, C channels
//!
//!   x  = wte[tokens] + wpe[positions]
//!   x += proj(attention(qkv(norm_1(x))))
//!   x += down(gelu(up(norm_2(x))))           for every block
//!   logits = norm_f(x) · headᵀ

use super::config::ModelConfig;
use super::parts::{Parts, residual_init, vocab_rows};
use crate::layers::{Activation, Attention, Block, Embedding, Layer, LayerNorm, Linear, Mlp};
use crate::params::{Init, Parameter};

/// What names in a file may lack.
pub(super) const PREFIX: &str = "transformer.";

const NORMAL: Init = Init::Normal { std: 0.02 };

/// Its layers, with their Hugging Face names. The four weights of a block are `Conv1D`s there, stored as (in, out).
pub(super) fn parts(config: &ModelConfig) -> Parts {
    let ModelConfig { layers, channels, context, tied, .. } = *config;
    let wpe = Parameter::new("wpe.weight", &[context, channels], NORMAL);
    Parts {
        wte: Embedding::of(vocab_rows("wte.weight", "transformer.wte.weight", config)),
        wpe: Some(Embedding::of(wpe.stored_as("transformer.wpe.weight"))),
        scale: 1.0,
        blocks: (0..layers).map(|index| block(config, index)).collect(),
        norm_f: Box::new(norm(config, "norm_f", "transformer.ln_f")),
        head: (!tied).then(|| vocab_rows("lm_head.weight", "lm_head.weight", config)),
    }
}

fn block(config: &ModelConfig, index: usize) -> Block {
    let ModelConfig { channels, heads, kv_heads, hidden, dropout, .. } = *config;
    let own = |part: &str| format!("h.{index}.{part}");
    let theirs = |part: &str| format!("transformer.h.{index}.{part}");
    let normed = |part: &str, theirs_part: &str| norm(config, &own(part), &theirs(theirs_part));
    let linear = |part: &str, theirs_part: &str, shape: [usize; 2], init: Init| {
        let named =
            |name: &str| (own(&format!("{part}.{name}")), theirs(&format!("{theirs_part}.{name}")));
        let ((weight, weight_there), (bias, bias_there)) = (named("weight"), named("bias"));
        let weight = Parameter::new(weight, &shape, init).stored_transposed_as(weight_there);
        (weight, Parameter::new(bias, &shape[..1], Init::Zeros).stored_as(bias_there))
    };
    let of = |(weight, bias)| Linear::of(weight, Some(bias));
    let residual = residual_init(config);
    let (qkv, mut qkv_bias) =
        linear("attn.qkv", "attn.c_attn", [config.packed(), channels], NORMAL);
    qkv_bias.without_gradient = channels..2 * channels;
    let proj = of(linear("attn.proj", "attn.c_proj", [channels, channels], residual));
    let up = of(linear("mlp.up", "mlp.c_fc", [hidden, channels], NORMAL));
    let down = of(linear("mlp.down", "mlp.c_proj", [channels, hidden], residual));
    let qkv = of((qkv, qkv_bias));
    let attention = Attention::of(own("attn"), qkv, proj, [heads, kv_heads], config.head_dim());
    let mlp = Mlp::of(own("mlp"), None, up, Activation::GeluTanh, down);
    let norms = [("norm_1", "ln_1"), ("norm_2", "ln_2")];
    let norms = norms.map(|(own, theirs)| Box::new(normed(own, theirs)) as Box<dyn Layer>);
    Block::new(format!("h.{index}"), norms, attention, mlp, dropout)
}

fn norm(config: &ModelConfig, own: &str, theirs: &str) -> LayerNorm {
    let [gain, bias] = [("weight", Init::Ones), ("bias", Init::Zeros)].map(|(part, init)| {
        let parameter = Parameter::new(format!("{own}.{part}"), &[config.channels], init);
        parameter.stored_as(format!("{theirs}.{part}"))
    });
    LayerNorm::of(gain, bias, config.norm_eps)
}
