//! Mistral 7B (Jiang et al. 2023): a Llama whose queries see a window of keys.

use serde_json::{Value, json};

use super::config::ModelConfig;
use super::windows::{read_windows, window_of};
use crate::error::Result;
use crate::keys::Keys;

/// Keys of a window where a file names none, as in transformers.
pub(super) const WINDOW: usize = 4096;

/// What its `config.json` says besides.
pub(super) fn read(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<()> {
    keys.must_be("hidden_act", &[json!("silu")])?;
    let window = window_of(keys, Some(WINDOW))?;
    read_windows(keys, config, window, |_| true)
}

pub(super) fn write(config: &ModelConfig, file: &mut Value) {
    file["hidden_act"] = json!("silu");
    file["sliding_window"] = json!(config.details.window);
}
