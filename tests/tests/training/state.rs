//! Optimizer state in 32, 16 and 8 bits: what it takes, that it trains, and that it can be saved.

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::Class;
use tightrope_nn::{
    BuildOptions, Family, Kind, Optimizer, Planned, StateBits, Stored, Trainer, TrainerConfig,
};

use crate::text::{VOCAB, saved, train};

const ADAMW: Optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };
const ALL_BITS: [StateBits; 3] = [StateBits::B32, StateBits::B16, StateBits::B8];

/// A model whose matrices are large enough for 8-bit state, and whose norms and table aren't.
fn config(optimizer: Optimizer, optimizer_bits: StateBits) -> TrainerConfig {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    model.family = Family::Gpt2;
    (model.layers, model.channels, model.heads, model.kv_heads) = (2, 64, 4, 4);
    (model.hidden, model.context, model.vocab) = (256, 32, VOCAB);
    TrainerConfig {
        batch: 8,
        micro_batch: 8,
        build: BuildOptions::default(),
        optimizer,
        optimizer_bits,
        seed: 5,
        ..TrainerConfig::new(model.build(32).expect("a model"))
    }
}

fn trainer(config: &TrainerConfig) -> Trainer {
    let cpu = Cpu::new(2).expect("threads");
    let planned = Planned::new(config, &cpu).expect("a plan");
    let predicted = planned.plan.arena_bytes;
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted, "{:?}", config.optimizer_bits);
    trainer.initialise().expect("weights");
    trainer
}

#[test]
fn fewer_bits_follow_the_losses_of_f32() {
    let optimizers = [
        (ADAMW, 2e-3),
        (Optimizer::Lion { beta1: 0.9, beta2: 0.99 }, 1e-3),
        (Optimizer::Sgd { momentum: 0.9 }, 0.1),
    ];
    for (optimizer, lr) in optimizers {
        let end = |bits| {
            let losses = train(&mut trainer(&config(optimizer, bits)), 0..60, lr);
            losses[50..].iter().sum::<f32>() / 10.0
        };
        let [single, half, quantized] = ALL_BITS.map(end);
        println!("{optimizer:?}: {single} in 32 bits, {half} in 16, {quantized} in 8");
        assert!(single < 2.0, "{optimizer:?} doesn't learn: {single}");
        assert!((half - single).abs() < 0.01, "{optimizer:?}: {half} in 16 bits, {single} in 32");
        assert!(
            (quantized - single).abs() < 0.02,
            "{optimizer:?}: {quantized} in 8 bits, {single} in 32"
        );
    }
}

#[test]
fn a_run_continues_from_what_was_saved_bit_for_bit() {
    let rules = [ADAMW, Optimizer::muon(0.9, 0.95, 1e-8)];
    for (rule, bits) in rules.into_iter().flat_map(|rule| ALL_BITS.map(|bits| (rule, bits))) {
        for micro_batch in [8, 4] {
            let config = TrainerConfig { micro_batch, ..config(rule, bits) };
            let mut whole = trainer(&config);
            train(&mut whole, 0..5, 1e-3);
            let checkpoint = saved(&mut whole);
            let mut resumed = trainer(&config);
            let get = |name: &str| Ok(checkpoint[name].clone());
            let states: Vec<String> =
                resumed.saved_states().into_iter().map(|state| state.name).collect();
            let weights: Vec<&String> =
                checkpoint.keys().filter(|name| !states.contains(name)).collect();
            resumed.load_weights(weights, &mut { get }).expect("weights");
            resumed.load_states(&states, &mut { get }).expect("state");
            let losses = [&mut whole, &mut resumed].map(|trainer| train(trainer, 5..9, 1e-3));
            assert_eq!(losses[0], losses[1], "{rule:?} {bits:?}");
            assert!(saved(&mut whole) == saved(&mut resumed), "{rule:?} {bits:?} {micro_batch}");
        }
    }
}

#[test]
fn state_of_other_bits_is_refused_with_both_numbers() {
    for found in ALL_BITS {
        let mut from = trainer(&config(ADAMW, found));
        let checkpoint = saved(&mut from);
        let names: Vec<String> = from.saved_states().into_iter().map(|state| state.name).collect();
        for expected in ALL_BITS.into_iter().filter(|&bits| bits != found) {
            let mut into = trainer(&config(ADAMW, expected));
            let result = into.load_states(&names, &mut |name| Ok(checkpoint[name].clone()));
            let message = result.unwrap_err().to_string();
            for bits in [found, expected] {
                assert!(message.contains(&u32::from(bits).to_string()), "{message}");
            }
        }
    }
}

#[test]
fn a_skipped_step_leaves_quantized_state_alone() {
    for bits in ALL_BITS {
        let mut trainer = trainer(&config(ADAMW, bits));
        train(&mut trainer, 0..2, 1e-3);
        let broken: Vec<f32> = vec![f32::NAN; trainer.parameters()[0].elements()];
        trainer.set_weight(0, &broken).expect("a weight");
        let state = |trainer: &mut Trainer| -> Vec<Vec<f32>> {
            (0..trainer.states().len())
                .map(|index| block_on(trainer.state(index)).expect("state"))
                .collect()
        };
        let before = state(&mut trainer);
        assert!(train(&mut trainer, 2..3, 1e-3)[0].is_nan());
        assert!(before == state(&mut trainer), "{bits:?}");
    }
}

#[test]
fn muon_takes_half_of_adams_state() {
    let state = |optimizer| {
        let trainer = trainer(&config(optimizer, StateBits::B32));
        let graph = &trainer.session().plan().graph;
        let hidden = trainer
            .states()
            .iter()
            .filter(|state| !trainer.parameters()[state.parameter].matrices().is_empty());
        hidden.map(|state| graph.ty(state.tensor).bytes()).sum::<usize>()
    };
    let [muon, adamw] = [Optimizer::muon(0.9, 0.95, 1e-8), ADAMW].map(state);
    assert!(muon > 0 && 2 * muon == adamw, "{muon} and {adamw} bytes");
}

#[test]
fn eight_bits_take_a_quarter() {
    let bytes = |bits| {
        let trainer = trainer(&config(ADAMW, bits));
        let graph = &trainer.session().plan().graph;
        let mut bytes = [0; 2];
        for state in trainer.states() {
            let parameter = &trainer.parameters()[state.parameter];
            let kept = parameter.kind == Kind::Table || parameter.elements() < 4096;
            assert_eq!(
                kept || bits != StateBits::B8,
                !is_quantized(state.stored),
                "{}",
                parameter.name
            );
            bytes[usize::from(kept)] += graph.ty(state.tensor).bytes();
            assert_eq!(graph.info(state.tensor).class, Class::Optimizer);
        }
        bytes
    };
    let [single, half, quantized] = ALL_BITS.map(bytes);
    assert_eq!(half.map(|bytes| 2 * bytes), single);
    // A byte and a part of a scale, where there were four.
    assert_eq!(quantized[0] * 256, single[0] * (256 + 4) / 4);
    assert_eq!(quantized[1], single[1]);
}

fn is_quantized(stored: Stored) -> bool {
    matches!(stored, Stored::Quantized | Stored::Scales)
}
