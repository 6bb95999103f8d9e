//! How long steps take on each of the ranks that train together, and how much of it they wait for each other.

use std::mem::take;
use std::time::Instant;

use anyhow::Context as _;
use tightrope_core::Wait;

use super::Run;
use crate::error::{Help as _, Result};
use crate::figures::{RankStep, RankTimes, RankWait, median};

/// A rank is slow that computes so many times as long as most do.
const SLOW: f64 = 1.25;

/// This rank's steps since the others heard of them, and what all have told.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Option<Instant>,
    steps: u64,
    own: RankTimes,
    /// Times that all ranks have told, and the sums over all steps so far, by rank.
    told: u64,
    sums: Vec<RankTimes>,
    summed: u64,
    /// Whether a slow rank was named.
    named: bool,
    last: RankStep,
}

impl Pace {
    /// Takes what all ranks tell of `steps` steps.
    fn hear(&mut self, steps: u64, times: &[RankTimes]) {
        // The first steps touch memory for the first time: they don't count where there are others.
        if self.told <= 1 {
            self.sums = vec![RankTimes::default(); times.len()];
            self.summed = 0;
        }
        self.told += 1;
        self.summed += steps;
        for (sum, times) in self.sums.iter_mut().zip(times) {
            sum.step_s += steps as f64 * times.step_s;
            sum.waited_s += steps as f64 * times.waited_s;
        }
    }

    /// What a step took on each rank, on average.
    fn mean(&self) -> Vec<RankTimes> {
        let steps = self.summed.max(1) as f64;
        let mean = |sum: &RankTimes| RankTimes {
            step_s: sum.step_s / steps,
            waited_s: sum.waited_s / steps,
        };
        self.sums.iter().map(mean).collect()
    }

    /// The rank that the others wait for, once.
    fn slow(&mut self, times: &[RankTimes]) -> Option<String> {
        // The first steps say little.
        if self.named || self.told <= 1 {
            return None;
        }
        let computes: Vec<f64> = times.iter().map(RankTimes::computes_s).collect();
        let most = median(&computes)?;
        let (rank, slowest) =
            computes.into_iter().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        self.named = slowest > SLOW * most;
        self.named.then(|| {
            format!(
                "note: rank {rank} is slow: it computes for {slowest:.3} s of a step, most for {most:.3} s, and all wait for it"
            )
        })
    }
}

/// When ranks compute and when they wait, in a line.
pub fn describe(ranks: &[RankTimes]) -> Option<String> {
    let computes = ranks.iter().map(RankTimes::computes_s).enumerate();
    let (fastest, least) = computes.clone().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (slowest, most) = computes.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let waits = |rank: usize| ranks[rank].waited_s;
    Some(format!(
        "of a step, rank {slowest} computed for the longest, {most:.4} s, and waited for {:.4} s; rank {fastest} for the \
         shortest, {least:.4} s, and waited for {:.4} s",
        waits(slowest),
        waits(fastest)
    ))
}

