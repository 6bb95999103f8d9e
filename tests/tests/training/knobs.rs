//! Memory knobs change memory and nothing else: whole training runs of small models on the CPU backend.

use conformance::language::{changed, language};
use conformance::late::Late;
use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cpu::isa::Isa;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{Backend, Class};
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::{
    Batch, BuildOptions, Family, GradientSums, Gradients, Master, ModelConfig, Offload, Optimizer,
    Planned, Precision, Programs, Shard, StateBits, TableBits, Trainer, TrainerConfig,
};

const STEPS: u64 = 8;

fn model(family: Family) -> ModelConfig {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    model.family = family;
    (model.layers, model.channels, model.heads, model.kv_heads) = (5, 32, 4, 4);
    (model.hidden, model.context, model.vocab) = (64, 128, 61);
    if family == Family::Llama {
        model.kv_heads = 2;
    }
    model
}

fn config(family: Family, precision: Precision) -> TrainerConfig {
    TrainerConfig {
        precision,
        batch: 8,
        micro_batch: 8,
        build: BuildOptions::default(),
        seed: 7,
        ..TrainerConfig::new(model(family).build(128).expect("a model"))
    }
}

/// Bits of loss and gradient norm of every step, and of all weights at the end.
fn run(config: &TrainerConfig, threads: usize) -> Vec<u32> {
    let cpu = Cpu::new(threads).expect("threads");
    let planned = Planned::new(config, &cpu).expect("a plan");
    let predicted = planned.plan.arena_bytes;
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted);
    trainer.initialise().expect("weights");
    let (count, vocab) = (config.tokens() / config.accumulation(), language(config).config().vocab);
    let mut bits = vec![];
    for step in 0..STEPS {
        let draw = |stream: u64, i: usize| {
            let x = uniform(step * 97 + stream, i as u64) * vocab as f64;
            x as i32
        };
        let ids = |stream: u64| -> Vec<i32> {
            let micro = |micro| (0..count).map(move |i| draw(10 * micro + stream, i));
            (0..config.accumulation() as u64).flat_map(micro).collect()
        };
        trainer.step(step, 1e-3, &Batch::text(&ids(0), &ids(1))).expect("a step");
        let outcome = block_on(trainer.outcome()).expect("an outcome");
        assert!(outcome.updated, "step {step} was skipped: {outcome:?}");
        bits.extend([outcome.loss.to_bits(), outcome.grad_norm.to_bits()]);
    }
    for index in 0..trainer.parameters().len() {
        let weight = block_on(trainer.weight(index)).expect("a weight");
        bits.extend(weight.iter().map(|x| x.to_bits()));
    }
    bits
}

#[test]
fn gradients_that_are_consumed_change_no_bit_and_leave_their_room() {
    let adamw = config(Family::Gpt2, Precision::F32).optimizer;
    let (exact, narrow) = ((Gradients::F32, Master::F32), (Gradients::BF16, Master::None));
    let muon = Optimizer::muon(0.9, 0.95, 1e-8);
    for (family, precision, (gradients, master), bits, optimizer) in [
        (Family::Gpt2, Precision::F32, exact, StateBits::B32, adamw),
        (Family::Llama, Precision::BF16, exact, StateBits::B8, adamw),
        (Family::Llama, Precision::BF16, exact, StateBits::B8, muon),
        (Family::Gpt2, Precision::BF16, narrow, StateBits::B16, adamw),
        (Family::Llama, Precision::BF16, narrow, StateBits::B8, muon),
    ] {
        let of = config(family, precision);
        let mut held = TrainerConfig { clip: None, optimizer, gradients, master, ..of };
        (held.optimizer_bits, held.batch, held.micro_batch) = (bits, 1, 1);
        let consumed = TrainerConfig { consume_gradients: true, ..held.clone() };
        let gradients = |config: &TrainerConfig| {
            let plan = Planned::new(config, &Cpu::new(2).expect("threads")).expect("a plan").plan;
            let report = plan.report();
            (plan.peak_bytes(), report.by_class.get(Class::Gradient.name()).copied().unwrap_or(0))
        };
        let ((less, few), (more, all)) = (gradients(&consumed), gradients(&held));
        assert!(less < more && 3 * few < all, "{few} of {all} bytes, {less} of {more} in all");
        let expected = run(&held, 2);
        for checkpoint in
            [Checkpoint::None, Checkpoint::Block, Checkpoint::Sqrt, Checkpoint::Every(3)]
        {
            let options = Options { checkpoint, ..Options::default() };
            let consumed = TrainerConfig { options, ..consumed.clone() };
            assert!(run(&consumed, 2) == expected, "{:?}", consumed.options);
        }
    }
    for (other, expected) in [
        (TrainerConfig { clip: Some(1.0), ..config(Family::Gpt2, Precision::F32) }, "train.clip"),
        (TrainerConfig { clip: None, ..config(Family::Gpt2, Precision::F16) }, "f16"),
        (TrainerConfig { batch: 16, ..config(Family::Gpt2, Precision::F32) }, "one pass"),
    ] {
        let other = TrainerConfig { consume_gradients: true, ..other };
        let refused = Planned::new(&other, &Cpu::new(1).expect("threads")).err();
        let said = refused.expect("it can't be consumed").to_string();
        assert!(said.contains(expected), "{said}");
    }
}

