//! A budget gets the fastest plan that fits: more bytes are never slower, fewer are never exceeded, and the
//! search says how far from the best it can be.

use conformance::language::changed;
use conformance::parallel;
use conformance::times::{THREADS, rate, seconds};
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options, Search};
use tightrope_core::{Graph, Node};
use tightrope_nn::{
    BuildOptions, Family, Free, ModelConfig, Planned, Planner, Precision, Rates, TrainerConfig,
    preset, presets, sweep,
};

/// Budgets tried for each model.
const BUDGETS: u64 = 100;
/// A step takes at most so many times what its bound says that no plan takes less than.
const NEAR: f64 = 1.01;
/// The same of models that norm queries and keys: their blocks have small tensors more, of which the bound takes parts.
const NEAR_WITH_NORMS: f64 = 1.04;

fn config(name: &str, batch: usize, seq_len: usize) -> TrainerConfig {
    let model = preset(name).expect("a preset");
    let model = ModelConfig { context: seq_len.max(model.context), ..model };
    TrainerConfig {
        batch,
        micro_batch: batch,
        build: BuildOptions { loss_chunk: 1024, ..BuildOptions::default() },
        seed: 0,
        ..TrainerConfig::new(model.build(seq_len).expect("a model"))
    }
}

fn within(config: &TrainerConfig, budget: u64, free: Free) -> (Option<Planned>, u64) {
    let cpu = Cpu::new(THREADS).expect("threads");
    Planned::within(config, budget, free, &cpu, &rate).expect("a model that can be planned")
}

/// Models with a budget that is too small for any plan, and the bytes that nothing recomputed takes.
fn models() -> Vec<(TrainerConfig, u64, u64)> {
    let of = |config: TrainerConfig| {
        let whole = within(&config, u64::MAX, Free::NONE).0.expect("no limit").plan.peak_bytes();
        let (none, smallest) = within(&config, 1, Free::ALL);
        assert!(none.is_none() && smallest < whole);
        (config, smallest, whole)
    };
    vec![
        of(config("shakespeare", 8, 256)),
        of(config("gpt2", 4, 256)),
        of(config("llama-15m", 4, 256)),
    ]
}

#[test]
fn a_larger_budget_is_never_slower_and_a_smaller_one_never_peaks_higher() {
    for (config, smallest, whole) in models() {
        let (mut before, mut least) = (f64::INFINITY, 0);
        for part in 0..=BUDGETS {
            let budget = smallest + (whole - smallest) * part / BUDGETS;
            let (found, _) = within(&config, budget, Free::ALL);
            let planned = found.unwrap_or_else(|| panic!("{budget} bytes are enough"));
            let peak = planned.plan.peak_bytes();
            assert!((least..=budget).contains(&peak), "{budget}: {peak} bytes after {least}");
            least = peak;
            let (step, _) = seconds(&planned.plan, planned.config().accumulation());
            assert!(step <= before * (1.0 + 1e-9), "{budget}: {step} s after {before} s");
            before = step;
        }
    }
}

