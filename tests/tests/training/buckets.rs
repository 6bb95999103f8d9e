//! Batches of short rows in passes of their own train as those that are padded to whole sequences.

use pollster::block_on;
use tightrope_core::Backend;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Batch, BuildOptions, Family, FrozenBits, Gradients, Lora, ModelConfig, Optimizer, Planned,
    Precision, Trainer, TrainerConfig,
};

use crate::devices::{devices, relative_l2};
use crate::text::{VOCAB, saved};

const SEQ_LEN: usize = 32;
const BATCH: usize = 4;
/// Lengths of the batches of a run, and the longest row of each.
const BATCHES: [(usize, usize); 5] = [(8, 7), (32, 30), (16, 16), (8, 8), (32, 17)];

fn config(family: Family, micro_batch: usize) -> TrainerConfig {
    let preset = if family == Family::Gpt2 { "tiny" } else { "llama-tiny" };
    let (channels, heads) = (32, 2);
    let model = ModelConfig {
        family,
        layers: 3,
        channels,
        heads,
        kv_heads: heads,
        hidden: if family == Family::Gpt2 { 4 * channels } else { 64 },
        context: SEQ_LEN,
        vocab: VOCAB,
        ..tightrope_nn::preset(preset).expect("a preset")
    };
    TrainerConfig {
        precision: Precision::F32,
        batch: BATCH,
        micro_batch,
        build: BuildOptions { loss_chunk: 16, ..BuildOptions::default() },
        seed: 3,
        shorter: vec![8, 16],
        ..TrainerConfig::new(model.build(SEQ_LEN).expect("a model"))
    }
}

/// Tokens and targets of rows of at most `longest` positions, in sequences of `length`.
fn rows(step: usize, length: usize, longest: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut tokens, mut targets) = (vec![], vec![]);
    for row in 0..BATCH {
        let token = |at: usize| ((step * 97 + row * 31 + at * at * 7 + at) % VOCAB) as i32;
        let taken = if row == 1 { longest } else { longest - (row * row + step) % (longest / 2) };
        for at in 0..taken {
            tokens.push(token(at));
            targets.push(if at > taken / 3 { token(at + 1) } else { -1 });
        }
        tokens.resize((row + 1) * length, 0);
        targets.resize((row + 1) * length, -1);
    }
    (tokens, targets)
}

/// A run on `device`: loss, gradient norm and tokens of every step, and what all weights have moved by at the end.
fn run(
    config: &TrainerConfig,
    device: Box<dyn Backend>,
    whole: bool,
    lr: f64,
) -> (Vec<[f32; 2]>, Vec<usize>, Vec<f32>) {
    let shorter = if whole { vec![] } else { config.shorter.clone() };
    let config = TrainerConfig { shorter, ..config.clone() };
    let planned = Planned::new(&config, &*device).expect("a plan");
    let peak = planned.plan.peak_bytes();
    let mut trainer = Trainer::new(planned, device).expect("memory");
    assert_eq!(trainer.allocated_bytes(), peak);
    trainer.initialise().expect("weights");
    let before = weights(&mut trainer);
    let (mut figures, mut tokens) = (vec![], vec![]);
    for (step, (length, longest)) in BATCHES.into_iter().enumerate() {
        let (ids, targets) = rows(step, if whole { SEQ_LEN } else { length }, longest);
        trainer.step(step as u64, lr, &Batch::text(&ids, &targets)).expect("a step");
        let outcome = block_on(trainer.outcome()).expect("an outcome");
        assert!(outcome.updated);
        figures.push([outcome.loss, outcome.grad_norm]);
        tokens.push(outcome.tokens);
    }
    let moved = weights(&mut trainer).into_iter().zip(before).map(|(after, before)| after - before);
    (figures, tokens, moved.collect())
}

/// Weights and optimizer state, one after the other.
fn weights(trainer: &mut Trainer) -> Vec<f32> {
    saved(trainer).into_values().flat_map(|(_, values)| values).collect()
}

