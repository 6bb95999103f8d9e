//! The same step on more and more GPUs, each of which computes while it sends, as its plan says.
//!
//! Every GPU takes as many samples a step, whatever their number. Bytes are those of each number's own plan, and times are predicted:
//! ops by the device's rates, and what is sent by its links.

use std::time::Instant;

use tightrope_core::Backend;
use tightrope_nn::{Overlapped, Planned, Shard, TrainerConfig};

use super::budget::{ALIKE, budget};
use super::file::Choices;
use super::fit::{closest, sharded};
use super::scope::Scope;
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
    /// Of the step of `config` on GPUs like `device`, on each of these numbers of them.
    ///
    /// # Errors
    /// Settings that no graph can be built from.
    pub fn new(
        scope: &Scope,
        config: &TrainerConfig,
        device: &dyn Backend,
        gpus: &[usize],
    ) -> Result<Self> {
        let start = Instant::now();
        let mut known = scope.rates.known(device, config.precision, scope.threads);
        let links = known.links.unwrap_or_else(|| Links::OF_GPU.of(None));
        known.rates = known.rates.connected(Some(links.rates()));
        let budget = budget(scope, device).unwrap_or(u64::MAX);
        let simulated = Simulated { scope, device, known, budget };
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
        for &gpus in gpus {
            let asked = asked(gpus);
            let again = chosen.take().map(|chosen| TrainerConfig {
                ranks: asked.ranks,
                context_ranks: asked.context_ranks,
                batch: asked.batch,
                ..chosen
            });
            let (row, config) = simulated.row(&asked, again)?;
            chosen = row.fits.then_some(config);
            rows.push(row);
        }
        let mut alone = simulated.row(&asked(1), None)?.0;
        if let (false, Some(config)) = (alone.fits, &chosen) {
            let (ranks, context_ranks) = (1, 1);
            let config = TrainerConfig { ranks, context_ranks, batch: own_batch, ..config.clone() };
            let planned = Planned::new(&config, device).map_err(Error::from)?;
            alone = simulated.of(&planned);
        }
        let each = alone.per_s;
        for row in rows.iter_mut().chain([&mut alone]) {
            row.efficiency = row.per_s / (row.gpus as f64 * each);
        }
        Ok(Self { alone, rows, links, own_batch, known, seconds: start.elapsed().as_secs_f64() })
    }
}

/// What a step is simulated with.
struct Simulated<'a> {
    scope: &'a Scope,
    device: &'a dyn Backend,
    known: Known,
    budget: u64,
}

impl Simulated<'_> {
    /// The step as `asked`, with the choices of `again` where those fit, and with what was chosen.
    fn row(
        &self,
        asked: &TrainerConfig,
        again: Option<TrainerConfig>,
    ) -> Result<(Row, TrainerConfig)> {
        if let Some(config) = again {
            let planned = Planned::new(&config, self.device).map_err(Error::from)?;
            let row = self.of(&planned);
            if row.fits {
                return Ok((row, config));
            }
        }
        let mut best: Option<(Row, TrainerConfig)> = None;
        let stages = sharded(self.scope, asked);
        let alone = Scope { shard: false, ..self.scope.clone() };
        for config in stages {
            let within = |budget| closest(&alone, &config, budget, self.device);
            let planned = within(self.budget)?.planned;
            let row = self.of(&planned);
            let better = best.as_ref().is_none_or(|(best, _)| match (row.fits, best.fits) {
                (true, true) => row.step.step_s < (1.0 - ALIKE) * best.step.step_s,
                (false, false) => row.peak_bytes < best.peak_bytes,
                (fits, _) => fits,
            });
            if better {
                best = Some((row, planned.config().clone()));
            }
        }
        let lost = || Error::failed(anyhow::anyhow!("nothing is left to choose from"), "report it");
        best.ok_or_else(lost)
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
