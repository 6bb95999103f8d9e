//! Loss on held-out data.

use std::collections::BTreeMap;

use anyhow::anyhow;
use serde::Serialize;
use tightrope_core::Cancel;
use tightrope_nn::{Scored, Scores, Trainer, TrainerConfig};

use super::passes::{Pass, Passes};
use super::{HeldOut, Run, unless_cancelled};
use crate::error::{Error, Result};

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

impl Run<'_> {
    /// Mean loss on held-out data, or on the first of it that holds `most` tokens; `None` where nothing is held out, and where
    /// the run is asked to stop before the end.
    ///
    /// # Errors
    /// Errors of the data and of the device.
    pub async fn evaluate_async(&mut self, most: Option<usize>) -> Result<Option<Evaluation>> {
        let cancel = &self.cancel;
        let attempt = self.inner.attempt(async |origin, trainer| {
            let batches = origin.data.held_out(trainer.config(), most)?;
            evaluate_unless(trainer, batches, cancel).await
        });
        attempt.await
    }
}

/// Mean loss over the samples of `data`. `None` if there are none.
///
/// # Errors
/// Errors of the device and of the files; a last micro-batch that isn't full, of a model whose loss has no parts by sample.
pub async fn evaluate(trainer: &mut Trainer, data: HeldOut) -> Result<Option<Evaluation>> {
    evaluate_unless(trainer, data, &Cancel::default()).await
}

/// As [`evaluate`]; `None` too once `cancel` is requested, for several ranks on any of them before the next pass. Ranks take turns, and
/// all hear what each found; those that share contexts take one turn together. Samples are summed one after the other, so the mean has
/// the same bits for any number of ranks and any micro-batch.
pub(super) async fn evaluate_unless(
    trainer: &mut Trainer,
    data: HeldOut,
    cancel: &Cancel,
) -> Result<Option<Evaluation>> {
    // A browser's tab has no others to take turns with.
    let is_alone = cfg!(target_family = "wasm");
    let TrainerConfig { ranks, context_ranks, .. } = *trainer.config();
    let [ranks, each] = if is_alone { [1, 1] } else { [ranks, context_ranks] };
    let mut passes = Passes::new(data, trainer.config());
    let (mut loss, mut metrics) = (Mean::default(), BTreeMap::<String, Mean>::new());
    let mut any = false;
    loop {
        let round = passes.by_ref().take(ranks / each).collect::<Result<Vec<Pass>>>()?;
        // A rank that the last round has nothing for repeats a pass: others may need its shards of weights.
        let Some(own) = round.get(trainer.rank() / each).or(round.last()) else { break };
        any = true;
        if let Some(mixed) = own.is_filled_up.then(|| trainer.mixed()).flatten() {
            return Err(not_full(&mixed.to_string(), own.count));
        }
        let stops = cancel.is_requested();
        if stops && ranks == 1 {
            return Ok(None);
        }
        let found = trainer.scores(&own.samples.batch()).await;
        let found = unless_cancelled(found.map_err(Error::from))?;
        let Some(found) = found else { return Ok(None) };
        let Some(all) = of_all_ranks(trainer, &found, stops)? else { return Ok(None) };
        for (pass, figures) in round.iter().zip(all.into_iter().step_by(each)) {
            let mut figures = &figures[..];
            loss.add(&found.loss, pass, &mut figures)?;
            for (name, figure) in &found.metrics {
                let mean = metrics.entry(name.clone()).or_default();
                mean.add(figure, pass, &mut figures)?;
            }
        }
    }
    Ok(any.then(|| {
        let metrics = metrics.into_iter().map(|(name, mean)| (name, mean.value())).collect();
        Evaluation { loss: loss.value(), tokens: loss.count.round() as usize, metrics }
    }))
}

/// The refusal of a last micro-batch of `count` samples, with the reason.
fn not_full(reason: &str, count: usize) -> Error {
    Error::usage(
        anyhow!("{reason}, and the last {count} held-out samples don't fill a micro-batch"),
        "hold out a number of samples that the micro-batch divides, or give another train.micro_batch",
    )
}

/// A mean over what counts, summed sample by sample.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    total: f64,
    count: f64,
}

impl Mean {
    fn value(self) -> f64 {
        self.total / self.count.max(1.0)
    }

    /// Adds a pass's figure, of the kind of `scored`, whose numbers are the next of `numbers`.
    ///
    /// # Errors
    /// Samples that don't fill the micro-batch of a figure that has no parts by sample.
    fn add(&mut self, scored: &Scored, pass: &Pass, numbers: &mut &[f64]) -> Result<()> {
        let (own, rest) = numbers.split_at(width(scored));
        *numbers = rest;
        match scored {
            Scored::Samples(_) => {
                for sum in own.chunks_exact(2).take(pass.count) {
                    self.total += sum[0];
                    self.count += sum[1];
                }
            }
            Scored::Batch(_) if pass.is_filled_up => {
                return Err(not_full("the loss has no parts by sample", pass.count));
            }
            Scored::Batch(_) => {
                self.total += own[0] * pass.counted;
                self.count += pass.counted;
            }
        }
        Ok(())
    }
}

/// Numbers of a figure that ranks tell each other.
fn width(scored: &Scored) -> usize {
    match scored {
        Scored::Samples(sums) => 2 * sums.len(),
        Scored::Batch(_) => 1,
    }
}

/// The numbers of all figures that each rank found, in the order of ranks; `None` where one of them stops.
fn of_all_ranks(
    trainer: &mut Trainer,
    found: &Scores,
    stops: bool,
) -> Result<Option<Vec<Vec<f64>>>> {
    let mut own = vec![f64::from(u8::from(stops))];
    for figure in [&found.loss].into_iter().chain(found.metrics.iter().map(|(_, it)| it)) {
        match figure {
            Scored::Samples(sums) => own.extend(sums.iter().flat_map(|it| [it.total, it.count])),
            Scored::Batch(figure) => own.push(*figure),
        }
    }
    let mut all = trainer.figures_of_ranks("the loss on held-out data", own)?;
    let mut stops = false;
    for figures in &mut all {
        stops |= figures.remove(0) != 0.0;
    }
    Ok((!stops).then_some(all))
}
