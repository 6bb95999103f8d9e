//! Loss on held-out data.

use std::collections::BTreeMap;

use serde::Serialize;
use tightrope_nn::Trainer;

use super::HeldOut;
use crate::error::{Help as _, Result};

/// What an evaluation came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean over what counted, in nats.
    pub loss: f64,
    /// What counted: tokens that were predicted, images, or samples.
    pub tokens: usize,
    /// What the model says besides, by name: means as the loss.
    pub metrics: BTreeMap<String, f64>,
}

impl Evaluation {
    /// e to the loss.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }

    /// The loss in bits, which for a model of bytes is bits per byte.
    pub fn bits(&self) -> f64 {
        self.loss / std::f64::consts::LN_2
    }
}

/// Mean loss over `batches`, each of a micro-batch. `None` where there are none.
///
/// # Errors
/// Those of the device and of the files.
pub async fn evaluate(trainer: &mut Trainer, batches: HeldOut) -> Result<Option<Evaluation>> {
    evaluate_unless(trainer, batches, &mut || false).await
}

/// As [`evaluate`]; `None` too where `stop`, asked before every batch, says so.
pub(super) async fn evaluate_unless(
    trainer: &mut Trainer,
    batches: HeldOut,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Evaluation>> {
    let (mut sum, mut tokens, mut metrics) = (0.0, None, BTreeMap::new());
    for batch in batches {
        if stop() {
            return Ok(None);
        }
        let batch = batch?;
        let found = trainer.evaluate(&batch.batch()).await;
        let found = found.help("try again, or choose another device")?;
        sum += f64::from(found.loss) * batch.counted as f64;
        for (name, value) in found.metrics {
            let sum = metrics.entry(name).or_insert(0.0);
            *sum += f64::from(value) * batch.counted as f64;
        }
        *tokens.get_or_insert(0) += batch.counted;
    }
    Ok(tokens.map(|tokens: usize| {
        let mean = |sum: f64| sum / tokens.max(1) as f64;
        let metrics = metrics.into_iter().map(|(name, sum)| (name, mean(sum))).collect();
        Evaluation { loss: mean(sum), tokens, metrics }
    }))
}
