//! Rows packed into sequences train as rows that have a sequence each.

use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_data::{Packing, RowBatch};
use tightrope_nn::inputs::{DOCUMENTS, POSITIONS};
use tightrope_nn::{
    Batch, BuildOptions, Family, LanguageModel, ModelConfig, Optimizer, Planned, Precision,
    Trainer, TrainerConfig,
};

use crate::text::{VOCAB, saved};

const SEQ_LEN: usize = 24;
/// Tokens of the rows, of which the last is a target alone: three sequences of [`SEQ_LEN`] hold them.
const LENGTHS: [usize; 7] = [5, 25, 11, 2, 9, 15, 10];

fn model(family: Family) -> ModelConfig {
    let preset = if family == Family::Gpt2 { "tiny" } else { "llama-tiny" };
    let mut details = family.details(3);
    // Shorter than a row, so that windows and documents meet.
    details.window = details.window.map(|_| 6);
    ModelConfig {
        family,
        layers: 3,
        context: SEQ_LEN,
        vocab: VOCAB,
        details,
        ..tightrope_nn::preset(preset).expect("a preset")
    }
}

/// Row `index`: its tokens, and which are trained on.
fn row(index: usize) -> Vec<(i32, bool)> {
    let token = |at: usize| ((index * 31 + at * at * 7 + at) % VOCAB) as i32;
    (0..LENGTHS[index]).map(|at| (token(at), at > LENGTHS[index] / 3)).collect()
}

/// A trainer of `sequences` in one pass, by plain gradient descent, so that weights show the gradients as they are.
fn trainer(model: LanguageModel, sequences: usize) -> Trainer {
    let config = TrainerConfig {
        precision: Precision::F32,
        batch: sequences,
        micro_batch: sequences,
        build: BuildOptions { loss_chunk: 16, ..BuildOptions::default() },
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        clip: None,
        seed: 3,
        ..TrainerConfig::new(Arc::new(model))
    };
    let cpu = Cpu::new(2).expect("threads");
    let planned = Planned::new(&config, &cpu).expect("a plan");
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    trainer.initialise().expect("weights");
    trainer
}

/// The loss of a step on a batch, and what it moves all weights by, in one vector.
fn step(model: LanguageModel, sequences: usize, batch: &Batch<'_>) -> (f32, Vec<f32>) {
    let mut trainer = trainer(model, sequences);
    let before = saved(&mut trainer);
    trainer.step(0, 1.0, batch).expect("a step");
    let loss = block_on(trainer.outcome()).expect("an outcome").loss;
    let after = saved(&mut trainer);
    let pairs = after.into_values().zip(before.into_values());
    let moved = pairs.flat_map(|((_, after), (_, before))| {
        after.into_iter().zip(before).map(|(after, before)| after - before)
    });
    (loss, moved.collect())
}

/// Tokens and targets of rows that have a sequence each.
fn apart() -> (Vec<i32>, Vec<i32>) {
    let (mut tokens, mut targets) = (vec![], vec![]);
    for index in 0..LENGTHS.len() {
        for pair in row(index).windows(2) {
            tokens.push(pair[0].0);
            targets.push(if pair[1].1 { pair[1].0 } else { -1 });
        }
        tokens.resize((index + 1) * SEQ_LEN, 0);
        targets.resize((index + 1) * SEQ_LEN, -1);
    }
    (tokens, targets)
}

#[test]
fn packed_rows_have_the_gradients_of_rows_apart() {
    let positions: Vec<usize> = LENGTHS.iter().map(|length| length - 1).collect();
    let packing = Packing::new(&positions, SEQ_LEN).expect("rows that fit");
    let sequences = packing.sequences().len();
    assert_eq!(sequences, 3, "{packing:?}");
    let RowBatch { tokens, targets, documents, positions, .. } = packing.batch(0..sequences, row);
    let packed = Batch::text(&tokens, &targets);
    let packed = packed.with(DOCUMENTS, &documents).with(POSITIONS, &positions);
    let (tokens, targets) = apart();
    let apart = Batch::text(&tokens, &targets);
    for &family in Family::ALL {
        let model = || LanguageModel::new(&model(family), SEQ_LEN).expect("a model");
        let (loss, found) = step(model().packed(), sequences, &packed);
        let (loss_apart, expected) = step(model(), LENGTHS.len(), &apart);
        assert!((loss - loss_apart).abs() < 1e-5, "{family:?}: {loss}, apart {loss_apart}");
        let norm =
            |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let distance = norm(&mut found.iter().zip(&expected).map(|(a, b)| a - b));
        let off = distance / norm(&mut expected.iter().copied());
        println!("{family:?}: the loss is off by {:e}, gradients by {off:e}", loss - loss_apart);
        assert!(off > 0.0 && off < 1e-5, "{family:?}: gradients are off by {off:e}");
    }
}
