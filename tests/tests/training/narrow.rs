//! Gradients in 16 bits, weights without masters, and tables whose state is in 8 bits: what they take, what they change, and
//! that runs with them can be saved.

use conformance::draw::Draw;
use pollster::block_on;
use tightrope_backend_cpu::{Cpu, tape::Tape};
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::{Class, DType, Node, Op};
use tightrope_nn::{
    Family, FrozenBits, Gradients, Kind, Lora, Master, Optimizer, Planned, Precision, StateBits,
    TableBits, Trainer, TrainerConfig,
};

use crate::text::{VOCAB, saved, train};

/// A model whose table and matrices are large enough for 8-bit state.
fn config(family: Family) -> TrainerConfig {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    model.family = family;
    (model.layers, model.channels, model.heads, model.kv_heads) = (2, 96, 4, 4);
    (model.hidden, model.context, model.vocab) = (384, 32, VOCAB);
    TrainerConfig {
        precision: Precision::BF16,
        batch: 8,
        micro_batch: 8,
        seed: 5,
        ..TrainerConfig::new(model.build(32).expect("a model"))
    }
}

fn narrow(family: Family) -> TrainerConfig {
    TrainerConfig {
        gradients: Gradients::BF16,
        master: Master::None,
        optimizer_bits: StateBits::B8,
        table_bits: TableBits::B8,
        ..config(family)
    }
}

fn trainer(config: &TrainerConfig) -> Trainer {
    let cpu = Cpu::new(2).expect("threads");
    let planned = Planned::new(config, &cpu).expect("a plan");
    let predicted = planned.plan.arena_bytes;
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted, "{config:?}");
    trainer.initialise().expect("weights");
    trainer
}

/// Bytes of a class of what lasts from step to step.
fn lasting(config: &TrainerConfig, class: Class) -> u64 {
    let plan = Planned::new(config, &Cpu::new(1).expect("threads")).expect("a plan").plan;
    let persistent = tightrope_core::Life::Persistent;
    let tensors = plan.graph.tensors.iter();
    let of_class = tensors.filter(|info| info.class == class && info.life == persistent);
    of_class.filter(|info| info.replaces.is_none()).map(|info| info.ty.bytes() as u64).sum()
}

#[test]
fn the_processor_has_a_loop_for_adamw() {
    let of = |config: &TrainerConfig| -> Vec<bool> {
        let plan = Planned::new(config, &Cpu::new(1).expect("threads")).expect("a plan").plan;
        let nodes = plan.graph.programs.iter().flat_map(|program| &program.nodes);
        let is_update = |node: &&Node| {
            node.outputs.iter().any(|&it| plan.graph.info(it).class == Class::Optimizer)
        };
        let maps = nodes.filter(is_update).filter_map(|node| match &node.op {
            Op::Map(map) if map.segments > 1 => Some((map, &node.inputs)),
            _ => None,
        });
        let loops = maps.map(|(map, inputs)| {
            let types: Vec<_> = inputs.iter().map(|&input| plan.graph.ty(input)).collect();
            Tape::compile(map, &types).expect("registers").has_loop()
        });
        loops.collect()
    };
    // What decays and what doesn't.
    let narrow = config(Family::Gpt2);
    assert_eq!(of(&narrow), [true, true]);
    assert_eq!(of(&TrainerConfig { precision: Precision::F32, ..narrow.clone() }), [true, true]);
    assert_eq!(of(&TrainerConfig { gradients: Gradients::BF16, ..narrow.clone() }), [true, true]);
    let bits = StateBits::B16;
    assert_eq!(of(&TrainerConfig { optimizer_bits: bits, ..narrow }), [false, false]);
}

#[test]
fn weights_without_masters_take_half() {
    let with = config(Family::Llama);
    let without = TrainerConfig { master: Master::None, ..with.clone() };
    assert_eq!(lasting(&with, Class::Weight), 2 * lasting(&without, Class::Weight));
}

#[test]
fn sums_of_gradients_take_half_or_as_much_with_their_errors() {
    let of = |gradients| {
        let config = TrainerConfig { gradients, micro_batch: 2, ..config(Family::Llama) };
        lasting(&config, Class::Gradient)
    };
    let vectors: usize = config(Family::Llama)
        .parameters()
        .expect("a model")
        .iter()
        .filter(|parameter| parameter.shape.len() == 1)
        .map(|parameter| 4 * parameter.elements())
        .sum();
    let [single, half, kahan] = Gradients::ALL else { panic!("three of them") };
    let [single, half, kahan] = [single, half, kahan].map(|&gradients| of(gradients));
    let vectors = vectors as u64;
    assert_eq!(single - vectors, 2 * (half - vectors));
    assert_eq!(kahan, single);
    // One pass has no sums.
    let one = TrainerConfig { gradients: Gradients::Kahan, ..config(Family::Llama) };
    assert_eq!(lasting(&one, Class::Gradient), 0);
}

