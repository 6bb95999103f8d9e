//! Gemma 2 (Gemma Team 2024): embeddings times √C, norms before and after each branch with gains of 1 + w, caps on scores and
//! logits, layers with a window in turn with layers without, GEGLU. Gemma 3 (Gemma Team 2025), text: a norm of each head's
//! queries and keys in place of caps, five layers with a window to one without, which has rotary angles of its own.

use serde_json::{Value, json};

use super::config::{Details, ModelConfig};
use super::decoder::{Norms, Style};
use super::rope::RopeScaling;
use super::windows::{layer_types, read_windows, window_of};
use crate::error::Result;
use crate::keys::Keys;
use crate::layers::{Activation, Normed};

pub(super) const GEMMA2: Style = Style {
    norms: Norms::Both,
    gain_offset: 1.0,
    activation: Activation::GeluTanh,
    scaled_embedding: true,
    ..Style::LLAMA
};
pub(super) const GEMMA3: Style = Style { normed: Some(Normed::Heads), ..GEMMA2 };

/// What transformers takes where a file names none: channels of a head, what queries are scaled by, keys of a window, layers
/// from one without a window to the next in both, and Gemma 2's caps.
pub(super) const HEAD_DIM: usize = 256;
const QUERY_SCALE: f64 = 256.0;
const WINDOW: usize = 4096;
pub(super) const PATTERN_2: usize = 2;
pub(super) const PATTERN_3: usize = 6;
const ATTENTION_CAP: f64 = 50.0;
const LOGIT_CAP: f64 = 30.0;
/// Bases of the rotary angles in Gemma 3, with and without a window.
const LOCAL_THETA: f64 = 1e4;
pub(super) const GLOBAL_THETA: f64 = 1e6;

/// Layers with a window: all but each `pattern`th.
pub(super) fn is_local(pattern: usize) -> impl Fn(usize) -> bool {
    move |layer| !(layer + 1).is_multiple_of(pattern.max(1))
}

/// What a Gemma 2 has besides its extents, with a window in these layers.
pub(super) fn details_2(windowed: Vec<usize>) -> Details {
    let (attention_cap, logit_cap) = (Some(ATTENTION_CAP), Some(LOGIT_CAP));
    Details { window: Some(WINDOW), windowed, attention_cap, logit_cap, ..Details::NONE }
}

/// What a Gemma 3 has besides its extents, with a window in these layers.
pub(super) fn details_3(windowed: Vec<usize>) -> Details {
    let local_rope_theta = Some(LOCAL_THETA);
    Details { window: Some(WINDOW), windowed, local_rope_theta, ..Details::NONE }
}

fn read(keys: &Keys<'_>, config: &mut ModelConfig, pattern: usize) -> Result<()> {
    let tanh = [json!("gelu_pytorch_tanh")];
    keys.must_be("hidden_activation", &tanh)?;
    // transformers reads the other key alone.
    keys.pass_over(&["hidden_act"]);
    keys.must_be("attention_bias", &[json!(false)])?;
    keys.must_be("use_bidirectional_attention", &[json!(false)])?;
    let scale = keys.number("query_pre_attn_scalar")?.unwrap_or(QUERY_SCALE);
    config.details.query_scale = Some(scale).filter(|&scale| scale != config.head_dim() as f64);
    let window = window_of(keys, Some(WINDOW))?;
    read_windows(keys, config, window, is_local(pattern))
}

/// What Gemma 2's `config.json` says besides.
pub(super) fn read_2(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<()> {
    read(keys, config, PATTERN_2)?;
    // `null` is none, and a key that isn't there the family's.
    let cap = |key, default| match keys.number(key)? {
        None if !keys.has(key) => Ok(Some(default)),
        cap => Result::Ok(cap),
    };
    config.details.attention_cap = cap("attn_logit_softcapping", ATTENTION_CAP)?;
    config.details.logit_cap = cap("final_logit_softcapping", LOGIT_CAP)?;
    Ok(())
}

/// What Gemma 3's `config.json` says besides.
pub(super) fn read_3(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<()> {
    // transformers writes the key with the underscore and reads the other, if `layer_types` is missing.
    let pattern = keys.optional_size("sliding_window_pattern")?;
    keys.optional_size("_sliding_window_pattern")?;
    read(keys, config, pattern.unwrap_or(PATTERN_3))?;
    // transformers keeps this key of Gemma 2 in Gemma 3's configuration, and Gemma 3's attention doesn't read it.
    keys.number("attn_logit_softcapping")?;
    config.details.attention_cap = None;
    config.details.logit_cap = keys.number("final_logit_softcapping")?;
    let mut local = keys.number("rope_local_base_freq")?;
    if let Some(ropes) = keys.table("rope_parameters")?
        && let Some(table) = ropes.table("sliding_attention")?
    {
        table.must_be("rope_type", &[json!("default")])?;
        local = table.number("rope_theta")?.or(local);
    }
    config.details.local_rope_theta = Some(local.unwrap_or(LOCAL_THETA));
    Ok(())
}

fn write(config: &ModelConfig, file: &mut Value) {
    let details = &config.details;
    file["hidden_activation"] = json!("gelu_pytorch_tanh");
    file["attention_bias"] = json!(false);
    let scale = details.query_scale.unwrap_or(config.head_dim() as f64);
    // transformers takes a whole number.
    let whole = (scale.fract() == 0.0 && scale < 1e15).then_some(scale as u64);
    file["query_pre_attn_scalar"] = whole.map_or(json!(scale), |whole| json!(whole));
    file["sliding_window"] = json!(details.window);
    file["layer_types"] = layer_types(config);
    file["attn_logit_softcapping"] = json!(details.attention_cap);
    file["final_logit_softcapping"] = json!(details.logit_cap);
    file["pad_token_id"] = Value::Null;
}

pub(super) fn write_2(config: &ModelConfig, file: &mut Value) {
    write(config, file);
}

pub(super) fn write_3(config: &ModelConfig, file: &mut Value) {
    write(config, file);
    let local = config.details.local_rope_theta.unwrap_or(config.rope_theta);
    file["rope_local_base_freq"] = json!(local);
    file["rope_parameters"] = json!({
        "full_attention": file["rope_parameters"],
        "sliding_attention": RopeScaling::to_hf(None, local),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_gemma_3_does_not_read_change_nothing() {
        let preset = crate::models::preset("gemma-3-270m").unwrap();
        let of = |keys: Value| {
            let mut file = preset.to_hf();
            let file_keys = file.as_object_mut().unwrap();
            file_keys.remove("layer_types");
            file_keys.extend(keys.as_object().unwrap().clone());
            ModelConfig::from_hf(&file).unwrap().details
        };
        let windowed = |details: &Details, pattern: usize| {
            let local = (0..preset.layers).filter(|layer| (layer + 1) % pattern != 0);
            details.windowed == local.collect::<Vec<_>>()
        };
        assert!(windowed(&of(json!({})), PATTERN_3));
        assert!(windowed(&of(json!({"sliding_window_pattern": 3})), 3));
        // transformers writes this one and doesn't read it.
        assert!(windowed(&of(json!({"_sliding_window_pattern": 3})), PATTERN_3));
        assert_eq!(of(json!({"attn_logit_softcapping": 50.0})).attention_cap, None);
        assert_eq!(of(json!({"final_logit_softcapping": 30.0})).logit_cap, Some(30.0));
    }
}
