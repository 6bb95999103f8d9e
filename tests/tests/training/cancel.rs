//! A request to stop, at any op of a step: the step is dropped or finished, and no number changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance::late::Late;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::{Backend, Cancel};
use tightrope_nn::{
    Batch, ModelConfig, Offload, Planned, Precision, Trainer, TrainerConfig, preset,
};

use crate::text::{VOCAB, saved, train};

const LR: f64 = 1e-2;

fn config(micro_batch: usize) -> TrainerConfig {
    let model = preset("llama-tiny").expect("a preset");
    let model = ModelConfig { layers: 2, vocab: VOCAB, context: 16, ..model };
    let model = model.build(16).expect("a model");
    TrainerConfig { batch: 8, micro_batch, seed: 5, ..TrainerConfig::new(model) }
}

fn cpu() -> Box<Cpu> {
    Box::new(Cpu::new(2).expect("threads"))
}

fn trainer(config: &TrainerConfig, backend: Box<dyn Backend>) -> Trainer {
    let planned = Planned::new(config, &*backend).expect("a plan");
    let mut trainer = Trainer::offloading(planned, backend, cpu()).expect("memory");
    trainer.initialise().expect("weights");
    trainer
}

/// Makes the second step, unless it's asked to stop at question `stop`; how often it was asked, and whether it was dropped.
fn second_step(trainer: &mut Trainer, stop: usize) -> (usize, bool) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    trainer.cancel_by(Cancel::when(move || count.fetch_add(1, Ordering::SeqCst) >= stop));
    let ids = trainer.config().tokens();
    let text = vec![1; ids];
    let done = block_on(trainer.step_async(1, LR, &Batch::text(&text, &text)));
    trainer.cancel_by(Cancel::default());
    let dropped = done.as_ref().is_err_and(|error| error.is_cancelled());
    assert!(dropped || done.is_ok(), "{done:?}");
    (asked.load(Ordering::SeqCst), dropped)
}

/// Stops steps of `config` at questions all along them. A step that is dropped leaves the trainer as it was, and one that is finished as
/// one that nobody asked to stop. Gives how many were dropped, and how many finished.
fn stopped(config: &TrainerConfig, device: &dyn Fn() -> Box<dyn Backend>) -> [usize; 2] {
    /// Questions that are tried.
    const TRIED: usize = 12;
    let one = |stop: Option<usize>| {
        let mut trainer = trainer(config, device());
        train(&mut trainer, 0..1, LR);
        let before = saved(&mut trainer);
        let stepped = stop.map(|stop| second_step(&mut trainer, stop));
        if let Some((_, true)) = stepped {
            assert!(saved(&mut trainer) == before, "a step that was dropped at {stop:?}");
        }
        let losses = train(&mut trainer, 2..4, LR);
        (stepped, losses, saved(&mut trainer))
    };
    let (all, with, finished) = one(Some(usize::MAX));
    let (asked, _) = all.expect("it was counted");
    let (_, without, skipped) = one(None);
    let mut counts = [0; 2];
    // Nobody is asked any more once the update has begun.
    for stop in (0..=TRIED).map(|index| index * asked / TRIED) {
        let (stepped, losses, end) = one(Some(stop));
        let (_, dropped) = stepped.expect("it was made");
        let (expected, values) = if dropped { (&without, &skipped) } else { (&with, &finished) };
        assert_eq!(losses, *expected, "stopped at {stop} of {asked}, dropped: {dropped}");
        assert!(end == *values, "stopped at {stop} of {asked}, dropped: {dropped}");
        counts[usize::from(!dropped)] += 1;
    }
    counts
}

#[test]
fn a_step_that_is_stopped_anywhere_is_dropped_or_finished() {
    let offloads = |micro_batch| TrainerConfig {
        offload: Offload { optimizer: true, gradients: true, activations: true, weights: false },
        ..config(micro_batch)
    };
    let consumes = TrainerConfig { consume_gradients: true, clip: None, ..config(8) };
    let f16 = TrainerConfig { precision: Precision::F16, ..config(4) };
    for (name, config) in [
        ("one pass", config(8)),
        ("four passes", config(2)),
        ("f16", f16),
        ("offloaded, one pass", offloads(8)),
        ("offloaded, two passes", offloads(4)),
        ("gradients consumed", consumes),
    ] {
        let [dropped, finished] = stopped(&config, &|| cpu());
        println!("{name}: {dropped} dropped, {finished} finished");
        assert!(dropped > 2 && finished > 0, "{name}");
        let late = stopped(&config, &|| Box::new(Late(*cpu())));
        assert!(late[0] > 2, "{name}, copies on their way");
    }
}

#[test]
fn so_is_one_of_wgpu() {
    let gpu = || -> Box<dyn Backend> {
        Box::new(block_on(Wgpu::open(&Default::default())).expect("an adapter"))
    };
    let [dropped, _] = stopped(&config(4), &gpu);
    assert!(dropped > 1);
}
