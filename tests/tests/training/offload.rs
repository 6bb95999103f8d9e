//! What the host keeps: what the device is left with, and that no number changes.

use std::collections::BTreeSet;

use conformance::language::{changed, language};
use conformance::late::Late;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::plan::{Checkpoint, Options, Target};
use tightrope_core::{Backend, Class, Graph, Life, Node};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Free, FrozenBits, Gradients, Lora, Master, ModelConfig, Offload, Optimizer, Planned, Precision,
    Rates, Snapshot, StateBits, TableBits, Trainer, TrainerConfig, preset,
};

use crate::text::{VOCAB, saved, train};

const OPTIMIZER: Offload = Offload { optimizer: true, ..Offload::NONE };
const ALL: Offload = Offload { optimizer: true, gradients: true, activations: true, weights: true };

const ADAMW: Optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };

fn cpu() -> Box<Cpu> {
    Box::new(Cpu::new(2).expect("threads"))
}

/// The processor as a device whose copies go on beside its ops.
fn late() -> Box<Late<Cpu>> {
    Box::new(Late(*cpu()))
}

fn config(name: &str) -> TrainerConfig {
    let model = preset(name).expect("a preset");
    let model = ModelConfig { layers: 2, vocab: VOCAB, context: 32, ..model };
    TrainerConfig {
        batch: 8,
        micro_batch: 8,
        seed: 5,
        ..TrainerConfig::new(model.build(32).expect("a model"))
    }
}

/// As [`config`], with weights that are large enough to be moved.
fn wide(name: &str) -> TrainerConfig {
    changed(&config(name), |model| {
        (model.channels, model.hidden, model.layers) = (192, 768, 3);
    })
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
        ("llama-tiny", Precision::BF16, Optimizer::muon(0.9, 0.95, 1e-8), StateBits::B8, 4),
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
    // Weights are rounded by the same random numbers on the host.
    for micro_batch in [8, 2] {
        forms.push(TrainerConfig {
            precision: Precision::BF16,
            gradients: Gradients::BF16,
            master: Master::None,
            optimizer_bits: StateBits::B8,
            table_bits: TableBits::B8,
            micro_batch,
            ..config("llama-tiny")
        });
    }
    let targets = vec![ALL_LINEAR.to_owned()];
    let lora = Lora {
        rank: 4,
        alpha: 8.0,
        targets,
        dropout: 0.1,
        base_bits: FrozenBits::B4,
        variant: Default::default(),
    };
    forms.push(TrainerConfig { lora: Some(lora), ..config("tiny") });
    forms
}

