//! Distillation: parity with Hinton's loss under transformers' models on every device, the teacher's share of the memory, and what
//! a teacher leaves alone.

use std::path::Path;
use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::Backend;
use tightrope_data::SafeTensors;
use tightrope_nn::layers::Distillation;
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Batch, BuildOptions, Exported, FrozenBits, LanguageModel, Lora, Model, ModelConfig, Optimizer,
    Planned, Precision, Trainer, TrainerConfig, export, preset,
};

use crate::devices::{devices, drawn_devices, relative_l2};

/// A case that was recorded under transformers.
struct Case {
    name: &'static str,
    config: ModelConfig,
    teacher: ModelConfig,
    weights: [SafeTensors; 2],
    record: SafeTensors,
}

impl Case {
    fn open(name: &'static str) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/distil").join(name);
        let open = |name: &str| SafeTensors::open(dir.join(name)).expect("a file of the case");
        let model = |name: &str| {
            let text = std::fs::read(dir.join(name)).expect("a file of the case");
            ModelConfig::from_hf(&serde_json::from_slice(&text).expect("JSON")).expect("a model")
        };
        Self {
            name,
            config: model("config.json"),
            teacher: model("teacher/config.json"),
            weights: ["model.safetensors", "teacher/model.safetensors"].map(open),
            record: open("case.safetensors"),
        }
    }

    fn setting(&self, key: &str) -> f64 {
        self.record.metadata()[key].parse().expect("a number")
    }

    fn size(&self, key: &str) -> usize {
        self.setting(key) as usize
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.record.require(name).expect(name).to_f32().expect(name)
    }

    /// Tokens and targets of so many micro-batches from `first` on.
    fn ids(&self, first: usize, count: usize) -> [Vec<i32>; 2] {
        let each = self.size("batch") * self.size("seq");
        ["tokens", "targets"].map(|name| {
            let recorded = self.record.require(name).expect(name).to_i32().expect(name);
            recorded[first * each..][..count * each].to_vec()
        })
    }

    /// What steps of so many passes take.
    fn trainer_config(&self, passes: usize) -> TrainerConfig {
        let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|key| self.setting(key));
        let model = LanguageModel::new(&self.config, self.size("seq")).expect("a model");
        let how = Distillation {
            temperature: self.setting("temperature"),
            soft_share: self.setting("soft_share"),
        };
        let model = model.taught_by(&self.teacher, how).expect("a teacher");
        TrainerConfig {
            batch: self.size("batch") * passes,
            micro_batch: self.size("batch"),
            // Neither all rows nor a part of them.
            build: BuildOptions { loss_chunk: 16, ..BuildOptions::default() },
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            weight_decay: self.setting("weight_decay"),
            clip: Some(self.setting("clip")),
            watch: if passes == 1 { vec!["grad.*".to_owned()] } else { vec![] },
            ..TrainerConfig::new(Arc::new(model) as Arc<dyn Model>)
        }
    }

    /// A trainer with the recorded weights on `device`.
    fn trainer(&self, device: Box<dyn Backend>, config: &TrainerConfig) -> Trainer {
        let planned = Planned::new(config, &*device).expect("a plan");
        let mut trainer = Trainer::new(planned, device).expect("memory");
        let [student, teacher] = &self.weights;
        let mut get = |name: &str| Ok(student.require(name)?.to_values()?);
        trainer.load_weights(student.names(), &mut get).expect("weights");
        let mut get = |name: &str| Ok(teacher.require(name)?.to_values()?);
        trainer.load_teacher(teacher.names(), &mut get).expect("a teacher's weights");
        trainer
    }
}

fn cases() -> [Case; 3] {
    ["gpt2-of-llama", "llama-of-gpt2", "gemma2-of-gemma2"].map(Case::open)
}

fn cpu() -> Box<dyn Backend> {
    Box::new(Cpu::new(2).expect("threads"))
}

