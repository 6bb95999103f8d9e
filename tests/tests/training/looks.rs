//! Whatever is looked at between steps, and wherever a run goes on, no bit changes; steps that are skipped on the way too.

use std::thread;
use std::time::Duration;

use conformance::draw::Draw;
use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::{Backend, Life, Role};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Batch, Cause, FrozenBits, Gradients, IMAGES, LABELS, LearningRate, Lora, Master, Offload,
    Optimizer, Outcome, Planned, Precision, Schedule, Shard, Snapshot, StateBits, Trainer,
    TrainerConfig, Vit, preset, vit_presets,
};
use tightrope_ranks::Threads;

use crate::devices::devices;

const STEPS: u64 = 7;
/// Steps whose images aren't finite, so that every precision skips them.
const POISONED: [u64; 2] = [1, 4];
const RATE: LearningRate =
    LearningRate { schedule: Schedule::Constant, lr: 1e-3, min_lr: 1e-3, warmup: 0, steps: STEPS };

fn images() -> TrainerConfig {
    let (_, mut model) = vit_presets().find(|(name, _)| *name == "vit-tiny").expect("a preset");
    (model.layers, model.channels, model.heads, model.hidden) = (1, 64, 2, 96);
    TrainerConfig {
        batch: 4,
        micro_batch: 4,
        seed: 7,
        ..TrainerConfig::new(model.build().expect("a model"))
    }
}

/// Sequences with dropout, and passes over shorter ones.
fn texts() -> TrainerConfig {
    let mut model = preset("tiny").expect("a preset");
    (model.layers, model.channels, model.heads, model.kv_heads) = (2, 64, 2, 2);
    (model.hidden, model.context, model.vocab, model.dropout) = (128, 32, 50, 0.1);
    TrainerConfig {
        batch: 4,
        micro_batch: 4,
        seed: 7,
        shorter: vec![8, 16],
        ..TrainerConfig::new(model.build(32).expect("a model"))
    }
}

const ADAMW: Optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8 };

/// Every rule, precision and number of passes, alone and with each feature that may join it; the supported ones.
fn forms(of: &TrainerConfig) -> Vec<TrainerConfig> {
    type Change = fn(&mut TrainerConfig);
    let changes: [Change; 14] = [
        |_| {},
        |it| it.clip = None,
        |it| it.weight_decay = 0.0,
        |it| it.optimizer_bits = StateBits::B8,
        |it| it.optimizer_bits = StateBits::B16,
        |it| it.gradients = Gradients::BF16,
        |it| it.gradients = Gradients::Kahan,
        |it| (it.master, it.gradients) = (Master::None, Gradients::BF16),
        |it| it.offload = Offload { optimizer: true, ..Offload::NONE },
        |it| {
            it.offload =
                Offload { optimizer: true, gradients: true, activations: true, weights: true }
        },
        |it| {
            let targets = vec![ALL_LINEAR.to_owned()];
            let base_bits = FrozenBits::Precision;
            it.lora = Some(Lora {
                rank: 4,
                alpha: 8.0,
                targets,
                dropout: 0.1,
                base_bits,
                variant: Default::default(),
            });
        },
        |it| (it.ranks, it.micro_batch) = (2, it.micro_batch.div_ceil(2)),
        |it| (it.ranks, it.micro_batch, it.shard) = (2, 1, Shard::Gradients),
        |it| (it.ranks, it.micro_batch, it.shard) = (2, 2, Shard::Weights),
    ];
    let rules = [
        ADAMW,
        Optimizer::Sgd { momentum: 0.9 },
        Optimizer::Lion { beta1: 0.9, beta2: 0.99 },
        Optimizer::muon(0.9, 0.99, 1e-8),
        Optimizer::Adafactor,
    ];
    let cpu = Cpu::new(1).expect("threads");
    let mut forms = vec![];
    for optimizer in rules {
        for precision in [Precision::F32, Precision::BF16, Precision::F16] {
            for micro_batch in [4, 2, 1] {
                for change in changes {
                    let mut form =
                        TrainerConfig { optimizer, precision, micro_batch, ..of.clone() };
                    change(&mut form);
                    if Planned::new(&form, &cpu).is_ok() {
                        forms.push(form);
                    }
                }
            }
        }
    }
    forms
}

