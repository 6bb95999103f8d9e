//! What is said of a plan agrees with the plan.

use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::Checkpoint;
use tightrope_nn::{BuildOptions, Precision, Rates, preset};

use super::*;

fn config() -> TrainerConfig {
    TrainerConfig {
        batch: 8,
        micro_batch: 8,
        time: 64,
        build: BuildOptions { loss_chunk: 256, attention_chunk: 0 },
        seed: 1,
        decode: 64,
        ..TrainerConfig::new(preset("tiny").unwrap())
    }
}

fn summarised<R>(config: &TrainerConfig, look: impl FnOnce(&Summary<'_>) -> R) -> R {
    let device = Cpu::new(2).unwrap();
    let planned = Planned::new(config, &device).unwrap();
    let rates = Rates::of(&device.name(), Precision::F32, 2);
    let known = Known { rates, measured: false };
    look(&Summary::new(&planned, &device, known, Some(1 << 30), 0.25))
}

#[test]
fn the_object_adds_up() {
    summarised(&config(), |summary| {
        let object = summary.json();
        let plan = &summary.planned.plan;
        assert_eq!(object["peak_bytes"], plan.arena_bytes);
        assert!(object["lower_bound_bytes"].as_u64().unwrap() <= plan.arena_bytes);
        assert_eq!(object["budget_bytes"], 1 << 30);
        assert_eq!(object["choices"]["micro_batch"], 8);
        let classes = object["by_class"].as_object().unwrap();
        let sum: u64 = classes.values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(sum + object["gap_bytes"].as_u64().unwrap(), plan.arena_bytes);
        assert_eq!(classes.len(), Class::ALL.len() - 1, "nothing is frozen");
        let program = &object["programs"][0];
        assert_eq!(program["name"], "train");
        let live = program["live"].as_array().unwrap();
        assert_eq!(live.len(), program["phases"].as_array().unwrap().len());
        for it in program["arena"].as_array().unwrap() {
            let end = it["offset"].as_u64().unwrap() + it["bytes"].as_u64().unwrap();
            assert!(
                end <= plan.arena_bytes && it["birth"].as_u64() <= it["death"].as_u64(),
                "{it}"
            );
        }
        let kept: u64 =
            summary.persistent().iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
        assert!(kept <= plan.persistent_bytes && kept + 64 * 64 > plan.persistent_bytes);
    });
}

#[test]
fn what_is_planned_is_what_is_allocated() {
    for micro_batch in [8, 2] {
        let config = TrainerConfig { micro_batch, ..config() };
        let device = Cpu::new(2).unwrap();
        let planned = Planned::new(&config, &device).unwrap();
        let predicted = planned.plan.arena_bytes;
        let trainer = tightrope_nn::Trainer::new(planned, Box::new(device)).unwrap();
        assert_eq!(trainer.allocated_bytes(), predicted);
    }
}

#[test]
fn every_line_fits_the_width_of_the_chart() {
    summarised(&config(), |summary| {
        let text = summary.text(100);
        let chart = text.split("kept between steps\n").nth(1).unwrap();
        assert_eq!(chart.lines().count(), ROWS + 1);
        assert!(chart.lines().all(|line| line.chars().count() <= 100), "{chart}");
        for phase in ["│forward", "│backward", "│update"] {
            assert!(chart.contains(phase), "{chart}");
        }
        assert!(text.contains("micro-batch 8 × 1, checkpoint none, loss chunk 256 rows"), "{text}");
        assert!(text.contains(&format!("({} bytes)", summary.report.peak_bytes)), "{text}");
    });
}

#[test]
fn accumulation_repeats_the_micro_step() {
    let whole = summarised(&config(), |summary| summary.estimate);
    let parts = TrainerConfig { micro_batch: 2, ..config() };
    summarised(&parts, |summary| {
        let names: Vec<_> = summary.json()["programs"].as_array().unwrap().clone();
        assert_eq!((&names[0]["name"], &names[1]["name"]), (&json!("micro"), &json!("update")));
        // The same products, in four parts; sums of gradients come on top.
        let ratio = summary.estimate.flops / whole.flops;
        assert!((1.0..1.1).contains(&ratio), "{ratio}");
        assert!(summary.estimate.step_s > whole.step_s);
        assert!(summary.text(80).contains("one micro-step for all"));
    });
}

#[test]
fn recomputation_is_counted() {
    assert_eq!(summarised(&config(), |summary| summary.estimate.recomputed()), 0.0);
    let mut block = config();
    block.options.checkpoint = Checkpoint::Block;
    let share = summarised(&block, |summary| summary.estimate.recomputed());
    assert!((0.02..0.34).contains(&share), "{share}");
}

#[test]
fn faster_machines_are_estimated_faster() {
    let names =
        ["cpu (2 threads, avx512)", "cpu (2 threads, avx2+fma)", "cpu (2 threads, portable)"];
    let device = Cpu::new(2).unwrap();
    let planned = Planned::new(&config(), &device).unwrap();
    let seconds = |name: &str, threads| {
        Estimate::new(&planned.plan, 1, &Rates::of(name, Precision::F32, threads)).step_s
    };
    let times = names.map(|name| seconds(name, 2));
    assert!(times.is_sorted() && times[0] > 0.0, "{times:?}");
    assert!(seconds(names[0], 4) < times[0]);
}

#[test]
fn blocks_are_listed_together_and_nothing_is_lost() {
    summarised(&config(), |summary| {
        let alive = &summary.report.alive;
        let groups = grouped(alive);
        assert_eq!(groups.iter().map(|group| group.count).sum::<usize>(), alive.len());
        let bytes: u64 = alive.iter().map(|tensor| tensor.bytes).sum();
        assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), bytes);
        let gelu = groups.iter().find(|group| group.name == "h.*.mlp.gelu").unwrap();
        assert_eq!(gelu.count, 2);
        assert!(summary.text(80).contains("2 × h.*.mlp.gelu"));
    });
}