#[test]
fn loss_and_every_gradient_are_those_of_transformers() {
    for case in cases() {
        for device in devices() {
            let name = format!("{} on {}", case.name, device.name());
            let mut trainer = case.trainer(device, &case.trainer_config(1));
            let [tokens, targets] = case.ids(0, 1);
            let batch = Batch::text(&tokens, &targets);
            // Evaluation is by the student's own loss.
            let evaluated = block_on(trainer.evaluate(&batch)).expect("a loss");
            let off = (evaluated.loss - case.values("cross_entropy")[0]).abs();
            assert!(off < 1e-5 && evaluated.metrics.is_empty(), "{name}: {off:e} off");
            trainer.step(0, 0.0, &batch).expect("a step");
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            assert_eq!(outcome.metrics.len(), 2, "{name}");
            let found = outcome.metrics.iter().map(|(name, value)| (name.as_str(), *value));
            for (figure, value) in found.chain([("loss", outcome.loss)]) {
                let off = (value - case.values(figure)[0]).abs();
                assert!(off < 1e-5, "{name}: {figure} {off:e} off");
            }
            let found = block_on(trainer.watched_values()).expect("gradients");
            let list = trainer.parameters().to_vec();
            assert_eq!(found.len(), list.len(), "{name}");
            for (watched, values) in trainer.watched().iter().zip(found) {
                let parameter = list.iter().find(|it| watched.name == format!("grad.{}", it.name));
                let parameter = parameter.expect("a parameter");
                for Exported { name: tensor, values, .. } in export(parameter, &values) {
                    let off = relative_l2(&values, &case.values(&format!("grad.{tensor}")));
                    assert!(off < 1e-4, "{name}: the gradient of {tensor} is {off:e} off");
                }
            }
        }
    }
}

#[test]
fn five_steps_are_those_of_transformers() {
    for case in cases() {
        for device in drawn_devices(case.name) {
            let name = format!("{} on {}", case.name, device.name());
            let (passes, lr) = (case.size("accumulate"), case.setting("lr"));
            let mut trainer = case.trainer(device, &case.trainer_config(passes));
            let [losses, norms] = ["train.losses", "train.grad_norms"].map(|it| case.values(it));
            for step in 0..case.size("steps") {
                let [tokens, targets] = case.ids(1 + step * passes, passes);
                trainer.step(step as u64, lr, &Batch::text(&tokens, &targets)).expect("a step");
                let outcome = block_on(trainer.outcome()).expect("an outcome");
                let off = (outcome.loss - losses[step]).abs();
                assert!(off < 1e-4, "{name}, step {step}: loss {off:e} off");
                let off = (outcome.grad_norm / norms[step] - 1.0).abs();
                assert!(off < 1e-4, "{name}, step {step}: norm {off:e} off");
            }
            let list = trainer.parameters().to_vec();
            for (index, parameter) in list.iter().enumerate() {
                let values = block_on(trainer.weight(index)).expect("a weight");
                for Exported { name: tensor, values, .. } in export(parameter, &values) {
                    let recorded = case.values(&format!("after.{tensor}"));
                    // Of the keys' bias, whose gradient is rounding noise that Adam scales up.
                    let without = parameter.rows_without_gradient(&tensor);
                    assert!(without.is_empty() || parameter.shape.len() == 1, "{tensor}");
                    let kept = |index: &usize| !without.contains(index);
                    let part = |all: &[f32]| -> Vec<f32> {
                        (0..all.len()).filter(kept).map(|index| all[index]).collect()
                    };
                    let off = relative_l2(&part(&values), &part(&recorded));
                    assert!(off < 1e-4, "{name}: {tensor} {off:e} off");
                }
            }
        }
    }
}

#[test]
fn a_teacher_adds_its_weights_and_a_chunk_of_its_logits_to_the_memory() {
    let (student, teacher) = (preset("gpt2").unwrap(), preset("gpt2").unwrap());
    let how = Distillation { temperature: 2.0, soft_share: 0.5 };
    let model = || LanguageModel::new(&student, 512).expect("a model");
    let plan = |model: LanguageModel| {
        let config = TrainerConfig {
            batch: 4,
            micro_batch: 4,
            precision: Precision::BF16,
            build: BuildOptions { loss_chunk: 256, ..BuildOptions::default() },
            ..TrainerConfig::new(Arc::new(model) as Arc<dyn Model>)
        };
        Planned::new(&config, &Cpu::new(2).expect("threads")).expect("a plan").plan
    };
    let (alone, taught) = (plan(model()), plan(model().taught_by(&teacher, how).unwrap()));
    let list = tightrope_nn::parameters(&teacher);
    let weights: u64 = list.iter().map(|parameter| 2 * parameter.elements() as u64).sum();
    let more = taught.peak_bytes() - alone.peak_bytes();
    // Rows of logits of 50304 columns in f32, what the teacher made of the last layer, and each row's soft loss.
    let chunk = 256 * 50304 * 4;
    let hidden = 4 * 512 * 768 * 2;
    println!(
        "alone {}, taught {}, of which weights {weights}",
        alone.peak_bytes(),
        taught.peak_bytes()
    );
    assert!(more <= weights + chunk + hidden + (1 << 20), "{more} bytes more, weights {weights}");
    // All logits of either would be 412 MB.
    assert!(more - weights < 4 * 512 * 50304 * 4 / 4);
}

