//! Whether a checkpoint continues in the settings and the data that a run goes on with.

use tightrope_data::Checkpoint;

use crate::error::Result;
use crate::run::{Batches, changed, check_continues};
use crate::settings::{Origin, Settings};

/// Whether a checkpoint continues in these settings and this data.
///
/// # Errors
/// A changed seed, number of bits of optimizer state, adapter, corpus, tokenizer or split.
pub(crate) fn check(
    checkpoint: &Checkpoint,
    settings: &Settings,
    data: &dyn Batches,
) -> Result<()> {
    let manifest = &checkpoint.manifest;
    check_continues(checkpoint, settings.train.seed, data)?;
    // Checkpoints of earlier versions say nothing of adapters, and have none.
    let mut before = Settings::default();
    let path = checkpoint.path.display().to_string();
    before.read_json(&manifest.settings, &Origin::Checkpoint(path))?;
    let adapted = settings.lora.rank > 0;
    for (key, matters) in [
        ("memory.optimizer_bits", true),
        ("train.freeze", true),
        ("lora.rank", true),
        ("lora.alpha", adapted),
        ("lora.targets", adapted),
        ("lora.base_bits", adapted),
    ] {
        let text = |settings: &Settings| -> anyhow::Result<String> {
            Ok(settings.value(key)?.map_or_else(|| "not set".to_owned(), |value| value.to_string()))
        };
        let (was, now) = (text(&before)?, text(settings)?);
        if matters && was != now {
            return changed(&format!("`{key}`"), was, now);
        }
    }
    Ok(())
}
