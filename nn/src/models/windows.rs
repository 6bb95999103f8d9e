//! Which layers of a decoder have a window, as `config.json` says it.

use serde_json::Value;

use super::config::ModelConfig;
use crate::error::Result;
use crate::keys::Keys;

/// Keys that a query attends to in layers with a window: none where the file says `null`, and `default` where it says nothing.
pub(super) fn window_of(keys: &Keys<'_>, default: Option<usize>) -> Result<Option<usize>> {
    let window = keys.optional_size("sliding_window")?;
    Ok(if keys.has("sliding_window") { window } else { default })
}

/// Which layers have the window: those that the file lists, or else those that `has` says.
pub(super) fn read_windows(
    keys: &Keys<'_>,
    config: &mut ModelConfig,
    window: Option<usize>,
    has: impl Fn(usize) -> bool,
) -> Result<()> {
    let listed = keys.texts("layer_types")?;
    if let Some(listed) = &listed {
        let known = |kind: &&str| matches!(*kind, "full_attention" | "sliding_attention");
        if let Some(other) = listed.iter().find(|kind| !known(kind)) {
            let problem =
                format!("lists \"{other}\"; supported: full_attention, sliding_attention");
            return Err(keys.wrong("layer_types", problem));
        }
        if listed.len() != config.layers {
            let problem = format!("lists {} layers, not {}", listed.len(), config.layers);
            return Err(keys.wrong("layer_types", problem));
        }
    }
    let windowed = |layer: &usize| match &listed {
        Some(listed) => listed[*layer] == "sliding_attention",
        None => has(*layer),
    };
    let windowed: Vec<usize> = match window {
        None => vec![],
        Some(_) => (0..config.layers).filter(windowed).collect(),
    };
    config.details.window = window.filter(|_| !windowed.is_empty());
    config.details.windowed = windowed;
    Ok(())
}

/// Refuses layers with a window, in a family that has none.
pub(super) fn refuse_windows(keys: &Keys<'_>) -> Result<()> {
    let listed = keys.texts("layer_types")?.unwrap_or_default();
    match listed.iter().find(|kind| **kind != "full_attention") {
        None => Ok(()),
        Some(other) => {
            Err(keys.wrong("layer_types", format!("lists \"{other}\"; supported: full_attention")))
        }
    }
}

/// The list of layers for [`read_windows`].
pub(super) fn layer_types(config: &ModelConfig) -> Value {
    let windowed = |layer| config.details.windowed.contains(&layer);
    let kind = |layer| if windowed(layer) { "sliding_attention" } else { "full_attention" };
    (0..config.layers).map(kind).collect()
}
