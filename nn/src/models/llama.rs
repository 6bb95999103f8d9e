//! Llama (Touvron et al. 2023; Llama Team 2024), of which TinyLlama and SmolLM 1 and 2 are sizes: the decoder as it is.

use serde_json::{Value, json};

use super::config::ModelConfig;
use super::windows::refuse_windows;
use crate::error::Result;
use crate::keys::Keys;

/// What its `config.json` says besides.
pub(super) fn read(keys: &Keys<'_>, _config: &mut ModelConfig) -> Result<()> {
    keys.must_be("hidden_act", &[json!("silu")])?;
    keys.must_be("attention_bias", &[json!(false)])?;
    keys.must_be("mlp_bias", &[json!(false)])?;
    refuse_windows(keys)
}

pub(super) fn write(_config: &ModelConfig, file: &mut Value) {
    file["hidden_act"] = json!("silu");
    file["attention_bias"] = json!(false);
    file["mlp_bias"] = json!(false);
}
