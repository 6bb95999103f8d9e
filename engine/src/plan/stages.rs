//! What ranks would take by what each holds a shard of, and on how few of them that would fit.

use tightrope_core::Backend;
use tightrope_core::plan::Checkpoint;
use tightrope_nn::{Shard, TrainerConfig};

use super::budget::budget;
use super::fit::sharded;
use super::scope::Scope;
use super::trial::Trial;

/// The most ranks that are tried.
const MOST: usize = 1024;

/// What each rank would take that holds a shard of this.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// What it holds a shard of.
    pub shard: Shard,
    /// Bytes of the arena: of the fastest plan that fits, or of the smallest.
    pub peak_bytes: u64,
    /// Whether it fits.
    pub fits: bool,
    /// Bytes that it sends in a step.
    pub sent_bytes: u64,
    /// Predicted seconds of a step, in which ranks wait for what they send.
    pub step_s: f64,
    /// Seconds of them that ranks send.
    pub sent_s: f64,
    /// The fewest ranks on which a step of as many samples fits, where there are any.
    pub fewest_ranks: Option<usize>,
}

/// What ranks would take by what they hold shards of.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    /// How many there are.
    pub ranks: usize,
    /// Samples of a step of all of them.
    pub batch: usize,
    /// From the least that is cut to the most.
    pub stages: Vec<Stage>,
}

impl Stages {
    /// Of the step of `config` on `device`. A stage that can't be planned is left out.
    pub fn new(scope: &Scope, config: &TrainerConfig, device: &dyn Backend) -> Self {
        let budget = budget(scope, device).unwrap_or(u64::MAX);
        let alone = Scope { shard: false, ..scope.clone() };
        let trial = Trial { scope: &alone, device };
        let stage = |config: TrainerConfig| {
            let found = trial.closest(&config, budget)?;
            let planned = &found.planned;
            let known = scope.rates.known(device, config.precision, scope.threads);
            Some(Stage {
                shard: config.shard,
                peak_bytes: planned.plan.peak_bytes(),
                fits: found.fits,
                sent_bytes: planned.sent_bytes().values().sum(),
                step_s: planned.estimate(&known.rates).step_s,
                sent_s: planned.sent_s(&known.rates).values().sum(),
                fewest_ranks: fewest(&config, found.fits, |n| fits(trial, &config, n, budget)),
            })
        };
        let stages = sharded(scope, config).into_iter().filter_map(stage).collect();
        Self { ranks: config.ranks, batch: config.batch, stages }
    }
}

/// Whether the smallest plan that takes no search fits: one sample a pass, and blocks recomputed.
fn fits(trial: Trial<'_>, config: &TrainerConfig, ranks: usize, budget: u64) -> bool {
    let mut config = TrainerConfig { ranks, shorter: vec![], ..config.clone() };
    // Gradients that are consumed are of one pass.
    config.micro_batch = if config.consume_gradients { config.own_batch() } else { 1 };
    config.options.checkpoint = Checkpoint::Block;
    trial.as_is(&config).is_some_and(|planned| planned.plan.peak_bytes() <= budget)
}

/// The fewest of the ranks that the batch can be cut among on which the step fits: more of them never take more.
fn fewest(config: &TrainerConfig, fit: bool, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let each = config.context_ranks.max(1);
    let most = config.batch.min(MOST.max(config.ranks) / each);
    let contexts = (1..=most).filter(|n| config.batch.is_multiple_of(*n));
    let ranks: Vec<usize> = contexts.map(|contexts| contexts * each).collect();
    // Those before `low` don't fit, and the one at `high` does, where there is one.
    let (mut low, mut high) = (0, ranks.len());
    if fit {
        high = ranks.iter().position(|&n| n == config.ranks).unwrap_or(high);
    }
    while low < high {
        let middle = usize::midpoint(low, high);
        match fits(ranks[middle]) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    ranks.get(high).copied()
}

#[cfg(all(test, feature = "cpu", not(target_family = "wasm")))]
mod tests {
    use tightrope_backend_cpu::Cpu;
    use tightrope_nn::Planned;

    use super::*;
    use crate::plan::fewest_bytes;
    use crate::recipe::Step;
    use crate::settings::Settings;

    fn step(words: &[&str]) -> Step {
        let mut settings = Settings::default();
        const WORDS: [&str; 4] = [
            "run.device=cpu",
            "model.preset=shakespeare",
            "train.batch=8",
            "memory.loss_chunk=none",
        ];
        for words in WORDS.iter().chain(words) {
            settings.read_argument(words).unwrap();
        }
        Step::of(&settings).unwrap()
    }

    #[test]
    fn each_stage_is_its_own_plan_and_more_is_cut_on_fewer_ranks() {
        let cpu = Cpu::new(1).unwrap();
        let words = |shard: u32| {
            [
                format!("memory.shard={shard}"),
                "run.ranks=4".to_owned(),
                "memory.budget=110MiB".to_owned(),
            ]
        };
        let Step { config, scope, .. } =
            step(&["memory.shard=auto", "run.ranks=4", "memory.budget=110MiB"]);
        let found = Stages::new(&scope, &config, &cpu);
        assert_eq!((found.ranks, found.batch, found.stages.len()), (4, 8, 4));
        for stage in &found.stages {
            let words = words(stage.shard.into());
            let Step { config, scope, .. } = step(&words.each_ref().map(String::as_str));
            let least = fewest_bytes(&scope, &config, &cpu).unwrap();
            assert_eq!(stage.fits, least <= 110 << 20, "{stage:?}: {least} bytes");
            if stage.fits {
                assert_eq!(
                    stage.peak_bytes,
                    scope_planned(&scope, &config, &cpu).plan.peak_bytes()
                );
            }
            assert!(stage.sent_s > 0.0 && stage.sent_s < stage.step_s, "{stage:?}");
        }
        let fewest: Vec<Option<usize>> = found.stages.iter().map(|it| it.fewest_ranks).collect();
        assert!(fewest[0].is_none(), "{fewest:?}");
        assert!(fewest[3].is_some_and(|ranks| (2..=4).contains(&ranks)), "{fewest:?}");
        let falls = |two: &[Option<usize>]| two[0].is_none() || two[1] <= two[0];
        assert!(fewest.windows(2).all(falls), "{fewest:?}");
        // Whoever holds more of it takes no fewer bytes.
        assert!(found.stages.windows(2).all(|two| !two[0].fits || two[1].fits));
    }

    fn scope_planned(scope: &Scope, config: &TrainerConfig, cpu: &Cpu) -> Planned {
        crate::plan::planned(scope, config.clone(), cpu).unwrap()
    }
}