/// State in 8 bits becomes f32 for the update of its parameter. Where that came at the start of the step, the f32 state of
/// all parameters lived at once, and consuming gradients took more memory than holding them.
#[test]
fn consumed_gradients_leave_quantized_state_in_8_bits_until_it_is_needed() {
    for family in [Family::Gpt2, Family::Llama] {
        let model = ModelConfig { channels: 64, hidden: 128, ..model(family) };
        let held = TrainerConfig {
            model: model.build(16).expect("a model"),
            clip: None,
            optimizer_bits: StateBits::B8,
            batch: 1,
            micro_batch: 1,
            ..config(family, Precision::F32)
        };
        let consumed = TrainerConfig { consume_gradients: true, ..held.clone() };
        let planned = |config: &TrainerConfig| {
            Planned::new(config, &Cpu::new(2).expect("threads")).expect("a plan").plan
        };
        let (less, more) = (planned(&consumed), planned(&held));
        assert!(
            less.peak_bytes() < more.peak_bytes(),
            "{family:?}: {} bytes, held {}",
            less.peak_bytes(),
            more.peak_bytes()
        );
        // Of all that is live at once, f32 state is that of one parameter, at most the largest: two slots.
        let alive = less.report().alive;
        let wide = |name: &str| name.starts_with("update.") && name.contains("exp_avg");
        let bytes: u64 = alive.iter().filter(|it| wide(&it.name)).map(|it| it.bytes).sum();
        assert!(bytes <= 2 * 4 * 3 * 64 * 64, "{family:?}: {bytes} bytes of f32 state at once");
        assert!(run(&consumed, 2) == run(&held, 2), "{family:?}");
    }
}

#[test]
fn recomputation_changes_no_bit() {
    for (family, dropout) in [(Family::Gpt2, 0.1), (Family::Llama, 0.0)] {
        for precision in [Precision::F32, Precision::BF16] {
            let base = changed(&config(family, precision), |model| model.dropout = dropout);
            let kept = run(&base, 2);
            let some = vec!["h.1.mlp.up".to_string(), "h.2.attn.qkv".into()];
            for checkpoint in [
                Checkpoint::Block,
                Checkpoint::Every(2),
                Checkpoint::Sqrt,
                Checkpoint::Tensors(some),
            ] {
                let options = Options { checkpoint: checkpoint.clone(), ..Options::default() };
                let other = run(&TrainerConfig { options, ..base.clone() }, 2);
                assert!(kept == other, "{family:?} {precision:?} {checkpoint} differs");
            }
        }
    }
}

#[test]
fn loss_chunks_of_one_reduction_order_change_no_bit() {
    if Cpu::new(1).expect("a thread").isa() == Isa::PORTABLE {
        // The `gemm` crate makes the matmuls and rounds each part of a sum.
        return;
    }
    for precision in [Precision::F32, Precision::BF16] {
        let base = config(Family::Gpt2, precision);
        let with = |loss_chunk| {
            let build = BuildOptions { loss_chunk, ..BuildOptions::default() };
            run(&TrainerConfig { build, ..base.clone() }, 2)
        };
        let whole = with(0);
        for chunk in [256, 512, 1024] {
            assert!(whole == with(chunk), "{precision:?}: a loss chunk of {chunk} differs");
        }
    }
}

