//! Optimizer state that the host keeps: what the device is left with, and that no number changes.

mod common;

use common::{VOCAB, saved, train};
use conformance::conformance::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::{Backend, Class, Life};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Lora, ModelConfig, Optimizer, Planned, Precision, Snapshot, StateBits, Trainer, TrainerConfig,
    preset,
};

const ADAMW: Optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };

fn cpu() -> Box<dyn Backend> {
    Box::new(Cpu::new(2).expect("threads"))
}

fn config(name: &str) -> TrainerConfig {
    let model = preset(name).expect("a preset");
    let model = ModelConfig { layers: 2, vocab: VOCAB, context: 32, ..model };
    TrainerConfig { batch: 8, micro_batch: 8, time: 32, seed: 5, ..TrainerConfig::new(model) }
}

/// A trainer whose device is `backend`, with the host's part beside it where something is offloaded.
fn trainer(config: &TrainerConfig, backend: Box<dyn Backend>) -> Trainer {
    let planned = Planned::new(config, &*backend).expect("a plan");
    let predicted = planned.plan.peak_bytes();
    let mut trainer = Trainer::offloading(planned, backend, cpu()).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted);
    trainer.initialise().expect("weights");
    trainer
}

/// Every rule, precision and number of bits, with one pass a step and with several.
fn forms() -> Vec<TrainerConfig> {
    let mut forms = vec![];
    for (name, precision, optimizer, optimizer_bits, micro_batch) in [
        ("tiny", Precision::F32, ADAMW, StateBits::B32, 8),
        ("tiny", Precision::F32, ADAMW, StateBits::B8, 2),
        ("tiny", Precision::BF16, ADAMW, StateBits::B16, 4),
        (
            "llama-tiny",
            Precision::BF16,
            Optimizer::Lion { beta1: 0.9, beta2: 0.99 },
            StateBits::B32,
            8,
        ),
        ("llama-tiny", Precision::F16, ADAMW, StateBits::B32, 4),
        ("llama-tiny", Precision::F32, Optimizer::Sgd { momentum: 0.9 }, StateBits::B32, 8),
    ] {
        forms.push(TrainerConfig {
            precision,
            optimizer,
            optimizer_bits,
            micro_batch,
            ..config(name)
        });
    }
    let targets = vec![ALL_LINEAR.to_owned()];
    let lora = Lora { rank: 4, alpha: 8.0, targets, dropout: 0.1, coded: true };
    forms.push(TrainerConfig { lora: Some(lora), ..config("tiny") });
    forms
}

#[test]
fn losses_and_checkpoints_are_those_of_the_device_bit_for_bit() {
    for device in forms() {
        let offloaded = TrainerConfig { offload: true, ..device.clone() };
        let run = |config: &TrainerConfig| {
            let mut trainer = trainer(config, cpu());
            (train(&mut trainer, 0..6, 1e-3), saved(&mut trainer))
        };
        assert!(run(&device) == run(&offloaded), "{device:?}");
    }
}

#[test]
fn the_device_holds_no_state_and_the_host_holds_it_all() {
    for device in forms() {
        let offloaded = TrainerConfig { offload: true, ..device.clone() };
        let kept = |plan: &tightrope_core::Plan, class: Class| -> u64 {
            let tensors = plan.graph.tensors.iter().zip(&plan.offsets);
            let placed = tensors.filter(|(info, at)| at.is_some() && info.replaces.is_none());
            let lasting = placed.filter(|(info, _)| info.life == Life::Persistent);
            lasting.filter(|(i, _)| i.class == class).map(|(i, _)| i.ty.bytes() as u64).sum()
        };
        let target = Cpu::new(2).expect("threads");
        let whole = Planned::new(&device, &target).expect("a plan").plan;
        let planned = Planned::new(&offloaded, &target).expect("a plan");
        let host = planned.host_plan(&target).expect("a plan").expect("something is offloaded");
        // What is left of the class on the device is single numbers: the sum of losses, the loss scale.
        let left = kept(&planned.plan, Class::Optimizer);
        assert!(left <= 12, "{left} bytes of state on the device");
        assert!(kept(&host, Class::Optimizer) >= kept(&whole, Class::Optimizer) - left);
        assert!(kept(&whole, Class::Optimizer) > 0);
        assert_eq!(kept(&host, Class::Activation), 0);
    }
}

#[test]
fn a_snapshot_of_both_sides_goes_on_bit_for_bit() {
    for form in forms() {
        let config = TrainerConfig { offload: true, ..form };
        let mut whole = trainer(&config, cpu());
        train(&mut whole, 0..3, 1e-3);
        let mut copy = Snapshot::default();
        assert!(block_on(whole.snapshot(&mut copy)).expect("a snapshot"));
        let mut other = trainer(&config, cpu());
        other.restore(&copy).expect("a snapshot of the same run");
        let losses = [&mut whole, &mut other].map(|trainer| train(trainer, 3..6, 1e-3));
        assert_eq!(losses[0], losses[1], "{config:?}");
    }
}

#[test]
fn a_gpu_with_its_state_on_the_host_trains_as_the_processor_does() {
    for form in [config("tiny"), TrainerConfig { micro_batch: 2, ..config("llama-tiny") }] {
        let gpu = block_on(Wgpu::open(&Default::default()));
        let gpu = gpu.expect("an adapter: install mesa-vulkan-drivers");
        let offloaded = TrainerConfig { offload: true, ..form.clone() };
        let on_gpu = train(&mut trainer(&offloaded, Box::new(gpu)), 0..20, 1e-3);
        let on_cpu = train(&mut trainer(&form, cpu()), 0..20, 1e-3);
        for (gpu, cpu) in on_gpu.iter().zip(&on_cpu) {
            assert!((gpu - cpu).abs() < 1e-4, "{gpu} and {cpu}");
        }
    }
}

#[test]
fn an_offloaded_plan_without_a_host_is_refused() {
    let target = Cpu::new(1).expect("threads");
    let config = TrainerConfig { offload: true, ..config("tiny") };
    let planned = Planned::new(&config, &target).expect("a plan");
    let refused = Trainer::new(planned, Box::new(target)).err().expect("there's no host");
    assert!(refused.to_string().contains("memory.offload"), "{refused}");
}