#[test]
fn a_share_of_nothing_is_training_without_a_teacher() {
    let [case, ..] = cases();
    let how = Distillation { temperature: 2.0, soft_share: 0.0 };
    let model = || LanguageModel::new(&case.config, case.size("seq")).unwrap();
    let plain = TrainerConfig { model: Arc::new(model()), ..case.trainer_config(1) };
    let taught = model().taught_by(&case.teacher, how).unwrap();
    let taught = TrainerConfig { model: Arc::new(taught), ..case.trainer_config(1) };
    let [tokens, targets] = case.ids(0, 1);
    let mut steps = [plain, taught].map(|config| {
        let device = cpu();
        let planned = Planned::new(&config, &*device).unwrap();
        let mut trainer = Trainer::new(planned, device).unwrap();
        let [student, teacher] = &case.weights;
        let mut get = |name: &str| Ok(student.require(name)?.to_values()?);
        trainer.load_weights(student.names(), &mut get).unwrap();
        let mut get = |name: &str| Ok(teacher.require(name)?.to_values()?);
        let loaded = trainer.load_teacher(teacher.names(), &mut get);
        assert_eq!(loaded.is_ok(), config.model.teacher().is_some());
        trainer.step(0, 0.0, &Batch::text(&tokens, &targets)).unwrap();
        block_on(trainer.outcome()).unwrap()
    });
    steps.iter_mut().for_each(|step| step.metrics.clear());
    let [plain, taught] = steps;
    assert!((plain.loss - taught.loss).abs() < 1e-6, "{} {}", plain.loss, taught.loss);
    assert!((plain.grad_norm / taught.grad_norm - 1.0).abs() < 1e-6);
}

#[test]
fn adapters_and_bf16_learn_of_a_teacher_and_leave_it_as_it_was() {
    let [_, case, _] = cases();
    let lora = Lora {
        rank: 4,
        alpha: 8.0,
        targets: vec![ALL_LINEAR.to_owned()],
        dropout: 0.0,
        base_bits: FrozenBits::Precision,
        variant: Default::default(),
    };
    for (precision, lora) in [(Precision::F32, Some(lora)), (Precision::BF16, None)] {
        let config = TrainerConfig { precision, lora, ..case.trainer_config(2) };
        let mut trainer = case.trainer(cpu(), &config);
        assert!(trainer.saved_weights().iter().all(|saved| !saved.name.contains("teacher")));
        let saved = trainer.saved_weights().len();
        let [tokens, targets] = case.ids(1, 2);
        let batch = Batch::text(&tokens, &targets);
        let mut figures = vec![];
        for step in 0..30 {
            trainer.step(step, 1e-2, &batch).unwrap();
            let outcome = block_on(trainer.outcome()).unwrap();
            assert!(outcome.updated);
            figures.push((outcome.loss, outcome.metrics[1].1));
        }
        let (first, last) = (figures[0], figures[29]);
        assert!(last.0 < first.0 && last.1 < first.1, "{precision:?}: {first:?} {last:?}");
        assert_eq!(trainer.saved_weights().len(), saved);
    }
}

#[test]
fn what_no_student_can_learn_of_is_refused() {
    let [case, ..] = cases();
    let student = || LanguageModel::new(&case.config, case.size("seq")).unwrap();
    let how = Distillation { temperature: 2.0, soft_share: 0.5 };
    let short = ModelConfig { context: 5, ..case.teacher.clone() };
    for (found, words) in [
        (student().taught_by(&short, how), "shorter than sequences of 13"),
        (student().of_pairs(0.1).unwrap().taught_by(&case.teacher, how), "not of both"),
        (
            student().taught_by(&case.teacher, Distillation { temperature: 0.0, ..how }),
            "must be above 0",
        ),
        (
            student().taught_by(&case.teacher, Distillation { soft_share: -0.1, ..how }),
            "must be from 0 to 1",
        ),
    ] {
        let message = found.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}
