//! OLMo 2 (OLMo Team 2024): a Llama with norms after each branch in place of before, and of all queries and all keys of a
//! position.

use serde_json::{Value, json};

use super::config::ModelConfig;
use super::decoder::{Norms, Style};
use super::windows::refuse_windows;
use crate::error::Result;
use crate::keys::Keys;
use crate::layers::Normed;

pub(super) const OLMO2: Style =
    Style { normed: Some(Normed::Positions), norms: Norms::After, ..Style::LLAMA };

/// What its `config.json` says besides.
pub(super) fn read(keys: &Keys<'_>, _config: &mut ModelConfig) -> Result<()> {
    keys.must_be("hidden_act", &[json!("silu")])?;
    keys.must_be("attention_bias", &[json!(false)])?;
    refuse_windows(keys)
}

pub(super) fn write(_config: &ModelConfig, file: &mut Value) {
    file["hidden_act"] = json!("silu");
    file["attention_bias"] = json!(false);
    file["pad_token_id"] = Value::Null;
}
