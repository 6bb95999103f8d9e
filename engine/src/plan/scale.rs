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

/// Bytes over the budget from which on a plan that doesn't fit is taken for the smallest, if it was the smallest of another number of GPUs.
const TOO_LARGE: f64 = 1.1;
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
        let mut rows = vec![];
        let mut before: Option<Found> = None;
        for (done, &count) in gpus.iter().enumerate() {
            hears(done, gpus.len() + 1);
            let asked = asked(count);
            let again = before.take().and_then(|found| simulated.again(found, &asked));
            let Some(found) = again.or_else(|| simulated.closest(&asked)) else { continue };
            rows.push(found.row.clone());
            before = Some(found);
        }
        hears(gpus.len(), gpus.len() + 1);
        // A plan that doesn't fit one GPU is looked for only where it's shown.
        let alone = simulated.fastest(&asked(1)).map(|found| found.row);
        let alone = alone.or_else(|| {
            let (ranks, context_ranks) = (1, 1);
            let chosen = before.filter(|found| found.row.fits)?.config;
            let config = TrainerConfig { ranks, context_ranks, batch: own_batch, ..chosen };
            Some(simulated.of(&trial.as_is(&config)?))
        });
        let smallest = || simulated.closest(&asked(1)).map(|found| found.row);
        let Some(mut alone) = alone.or_else(smallest) else {
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

/// The faster of two steps, the first if they are alike.
fn faster(best: Found, other: Found) -> Found {
    let is_faster = other.row.step.step_s < (1.0 - ALIKE) * best.row.step.step_s;
    if is_faster { other } else { best }
}

/// What a step is simulated with.
struct Simulated<'a> {
    scope: &'a Scope,
    /// Within a scope of one stage.
    trial: Trial<'a>,
    known: Known,
    budget: u64,
}

/// A step, with what was chosen for it.
struct Found {
    row: Row,
    config: TrainerConfig,
}

impl Simulated<'_> {
    /// The step of `asked` with the choices that were made for another number of GPUs; `None` where others may be better: those that fitted
    /// don't, or the smallest that didn't fit all but does.
    fn again(&self, Found { row: before, config }: Found, asked: &TrainerConfig) -> Option<Found> {
        let TrainerConfig { ranks, context_ranks, batch, .. } = *asked;
        let config = TrainerConfig { ranks, context_ranks, batch, ..config };
        let row = self.of(&self.trial.as_is(&config)?);
        let holds = match before.fits {
            true => row.fits,
            false => row.peak_bytes as f64 > TOO_LARGE * self.budget as f64,
        };
        holds.then_some(Found { row, config })
    }

    /// The fastest step that fits, of all stages.
    fn fastest(&self, asked: &TrainerConfig) -> Option<Found> {
        let stages = sharded(self.scope, asked).into_iter();
        let fitting = stages.filter_map(|config| self.trial.fitting(&config, self.budget));
        fitting.map(|planned| self.found(&planned)).reduce(faster)
    }

    /// The fastest step that fits, of all stages, or else that of the fewest bytes.
    fn closest(&self, asked: &TrainerConfig) -> Option<Found> {
        let stages = sharded(self.scope, asked).into_iter();
        let closest = stages.filter_map(|config| self.trial.closest(&config, self.budget));
        closest.map(|closest| self.found(&closest.planned)).reduce(|best, other| {
            match (best.row.fits, other.row.fits) {
                (true, true) => faster(best, other),
                (true, false) => best,
                (false, true) => other,
                (false, false) if other.row.peak_bytes < best.row.peak_bytes => other,
                (false, false) => best,
            }
        })
    }

    fn found(&self, planned: &Planned) -> Found {
        Found { row: self.of(planned), config: planned.config().clone() }
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
