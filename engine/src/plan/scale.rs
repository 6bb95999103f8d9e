//! The same step on more and more GPUs, each of which computes while it sends, as its plan says.
//!
//! Every GPU takes as many samples a step, whatever their number. Bytes are those of each number's own plan, and times are predicted:
//! ops by the device's rates, and what is sent by its links.

use std::time::Instant;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_nn::{Overlapped, Planned, Shard, TrainerConfig};

use super::budget::{ALIKE, budget};
use super::file::Choices;
use super::fit::{closest, sharded};
use super::scope::Scope;
use super::trial::Trial;
use crate::error::{Error, Result};
use crate::interconnect::{Connected, Links};
use crate::rates::Known;

/// Numbers of GPUs after one.
pub const GPUS: [usize; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// The step on so many GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// How many.
    pub gpus: usize,
    /// What each holds a shard of.
    pub shard: Shard,
    /// What it was planned for.
    pub choices: Choices,
    /// Bytes of each.
    pub peak_bytes: u64,
    /// Whether they fit.
    pub fits: bool,
    /// Bytes that each sends in a step.
    pub sent_bytes: u64,
    /// Seconds of a step.
    pub step: Overlapped,
    /// Tokens or samples a second of all of them.
    pub per_s: f64,
    /// Those of one of them, as a part of what a GPU alone makes.
    pub efficiency: f64,
}

/// The step on one GPU, and on more and more of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// One GPU alone; where the step doesn't fit it, one with more memory.
    pub alone: Row,
    /// More of them.
    pub rows: Vec<Row>,
    /// What connects them.
    pub links: Connected,
    /// Samples of each in a step.
    pub own_batch: usize,
    /// Where predicted times are from.
    pub known: Known,
    /// Seconds that all of it took.
    pub seconds: f64,
}

impl Scale {
    /// Of the step of `config` on GPUs like `device`, on each of these numbers of them. Numbers that share no step of these settings are
    /// left out. `hears` gets the count of numbers that are
    /// planned, and of all.
    ///
    /// # Errors
    /// Settings that no graph can be built from.
    pub fn new(
        scope: &Scope,
        config: &TrainerConfig,
        device: &dyn Backend,
        gpus: &[usize],
        hears: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let start = Instant::now();
        let mut known = scope.rates.known(device, config.precision, scope.threads);
        let links = known.links.unwrap_or_else(|| Links::OF_GPU.of(None));
        known.rates = known.rates.connected(Some(links.rates()));
        let budget = budget(scope, device).unwrap_or(u64::MAX);
        let alone = Scope { shard: false, ..scope.clone() };
        let trial = Trial { scope: &alone, device };
        let simulated = Simulated { scope, trial, known, budget };
        let own_batch = config.own_batch();
        let asked = |gpus: usize| {
            // Those that can't share contexts have one each.
            let shared = config.context_ranks.max(1);
            let context_ranks = if gpus.is_multiple_of(shared) { shared } else { 1 };
            TrainerConfig {
                ranks: gpus,
                context_ranks,
                batch: own_batch * gpus / context_ranks,
                micro_batch: config.micro_batch.min(own_batch).max(1),
                ..config.clone()
            }
        };
        let (mut rows, mut chosen): (Vec<Row>, Option<TrainerConfig>) = (vec![], None);
        for (done, &count) in gpus.iter().enumerate() {
            hears(done, gpus.len() + 1);
            let asked = asked(count);
            let again = chosen.take().map(|chosen| TrainerConfig {
                ranks: asked.ranks,
                context_ranks: asked.context_ranks,
                batch: asked.batch,
                ..chosen
            });
            let fits = again.and_then(|config| simulated.again(config));
            let fits = fits.or_else(|| simulated.fastest(&asked));
            match fits {
                Some((row, config)) => {
                    rows.push(row);
                    chosen = Some(config);
                }
                None => rows.extend(simulated.smallest(&asked)),
            }
        }
        hears(gpus.len(), gpus.len() + 1);
        // A plan that doesn't fit one GPU is looked for only where it's shown.
        let alone = simulated.fastest(&asked(1)).map(|(row, _)| row);
        let alone = alone.or_else(|| {
            let (ranks, context_ranks) = (1, 1);
            let config = TrainerConfig { ranks, context_ranks, batch: own_batch, ..chosen? };
            Some(simulated.of(&trial.as_is(&config)?))
        });
        let Some(mut alone) = alone.or_else(|| simulated.smallest(&asked(1))) else {
            // It's what was asked for that can't be planned, or its part on one GPU.
            closest(scope, config, budget, device)?;
            return Err(Error::usage(
                anyhow!(
                    "one GPU alone can't be planned with these settings, and others are compared with it"
                ),
                "leave `--scale` out, or settings that only several ranks allow",
            ));
        };
        hears(gpus.len() + 1, gpus.len() + 1);
        let each = alone.per_s;
        for row in rows.iter_mut().chain([&mut alone]) {
            row.efficiency = row.per_s / (row.gpus as f64 * each);
        }
        let known = simulated.known;
        Ok(Self { alone, rows, links, own_batch, known, seconds: start.elapsed().as_secs_f64() })
    }
}

/// What a step is simulated with.
struct Simulated<'a> {
    scope: &'a Scope,
    /// Within a scope of one stage.
    trial: Trial<'a>,
    known: Known,
    budget: u64,
}

impl Simulated<'_> {
    /// The step with choices that were made for another number of GPUs, where they fit.
    fn again(&self, config: TrainerConfig) -> Option<(Row, TrainerConfig)> {
        let row = self.of(&self.trial.as_is(&config)?);
        row.fits.then_some((row, config))
    }

    /// The fastest step that fits, of all stages, with what was chosen.
    fn fastest(&self, asked: &TrainerConfig) -> Option<(Row, TrainerConfig)> {
        let mut best: Option<(Row, TrainerConfig)> = None;
        for config in sharded(self.scope, asked) {
            let Some(planned) = self.trial.fitting(&config, self.budget) else { continue };
            let row = self.of(&planned);
            let faster = |(best, _): &(Row, TrainerConfig)| {
                row.step.step_s < (1.0 - ALIKE) * best.step.step_s
            };
            if best.as_ref().is_none_or(faster) {
                best = Some((row, planned.config().clone()));
            }
        }
        best
    }

    /// The step of the fewest bytes, of all stages, none of which fits.
    fn smallest(&self, asked: &TrainerConfig) -> Option<Row> {
        let stages = sharded(self.scope, asked).into_iter();
        let planned = stages.filter_map(|config| self.trial.closest(&config, self.budget));
        planned.map(|closest| self.of(&closest.planned)).min_by_key(|row| row.peak_bytes)
    }

    /// What a plan comes to.
    fn of(&self, planned: &Planned) -> Row {
        let config = planned.config();
        let step = planned.overlapped(&self.known.rates);
        let peak_bytes = planned.plan.peak_bytes();
        Row {
            gpus: config.ranks,
            shard: config.shard,
            choices: Choices::of(config),
            peak_bytes,
            fits: peak_bytes <= self.budget,
            sent_bytes: planned.sent_bytes().values().sum(),
            step,
            per_s: config.tokens() as f64 / step.step_s,
            efficiency: 1.0,
        }
    }
}