#[test]
fn threads_and_in_place_reuse_change_no_bit() {
    let base = config(Family::Llama, Precision::F32);
    let one = run(&base, 1);
    assert!(one == run(&base, 2), "the number of threads changes results");
    let options = Options { in_place: false, ..Options::default() };
    assert!(one == run(&TrainerConfig { options, ..base }, 2), "in-place reuse changes results");
}

#[test]
fn a_run_repeats_bit_for_bit() {
    for precision in [Precision::F32, Precision::BF16, Precision::F16] {
        let mut config = changed(&config(Family::Gpt2, precision), |model| model.dropout = 0.2);
        config.micro_batch = 2;
        assert!(run(&config, 2) == run(&config, 2), "{precision:?} doesn't repeat");
    }
}

#[test]
fn accumulation_follows_the_whole_batch() {
    let whole = config(Family::Gpt2, Precision::F32);
    let mut split = whole.clone();
    split.micro_batch = 2;
    let loss_of = |config: &TrainerConfig| {
        let cpu = Cpu::new(2).expect("threads");
        let planned = Planned::new(config, &cpu).expect("a plan");
        let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
        trainer.initialise().expect("weights");
        let count = config.tokens();
        let id = |stream: u64| (0..count).map(move |i| (uniform(stream, i as u64) * 61.0) as i32);
        let (x, y): (Vec<i32>, Vec<i32>) = (id(1).collect(), id(2).collect());
        for step in 0..STEPS {
            trainer.step(step, 1e-3, &Batch::text(&x, &y)).expect("a step");
        }
        block_on(trainer.outcome()).expect("an outcome").loss
    };
    let (a, b) = (loss_of(&whole), loss_of(&split));
    assert!((a - b).abs() < 1e-4, "{a} with one micro-batch, {b} with four");
}

#[test]
fn every_arena_is_the_predicted_one() {
    let mut tried = 0;
    for draw in 0..260u64 {
        let pick = |stream: u64, from: &[usize]| {
            from[(uniform(1000 + stream, draw) * from.len() as f64) as usize]
        };
        let family = [Family::Gpt2, Family::Llama][pick(0, &[0, 1])];
        let mut model = model(family);
        model.layers = pick(1, &[1, 2, 3, 5]);
        model.heads = pick(2, &[1, 2, 6]);
        model.kv_heads = if family == Family::Llama && model.heads == 6 { 3 } else { model.heads };
        model.channels = model.heads * pick(3, &[4, 8, 16]);
        model.hidden = pick(4, &[8, 24, 40]);
        if family == Family::Gpt2 {
            model.hidden = 4 * model.channels;
        }
        model.vocab = pick(5, &[2, 61, 64, 257]);
        model.tied = pick(6, &[0, 1]) == 1 || family == Family::Gpt2;
        let precision = [Precision::F32, Precision::BF16, Precision::F16][pick(7, &[0, 1, 2])];
        let micro_batch = pick(8, &[1, 2, 3]);
        let checkpoint = match pick(9, &[0, 1, 2, 3]) {
            0 => Checkpoint::None,
            1 => Checkpoint::Block,
            2 => Checkpoint::Sqrt,
            _ => Checkpoint::Every(pick(10, &[1, 2, 3])),
        };
        let optimizer = match pick(11, &[0, 1, 2, 3]) {
            0 => Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 },
            1 => Optimizer::Sgd { momentum: 0.9 },
            2 => Optimizer::muon(0.9, 0.95, 1e-8),
            _ => Optimizer::Lion { beta1: 0.9, beta2: 0.99 },
        };
        let by_host = pick(19, &[0, 0, 1]) == 1;
        let offload = Offload {
            optimizer: by_host,
            gradients: by_host && pick(20, &[0, 1]) == 1,
            activations: pick(21, &[0, 0, 1]) == 1,
            weights: by_host && pick(22, &[0, 1]) == 1,
        };
        let config = TrainerConfig {
            ranks: 1,
            context_ranks: 1,
            shard: Shard::Nothing,
            programs: Programs::Training,
            shorter: vec![],
            model: model.build(pick(13, &[1, 7, 16, 33])).expect("a model"),
            precision,
            batch: micro_batch * pick(12, &[1, 3]),
            micro_batch,
            build: BuildOptions {
                loss_chunk: pick(14, &[0, 1, 16]),
                attention: AttentionKind::ALL[pick(28, &[0, 1])],
            },
            optimizer,
            // The host sums gradients without their rounding errors.
            gradients: Gradients::ALL
                [pick(26, if offload.gradients { &[0, 1] } else { &[0, 1, 2] })],
            gradient_sums: GradientSums::ALL[pick(29, &[0, 1])],
            master: match precision {
                Precision::BF16 => Master::ALL[pick(27, &[0, 1])],
                _ => Master::F32,
            },
            optimizer_bits: StateBits::B32,
            table_bits: TableBits::B32,
            weight_decay: 0.1,
            neftune: pick(30, &[0, 0, 5]) as f64,
            clip: Some(1.0),
            options: Options {
                checkpoint,
                fusion: pick(16, &[0, 1]) == 1,
                in_place: pick(17, &[0, 1]) == 1,
                overlap: pick(23, &[0, 1]) == 1,
            },
            seed: draw,
            decode: pick(18, &[0, 5]),
            offload,
            consume_gradients: false,
            frozen: vec![],
            lora: None,
            watch: vec!["h.0.mlp".to_owned(); pick(24, &[0, 0, 1])],
            logits: pick(25, &[0, 1]) == 1,
            losses: pick(26, &[0, 1]) == 1,
        };
        let cpu = Late(Cpu::new(2).expect("threads"));
        let planned = Planned::new(&config, &cpu).expect("a plan");
        let (predicted, bound) = (planned.plan.arena_bytes, planned.plan.lower_bound_bytes());
        assert!(predicted >= bound, "{config:?}");
        let host = Cpu::new(1).expect("threads");
        let trainer = Trainer::offloading(planned, Box::new(cpu), Box::new(host));
        let mut trainer = trainer.expect("memory");
        trainer.initialise().expect("weights");
        let ids = vec![1; config.tokens()];
        trainer.step(0, 1e-3, &Batch::text(&ids, &ids)).expect("a step");
        // f16 may skip its first steps, until the loss scale fits.
        let updated = block_on(trainer.outcome()).expect("an outcome").updated;
        assert!(updated || config.precision == Precision::F16, "{config:?}");
        assert_eq!(trainer.allocated_bytes(), predicted, "{config:?}");
        tried += 1;
    }
    assert!(tried >= 200);
}

