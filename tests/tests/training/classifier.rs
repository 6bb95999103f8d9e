//! Decoders that classify texts: parity with transformers on every device, and padding that no score depends on.

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::Backend;
use tightrope_nn::inputs::{LAST, TOKENS};
use tightrope_nn::{Batch, ClassifierConfig, LABELS, Optimizer, Planned, Trainer, TrainerConfig};

use crate::devices::drawn_devices;
use crate::recorded;

/// Steps of the recorded run that are made.
const STEPS: usize = 3;

/// A case that transformers recorded.
type Case = recorded::Case<ClassifierConfig>;

impl Case {
    fn open(name: &'static str) -> Self {
        Self::read(name, ClassifierConfig::from_hf)
    }

    /// A trainer with the recorded weights, whose passes have `micro_batch` texts.
    fn trainer(&self, device: Box<dyn Backend>, micro_batch: usize) -> Trainer {
        let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|key| self.setting(key));
        let config = TrainerConfig {
            batch: self.size("batch") * self.size("accumulate"),
            micro_batch,
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            weight_decay: self.setting("weight_decay"),
            clip: Some(self.setting("clip")),
            logits: true,
            ..TrainerConfig::new(self.config.build(self.size("seq")).expect("a model"))
        };
        let planned = Planned::new(&config, &*device).expect("a plan");
        let mut trainer = Trainer::new(planned, device).expect("memory");
        let mut get = |name: &str| Ok(self.weights.require(name)?.to_values()?);
        trainer.load_weights(self.weights.names(), &mut get).expect("weights");
        trainer
    }

    /// Scores of the first batch, with its ids changed.
    fn scores(&self, trainer: &mut Trainer, change: impl Fn(&mut Vec<i32>)) -> Vec<f32> {
        let (mut tokens, last) = (self.ids(TOKENS, 0, 1), self.ids(LAST, 0, 1));
        change(&mut tokens);
        let labels = self.ids(LABELS, 0, 1);
        let batch = Batch::new().with(TOKENS, &tokens).with(LAST, &last).with(LABELS, &labels);
        block_on(trainer.logits(&batch)).expect("scores").0
    }

    /// Losses and gradient norms of the recorded run's first steps.
    fn run(&self, trainer: &mut Trainer) -> Vec<(f32, f32)> {
        let (accumulate, lr) = (self.size("accumulate"), self.setting("lr"));
        let step = |step: usize| {
            let of = |name: &str| self.ids(name, 1 + step * accumulate, accumulate);
            let [tokens, last, labels] = [TOKENS, LAST, LABELS].map(of);
            let batch = Batch::new().with(TOKENS, &tokens).with(LAST, &last).with(LABELS, &labels);
            trainer.step(step as u64, lr, &batch).expect("a step");
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            (outcome.loss, outcome.grad_norm)
        };
        (0..STEPS).map(step).collect()
    }
}

fn cases() -> [Case; 4] {
    ["llama-classes-case", "qwen3-classes-case", "gemma3-classes-case", "gpt2-classes-case"]
        .map(Case::open)
}

#[test]
fn scores_losses_and_norms_are_those_of_transformers() {
    for case in cases() {
        for device in drawn_devices(case.name) {
            let name = format!("{} on {}", case.name, device.name());
            let mut trainer = case.trainer(device, case.size("batch"));
            let (found, recorded) = (case.scores(&mut trainer, |_| {}), case.values("logits"));
            assert_eq!(found.len(), recorded.len());
            let off = found.iter().zip(&recorded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-4, "{name}: scores {off:e} off");
            let [losses, norms] = ["train.losses", "train.grad_norms"].map(|it| case.values(it));
            for (step, (loss, norm)) in case.run(&mut trainer).into_iter().enumerate() {
                let off = (loss - losses[step]).abs();
                assert!(off < 1e-4, "{name}, step {step}: loss {off:e} off");
                let off = (norm / norms[step] - 1.0).abs();
                assert!(off < 1e-4, "{name}, step {step}: norm {off:e} off");
            }
        }
    }
}

#[test]
fn passes_of_other_sizes_make_the_same_step() {
    for case in cases() {
        let run = |micro_batch: usize| {
            let mut trainer = case.trainer(Box::new(Cpu::new(1).expect("threads")), micro_batch);
            case.run(&mut trainer)
        };
        let whole = run(case.size("batch") * case.size("accumulate"));
        for (one, other) in run(1).iter().zip(&whole) {
            let off = (one.0 - other.0).abs().max((one.1 / other.1 - 1.0).abs());
            assert!(off < 1e-5, "{}: {one:?}, not {other:?}", case.name);
        }
    }
}

#[test]
fn no_score_depends_on_padding() {
    for case in cases() {
        let padding = case.config.padding.expect("a token") as i32;
        let mut trainer = case.trainer(Box::new(Cpu::new(1).expect("threads")), case.size("batch"));
        let found = case.scores(&mut trainer, |_| {});
        let (tokens, last) = (case.ids(TOKENS, 0, 1), case.ids(LAST, 0, 1));
        let length = case.size("seq");
        assert!(tokens.contains(&padding));
        // As transformers looks for it.
        for (row, &last) in tokens.chunks(length).zip(&last) {
            assert_eq!(row.iter().rposition(|&id| id != padding), Some(last as usize));
        }
        let other = case.scores(&mut trainer, |tokens| {
            tokens.iter_mut().filter(|id| **id == padding).for_each(|id| *id = 3);
        });
        assert_eq!(found, other, "{}", case.name);
        let changed = case.scores(&mut trainer, |tokens| tokens[0] = 3);
        assert_ne!(found, changed, "{}", case.name);
    }
}
