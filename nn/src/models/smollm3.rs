//! SmolLM3 (Bakouch et al. 2025): a Llama of which each fourth layer has no positions.

use serde_json::{Value, json};

use super::config::ModelConfig;
use super::windows::{layer_types, read_windows, window_of};
use crate::error::Result;
use crate::keys::Keys;

/// Layers from one without positions to the next where a file names none, as in transformers, and the base of the angles.
pub(super) const INTERVAL: usize = 4;
pub(super) const THETA: f64 = 2e6;

/// Layers without positions: each `interval`th.
pub(super) fn is_unrotated(interval: usize) -> impl Fn(usize) -> bool {
    move |layer| (layer + 1).is_multiple_of(interval.max(1))
}

/// What its `config.json` says besides.
pub(super) fn read(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<()> {
    keys.must_be("hidden_act", &[json!("silu")])?;
    keys.must_be("attention_bias", &[json!(false)])?;
    keys.must_be("mlp_bias", &[json!(false)])?;
    let interval = keys.optional_size("no_rope_layer_interval")?.unwrap_or(INTERVAL);
    // Against its name, the list says 1 of a layer that has positions.
    let unrotated = match keys.numbers("no_rope_layers")? {
        None => (0..config.layers).filter(|&layer| is_unrotated(interval)(layer)).collect(),
        Some(list) if list.len() == config.layers => {
            let without = list.iter().enumerate().filter(|&(_, &has)| has == 0);
            without.map(|(layer, _)| layer).collect()
        }
        Some(list) => {
            let problem = format!("lists {} layers, not {}", list.len(), config.layers);
            return Err(keys.wrong("no_rope_layers", problem));
        }
    };
    config.details.unrotated = unrotated;
    let windows = keys.flag("use_sliding_window")?.unwrap_or(false);
    let window = window_of(keys, None)?.filter(|_| windows);
    let without = config.details.unrotated.clone();
    read_windows(keys, config, window, |layer| without.contains(&layer))
}

pub(super) fn write(config: &ModelConfig, file: &mut Value) {
    file["hidden_act"] = json!("silu");
    file["attention_bias"] = json!(false);
    file["mlp_bias"] = json!(false);
    let rotated = |layer| u8::from(!config.details.unrotated.contains(&layer));
    file["no_rope_layers"] = (0..config.layers).map(rotated).collect();
    file["no_rope_layer_interval"] = json!(INTERVAL);
    file["use_sliding_window"] = json!(config.details.window.is_some());
    file["sliding_window"] = json!(config.details.window);
    file["layer_types"] = layer_types(config);
    file["pad_token_id"] = Value::Null;
}
