//! A GPT that learns Tiny Shakespeare byte by byte, and then goes on from a prompt.
//!
//! `cargo run --release -p tightrope --example char_gpt [STEPS]`

use std::error::Error;

use tightrope::backends::Cpu;
use tightrope::block_on;
use tightrope::data::{Corpus, Loader, LoaderConfig, Tokenizer};
use tightrope::nn::{
    Batch, LearningRate, Planned, SampleError, SampleTokens, Sampling, Schedule, Trainer,
    TrainerConfig, generate, preset,
};

fn main() -> Result<(), Box<dyn Error>> {
    let steps = std::env::args().nth(1).map_or(Ok(400), |steps| steps.parse())?;
    let model = preset("small")?;
    let config = TrainerConfig {
        batch: 8,
        micro_batch: 8,
        decode: model.context,
        ..TrainerConfig::new(model.build(model.context)?)
    };
    let device = Cpu::new(2)?;
    let planned = Planned::new(&config, &device)?;
    println!("a step takes {} bytes", planned.plan.peak_bytes());
    let mut trainer = Trainer::new(planned, Box::new(device))?;
    trainer.initialise()?;

    let tokenizer = Tokenizer::Byte;
    let (text, _) = Corpus::built_in(&tokenizer)?.split(0.1)?;
    let order = LoaderConfig { batch: 8, context: model.context, seed: 1 };
    let mut loader = Loader::new(text, order, 0)?;
    let rate =
        LearningRate { schedule: Schedule::Cosine, lr: 3e-3, min_lr: 3e-4, warmup: 20, steps };
    for step in 0..steps {
        let read = loader.next()?;
        trainer.step(step, rate.lr_at(step), &Batch::text(&read.inputs, &read.targets))?;
        if step % 50 == 0 {
            println!("step {step}: loss {:.3}", block_on(trainer.outcome())?.loss);
        }
    }

    let prompt: Vec<u32> = b"ROMEO:".iter().map(|&byte| byte.into()).collect();
    let sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, seed: 1, draw: 0 };
    let tokens = SampleTokens { vocab: model.vocab, ends: &[] };
    let mut show = |_: u32| Ok::<_, SampleError>(true);
    let sample = generate(&mut trainer, tokens, &prompt, 200, &sampling, &mut show);
    println!("ROMEO:{}", tokenizer.decode(&block_on(sample)?)?);
    Ok(())
}
