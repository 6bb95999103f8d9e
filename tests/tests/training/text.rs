//! What tests of whole runs share: a text, steps on it, and everything that a checkpoint holds.

use std::collections::BTreeMap;
use std::ops::Range;

use conformance::values::uniform;
use pollster::block_on;
use tightrope_nn::{Batch, Trainer};

/// Ids of the text that [`train`] reads.
pub const VOCAB: usize = 50;

/// Losses of steps on a text that repeats with noise.
pub fn train(trainer: &mut Trainer, steps: Range<u64>, lr: f64) -> Vec<f32> {
    let ids = trainer.config().tokens();
    let token = |i: usize| {
        let noisy = uniform(9, i as u64) < 0.1;
        if noisy { (uniform(10, i as u64) * VOCAB as f64) as i32 } else { (i % 7 * 5) as i32 }
    };
    let mut loss = |step: u64| {
        let start = step as usize * ids;
        let text: Vec<i32> = (start..=start + ids).map(token).collect();
        trainer.step(step, lr, &Batch::text(&text[..ids], &text[1..])).expect("a step");
        block_on(trainer.outcome()).expect("an outcome").loss
    };
    steps.map(&mut loss).collect()
}

/// Everything that a checkpoint holds of the trainer's tensors.
pub fn saved(trainer: &mut Trainer) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let tensors = [trainer.saved_weights(), trainer.saved_states()].concat();
    let values = tensors.into_iter().map(|tensor| {
        let values = block_on(trainer.saved_values(&tensor)).expect("values");
        (tensor.name, (tensor.ty.shape, values))
    });
    values.collect()
}
