//! Training through the CUDA kernels, emulated on the processor, beside training on the processor itself.

use std::path::{Path, PathBuf};

use conformance::draw::Draw;
use conformance::language::changed;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::Emulated;
use tightrope_core::Backend;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_nn::{
    Batch, BuildOptions, Family, Gradients, Master, Offload, Planned, Precision, Trainer,
    TrainerConfig,
};

fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated")
}

fn cpu() -> Box<Cpu> {
    Box::new(Cpu::new(2).expect("threads"))
}

/// A small model, in steps of two micro-batches.
fn config(family: Family, precision: Precision) -> TrainerConfig {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    model.family = family;
    (model.layers, model.channels, model.heads, model.kv_heads) = (2, 32, 2, 2);
    (model.hidden, model.context, model.vocab) = (64, 24, 50);
    model.dropout = 0.1;
    if family == Family::Gpt2 {
        model.hidden = 4 * model.channels;
    }
    TrainerConfig {
        precision,
        batch: 4,
        micro_batch: 2,
        build: BuildOptions { loss_chunk: 32, ..BuildOptions::default() },
        seed: 3,
        ..TrainerConfig::new(model.build(24).expect("a model"))
    }
}

/// Losses of the first steps.
fn losses(backend: Box<dyn Backend>, config: &TrainerConfig, steps: u64) -> Vec<f32> {
    let planned = Planned::new(config, &*backend).expect("a plan");
    let peak = planned.plan.peak_bytes();
    let mut trainer = Trainer::offloading(planned, backend, cpu()).expect("memory");
    assert_eq!(trainer.allocated_bytes(), peak);
    trainer.initialise().expect("weights");
    let text: Vec<i32> = (0..2 * 48 + 1).map(|i| i * i % 47).collect();
    let batch = Batch::text(&text[..96], &text[1..]);
    (0..steps)
        .map(|step| {
            trainer.step(step, 3e-3, &batch).expect("a step");
            block_on(trainer.outcome()).expect("an outcome").loss
        })
        .collect()
}

#[test]
fn training_emulated_follows_the_processor() {
    const STEPS: u64 = 5;
    let (wide, narrow) = ((Gradients::F32, Master::F32), (Gradients::BF16, Master::None));
    for (family, precision, (gradients, master), tolerance) in [
        (Family::Gpt2, Precision::F32, wide, 1e-4),
        (Family::Llama, Precision::F32, wide, 1e-4),
        (Family::Gpt2, Precision::BF16, wide, 2e-2),
        (Family::Gpt2, Precision::BF16, narrow, 2e-3),
        (Family::Llama, Precision::F16, wide, 5e-3),
    ] {
        // Threads take turns in another order each time.
        let config = TrainerConfig { gradients, master, ..config(family, precision) };
        let emulated = |seed| {
            let device = Emulated::new(cache(), seed);
            losses(Box::new(Cuda::new(Box::new(device))), &config, STEPS)
        };
        let cpu = losses(cpu(), &config, STEPS);
        let found = emulated(1);
        let worst = cpu.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{family:?} {precision:?}: at most {worst} off");
        assert!(worst <= tolerance, "{family:?} {precision:?}: {found:?} and {cpu:?}");
        assert_eq!(found, emulated(99), "{family:?} {precision:?}: the order of threads shows");
    }
}

#[test]
fn losses_of_samples_emulated_are_those_of_the_processor() {
    let config = TrainerConfig { losses: true, ..config(Family::Llama, Precision::F32) };
    let tokens: Vec<i32> = (0..48).map(|i| i * i % 47).collect();
    let of = |backend: Box<dyn Backend>| {
        let planned = Planned::new(&config, &*backend).expect("a plan");
        let mut trainer = Trainer::new(planned, backend).expect("memory");
        trainer.initialise().expect("weights");
        block_on(trainer.losses(&Batch::text(&tokens, &tokens))).expect("losses")
    };
    let expected = of(cpu());
    let found = of(Box::new(Cuda::new(Box::new(Emulated::new(cache(), 5)))));
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
    }
    assert!(expected.len() == 2 && expected[0] != expected[1], "{expected:?}");
}

