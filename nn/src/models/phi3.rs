//! Phi-3 (Abdin et al. 2024): a Llama whose files hold queries, keys and values in one tensor, and the gate with what it
//! gates.

use serde_json::{Value, json};

use super::config::ModelConfig;
use super::decoder::Style;
use super::windows::{read_windows, window_of};
use crate::error::Result;
use crate::keys::Keys;

pub(super) const PHI3: Style = Style { packed: true, ..Style::LLAMA };

/// What its `config.json` says besides.
pub(super) fn read(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<()> {
    keys.must_be("hidden_act", &[json!("silu")])?;
    // What `longrope` alone reads.
    keys.pass_over(&["original_max_position_embeddings"]);
    let dropout = keys.number("resid_pdrop")?.unwrap_or(0.0);
    let embedding = keys.number("embd_pdrop")?.unwrap_or(0.0);
    if embedding != dropout {
        let problem = format!("is {embedding}; supported: the same as resid_pdrop, {dropout}");
        return Err(keys.wrong("embd_pdrop", problem));
    }
    config.dropout = dropout;
    let window = window_of(keys, None)?;
    read_windows(keys, config, window, |_| true)
}

pub(super) fn write(config: &ModelConfig, file: &mut Value) {
    file["hidden_act"] = json!("silu");
    file["embd_pdrop"] = json!(config.dropout);
    file["resid_pdrop"] = json!(config.dropout);
    file["sliding_window"] = json!(config.details.window);
    file["original_max_position_embeddings"] = json!(config.context);
    file["pad_token_id"] = Value::Null;
}
