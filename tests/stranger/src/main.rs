//! Trains a model of its own within a budget that forces recomputation, and goes on where a killed run was.
//!
//! `stranger DEVICE MODEL FOLDER [DIES]`: on `cpu` or `wgpu`, an `mlp` or a `conv`; saves every other step in the folder, and
//! aborts in step DIES where that's given. Ends with the bits of the last loss and of all weights.

mod models;

use std::error::Error;
use std::sync::Arc;

use tightrope::backends::{Cpu, Wgpu};
use tightrope::core::{Backend, Graph, Node};
use tightrope::nn::{
    Batch, Done, Free, LearningRate, Model, Planner, Rates, Schedule, Trainer, TrainerConfig,
};
use tightrope::{block_on, checkpoint};

const STEPS: u64 = 8;
const BATCH: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, device, model, folder, dies @ ..] = &arguments[..] else {
        return Err("usage: stranger DEVICE MODEL FOLDER [DIES]".into());
    };
    let dies: Option<u64> = dies.first().map(|step| step.parse()).transpose()?;
    let model: Arc<dyn Model> = match model.as_str() {
        "mlp" => Arc::new(models::Mlp::new()),
        _ => Arc::new(models::Conv::new()),
    };
    let device: Box<dyn Backend> = match device.as_str() {
        "cpu" => Box::new(Cpu::new(2)?),
        _ => Box::new(block_on(Wgpu::open(&Default::default()))?),
    };
    let mut trainer = within_a_budget(model, device)?;
    trainer.initialise()?;
    let rate = LearningRate {
        schedule: Schedule::Cosine,
        lr: 1e-2,
        min_lr: 1e-3,
        warmup: 2,
        steps: STEPS,
    };
    let begun = checkpoint::resume(&mut trainer, folder)?.unwrap_or_default();
    for step in begun.steps..STEPS {
        let (inputs, labels) = data(step, trainer.config());
        let batch = Batch::new().with("x", &inputs).with("y", &labels);
        trainer.step(step, rate.lr_at(step), &batch)?;
        if dies == Some(step) {
            std::process::abort();
        }
        if step % 2 == 1 {
            let samples = (step + 1) * BATCH as u64;
            let done = Done { steps: step + 1, samples, tokens: samples };
            checkpoint::save(&mut trainer, folder, done, &rate)?;
        }
    }
    let outcome = block_on(trainer.outcome())?;
    let mut bits = 0u64;
    for index in 0..trainer.parameters().len() {
        for value in block_on(trainer.weight(index))? {
            bits = bits.rotate_left(7) ^ u64::from(value.to_bits());
        }
    }
    println!("from {} loss {} weights {bits:016x}", begun.steps, outcome.loss);
    Ok(())
}

/// A trainer of the fastest plan within a quarter of the way from the smallest plan to the one that recomputes nothing.
fn within_a_budget(
    model: Arc<dyn Model>,
    device: Box<dyn Backend>,
) -> Result<Trainer, Box<dyn Error>> {
    let config = TrainerConfig { batch: BATCH, micro_batch: BATCH, ..TrainerConfig::new(model) };
    let rates = Rates::of(&device.name(), config.precision, 2);
    let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
    let mut planner = Planner::new(&config, Free::NONE, &*device, seconds)?;
    let fastest = planner.within(u64::MAX)?.0.ok_or("no plan")?.plan;
    let (none, smallest) = planner.within(1)?;
    assert!(none.is_none() && fastest.report().recomputed == 0);
    let budget = smallest + (fastest.peak_bytes() - smallest) / 4;
    let planned = planner.within(budget)?.0.ok_or("no plan within the budget")?;
    assert!(planned.plan.peak_bytes() <= budget && planned.plan.report().recomputed > 0);
    drop(planner);
    let trainer = Trainer::new(planned, device)?;
    assert!(trainer.allocated_bytes() <= budget);
    Ok(trainer)
}

/// Made-up images and their classes, other ones at every step.
fn data(step: u64, config: &TrainerConfig) -> (Vec<f32>, Vec<i32>) {
    let pixels = config.model.inputs()[0].shape.iter().product::<usize>();
    let label = |sample: usize| (sample * 7 + step as usize) % models::CLASSES;
    let pixel = |at: usize| {
        let (sample, pixel) = (at / pixels, at % pixels);
        let noise = (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        f32::from(pixel % models::CLASSES == label(sample)) + noise as f32 / (1 << 24) as f32
    };
    ((0..BATCH * pixels).map(pixel).collect(), (0..BATCH).map(|s| label(s) as i32).collect())
}
