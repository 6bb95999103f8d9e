//! Noise on embeddings while a model is trained (NEFTune).

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::ops::uniform;
use tightrope_nn::{
    Batch, Family, GradientSums, ModelConfig, Planned, Precision, Trainer, TrainerConfig, preset,
};

use crate::ranks::{self, run, run_all, same};

const SEQUENCES: usize = 6;
const TOKENS: usize = 16;
const CHANNELS: usize = 64;
/// Large, so that a bound that is off shows.
const ALPHA: f64 = 40.0;
/// The stream of random numbers that noise has to itself.
const STREAM: u32 = u32::MAX;

fn config(family: Family, micro_batch: usize) -> TrainerConfig {
    let model =
        ModelConfig { family, layers: 1, vocab: 50, context: TOKENS, ..preset("tiny").unwrap() };
    let (heads, channels) = (model.heads, CHANNELS);
    let model = ModelConfig { kv_heads: heads, channels, ..model };
    TrainerConfig {
        batch: SEQUENCES,
        micro_batch,
        neftune: ALPHA,
        seed: 0x1_0000_0007,
        watch: vec!["wte".to_owned(), "noise".to_owned()],
        ..TrainerConfig::new(model.build(TOKENS).expect("a model"))
    }
}

fn trainer(config: &TrainerConfig) -> Trainer {
    let cpu = Cpu::new(2).expect("threads");
    let planned = Planned::new(config, &cpu).expect("a plan");
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    trainer.initialise().expect("weights");
    trainer
}

/// Sequences of which the second has five tokens and the last one.
fn padding() -> Vec<bool> {
    let tokens = [TOKENS, 5, TOKENS, 9, TOKENS, 1];
    tokens.iter().flat_map(|&real| (0..TOKENS).map(move |at| at >= real)).collect()
}

/// Loss of a step, and what it watched by name.
fn stepped(config: &TrainerConfig, step: u64) -> (f32, Vec<(String, Vec<f32>)>) {
    let mut trainer = trainer(config);
    let padding = padding();
    let tokens: Vec<i32> = (0..SEQUENCES * TOKENS).map(|at| (at * at % 50) as i32).collect();
    let targets = padding.iter().zip(&tokens).map(|(&it, &token)| if it { -1 } else { token });
    let targets: Vec<i32> = targets.collect();
    let batch = Batch::text(&tokens, &targets).with_padding(&padding);
    trainer.step(step, 0.0, &batch).expect("a step");
    let loss = block_on(trainer.outcome()).expect("an outcome").loss;
    let values = block_on(trainer.watched_values()).expect("values");
    let names = trainer.watched().iter().map(|watched| watched.name.clone());
    (loss, names.zip(values).collect())
}

/// Bound of each sequence's noise: α/√(tokens · channels), padding apart.
fn bounds() -> Vec<f64> {
    let tokens = |sequence: &[bool]| sequence.iter().filter(|&&it| !it).count() as f64;
    let padding = padding();
    padding.chunks(TOKENS).map(|own| ALPHA / (tokens(own) * CHANNELS as f64).sqrt()).collect()
}

#[test]
fn it_is_uniform_within_the_papers_bounds_and_drawn_by_position() {
    let all = stepped(&config(Family::Gpt2, SEQUENCES), 3);
    let [(_, embedded), (_, noised)] = &all.1[..] else { panic!("two are watched") };
    assert_eq!(noised.len(), SEQUENCES * TOKENS * CHANNELS);
    let bounds = bounds();
    let mut squares = 0.0;
    for (at, (before, after)) in embedded.iter().zip(noised).enumerate() {
        let bound = bounds[at / (TOKENS * CHANNELS)];
        let drawn = uniform([7, 1, 3, 0], STREAM, at as u64).mul_add(2.0, -1.0);
        let found = f64::from(after - before);
        assert!((found - bound * drawn).abs() < 1e-6 * bound, "{at}: {found} within {bound}");
        squares += (found / bound).powi(2);
    }
    // The variance of what is uniform in [-1, 1).
    let variance = squares / noised.len() as f64;
    assert!((variance - 1.0 / 3.0).abs() < 0.01, "{variance}");
}

#[test]
fn it_is_the_same_however_a_batch_is_cut() {
    for family in [Family::Gpt2, Family::Gemma3] {
        let (loss, all) = stepped(&config(family, SEQUENCES), 3);
        let whole = &all[1].1;
        for micro_batch in [1, 2, 3] {
            let (found, last) = stepped(&config(family, micro_batch), 3);
            let last = &last[1].1;
            assert_eq!(last[..], whole[whole.len() - last.len()..], "{family:?} by {micro_batch}");
            assert!((found - loss).abs() < 1e-5, "{family:?} by {micro_batch}: {found}, {loss}");
        }
        let without = TrainerConfig { neftune: 0.0, watch: vec![], ..config(family, SEQUENCES) };
        let other = TrainerConfig { seed: 8, ..config(family, SEQUENCES) };
        assert!((stepped(&without, 3).0 - loss).abs() > 1e-3, "{family:?}");
        let of_other: Vec<f32> = stepped(&other, 3).1.swap_remove(1).1;
        assert!(of_other != *whole && stepped(&config(family, SEQUENCES), 4).1[1].1 != *whole);
    }
}

#[test]
fn any_number_of_ranks_has_the_bits_of_one_process() {
    for precision in [Precision::F32, Precision::BF16] {
        let of = |ranks, gradient_sums| TrainerConfig {
            precision,
            gradient_sums,
            neftune: ALPHA,
            ..ranks::config(Family::Gpt2, ranks, 6)
        };
        let alone = run(&of(1, GradientSums::Ordered), 4, None);
        let together = run_all(&of(6, GradientSums::Fused), 4);
        same(&together, &alone, &format!("{precision:?}"));
        let none = TrainerConfig { neftune: 0.0, ..of(1, GradientSums::Ordered) };
        assert_ne!(run(&none, 4, None), alone);
    }
}

#[test]
fn evaluation_has_none() {
    let tokens: Vec<i32> = (0..SEQUENCES * TOKENS).map(|at| (at % 50) as i32).collect();
    let evaluated = |neftune| {
        let config = TrainerConfig { neftune, watch: vec![], ..config(Family::Llama, SEQUENCES) };
        block_on(trainer(&config).evaluate(&Batch::text(&tokens, &tokens))).expect("a loss").loss
    };
    assert_eq!(evaluated(ALPHA).to_bits(), evaluated(0.0).to_bits());
}

#[test]
fn it_is_refused_where_it_is_of_nothing_and_where_ranks_share_sequences() {
    let (_, vit) = tightrope_nn::vit_presets().next().expect("a preset");
    let of = |config: TrainerConfig| TrainerConfig { watch: vec![], ..config };
    let images =
        TrainerConfig { neftune: 5.0, ..TrainerConfig::new(vit.build().expect("a model")) };
    let shared = TrainerConfig { ranks: 2, context_ranks: 2, ..of(config(Family::Gpt2, 1)) };
    let negative = TrainerConfig { neftune: -1.0, ..of(config(Family::Gpt2, 1)) };
    for (config, words) in [
        (images, "no embedding of tokens"),
        (shared, "without context ranks"),
        (negative, "-1 must be 0 or more"),
    ] {
        let cpu = Cpu::new(1).expect("threads");
        let said = Planned::new(&config, &cpu).err().expect("a refusal").to_string();
        assert!(said.contains("train.neftune") && said.contains(words), "{said}");
    }
}