#[test]
fn every_plan_of_every_preset_is_near_its_bound() {
    let problems = parallel::map(presets(), |preset| {
        let cpu = Cpu::new(THREADS).expect("threads");
        let config = config(preset.name, 4, preset.config().context);
        let mut planner = Planner::new(&config, Free::ALL, &cpu, rate).expect("a model");
        let plans = sweep(|budget| planner.within(budget)).expect("plans");
        assert!(plans.len() > 1, "{}: {} plans", preset.name, plans.len());
        let far = |planned: &Planned| {
            let (step_s, _) = seconds(&planned.plan, planned.config().accumulation());
            let times = step_s / planned.bound_s.expect("a bound of a plan that was searched for");
            let peak = planned.plan.peak_bytes();
            let norms = matches!(preset.config().family, Family::Qwen3 | Family::Gemma3);
            let most = if norms { NEAR_WITH_NORMS } else { NEAR };
            let near = (1.0 - 1e-9..most).contains(&times);
            (!near).then(|| format!("{}, {peak} bytes: {times:.4} times", preset.name))
        };
        plans.iter().filter_map(far).collect::<Vec<_>>()
    });
    let problems = problems.concat();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Logits of fewer rows move the head's bytes once more: in time between activations that are cheap to make again and those
/// that aren't.
#[test]
fn fewer_rows_of_logits_are_taken_where_that_is_faster() {
    const PARTS: u64 = 20;
    let config = config("gpt2", 4, 256);
    let (rows, free) = (config.build.loss_chunk, Free { loss_chunk: true, ..Free::NONE });
    let whole = within(&config, u64::MAX, free).0.expect("no limit");
    assert_eq!(whole.config().build.loss_chunk, rows);
    let (whole, smallest) = (whole.plan.peak_bytes(), within(&config, 1, Free::NONE).1);
    assert!(within(&config, 1, free).1 <= smallest);
    let step_s = |planned: &Planned| seconds(&planned.plan, planned.config().accumulation()).0;
    let cpu = Cpu::new(THREADS).expect("threads");
    let mut faster = 0;
    for part in 0..PARTS {
        let budget = smallest + (whole - smallest) * part / PARTS;
        let planned = |free| within(&config, budget, free).0.expect("bytes enough");
        let (fewer, as_asked) = (planned(free), planned(Free::NONE));
        assert_eq!(as_asked.config().build.loss_chunk, rows);
        let (fewer_s, as_asked_s) = (step_s(&fewer), step_s(&as_asked));
        assert!(fewer_s <= as_asked_s * (1.0 + 1e-9), "{budget}: {fewer_s} s, {as_asked_s} s");
        if fewer.config().build.loss_chunk < rows {
            faster += usize::from(fewer_s < as_asked_s);
            let again = Planned::new(fewer.config(), &cpu).expect("a plan of the choices");
            assert_eq!(again.plan.peak_bytes(), fewer.plan.peak_bytes());
        }
    }
    assert!((1..PARTS as usize).contains(&faster), "{faster} of {PARTS}");
}

#[test]
fn smaller_micro_batches_take_no_fewer_seconds() {
    for name in ["shakespeare", "gpt2", "llama-15m"] {
        let mut before = 0.0;
        for micro_batch in [8, 4, 2, 1] {
            let config = TrainerConfig { micro_batch, ..config(name, 8, 256) };
            let planned = within(&config, u64::MAX, Free::NONE).0.expect("no limit");
            let (step_s, _) = seconds(&planned.plan, config.accumulation());
            assert!(step_s >= before, "{name}: {step_s} s of {micro_batch} after {before} s");
            before = step_s;
        }
    }
}

/// Which plans are looked at depends on rates, so that one more or less close to the smallest of all is found.
#[test]
fn the_fewest_bytes_hardly_depend_on_rates() {
    const APART: f64 = 1e-3;
    let cpu = Cpu::new(THREADS).expect("threads");
    for (name, batch) in [("shakespeare", 8), ("shakespeare", 1), ("gpt2", 4), ("llama-15m", 4)] {
        let config = config(name, batch, 256);
        let fewest = ["cpu, avx512", "cpu, portable", "wgpu"].map(|device| {
            let rates = Rates::of(device, Precision::F32, THREADS);
            let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
            Planned::within(&config, 1, Free::ALL, &cpu, &seconds).expect("a model").1
        });
        let (least, most) = (fewest.iter().min(), fewest.iter().max());
        let (least, most) = (*least.expect("rates") as f64, *most.expect("rates") as f64);
        assert!(most <= (1.0 + APART) * least, "{name}, {batch}: {fewest:?}");
    }
}

#[test]
fn no_recomputation_takes_fewer_bytes_than_none_can() {
    let cpu = Cpu::new(THREADS).expect("threads");
    for (config, _, _) in models() {
        for micro_batch in [config.batch, 1] {
            let planned = |checkpoint| {
                let options = Options { checkpoint, ..Options::default() };
                let config = TrainerConfig { micro_batch, options, ..config.clone() };
                Planned::new(&config, &cpu).expect("a plan").plan
            };
            let graph = planned(Checkpoint::None).graph;
            let search = Search::new(graph, &Options::default(), false, &cpu, &rate);
            let least = search.expect("a search").least_bytes();
            let segments = (2..=6).map(Checkpoint::Every);
            let checkpoints = [Checkpoint::None, Checkpoint::Block].into_iter().chain(segments);
            let live: Vec<u64> =
                checkpoints.map(|checkpoint| planned(checkpoint).lower_bound_bytes()).collect();
            assert!(
                live.iter().all(|&bytes| bytes >= least),
                "{live:?}, and no fewer than {least}"
            );
            // What is far below all of them would rule nothing out.
            let fewest = live.iter().min().copied().unwrap_or(0);
            assert!(4 * least > 3 * fewest, "{least} of {fewest}");
        }
    }
}

#[test]
fn the_fewest_bytes_are_enough() {
    for (name, layers) in [("gpt2", 1), ("gpt2", 4), ("llama-110m", 2), ("llama-110m", 4)] {
        let config = changed(&config(name, 4, 512), |model| {
            (model.layers, model.vocab) = (layers, 5000);
        });
        let (_, fewest) = within(&config, 1, Free::ALL);
        let found = within(&config, fewest, Free::ALL).0;
        let found = found.unwrap_or_else(|| panic!("{name}, {layers}: {fewest} bytes are enough"));
        assert!(found.plan.peak_bytes() <= fewest);
    }
}

#[test]
fn a_plan_that_was_found_is_made_again_from_its_choices() {
    for (config, smallest, whole) in models() {
        for part in [1, 4, 7] {
            let budget = smallest + (whole - smallest) * part / 8;
            let found = within(&config, budget, Free::ALL).0.expect("a plan");
            let cpu = Cpu::new(THREADS).expect("threads");
            let again = Planned::new(found.config(), &cpu).expect("a plan");
            assert_eq!(found.plan.dump(), again.plan.dump());
        }
    }
}

#[test]
fn single_tensors_are_recomputed_before_blocks_are() {
    let config = config("gpt2", 4, 1024);
    let block = Options { checkpoint: Checkpoint::Block, ..Options::default() };
    let cpu = Cpu::new(THREADS).expect("threads");
    let whole = Planned::new(&config, &cpu).expect("a plan").plan;
    let block = TrainerConfig { options: block, ..config.clone() };
    let blocks = Planned::new(&block, &cpu).expect("a plan").plan;
    let middle = usize::midpoint(whole.peak_bytes() as usize, blocks.peak_bytes() as usize) as u64;
    let found = within(&config, middle, Free::NONE).0.expect("a plan").plan;
    let ((_, found), (_, blocks)) = (seconds(&found, 1), seconds(&blocks, 1));
    assert!(found < 0.35 * blocks, "{found} s against {blocks} s of recomputation");
}