impl Run<'_> {
    /// What a step takes on each rank, on average of those so far; nothing where there are no others.
    pub fn rank_times(&self) -> Vec<RankTimes> {
        self.pace.mean()
    }

    /// Keeps when this rank waits for others in a step, for [`Run::rank_steps`].
    ///
    /// # Errors
    /// Those of the device.
    pub(super) async fn keep_waits_async(&mut self) -> Result<()> {
        self.with_trainer(async |trainer| {
            trainer.keep_waits();
            Ok(())
        })
        .await
    }

    /// The last step of each rank, in the order of ranks: nothing where there are no others. All ranks ask for it together.
    ///
    /// # Errors
    /// A rank that doesn't answer.
    pub(super) async fn rank_steps_async(&mut self) -> Result<Vec<RankStep>> {
        const HELP: &str = "give all ranks the same flags";
        if !self.is_joined() {
            return Ok(vec![]);
        }
        let own =
            serde_json::to_vec(&self.pace.last).context("a step doesn't fit JSON").help(HELP)?;
        let all = self
            .with_trainer(async |trainer| {
                Ok(trainer.bytes_of_ranks("their last steps", own.clone())?)
            })
            .await?;
        let steps = all.iter().zip(self.pace.mean()).map(|(bytes, mean)| {
            let step: RankStep = serde_json::from_slice(bytes)?;
            Ok(RankStep { mean, ..step })
        });
        steps.collect::<serde_json::Result<_>>().context("a rank told no step").help(HELP)
    }

    /// From here on a step is timed.
    pub(super) async fn begin_step(&mut self) -> Result<()> {
        self.with_trainer(async |trainer| {
            trainer.take_waits();
            Ok(())
        })
        .await?;
        self.pace.since = Some(Instant::now());
        Ok(())
    }

    /// A step has ended: what steps took on each rank since it was last told, where it is `told` now.
    pub(super) async fn end_step(&mut self, told: bool) -> Result<Vec<RankTimes>> {
        let Some(since) = self.pace.since.take() else { return Ok(vec![]) };
        let step_s = since.elapsed().as_secs_f64();
        let (waited, waits) = self.with_trainer(async |trainer| Ok(trainer.take_waits())).await?;
        let waits = waits.into_iter().map(|wait| seen(since, wait)).collect();
        self.pace.last = RankStep { step_s, waits, ..RankStep::default() };
        self.pace.steps += 1;
        self.pace.own.step_s += step_s;
        self.pace.own.waited_s += waited.as_secs_f64();
        if !told {
            return Ok(vec![]);
        }
        let (steps, own) = (take(&mut self.pace.steps), take(&mut self.pace.own));
        let own = vec![own.step_s / steps as f64, own.waited_s / steps as f64];
        let all = self
            .with_trainer(async |trainer| {
                Ok(trainer.figures_of_ranks("how long steps took", own.clone())?)
            })
            .await?;
        let times = |figures: &Vec<f64>| RankTimes { step_s: figures[0], waited_s: figures[1] };
        let times: Vec<RankTimes> = all.iter().map(times).collect();
        self.pace.hear(steps, &times);
        let slow = self.pace.slow(&times);
        self.inner.origin.notes.extend(slow);
        Ok(times)
    }
}

/// A wait, from where the step began.
fn seen(step: Instant, Wait { what, since, took }: Wait) -> RankWait {
    let begin_s = since.saturating_duration_since(step).as_secs_f64();
    RankWait { what, begin_s, took_s: took.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: &[(f64, f64)]) -> Vec<RankTimes> {
        all.iter().map(|&(step_s, waited_s)| RankTimes { step_s, waited_s }).collect()
    }

    #[test]
    fn the_first_step_counts_where_there_is_no_other() {
        let mut pace = Pace::default();
        pace.hear(1, &times(&[(9.0, 1.0), (9.0, 2.0)]));
        assert_eq!(pace.mean(), times(&[(9.0, 1.0), (9.0, 2.0)]));
        pace.hear(9, &times(&[(1.0, 0.5), (1.0, 0.0)]));
        pace.hear(3, &times(&[(2.0, 0.5), (2.0, 1.0)]));
        assert_eq!(pace.mean(), times(&[(1.25, 0.5), (1.25, 0.25)]));
    }

    #[test]
    fn a_slow_rank_is_named_once() {
        let slow = times(&[(2.0, 1.0), (2.0, 0.9), (2.0, 0.0), (2.0, 1.1)]);
        let mut pace = Pace::default();
        pace.hear(1, &slow);
        assert_eq!(pace.slow(&slow), None, "the first steps say little");
        let even = times(&[(2.0, 0.0), (2.0, 0.1), (2.0, 0.2), (2.0, 0.3)]);
        pace.hear(9, &even);
        assert_eq!(pace.slow(&even), None);
        let note = pace.slow(&slow).unwrap();
        assert!(
            note.contains("rank 2 is slow: it computes for 2.000 s of a step, most for 1.050 s"),
            "{note}"
        );
        assert_eq!(pace.slow(&slow), None);
        let line = describe(&slow).unwrap();
        assert!(
            line.contains("rank 2 computed for the longest, 2.0000 s, and waited for 0.0000 s"),
            "{line}"
        );
        assert!(
            line.contains("rank 3 for the shortest, 0.9000 s, and waited for 1.1000 s"),
            "{line}"
        );
        assert_eq!(describe(&[]), None);
    }
}