#[test]
fn losses_and_checkpoints_are_those_of_the_device_bit_for_bit() {
    for device in forms() {
        let offloaded = TrainerConfig { offload: OPTIMIZER, ..device.clone() };
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
        let offloaded = TrainerConfig { offload: OPTIMIZER, ..device.clone() };
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
        let config = TrainerConfig { offload: OPTIMIZER, ..form };
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

/// Holds that a GPU which leaves this to the host has the losses of the processor.
fn a_gpu_follows(form: &TrainerConfig, offload: Offload, steps: u64) {
    let gpu = block_on(Wgpu::open(&Default::default()));
    let gpu = gpu.expect("an adapter: install mesa-vulkan-drivers");
    let offloaded = TrainerConfig { offload, ..form.clone() };
    let on_gpu = train(&mut trainer(&offloaded, Box::new(gpu)), 0..steps, 1e-3);
    let on_cpu = train(&mut trainer(form, cpu()), 0..steps, 1e-3);
    for (gpu, cpu) in on_gpu.iter().zip(&on_cpu) {
        assert!((gpu - cpu).abs() < 1e-4, "{gpu} and {cpu}");
    }
}

#[test]
fn a_gpu_with_its_state_on_the_host_trains_as_the_processor_does() {
    for form in [config("tiny"), TrainerConfig { micro_batch: 2, ..config("llama-tiny") }] {
        a_gpu_follows(&form, OPTIMIZER, 20);
    }
}

#[test]
fn an_offloaded_plan_without_a_host_is_refused() {
    let target = Cpu::new(1).expect("threads");
    let config = TrainerConfig { offload: OPTIMIZER, ..config("tiny") };
    let planned = Planned::new(&config, &target).expect("a plan");
    let refused = Trainer::new(planned, Box::new(target)).err().expect("there's no host");
    assert!(refused.to_string().contains("memory.offload"), "{refused}");
}

#[test]
fn transfers_change_no_bit_whatever_is_recomputed() {
    let checkpoints = [
        Checkpoint::None,
        Checkpoint::Block,
        Checkpoint::Every(2),
        Checkpoint::Tensors(["h.1.mlp.up", "h.2.norm_1.0"].map(str::to_owned).to_vec()),
    ];
    let activations = Offload { activations: true, ..Offload::NONE };
    let weights = Offload { weights: true, ..OPTIMIZER };
    for (index, checkpoint) in checkpoints.into_iter().enumerate() {
        let offload = [ALL, activations, weights, ALL][index];
        let precision = [Precision::F32, Precision::BF16][index % 2];
        let in_place = index != 2;
        let options = Options { checkpoint, in_place, ..Options::default() };
        let device = TrainerConfig { precision, ..wide("tiny") };
        let offloaded = TrainerConfig { offload, options, ..device.clone() };
        let run = |config: &TrainerConfig, backend: Box<dyn Backend>| {
            let mut trainer = trainer(config, backend);
            (train(&mut trainer, 0..3, 1e-3), saved(&mut trainer))
        };
        let expected = run(&device, cpu());
        for backend in [cpu() as Box<dyn Backend>, late()] {
            let found = run(&offloaded, backend);
            assert!(found == expected, "{offload} with {:?}", offloaded.options);
        }
    }
}

#[test]
fn overlapped_copies_change_no_bit_and_take_the_room_of_a_block() {
    let gradients = Offload { gradients: true, ..OPTIMIZER };
    let activations = Offload { activations: true, ..Offload::NONE };
    let weights = Offload { weights: true, ..OPTIMIZER };
    for offload in [gradients, activations, weights, ALL] {
        for checkpoint in [Checkpoint::None, Checkpoint::Block, Checkpoint::Every(2)] {
            let with = |overlap| {
                let options =
                    Options { checkpoint: checkpoint.clone(), overlap, ..Options::default() };
                TrainerConfig { options, offload, micro_batch: 4, ..wide("llama-tiny") }
            };
            let run = |config: &TrainerConfig| {
                let mut trainer = trainer(config, late());
                let peak = trainer.session().plan().peak_bytes();
                ((train(&mut trainer, 0..3, 1e-3), saved(&mut trainer)), peak)
            };
            let ((beside, more), (in_turn, less)) = (run(&with(true)), run(&with(false)));
            assert!(beside == in_turn, "{offload} with {checkpoint}");
            assert!(more > less, "{offload} with {checkpoint}: {more} and {less} bytes");
            // Without queues for copies nobody pays for them.
            let alone = Planned::new(&with(true), &*cpu()).expect("a plan").plan.peak_bytes();
            assert_eq!(alone, less);
        }
    }
}

#[test]
fn budgets_reach_from_overlapped_copies_to_the_smallest_plan_without() {
    let config = TrainerConfig { offload: ALL, ..wide("tiny") };
    let rates = Rates::of("cpu, avx2", Precision::F32, 1);
    // So slow that a step takes as long as its copies, where they go on beside ops.
    let slow = rates.linked(1e8);
    for rates in [rates, slow] {
        let within = |target: &dyn Target, budget| {
            let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
            Planned::within(&config, budget, Free::ALL, target, &seconds).expect("a plan")
        };
        let (target, without) = (late(), cpu());
        let (none, fewest) = within(&*target, 1);
        assert!(none.is_none());
        assert!(fewest <= within(&*without, 1).1, "{fewest}");
        let fastest = within(&*target, u64::MAX).0.expect("a plan");
        assert!(fastest.plan.options.overlap);
        let most = fastest.plan.peak_bytes();
        let mut last = f64::INFINITY;
        let mut ways = BTreeSet::new();
        for part in 0..=8 {
            let budget = fewest + (most - fewest) * part / 8;
            let planned = within(&*target, budget).0.expect("it fits");
            assert!(planned.plan.peak_bytes() <= budget);
            let step_s = planned.estimate(&rates).step_s;
            let bound_s = planned.step_bound_s(&rates).expect("it was searched for");
            assert!(bound_s <= step_s * (1.0 + 1e-9), "{bound_s} and {step_s} s in {budget}");
            assert!(step_s <= last * (1.0 + 1e-9), "{step_s} s in {budget}, {last} in less");
            last = step_s;
            ways.insert(planned.plan.options.overlap);
        }
        assert_eq!(ways.len(), 2, "both with and without");
    }
}

#[test]
fn sums_of_gradients_on_the_host_follow_those_of_the_device() {
    let device = TrainerConfig { micro_batch: 2, ..config("tiny") };
    let offloaded = TrainerConfig { offload: ALL, ..device.clone() };
    let losses = [device, offloaded].map(|config| train(&mut trainer(&config, cpu()), 0..20, 1e-3));
    for (device, host) in losses[0].iter().zip(&losses[1]) {
        assert!((device - host).abs() < 1e-4, "{device} and {host}");
    }
}

/// Bytes that the plan of a wide model keeps from step to step, of one class.
fn kept(config: &TrainerConfig, class: Class) -> u64 {
    let plan = Planned::new(config, &Cpu::new(2).expect("threads")).expect("a plan").plan;
    let tensors = plan.graph.tensors.iter().zip(&plan.offsets);
    let kept = tensors.filter(|(info, at)| at.is_some() && info.replaces.is_none());
    let kept = kept.filter(|(info, _)| info.life == Life::Persistent && info.class == class);
    kept.map(|(info, _)| info.ty.bytes() as u64).sum()
}

#[test]
fn the_device_holds_what_is_left_alone() {
    let whole = TrainerConfig { micro_batch: 2, ..wide("tiny") };
    let left = |offload| TrainerConfig { offload, ..whole.clone() };
    let gradients = left(Offload { gradients: true, ..OPTIMIZER });
    assert!(kept(&whole, Class::Gradient) > 0);
    assert_eq!(kept(&gradients, Class::Gradient), 0);
    assert_eq!(kept(&gradients, Class::Weight), kept(&whole, Class::Weight));
    // Embeddings, norms and biases stay.
    assert!(kept(&left(ALL), Class::Weight) * 4 < kept(&whole, Class::Weight));
    // Deeper models hold more of what blocks begin with, unless that waits on the host.
    let more = |offload| {
        let [shallow, deep] = [6, 12].map(|layers| {
            let options = Options { checkpoint: Checkpoint::Block, ..Options::default() };
            let deeper = changed(&whole, |model| model.layers = layers);
            let config = TrainerConfig { options, offload, ..deeper };
            let cpu = Cpu::new(2).expect("threads");
            let peak = Planned::new(&config, &cpu).expect("a plan").plan.peak_bytes();
            peak - kept(&config, Class::Weight) - kept(&config, Class::Gradient)
        });
        deep - shallow
    };
    let model = language(&whole);
    let channels = model.config().channels;
    let input = whole.micro_batch * model.seq_len() * channels * size_of::<f32>();
    let held = Offload { activations: false, ..ALL };
    assert!(more(held) >= 6 * input as u64 && more(ALL) < input as u64);
}

#[test]
fn frozen_weights_wait_on_the_host_without_an_update_there() {
    let lora = Lora {
        rank: 4,
        alpha: 8.0,
        targets: vec![ALL_LINEAR.to_owned()],
        dropout: 0.1,
        base_bits: FrozenBits::Precision,
        variant: Default::default(),
    };
    let device = TrainerConfig { lora: Some(lora), ..wide("llama-tiny") };
    let offload = Offload { weights: true, ..Offload::NONE };
    let offloaded = TrainerConfig { offload, ..device.clone() };
    let run = |config: &TrainerConfig| {
        let mut trainer = trainer(config, cpu());
        (train(&mut trainer, 0..4, 1e-3), saved(&mut trainer))
    };
    assert!(run(&device) == run(&offloaded));
}

#[test]
fn a_gpu_that_holds_next_to_nothing_trains_as_the_processor_does() {
    a_gpu_follows(&TrainerConfig { micro_batch: 2, ..wide("tiny") }, ALL, 8);
}

#[test]
fn what_the_host_would_need_besides_is_named() {
    for offload in
        [Offload { gradients: true, ..Offload::NONE }, Offload { weights: true, ..Offload::NONE }]
    {
        let config = TrainerConfig { offload, ..config("tiny") };
        let refused = Planned::new(&config, &Cpu::new(1).expect("threads")).err();
        let said = refused.expect("the update is the device's").to_string();
        assert!(said.contains("memory.offload") && said.contains("optimizer"), "{said}");
    }
}
