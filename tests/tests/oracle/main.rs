//! Plans within a budget against the least recomputation that there is, by HiGHS: `cargo xtask oracle` fetches it.

mod integer;
mod pass;

use std::env;
use std::fs;
use std::path::PathBuf;

use conformance::language::language;
use conformance::parallel;
use conformance::times::{THREADS, rate, seconds};
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_nn::{BuildOptions, Family, Free, ModelConfig, Planned, TrainerConfig};

use crate::pass::Pass;

/// Budgets of each model, from the fewest bytes that a plan takes to what nothing recomputed takes.
const BUDGETS: u64 = 8;
/// Models by their blocks, micro-batches, and the first budget that the solver takes seconds for and not minutes.
const CASES: [(Family, usize, usize, u64); 8] = [
    (Family::Gpt2, 2, 1, 0),
    (Family::Gpt2, 2, 2, 1),
    (Family::Gpt2, 3, 1, 1),
    (Family::Gpt2, 4, 1, 4),
    (Family::Llama, 2, 1, 4),
    (Family::Llama, 2, 2, 3),
    (Family::Llama, 3, 1, 5),
    (Family::Llama, 4, 1, 6),
];
/// A plan takes at most so many times the fewest seconds that a step can take.
const NEAR: f64 = 1.01;
/// Part of a step by which what the solver finds may miss the optimum.
const SOLVED: f64 = 0.003;

fn config(family: Family, layers: usize, accumulation: usize) -> TrainerConfig {
    let name = if family == Family::Gpt2 { "gpt2" } else { "llama-110m" };
    let preset = tightrope_nn::preset(name).expect("a preset");
    let model = ModelConfig { layers, vocab: 5000, ..preset };
    TrainerConfig {
        batch: 4 * accumulation,
        micro_batch: 4,
        build: BuildOptions { loss_chunk: 256, ..BuildOptions::default() },
        ..TrainerConfig::new(model.build(512).expect("a model"))
    }
}

/// The family of a model, and its blocks.
fn described(config: &TrainerConfig) -> (&'static str, usize) {
    let model = language(config).config();
    (model.family.name(), model.layers)
}

/// Seconds of a step of the plan within one of [`BUDGETS`] budgets, as a multiple of the fewest that any schedule within
/// it takes; and a line that says what was found.
fn distance(config: &TrainerConfig, part: u64) -> (f64, String) {
    let cpu = Cpu::new(THREADS).expect("threads");
    let planned = |options: Options| {
        let config = TrainerConfig { options, ..config.clone() };
        Planned::new(&config, &cpu).expect("a plan").plan
    };
    let within =
        |budget| Planned::within(config, budget, Free::NONE, &cpu, &rate).expect("a model");
    let whole = planned(Options::default());
    let smallest = within(0).1;
    let budget = smallest + (whole.peak_bytes() - smallest) * part / BUDGETS;
    let plan = within(budget).0.expect("a plan").plan;
    let passes = config.accumulation();
    let (step_s, again_s) = seconds(&plan, passes);
    let (least_s, _) = seconds(&whole, passes);
    let (family, layers) = described(config);
    let highs = PathBuf::from(env::var_os("HIGHS").expect("`cargo xtask oracle` says where it is"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("oracle-{family}-{layers}-{passes}-{part}"));
    fs::create_dir_all(&folder).expect("a folder to write to");
    let bytes = budget - whole.persistent_bytes - whole.fixed_bytes;
    let gap = SOLVED * least_s / passes as f64;
    let solved = Pass::new(&whole, 0, &cpu).least(bytes, gap, &highs, &folder);
    let times = step_s / (least_s + passes as f64 * solved.bound_s);
    // What the solver drops is a plan too: its solution isn't one of the program's alone.
    let checkpoint = Checkpoint::Tensors(solved.dropped.clone());
    let real = planned(Options { checkpoint, ..Options::default() });
    let fits = real.lower_bound_bytes() <= budget && seconds(&real, passes).1 <= solved.seconds;
    let line = format!(
        "{family}, {layers} blocks, micro-batches {passes}, budget {part}: {times:.4} of the least step; {again_s:.4} s \
         of recomputation, {:.4} s by the solver, no less than {:.4} s, a plan of its activations {}; solved in {:.1} s",
        solved.seconds,
        solved.bound_s,
        if fits { "fits" } else { "doesn't fit" },
        solved.took,
    );
    (times, line)
}

#[test]
#[ignore = "needs HiGHS: `cargo xtask oracle` fetches it"]
fn plans_are_near_the_least_recomputation() {
    let mut cases = vec![];
    for (family, layers, accumulation, first) in CASES {
        let config = config(family, layers, accumulation);
        cases.extend((first..BUDGETS).map(|part| (config.clone(), part)));
    }
    let distances = parallel::map(&cases, |(config, part)| {
        let (distance, line) = distance(config, *part);
        println!("{line}");
        distance
    });
    for ((config, part), distance) in cases.iter().zip(distances) {
        let (family, layers) = described(config);
        assert!(distance <= NEAR, "{family}, {layers} blocks, budget {part}: {distance:.4} times");
    }
}