#[test]
fn a_hundred_steps_emulated_follow_the_processor() {
    const STEPS: u64 = 100;
    // Four times what was measured: the last place of the first losses.
    const TOLERANCE: f32 = 1e-6;
    let families = vec![Family::Gpt2, Family::Llama];
    for family in Draw::of_today().one_of(2, "families for a hundred steps", families) {
        let config = config(family, Precision::F32);
        let cpu = losses(cpu(), &config, STEPS);
        let device = Box::new(Emulated::new(cache(), 5));
        let found = losses(Box::new(Cuda::new(device)), &config, STEPS);
        let worst = cpu.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{family:?}: {} to {}, at most {worst} off", found[0], found[99]);
        assert!(found[99] < found[0] / 2.0, "{family:?} learns nothing: {found:?}");
        assert!(worst <= TOLERANCE, "{family:?}: {found:?} and {cpu:?}");
    }
}

/// Activations that a matmul made with it and those that a map makes again are the same.
#[test]
fn recomputation_changes_no_bit_of_a_run_emulated() {
    const STEPS: u64 = 3;
    for family in [Family::Gpt2, Family::Llama] {
        let mut checkpoints = vec![Checkpoint::None, Checkpoint::Block, Checkpoint::Every(2)];
        if family == Family::Gpt2 {
            let names = [0, 1].map(|block| format!("h.{block}.mlp.gelu"));
            checkpoints.push(Checkpoint::Tensors(names.to_vec()));
        }
        let run = |checkpoint| {
            let options = Options { checkpoint, ..Options::default() };
            let config = TrainerConfig { options, ..config(family, Precision::BF16) };
            losses(Box::new(Cuda::new(Box::new(Emulated::new(cache(), 5)))), &config, STEPS)
        };
        let found: Vec<Vec<f32>> = checkpoints.into_iter().map(run).collect();
        assert!(found.iter().all(|losses| *losses == found[0]), "{family:?}: {found:?}");
    }
}

#[test]
fn what_waits_on_the_host_comes_back_to_a_cuda_device_as_it_was() {
    const STEPS: u64 = 3;
    let offload = Offload { optimizer: true, gradients: true, activations: true, weights: true };
    let held = config(Family::Gpt2, Precision::F32);
    let config = TrainerConfig { offload, ..held.clone() };
    let device = || Box::new(Cuda::new(Box::new(Emulated::new(cache(), 5))));
    let (found, expected) = (losses(device(), &config, STEPS), losses(device(), &held, STEPS));
    let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 1e-6, "{found:?} and {expected:?}");
}

#[test]
fn asynchronous_copies_change_no_bit() {
    const STEPS: u64 = 2;
    let optimizer = Offload { optimizer: true, ..Offload::NONE };
    for (offload, checkpoint) in [
        (Offload { gradients: true, ..optimizer }, Checkpoint::None),
        (Offload { activations: true, ..Offload::NONE }, Checkpoint::Block),
        (Offload { weights: true, ..optimizer }, Checkpoint::Every(2)),
        (
            Offload { gradients: true, activations: true, weights: true, ..optimizer },
            Checkpoint::Block,
        ),
    ] {
        let with = |overlap| {
            let options = Options { checkpoint: checkpoint.clone(), overlap, ..Options::default() };
            // Wide enough for its weights to be moved.
            let wide = changed(&config(Family::Gpt2, Precision::F32), |model| {
                (model.layers, model.channels, model.hidden) = (3, 128, 512);
            });
            TrainerConfig { offload, options, ..wide }
        };
        let run = |overlap, seed| {
            let device = Cuda::new(Box::new(Emulated::new(cache(), seed)));
            losses(Box::new(device), &with(overlap), STEPS)
        };
        let in_turn = run(false, 1);
        // Copies are made early and late, differently each time.
        for seed in 1..3 {
            assert_eq!(run(true, seed), in_turn, "{offload} with {checkpoint}, seed {seed}");
        }
    }
}
