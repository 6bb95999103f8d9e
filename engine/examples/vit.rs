//! A vision transformer that reads scikit-learn's digits.
//!
//! `cargo run --release -p tightrope --example vit [STEPS]`

use std::error::Error;

use tightrope::backends::Cpu;
use tightrope::block_on;
use tightrope::data::{ImageBatches, ImageDataset, ImageLoaderConfig, Loader};
use tightrope::nn::{
    Architecture, Batch, IMAGES, LABELS, LearningRate, Planned, Schedule, Trainer, TrainerConfig,
};

fn main() -> Result<(), Box<dyn Error>> {
    let steps = std::env::args().nth(1).map_or(Ok(1000), |steps| steps.parse())?;
    let model = Architecture::preset("vit-tiny")?.build(1)?;
    let config = TrainerConfig { batch: 32, micro_batch: 32, ..TrainerConfig::new(model) };
    let device = Cpu::new(2)?;
    let planned = Planned::new(&config, &device)?;
    let mut trainer = Trainer::new(planned, Box::new(device))?;
    trainer.initialise()?;

    let (digits, held_out) = ImageDataset::digits()?.split(0.2)?;
    let normalization = digits.normalization()?;
    let order = ImageLoaderConfig { batch: 32, seed: 1, normalization };
    let mut loader = Loader::of_images(digits, order.clone(), 0)?;
    let rate =
        LearningRate { schedule: Schedule::Cosine, lr: 2e-3, min_lr: 4e-5, warmup: 100, steps };
    for step in 0..steps {
        let read = loader.next()?;
        let batch = Batch::new().with(IMAGES, &read.images).with(LABELS, &read.labels);
        trainer.step(step, rate.lr_at(step), &batch)?;
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", block_on(trainer.outcome())?.loss);
        }
    }

    let (mut right, mut all) = (0.0, 0.0);
    for read in ImageBatches::new(held_out, order, None)? {
        let read = read?;
        let batch = Batch::new().with(IMAGES, &read.images).with(LABELS, &read.labels);
        let found = block_on(trainer.evaluate(&batch))?;
        // The last batch is filled up with images that don't count.
        let count = read.labels.iter().filter(|&&label| label >= 0).count() as f32;
        right += count * found.metrics[0].1;
        all += count;
    }
    println!("{:.1} % of {all} held-out digits", 100.0 * right / all);
    Ok(())
}
