//! A model of one's own: two linear layers that read scikit-learn's digits.
//!
//! `cargo run --release -p tightrope --example mlp [STEPS]`

use std::error::Error;
use std::sync::Arc;

use tightrope::backends::Cpu;
use tightrope::block_on;
use tightrope::core::{DType, Tensor};
use tightrope::data::{ImageDataset, ImageLoaderConfig, Loader};
use tightrope::nn::layers::{self, Activation, Layer, Linear};
use tightrope::nn::{
    Batch, Input, Model, Parameter, Pass, Planned, Result, Trainer, TrainerConfig,
};

#[derive(Debug)]
struct Mlp {
    up: Linear,
    down: Linear,
}

impl Model for Mlp {
    fn parameters(&self) -> Vec<Parameter> {
        layers::parameters([&self.up as &dyn Layer, &self.down])
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::new("pixels", DType::F32, &[64]), Input::new("label", DType::I32, &[])]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let (pixels, label) = (pass.input("pixels")?, pass.input("label")?);
        let hidden = self.up.apply(pass, pixels)?;
        let active = Activation::Gelu.apply(pass, hidden, "active")?;
        let scores = self.down.scores(pass, active)?;
        layers::cross_entropy(pass, scores, label)
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let steps = std::env::args().nth(1).map_or(Ok(300), |steps| steps.parse())?;
    let model =
        Mlp { up: Linear::new("up", 64, 128), down: Linear::new("down", 128, 10).as_head() };
    let config =
        TrainerConfig { batch: 64, micro_batch: 64, ..TrainerConfig::new(Arc::new(model)) };

    // Every byte is planned before any is allocated.
    let device = Cpu::new(2)?;
    let planned = Planned::new(&config, &device)?;
    println!("a step takes {} bytes", planned.plan.peak_bytes());
    let mut trainer = Trainer::new(planned, Box::new(device))?;
    trainer.initialise()?;

    let (digits, _) = ImageDataset::digits()?.split(0.1)?;
    let normalization = digits.normalization()?;
    let order = ImageLoaderConfig { batch: 64, seed: 1, normalization };
    let mut loader = Loader::of_images(digits, order, 0)?;
    for step in 0..steps {
        let read = loader.next()?;
        let batch = Batch::new().with("pixels", &read.images).with("label", &read.labels);
        trainer.step(step, 1e-3, &batch)?;
        if step % 50 == 0 {
            let found = block_on(trainer.evaluate(&batch))?;
            println!("step {step}: loss {:.3}, {:?}", found.loss, found.metrics);
        }
    }
    println!("loss {:.3}", block_on(trainer.outcome())?.loss);
    Ok(())
}