fn cpu() -> Box<Cpu> {
    Box::new(Cpu::new(1).expect("threads"))
}

/// A trainer whose gradients overflow f16 at the first loss scales, and not at later ones.
fn trainer(config: &TrainerConfig, device: Box<dyn Backend>, rank: Option<Threads>) -> Trainer {
    let planned = Planned::new(config, &*device).expect("a plan");
    let mut trainer = Trainer::offloading(planned, device, cpu()).expect("memory");
    if let Some(rank) = rank {
        trainer.join(Box::new(rank)).expect("as many ranks as planned for");
    }
    trainer.initialise().expect("weights");
    if config.lora.is_none() {
        for index in 0..trainer.parameters().len() {
            let mut values = block_on(trainer.weight(index)).expect("a weight");
            values.iter_mut().for_each(|value| *value *= 6.0);
            trainer.set_weight(index, &values).expect("a weight");
        }
    }
    trainer
}

/// Does `work` with the batch of a step.
fn with_batch<R>(config: &TrainerConfig, step: u64, work: impl FnOnce(&Batch<'_>) -> R) -> R {
    let draw = |stream: u64, i: usize| uniform(step * 97 + stream, i as u64);
    if let Some(vit) = Vit::of(&*config.model) {
        let (of, count) = (vit.config(), config.batch);
        let pixels = count * of.colors * of.image[0] * of.image[1];
        let mut images: Vec<f32> = (0..pixels).map(|i| draw(0, i) as f32 - 0.5).collect();
        if POISONED.contains(&step) {
            *images.last_mut().expect("a pixel") = f32::INFINITY;
        }
        let label = |i| (draw(1, i) * of.classes as f64) as i32;
        let labels: Vec<i32> = (0..count).map(label).collect();
        return work(&Batch::new().with(IMAGES, &images).with(LABELS, &labels));
    }
    let lengths: &[usize] = if config.shorter().is_empty() { &[32] } else { &[8, 32, 16] };
    let length = lengths[step as usize % lengths.len()];
    let ids = |stream| -> Vec<i32> {
        (0..config.batch * length).map(|i| (draw(stream, i) * 50.0) as i32).collect()
    };
    work(&Batch::text(&ids(0), &ids(1)))
}

/// Makes a step.
fn step(trainer: &mut Trainer, step: u64) -> Outcome {
    let config = trainer.config().clone();
    with_batch(&config, step, |batch| trainer.step(step, RATE.lr, batch)).expect("a step");
    block_on(trainer.outcome()).expect("an outcome")
}

/// Bits of everything that a trainer keeps.
fn kept(trainer: &mut Trainer) -> Vec<u32> {
    let mut all = vec![];
    for index in 0..trainer.parameters().len() {
        all.extend(block_on(trainer.weight(index)).expect("a weight"));
    }
    for index in 0..trainer.states().len() {
        all.extend(block_on(trainer.state(index)).expect("state"));
    }
    all.extend(block_on(trainer.loss_scale()).expect("a scale").into_iter().flatten());
    let updates = block_on(trainer.updates()).expect("a count");
    all.iter().map(|x| x.to_bits()).chain(updates.map(|count| count as u32)).collect()
}

fn bits_of(outcome: &Outcome) -> [u32; 4] {
    let Outcome { loss, grad_norm, updated, loss_scale, .. } = *outcome;
    [loss.to_bits(), grad_norm.to_bits(), u32::from(updated), loss_scale.unwrap_or(0.0).to_bits()]
}

/// Bits of every step and of all that is left at the end, and how many steps were skipped. With `looks`, every skipped step is explained,
/// every step is followed by an evaluation, and the device is lost once, if the trainer is alone.
fn run(
    config: &TrainerConfig,
    device: &dyn Fn() -> Box<dyn Backend>,
    mut rank: Option<Threads>,
    looks: bool,
) -> (Vec<u32>, u64) {
    let alone = rank.is_none();
    let mut trainer = trainer(config, device(), rank.take());
    let (mut bits, mut skipped, mut copy) = (vec![], 0, Snapshot::default());
    for at in 0..STEPS {
        let outcome = step(&mut trainer, at);
        bits.extend(bits_of(&outcome));
        skipped += u64::from(!outcome.updated);
        if !looks {
            continue;
        }
        if !outcome.updated {
            let poisoned = Vit::of(&*config.model).is_some() && POISONED.contains(&at);
            explained(&mut trainer, at, &outcome, poisoned);
        }
        let few = TrainerConfig { batch: config.micro_batch, ..config.clone() };
        with_batch(&few, 31, |batch| block_on(trainer.evaluate(batch)).expect("a loss"));
        if alone && at == 2 {
            assert!(block_on(trainer.snapshot(&mut copy)).expect("a copy"));
        }
        if alone && at == 5 {
            trainer = self::trainer(config, device(), None);
            trainer.restore(&copy).expect("a copy");
            for again in 3..=at {
                with_batch(config, again, |batch| trainer.step(again, RATE.lr, batch))
                    .expect("a step");
            }
        }
    }
    bits.extend(kept(&mut trainer));
    (bits, skipped)
}

/// Explains a skipped step twice, which says the same and changes nothing.
fn explained(trainer: &mut Trainer, step: u64, outcome: &Outcome, poisoned: bool) {
    let (config, before) = (trainer.config().clone(), kept(trainer));
    let mut explain = || {
        let cause = with_batch(&config, step, |batch| {
            block_on(trainer.explain(step, batch, outcome)).expect("a cause")
        });
        assert!(kept(trainer) == before, "step {step} was looked at and changed");
        cause
    };
    let cause = explain();
    let Cause::Output { output, .. } = &cause else { panic!("step {step}: {cause:?}") };
    // At the scale of the step a gradient overflows; an image that isn't finite shows before, but on another rank or in another pass.
    let is_gradient = output.tensor.starts_with("grad");
    let may_be_either = poisoned && config.precision == Precision::F16;
    assert!(may_be_either || is_gradient != poisoned, "step {step}: {output:?}");
    assert_eq!(explain(), cause);
}

fn run_all(config: &TrainerConfig, looks: bool) -> (Vec<u32>, u64) {
    let device = || -> Box<dyn Backend> { cpu() };
    if config.ranks == 1 {
        return run(config, &device, None, looks);
    }
    let group = Threads::group(config.ranks, Duration::from_secs(60));
    let mut all: Vec<_> = thread::scope(|scope| {
        let ranks: Vec<_> = group
            .into_iter()
            .map(|rank| scope.spawn(move || run(config, &device, Some(rank), looks)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank that ends well")).collect()
    });
    assert!(all.windows(2).all(|two| two[0] == two[1]), "ranks differ");
    all.swap_remove(0)
}

/// `run.detect_anomaly` made the step again with its update, or left its gradients in the sums of the next.
#[test]
fn looks_change_no_bit() {
    let forms = [forms(&images()), forms(&texts())].concat();
    assert!(forms.len() > 500, "{} forms are supported", forms.len());
    let mut skipped_by_scale = 0;
    for config in Draw::of_today().some("runs that are looked at", forms, 12) {
        let (expected, skipped) = run_all(&config, false);
        let poisoned = if Vit::of(&*config.model).is_some() { POISONED.len() as u64 } else { 0 };
        assert!(skipped >= poisoned, "{skipped} steps were skipped: {config:?}");
        skipped_by_scale += skipped - poisoned;
        assert!(run_all(&config, true).0 == expected, "{config:?}");
    }
    println!("{skipped_by_scale} steps were skipped for their loss scale");
}

/// The same by shaders, where gradients overflow at the first loss scales.
#[test]
fn looks_change_no_bit_on_a_gpu() {
    let config = TrainerConfig { precision: Precision::F16, micro_batch: 2, ..images() };
    let device = || devices().swap_remove(1);
    let (expected, skipped) = run(&config, &device, None, false);
    assert!(skipped > POISONED.len() as u64, "{skipped} steps were skipped");
    assert!(run(&config, &device, None, true).0 == expected);
}

#[test]
fn a_run_goes_on_from_every_step_as_if_it_had_not_ended() {
    let forms: Vec<_> = [forms(&images()), forms(&texts())].concat();
    let alone = forms.into_iter().filter(|form| form.ranks == 1 && form.lora.is_none()).collect();
    for config in Draw::of_today().some("runs that go on from every step", alone, 6) {
        let mut whole = trainer(&config, cpu(), None);
        let (mut outcomes, mut checkpoints) = (vec![], vec![]);
        for at in 0..STEPS {
            outcomes.push(bits_of(&step(&mut whole, at)));
            let schedule = block_on(whole.saved_schedule(&RATE)).expect("a schedule");
            checkpoints.push((crate::text::saved(&mut whole), schedule));
        }
        for (index, (tensors, schedule)) in checkpoints.into_iter().enumerate() {
            let mut resumed = trainer(&config, cpu(), None);
            let get = |name: &str| Ok(tensors[name].clone());
            let states: Vec<String> =
                resumed.saved_states().into_iter().map(|state| state.name).collect();
            let weights = tensors.keys().filter(|name| !states.contains(name));
            resumed.load_weights(weights, &mut { get }).expect("weights");
            resumed.load_states(&states, &mut { get }).expect("state");
            resumed.load_schedule(&schedule).expect("a schedule");
            for at in index as u64 + 1..STEPS {
                let expected = outcomes[at as usize];
                assert_eq!(bits_of(&step(&mut resumed, at)), expected, "{at}: {config:?}");
            }
            assert!(kept(&mut resumed) == kept(&mut whole), "from {index}: {config:?}");
        }
    }
}

/// Gradients that are consumed have updated weights before the step is known not to be finite, and the op that went wrong isn't guessed.
#[test]
fn consumed_gradients_leave_nothing_to_look_at() {
    let config = TrainerConfig { consume_gradients: true, clip: None, ..images() };
    let mut trainer = trainer(&config, cpu(), None);
    step(&mut trainer, 0);
    let outcome = step(&mut trainer, POISONED[0]);
    assert!(!outcome.updated);
    let cause = with_batch(&config, POISONED[0], |batch| {
        block_on(trainer.explain(POISONED[0], batch, &outcome)).expect("a cause")
    });
    assert_eq!(cause, Cause::Overwritten);
}

/// A program that only reads a model writes to nothing that outlasts it.
#[test]
fn programs_that_read_write_nothing_that_stays() {
    let texts = TrainerConfig { decode: 8, logits: true, losses: true, ..texts() };
    for of in [images(), texts] {
        for precision in [Precision::F32, Precision::F16] {
            let config = TrainerConfig { precision, ..of.clone() };
            let plan = Planned::new(&config, &*cpu()).expect("a plan").plan;
            let reads = |role: Role| {
                matches!(role, Role::Eval | Role::Logits | Role::Losses | Role::Decode)
            };
            for program in plan.graph.programs.iter().filter(|program| reads(program.role)) {
                for &tensor in program.nodes.iter().flat_map(|node| &node.outputs) {
                    let storage = plan.graph.info(plan.graph.storage(tensor));
                    assert_ne!(storage.life, Life::Persistent, "{}", storage.name);
                }
            }
        }
    }
}