fn agree(config: &TrainerConfig, lr: f64, case: &str) {
    for (device, other) in devices().into_iter().zip(devices()) {
        let case = format!("{case} on {}", device.kind().name());
        let (whole, of_whole, expected) = run(config, device, true, lr);
        let (short, of_short, found) = run(config, other, false, lr);
        assert_eq!(of_whole, [BATCH * SEQ_LEN; BATCHES.len()]);
        assert_eq!(of_short, BATCHES.map(|(length, _)| BATCH * length));
        let worst = whole.iter().flatten().zip(short.iter().flatten());
        let worst = worst.map(|(a, b)| (a - b).abs() / a.abs().max(1.0)).fold(0.0, f32::max);
        let off = relative_l2(&found, &expected);
        println!("{case}: losses and norms are off by {worst:e}, what weights moved by by {off:e}");
        assert!(worst < 1e-6, "{case}: {short:?}, and {whole:?} of whole sequences");
        assert!(off < 1e-6, "{case}: what weights moved by is off by {off:e}");
    }
}

#[test]
fn short_batches_have_the_gradients_of_padded_ones() {
    // Plain gradient descent, so that weights show the gradients as they are.
    for (family, micro_batch) in [(Family::Gpt2, BATCH), (Family::Llama, BATCH / 2)] {
        let optimizer = Optimizer::Sgd { momentum: 0.0 };
        let config = TrainerConfig { optimizer, clip: None, ..config(family, micro_batch) };
        agree(&config, 0.1, &format!("{family:?} in micro-batches of {micro_batch}"));
    }
}

#[test]
fn passes_of_all_lengths_share_optimizer_state() {
    // State that each length had for itself would show from the second step on.
    let config = config(Family::Llama, BATCH);
    agree(&config, 1e-3, "AdamW");
}

#[test]
fn passes_of_all_lengths_share_an_arena() {
    let all = || {
        let recomputed = Options { checkpoint: Checkpoint::Block, ..Options::default() };
        let targets = vec![ALL_LINEAR.to_owned()];
        let base_bits = FrozenBits::B4;
        let lora = Lora {
            rank: 4,
            alpha: 8.0,
            targets,
            dropout: 0.1,
            base_bits,
            variant: Default::default(),
        };
        [BATCH, 1].into_iter().flat_map(move |micro_batch| {
            let plain = config(Family::Gpt2, micro_batch);
            [
                TrainerConfig { options: recomputed.clone(), ..plain.clone() },
                TrainerConfig { lora: Some(lora.clone()), ..plain.clone() },
                TrainerConfig {
                    precision: Precision::BF16,
                    gradients: Gradients::BF16,
                    ..plain.clone()
                },
                plain,
            ]
        })
    };
    for device in devices() {
        for config in all() {
            let whole = TrainerConfig { shorter: vec![], ..config.clone() };
            let whole = Planned::new(&whole, &*device).expect("a plan");
            let with = whole.with_shorter(&config.shorter, &*device).expect("a plan");
            let transient =
                |planned: &Planned| planned.plan.arena_bytes - planned.plan.persistent_bytes;
            assert_eq!(transient(&with), transient(&whole));
            // Ids, targets, positions and the start of each length, aligned.
            let inputs = with.plan.persistent_bytes - whole.plan.persistent_bytes;
            let most = config.shorter.len() as u64 * 4 * 3 * 256;
            assert!(inputs <= most, "{inputs} bytes of inputs");
            // The shorter ones recompute what the whole one does.
            let [one, two, three] = [0, 1, 2].map(|index| {
                let shorter = with.plan.graph.programs.len() - 2;
                let program = if index == 0 { 0 } else { shorter + index - 1 };
                with.plan.graph.programs[program].nodes.len()
            });
            assert!(one > 0 && two == three, "{one}, {two} and {three} ops");
        }
    }
}

#[test]
fn a_batch_of_no_length_is_refused() {
    let device = devices().swap_remove(0);
    let config = config(Family::Gpt2, BATCH);
    let planned = Planned::new(&config, &*device).expect("a plan");
    let mut trainer = Trainer::new(planned, device).expect("memory");
    let ids = vec![0; BATCH * 9];
    let refused = trainer.step(0, 0.1, &Batch::text(&ids, &ids)).expect_err("a refusal");
    assert!(refused.to_string().contains(&format!("{} numbers", BATCH * SEQ_LEN)), "{refused}");
    // Longer than the model, or as long.
    for length in [SEQ_LEN, SEQ_LEN + 1] {
        let config = TrainerConfig { shorter: vec![length], ..config.clone() };
        let device = devices().swap_remove(0);
        assert!(Planned::new(&config, &*device).is_err());
    }
}