#[test]
fn tables_take_a_quarter_where_each_row_has_a_scale() {
    let of = |table_bits| {
        let trainer = trainer(&TrainerConfig { table_bits, ..narrow(Family::Gpt2) });
        let graph = &trainer.session().plan().graph;
        let of_tables = trainer.states().iter().filter(|state| {
            let parameter = &trainer.parameters()[state.parameter];
            parameter.kind == Kind::Table && parameter.elements() >= 4096
        });
        of_tables.map(|state| graph.ty(state.tensor).bytes()).sum::<usize>()
    };
    let [single, quantized] = [TableBits::B32, TableBits::B8].map(of);
    // A row of 96 bytes and a scale, where there were 96 f32.
    assert_eq!(quantized * 4 * 96, single * (96 + 4));
}

/// The mean loss of the last ten steps.
fn end(losses: &[f32]) -> f32 {
    losses[losses.len() - 10..].iter().sum::<f32>() / 10.0
}

#[test]
fn narrow_steps_follow_the_losses_of_wide_ones() {
    let adamw = config(Family::Gpt2).optimizer;
    for (optimizer, lr) in [
        (adamw, 2e-3),
        (Optimizer::Lion { beta1: 0.9, beta2: 0.99 }, 1e-3),
        (Optimizer::muon(0.9, 0.95, 1e-8), 2e-3),
    ] {
        let wide = TrainerConfig { optimizer, ..config(Family::Gpt2) };
        let expected = end(&train(&mut trainer(&wide), 0..60, lr));
        assert!(expected < 2.0, "{optimizer:?} doesn't learn: {expected}");
        let forms = vec![
            (Gradients::BF16, Master::F32, StateBits::B32, TableBits::B32, 8),
            (Gradients::BF16, Master::F32, StateBits::B32, TableBits::B32, 1),
            (Gradients::Kahan, Master::F32, StateBits::B32, TableBits::B32, 1),
            (Gradients::F32, Master::None, StateBits::B16, TableBits::B32, 8),
            (Gradients::F32, Master::F32, StateBits::B8, TableBits::B8, 8),
            (Gradients::BF16, Master::None, StateBits::B8, TableBits::B8, 4),
        ];
        let forms = Draw::of_today().some(&format!("narrow forms of {optimizer:?}"), forms, 3);
        for (gradients, master, optimizer_bits, table_bits, micro_batch) in forms {
            let config = TrainerConfig {
                gradients,
                master,
                optimizer_bits,
                table_bits,
                micro_batch,
                ..wide.clone()
            };
            let found = end(&train(&mut trainer(&config), 0..60, lr));
            println!("{optimizer:?} {gradients:?} {master:?} {table_bits:?}: {found}, {expected}");
            assert!((found - expected).abs() < 0.03, "{config:?}: {found}, not {expected}");
        }
    }
}

/// Updates of less than half a unit in the last place of a bf16 weight: rounded to nearest, they change nothing.
#[test]
fn small_updates_reach_weights_without_masters() {
    const STEPS: std::ops::Range<u64> = 0..80;
    const LR: f64 = 5e-6;
    let with = config(Family::Gpt2);
    let without = TrainerConfig { master: Master::None, ..with.clone() };
    let exact = train(&mut trainer(&with), STEPS, LR);
    let stochastic = train(&mut trainer(&without), STEPS, LR);
    let mut nearest = trainer(&with);
    let nearest: Vec<f32> = STEPS
        .map(|step| {
            let loss = train(&mut nearest, step..step + 1, LR)[0];
            for index in 0..nearest.parameters().len() {
                let master = block_on(nearest.weight(index)).expect("a weight");
                let rounded = |x: f32| half::bf16::from_f32(x).to_f32();
                let rounded: Vec<f32> = master.into_iter().map(rounded).collect();
                nearest.set_weight(index, &rounded).expect("a weight");
            }
            loss
        })
        .collect();
    let learned = |losses: &[f32]| losses[0] - end(losses);
    let [exact, stochastic, nearest] = [&exact, &stochastic, &nearest].map(|it| learned(it));
    println!("f32 {exact}, stochastic {stochastic}, nearest {nearest}");
    assert!(exact > 0.02, "the rate is too small to see anything: {exact}");
    assert!((stochastic - exact).abs() < 0.05 * exact, "{stochastic} of {exact}");
    assert!(nearest < 0.5 * exact, "{nearest} of {exact}");
}

