//! Log-likelihoods of data under the model before its first step.

use tightrope_nn::Trainer;
use tightrope_nn::inputs::TARGETS;

use super::passes::{Pass, Passes};
use super::{Batches, Numbers, Samples};
use crate::error::Result;

/// Has `data` know the log-likelihoods that it lacks, of the model as it is.
///
/// # Errors
/// Those of the device, and log-likelihoods that aren't finite.
pub(super) async fn refer(trainer: &mut Trainer, data: &mut dyn Batches) -> Result<()> {
    while let Some(samples) = data.unreferenced(trainer.config())? {
        let mut found = Vec::new();
        let micro_batch = trainer.config().micro_batch;
        for pass in Passes::new(samples, trainer.config()) {
            let Pass { samples, count, .. } = pass?;
            let losses = trainer.losses(&samples.batch()).await?;
            let own = losses.len() / micro_batch * count;
            found.extend(log_likelihoods(&losses, &samples).into_iter().take(own));
        }
        data.refer_to(trainer.config(), found)?;
    }
    Ok(())
}

/// Sums over the targets of each sequence, of whose losses these are the means.
fn log_likelihoods(losses: &[f32], batch: &Samples) -> Vec<f32> {
    let targets = batch.numbers().find(|(name, _)| *name == TARGETS);
    let Some((_, Numbers::I32(targets))) = targets else { return Vec::new() };
    let sequences = targets.chunks((targets.len() / losses.len().max(1)).max(1));
    let counts = sequences.map(|ids| ids.iter().filter(|&&id| id >= 0).count());
    losses.iter().zip(counts).map(|(loss, count)| -loss * count as f32).collect()
}
