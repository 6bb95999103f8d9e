//! Log-likelihoods of data under the model before its first step.

use tightrope_nn::Trainer;
use tightrope_nn::inputs::TARGETS;

use super::{Batches, Numbers, Samples};
use crate::error::Result;

/// Has `data` know the log-likelihoods that it lacks, of the model as it is.
///
/// # Errors
/// Those of the device, and log-likelihoods that aren't finite.
pub(super) async fn refer(trainer: &mut Trainer, data: &mut dyn Batches) -> Result<()> {
    let Some(batches) = data.unreferenced(trainer.config())? else { return Ok(()) };
    let mut found = Vec::new();
    for batch in batches {
        let batch = batch?;
        let losses = trainer.losses(&batch.batch()).await?;
        found.extend(log_likelihoods(&losses, &batch));
    }
    data.refer_to(found)
}

/// Sums over the targets of each sequence, of whose losses these are the means.
fn log_likelihoods(losses: &[f32], batch: &Samples) -> Vec<f32> {
    let targets = batch.numbers().find(|(name, _)| *name == TARGETS);
    let Some((_, Numbers::I32(targets))) = targets else { return Vec::new() };
    let sequences = targets.chunks((targets.len() / losses.len().max(1)).max(1));
    let counts = sequences.map(|ids| ids.iter().filter(|&&id| id >= 0).count());
    losses.iter().zip(counts).map(|(loss, count)| -loss * count as f32).collect()
}
