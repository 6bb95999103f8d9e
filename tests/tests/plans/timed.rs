//! Deep models are planned while one waits: the fastest plan's cost grows with the number of layers, not with its square.

use std::fs;
use std::time::{Duration, Instant};

use tightrope_backend_cpu::Cpu;
use tightrope_nn::{Free, ModelConfig, Planner, TrainerConfig, preset};

use conformance::times::{THREADS, rate};

/// Layers of a deep model, and of one with so many times fewer.
const LAYERS: usize = 1000;
const TIMES: usize = 4;
/// A model of so many times as many layers takes at most so many times as long to plan: its logarithms and its cache misses
/// are in it, and a square would be 16 times.
const GROWTH: f64 = 8.0;
/// Seconds of the processor in which the deep model is planned, with and without a budget.
const DEEP_S: f64 = 2.0;
/// Seconds of the processor in which a model of twice GPT-2 1.5B's layers is planned.
const USUAL_S: f64 = 0.1;
/// Seconds in which a core of the machine that the bounds were set on sorts [`SORTED`] numbers.
const SORT_S: f64 = 0.025;
const SORTED: u64 = 1_000_000;
/// Tries of the deep model. Smaller ones have more: other programs on a machine only ever add to a measurement.
const TRIES: usize = 3;

/// Time of the processor that this thread had, where the system says so: others of its threads don't count.
fn thread_time(start: Instant) -> Duration {
    let ran = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ran = ran.and_then(|text| text.split_whitespace().next()?.parse().ok());
    ran.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// Seconds that it takes to plan a model without a limit, and within `part` of the bytes of that plan.
fn planning(layers: usize, part: f64) -> [f64; 2] {
    let model = ModelConfig { layers, ..preset("gpt2").expect("a preset") };
    let config = TrainerConfig::new(model.build(model.context).expect("a model"));
    let cpu = Cpu::new(THREADS).expect("threads");
    let start = Instant::now();
    let before = thread_time(start);
    let mut planner = Planner::new(&config, Free::ALL, &cpu, rate).expect("a model");
    let whole = planner.within(u64::MAX).expect("plans").0.expect("a plan without a limit");
    let between = thread_time(start);
    let budget = (part * whole.plan.peak_bytes() as f64) as u64;
    let within = planner.fitting(budget).expect("plans").expect("a plan within the budget");
    assert!(within.plan.peak_bytes() <= budget && within.plan.options != whole.plan.options);
    [between - before, thread_time(start) - between].map(|time| time.as_secs_f64())
}

/// The least of several tries.
fn fastest(layers: usize) -> [f64; 2] {
    let tries = TRIES * LAYERS / layers;
    let tries: Vec<[f64; 2]> = (0..tries).map(|_| planning(layers, 0.9)).collect();
    [0, 1].map(|part| tries.iter().map(|taken| taken[part]).fold(f64::INFINITY, f64::min))
}

/// How much slower this machine is than the one that the bounds were set on; 1 where it's faster.
fn slowness() -> f64 {
    let sort = || {
        let mut numbers: Vec<u64> =
            (0..SORTED).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let start = Instant::now();
        let before = thread_time(start);
        numbers.sort_unstable();
        let seconds = (thread_time(start) - before).as_secs_f64();
        assert!(numbers.is_sorted());
        seconds
    };
    ((0..5).map(|_| sort()).fold(f64::INFINITY, f64::min) / SORT_S).max(1.0)
}

#[test]
#[ignore = "measures time: cargo xtask timed"]
fn a_thousand_layers_are_planned_in_two_seconds() {
    let slowness = slowness();
    println!("{slowness:.2} times the time of the machine that the bounds were set on");
    let [usual, few, many] = [96, LAYERS / TIMES, LAYERS].map(fastest);
    println!("96 layers {usual:.3?} s, {} {few:.3?} s, {LAYERS} {many:.3?} s", LAYERS / TIMES);
    assert!(usual.iter().sum::<f64>() < slowness * USUAL_S, "96 layers: {usual:?} s");
    assert!(many.iter().sum::<f64>() < slowness * DEEP_S, "{LAYERS} layers: {many:?} s");
    assert!(many[0] < GROWTH * few[0], "{LAYERS} layers: {many:?} s, a quarter of them: {few:?} s");
}
