//! Loss on held-out data.

use std::collections::BTreeMap;

use serde::Serialize;
use tightrope_nn::{Evaluation as Found, Trainer, TrainerConfig};

use super::{HeldOut, Samples};
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

/// As [`evaluate`]; `None` too where `stop`, asked before every batch, says so on any rank. Ranks take turns, and all hear what
/// each found: so the mean has the same bits for any number of them. Those that share contexts take one turn together.
pub(super) async fn evaluate_unless(
    trainer: &mut Trainer,
    mut batches: HeldOut,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Evaluation>> {
    // A browser's tab has no others to take turns with.
    let is_alone = cfg!(target_family = "wasm");
    let TrainerConfig { ranks, context_ranks, .. } = *trainer.config();
    let [ranks, each] = if is_alone { [1, 1] } else { [ranks, context_ranks] };
    let (mut sum, mut tokens, mut metrics) = (0.0, None, BTreeMap::new());
    loop {
        let round = batches.by_ref().take(ranks / each).collect::<Result<Vec<Samples>>>()?;
        // A rank that the last round has nothing for repeats a batch: others may need its shards of weights.
        let Some(own) = round.get(trainer.rank() / each).or(round.last()) else { break };
        let stops = stop();
        if stops && ranks == 1 {
            return Ok(None);
        }
        let found = trainer.evaluate(&own.batch()).await;
        let found = found.help("try again, or choose another device")?;
        let Some(all) = of_all_ranks(trainer, &found, stops)? else { return Ok(None) };
        for (batch, figures) in round.iter().zip(all.into_iter().step_by(each)) {
            sum += figures[0] * batch.counted as f64;
            for ((name, _), figure) in found.metrics.iter().zip(&figures[1..]) {
                let sum = metrics.entry(name.clone()).or_insert(0.0);
                *sum += figure * batch.counted as f64;
            }
            *tokens.get_or_insert(0) += batch.counted;
        }
    }
    Ok(tokens.map(|tokens: usize| {
        let mean = |sum: f64| sum / tokens.max(1) as f64;
        let metrics = metrics.into_iter().map(|(name, sum)| (name, mean(sum))).collect();
        Evaluation { loss: mean(sum), tokens, metrics }
    }))
}

/// The loss and the metrics that each rank found, in the order of ranks; `None` where one of them stops.
fn of_all_ranks(
    trainer: &mut Trainer,
    found: &Found,
    stops: bool,
) -> Result<Option<Vec<Vec<f64>>>> {
    let metrics = found.metrics.iter().map(|&(_, figure)| figure);
    let figures = [f32::from(u8::from(stops)), found.loss].into_iter().chain(metrics);
    let own = figures.map(f64::from).collect();
    let mut all = trainer.figures_of_ranks("the loss on held-out data", own)?;
    let mut stops = false;
    for figures in &mut all {
        stops |= figures.remove(0) != 0.0;
    }
    Ok((!stops).then_some(all))
}
