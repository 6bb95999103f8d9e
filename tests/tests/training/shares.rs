//! A step's loss and gradient are means over what counts in its batch, however the batch is cut into passes.

use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_nn::{
    Batch, LanguageModel, Offload, Optimizer, Planned, Precision, Trainer, TrainerConfig,
};

use crate::text::saved;

const SEQ_LEN: usize = 16;
const SAMPLES: usize = 8;

/// The loss of a step in passes of `micro_batch`, and what it moves all weights by.
fn step(precision: Precision, micro_batch: usize, targets: &[i32]) -> (f32, Vec<f32>) {
    let model = tightrope_nn::preset("tiny").expect("a preset");
    let config = TrainerConfig {
        precision,
        batch: SAMPLES,
        micro_batch,
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        clip: None,
        weight_decay: 0.0,
        // Passes add on the host, too.
        offload: Offload {
            gradients: micro_batch == 1,
            optimizer: micro_batch == 1,
            ..Offload::NONE
        },
        ..TrainerConfig::new(Arc::new(LanguageModel::new(&model, SEQ_LEN).expect("a model")))
    };
    let cpu = || Cpu::new(2).expect("threads");
    let planned = Planned::new(&config, &cpu()).expect("a plan");
    let mut trainer =
        Trainer::offloading(planned, Box::new(cpu()), Box::new(cpu())).expect("memory");
    trainer.initialise().expect("weights");
    let before = saved(&mut trainer);
    let tokens: Vec<i32> = (0..SAMPLES * SEQ_LEN).map(|at| (at * at % 61) as i32).collect();
    trainer.step(0, 0.5, &Batch::text(&tokens, targets)).expect("a step");
    let outcome = block_on(trainer.outcome()).expect("an outcome");
    assert!(outcome.updated, "{outcome:?}");
    let moved = saved(&mut trainer).into_values().zip(before.into_values());
    let moved = moved.flat_map(|((_, after), (_, before))| {
        after.into_iter().zip(before).map(|(after, before)| after - before).collect::<Vec<_>>()
    });
    (outcome.loss, moved.collect())
}

#[test]
fn how_a_batch_is_cut_does_not_change_what_a_token_weighs() {
    // Rows of 1, 3, 5 … trained tokens, and one that has none.
    let counts = |at: usize| at % SEQ_LEN < (2 * (at / SEQ_LEN) + 1) % 15;
    let targets: Vec<i32> = (0..SAMPLES * SEQ_LEN)
        .map(|at| if counts(at) { (at * 7 % 61) as i32 } else { -1 })
        .collect();
    for (precision, near) in [(Precision::F32, 2e-6), (Precision::F16, 2e-3)] {
        let (loss, moved) = step(precision, SAMPLES, &targets);
        let norm = moved.iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!(norm > 0.01, "{norm}");
        for micro_batch in [4, 2, 1] {
            if precision == Precision::F16 && micro_batch == 1 {
                continue;
            }
            let (loss_of_passes, moved_of_passes) = step(precision, micro_batch, &targets);
            let off = moved.iter().zip(&moved_of_passes).map(|(a, b)| (a - b) * (a - b));
            let off = off.sum::<f32>().sqrt() / norm;
            let apart = (loss - loss_of_passes).abs() / loss;
            assert!(off < near && apart < near, "{precision:?}, {micro_batch}: {off}, {apart}");
        }
    }
}
