//! Qwen2 and Qwen2.5 (Qwen Team 2024): a Llama with biases of queries, keys and values. Qwen3 (Qwen Team 2025): without
//! biases, but with a norm of each head's queries and keys.

use serde_json::{Value, json};

use super::config::ModelConfig;
use super::decoder::Style;
use super::windows::{layer_types, read_windows, window_of};
use crate::error::Result;
use crate::keys::Keys;
use crate::layers::Normed;

pub(super) const QWEN2: Style = Style { qkv_bias: true, ..Style::LLAMA };
pub(super) const QWEN3: Style = Style { normed: Some(Normed::Heads), ..Style::LLAMA };

/// Layers before the first with a window, where a file names none, as in transformers.
const FULL_LAYERS: usize = 28;
/// Keys of a window where a file names none.
const WINDOW: usize = 4096;

/// What `config.json` of both says besides.
pub(super) fn read(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<()> {
    keys.must_be("hidden_act", &[json!("silu")])?;
    keys.must_be("attention_bias", &[json!(false)])?;
    let windows = keys.flag("use_sliding_window")?.unwrap_or(false);
    let window = window_of(keys, Some(WINDOW))?.filter(|_| windows);
    let full = keys.optional_size("max_window_layers")?.unwrap_or(FULL_LAYERS);
    read_windows(keys, config, window, |layer| layer >= full)
}

pub(super) fn write(config: &ModelConfig, file: &mut Value) {
    file["hidden_act"] = json!("silu");
    file["use_sliding_window"] = json!(config.details.window.is_some());
    file["sliding_window"] = json!(config.details.window);
    file["max_window_layers"] = json!(config.layers);
    file["layer_types"] = layer_types(config);
}