#[test]
fn errors_of_sums_are_made_up_for() {
    let name = "grad.h.1.mlp.up.weight";
    let of = |gradients| {
        let config = TrainerConfig {
            gradients,
            batch: 64,
            micro_batch: 1,
            watch: vec![name.to_owned()],
            ..config(Family::Gpt2)
        };
        let mut trainer = trainer(&config);
        train(&mut trainer, 0..1, 0.0);
        block_on(trainer.watched_values()).expect("values").swap_remove(0)
    };
    let expected = of(Gradients::F32);
    let error = |found: &[f32]| {
        let square = |x: f32| f64::from(x).powi(2);
        let off: f64 = found.iter().zip(&expected).map(|(a, b)| square(a - b)).sum();
        (off / expected.iter().map(|&x| square(x)).sum::<f64>()).sqrt()
    };
    let [plain, compensated] = [Gradients::BF16, Gradients::Kahan].map(|it| error(&of(it)));
    println!("relative error of a sum of 64: {plain:.1e}, compensated {compensated:.1e}");
    // One rounding of the sum and one of each part; plain, 64 of the sum.
    assert!(compensated < 2.5e-3, "{compensated}");
    assert!(plain > 2.0 * compensated, "{plain} and {compensated}");
}

#[test]
fn a_narrow_run_continues_from_what_was_saved_bit_for_bit() {
    let adamw = config(Family::Llama).optimizer;
    let targets = vec![tightrope_nn::lora::ALL_LINEAR.to_owned()];
    let lora = Lora {
        rank: 4,
        alpha: 8.0,
        targets,
        dropout: 0.1,
        base_bits: FrozenBits::B8,
        variant: Default::default(),
    };
    for (optimizer, gradients, micro_batch, lora) in [
        (adamw, Gradients::BF16, 8, None),
        (adamw, Gradients::Kahan, 2, None),
        (Optimizer::muon(0.9, 0.95, 1e-8), Gradients::BF16, 4, None),
        (adamw, Gradients::BF16, 4, Some(lora)),
    ] {
        let adapted = lora.is_some();
        let config =
            TrainerConfig { optimizer, gradients, micro_batch, lora, ..narrow(Family::Llama) };
        let mut whole = trainer(&config);
        train(&mut whole, 0..5, 1e-3);
        let weights = whole.saved_weights();
        assert!(weights.iter().all(|weight| weight.ty.dtype == DType::BF16), "{config:?}");
        let checkpoint = saved(&mut whole);
        let mut resumed = trainer(&config);
        let get = |name: &str| Ok(checkpoint[name].clone());
        let states: Vec<String> =
            resumed.saved_states().into_iter().map(|state| state.name).collect();
        let weights = weights.iter().map(|weight| &weight.name);
        match adapted {
            true => resumed.load_adapters(weights, &mut { get }).expect("adapters"),
            false => resumed.load_weights(weights, &mut { get }).expect("weights"),
        }
        resumed.load_states(&states, &mut { get }).expect("state");
        let losses = [&mut whole, &mut resumed].map(|trainer| train(trainer, 5..9, 1e-3));
        assert_eq!(losses[0], losses[1], "{config:?}");
        assert!(saved(&mut whole) == saved(&mut resumed), "{config:?}");
    }
}

/// Sums are rounded in another order on a GPU, and weights by the same random numbers.
#[test]
fn a_narrow_run_on_a_gpu_follows_the_processor() {
    let config =
        TrainerConfig { gradients: Gradients::Kahan, micro_batch: 4, ..narrow(Family::Gpt2) };
    let expected = train(&mut trainer(&config), 0..5, 1e-3);
    let wgpu = block_on(Wgpu::open(&Default::default()));
    let wgpu = wgpu.expect("an adapter: install mesa-vulkan-drivers");
    let planned = Planned::new(&config, &wgpu).expect("a plan");
    let mut on_gpu = Trainer::new(planned, Box::new(wgpu)).expect("memory");
    on_gpu.initialise().expect("weights");
    let found = train(&mut on_gpu, 0..5, 1e-3);
    for (a, b) in expected.iter().zip(&found) {
        assert!((a - b).abs() < 5e-3, "{found:?} and {expected:?}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_by_name() {
    let of = config(Family::Gpt2);
    let offload: tightrope_nn::Offload =
        vec!["optimizer".to_owned(), "gradients".to_owned()].try_into().expect("names");
    for (config, words) in [
        (
            TrainerConfig { precision: Precision::F32, master: Master::None, ..of.clone() },
            "`memory.master`: weights in f32 have no master",
        ),
        (
            TrainerConfig { precision: Precision::F16, master: Master::None, ..of.clone() },
            "`memory.master`: weights in f16 need their f32 master",
        ),
        (
            TrainerConfig { table_bits: TableBits::B8, ..of.clone() },
            "`memory.table_bits`: is 8, which goes with memory.optimizer_bits = 8",
        ),
        (
            TrainerConfig { gradients: Gradients::Kahan, offload, ..of },
            "`memory.gradients`: is bf16-kahan, and the host sums",
        ),
    ] {
        let refused = Planned::new(&config, &Cpu::new(1).expect("threads")).err();
        let said = refused.expect("a refusal").to_string();
        assert!(said.contains(words), "{said}");
    }
}