#[test]
fn plans_of_published_models_are_quick_and_tight() {
    for (preset, milliseconds) in [("gpt2", 100.0), ("gpt2-xl", 1000.0)] {
        let model = tightrope_nn::preset(preset).expect("a preset");
        let config = TrainerConfig {
            batch: 4,
            micro_batch: 4,
            build: BuildOptions { loss_chunk: 512, ..BuildOptions::default() },
            model: model.build(1024).expect("a model"),
            ..config(Family::Gpt2, Precision::F32)
        };
        let cpu = Cpu::new(2).expect("threads");
        // The best of three: other work on the machine isn't the planner's.
        let mut fastest = f64::INFINITY;
        for _ in 0..3 {
            let began = std::time::Instant::now();
            let planned = Planned::new(&config, &cpu).expect("a plan");
            fastest = fastest.min(began.elapsed().as_secs_f64() * 1e3);
            let (arena, bound) = (planned.plan.arena_bytes, planned.plan.lower_bound_bytes());
            let over = 100.0 * (arena - bound) as f64 / bound as f64;
            assert!(over < 0.05, "{preset}: the arena is {over:.3} % over its lower bound");
        }
        println!("{preset}: planned in {fastest:.1} ms");
        assert!(fastest < milliseconds, "{preset} took {fastest} ms");
        assert_eq!(cpu.allocated_bytes(), 0, "planning allocates nothing on the device");
    }
}

#[test]
fn plans_are_deterministic() {
    for checkpoint in [Checkpoint::None, Checkpoint::Sqrt] {
        let options = Options { checkpoint, ..Options::default() };
        let config = TrainerConfig { options, ..config(Family::Llama, Precision::BF16) };
        let cpu = Cpu::new(2).expect("threads");
        let dump = || Planned::new(&config, &cpu).expect("a plan").plan.dump();
        assert_eq!(dump(), dump());
    }
}
