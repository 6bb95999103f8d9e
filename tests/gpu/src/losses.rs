//! Losses of training, step by step, beside those of the processor.

use conformance::conformance::Outcome;
use conformance::tolerance::Deviation;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::Backend;
use tightrope_nn::{
    Batch, BuildOptions, Family, Planned, Precision, TrainError, Trainer, TrainerConfig,
    device_error,
};

use crate::tell;

/// Steps whose losses are compared.
const STEPS: u64 = 20;
const LEARNING_RATE: f64 = 3e-3;

/// A training run.
pub struct Run {
    pub name: &'static str,
    family: Family,
    precision: Precision,
    size: Size,
    /// How far a loss may be from the processor's.
    tolerance: f32,
}

/// How large a model is, and its batches.
#[derive(Clone, Copy)]
struct Size {
    layers: usize,
    channels: usize,
    heads: usize,
    context: usize,
    vocab: usize,
    batch: usize,
}

/// What an emulated device trains in a moment.
const SMALL: Size = Size { layers: 1, channels: 32, heads: 2, context: 16, vocab: 50, batch: 4 };
/// What has every kind of tile of a GPU, and a processor trains in a moment.
const LARGE: Size =
    Size { layers: 4, channels: 256, heads: 4, context: 256, vocab: 1000, batch: 8 };

/// The runs: few have a small model.
pub fn runs(few: bool) -> Vec<Run> {
    let size = if few { SMALL } else { LARGE };
    let run = |name, family, precision, tolerance| Run { name, family, precision, size, tolerance };
    vec![
        run("GPT-2 in f32", Family::Gpt2, Precision::F32, 1e-4),
        run("GPT-2 in bf16", Family::Gpt2, Precision::BF16, 2e-2),
        run("Llama in bf16", Family::Llama, Precision::BF16, 2e-2),
    ]
}

impl Run {
    fn config(&self) -> Result<TrainerConfig, TrainError> {
        let Size { layers, channels, heads, context, vocab, batch } = self.size;
        let mut model = tightrope_nn::preset("tiny")?;
        (model.family, model.layers, model.channels) = (self.family, layers, channels);
        (model.heads, model.kv_heads, model.hidden) = (heads, heads, 4 * channels);
        (model.context, model.vocab, model.dropout) = (context, vocab, 0.1);
        Ok(TrainerConfig {
            precision: self.precision,
            batch,
            micro_batch: batch / 2,
            build: BuildOptions { loss_chunk: 32, ..BuildOptions::default() },
            seed: 3,
            ..TrainerConfig::new(model.build(context)?)
        })
    }

    /// Trains on a device and on the processor, a step at a time; how far their losses are apart at most.
    pub fn follows(&self, device: Box<dyn Backend>) -> Result<Deviation, Outcome> {
        let failed = |error: &TrainError| match device_error(error) {
            Some(error) => Outcome::from(error.clone()),
            None => Outcome::Fail(error.to_string()),
        };
        let config = self.config().map_err(|error| failed(&error))?;
        let start = |device: Box<dyn Backend>| {
            let mut trainer = Trainer::new(Planned::new(&config, &*device)?, device)?;
            trainer.initialise()?;
            Ok::<Trainer, TrainError>(trainer)
        };
        tell::compiles();
        let processor = Cpu::new(0).map_err(|error| Outcome::Fail(error.to_string()))?;
        let mut ours = start(device).map_err(|error| failed(&error))?;
        let mut theirs = start(Box::new(processor)).map_err(|error| failed(&error))?;
        let Size { context, vocab, batch, .. } = self.size;
        let tokens = batch * context;
        let most = vocab as i64 - 3;
        let text: Vec<i32> = (0..=tokens as i64).map(|i| (i * i % most) as i32).collect();
        let batch = Batch::text(&text[..tokens], &text[1..]);
        let mut worst: f32 = 0.0;
        for step in 0..STEPS {
            tell::at(&format!("step {} of {STEPS}", step + 1));
            let loss = |trainer: &mut Trainer| {
                trainer.step(step, LEARNING_RATE, &batch)?;
                Ok::<f32, TrainError>(block_on(trainer.outcome())?.loss)
            };
            let found = loss(&mut ours).map_err(|error| failed(&error))?;
            let expected = loss(&mut theirs).map_err(|error| failed(&error))?;
            let off = (found - expected).abs();
            // A loss that is no number is off by none, and so isn't within.
            if off.partial_cmp(&self.tolerance).is_none_or(std::cmp::Ordering::is_gt) {
                return Err(Outcome::Fail(format!(
                    "step {} of {STEPS} has a loss of {found}, and {expected} on the processor: {off:e} apart (allowed {:e})",
                    step + 1,
                    self.tolerance
                )));
            }
            worst = worst.max(off);
        }
        Ok(Deviation { nmse: 0.0, largest: worst.into() })
    }
}
