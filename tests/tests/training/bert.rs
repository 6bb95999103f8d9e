//! BERT: parity with transformers on every device, padding that nothing attends to, and names of older files.

use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::Backend;
use tightrope_nn::inputs::{DOCUMENTS, TOKENS, TYPES};
use tightrope_nn::{
    Batch, BertConfig, BuildOptions, Exported, Model, Optimizer, Planned, Trainer, TrainerConfig,
    export, import,
};

use crate::devices::{drawn_devices, relative_l2};
use crate::recorded;

/// A case that transformers recorded.
type Case = recorded::Case<BertConfig>;

impl Case {
    fn open(name: &'static str) -> Self {
        Self::read(name, BertConfig::from_hf)
    }

    fn model(&self) -> Arc<dyn Model> {
        self.config.build(self.size("seq")).expect("a model")
    }

    /// A trainer of the case's run, with the recorded weights, on `device`.
    fn trainer(&self, device: Box<dyn Backend>) -> Trainer {
        let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|key| self.setting(key));
        let config = TrainerConfig {
            batch: self.size("batch") * self.size("accumulate"),
            micro_batch: self.size("batch"),
            build: BuildOptions { loss_chunk: 16, ..BuildOptions::default() },
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            weight_decay: self.setting("weight_decay"),
            clip: Some(self.setting("clip")),
            logits: true,
            ..TrainerConfig::new(self.model())
        };
        let planned = Planned::new(&config, &*device).expect("a plan");
        let mut trainer = Trainer::new(planned, device).expect("memory");
        let mut get = |name: &str| Ok(self.weights.require(name)?.to_values()?);
        trainer.load_weights(self.weights.names(), &mut get).expect("weights");
        trainer
    }

    /// What the loss is about: masked tokens or classes.
    fn expected(&self) -> &'static str {
        if self.config.classes.is_some() { "labels" } else { "targets" }
    }
}

const INPUTS: [&str; 3] = [TOKENS, TYPES, DOCUMENTS];

fn cases() -> [Case; 2] {
    ["bert-case", "bert-classes-case"].map(Case::open)
}

/// Logits of the first batch, where `change` may change what is read; padding of the vocabulary is left out.
fn logits(case: &Case, trainer: &mut Trainer, change: impl Fn(&str, &mut Vec<i32>)) -> Vec<f32> {
    let mut read = INPUTS.map(|name| (name, case.ids(name, 0, 1)));
    read.iter_mut().for_each(|(name, ids)| change(name, ids));
    let expected = case.ids(case.expected(), 0, 1);
    let batch = Batch::new().with(case.expected(), &expected);
    let batch = read.iter().fold(batch, |batch, (name, ids)| batch.with(name, ids));
    let (found, shape) = block_on(trainer.logits(&batch)).expect("logits");
    let classes = case.config.classes.unwrap_or(case.config.vocab);
    let rows = found.chunks_exact(*shape.last().expect("an axis"));
    rows.flat_map(|row| &row[..classes]).copied().collect()
}

#[test]
fn logits_and_ten_steps_are_those_of_transformers() {
    for case in cases() {
        for device in drawn_devices(case.name) {
            let name = format!("{} on {}", case.name, device.name());
            let mut trainer = case.trainer(device);
            let found = logits(&case, &mut trainer, |_, _| {});
            let recorded = case.values("logits");
            assert_eq!(found.len(), recorded.len());
            let off = found.iter().zip(&recorded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-4, "{name}: logits {off:e} off");

            let (accumulate, lr) = (case.size("accumulate"), case.setting("lr"));
            let [losses, norms] = ["train.losses", "train.grad_norms"].map(|it| case.values(it));
            for step in 0..case.size("steps") {
                let of = |name: &str| case.ids(name, 1 + step * accumulate, accumulate);
                let (read, expected) = (INPUTS.map(of), of(case.expected()));
                let batch = Batch::new().with(case.expected(), &expected);
                let inputs = INPUTS.iter().zip(&read);
                let batch = inputs.fold(batch, |batch, (name, ids)| batch.with(name, ids));
                trainer.step(step as u64, lr, &batch).expect("a step");
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
                    // What rounding noise alone moves.
                    if !parameter.rows_without_gradient(&tensor).is_empty() {
                        continue;
                    }
                    let off = relative_l2(&values, &case.values(&format!("after.{tensor}")));
                    assert!(off < 1e-4, "{name}: {tensor} {off:e} off");
                }
            }
        }
    }
}

#[test]
fn nothing_attends_to_padding() {
    for case in cases() {
        let mut trainer = case.trainer(Box::new(Cpu::new(1).expect("threads")));
        let documents = case.ids(DOCUMENTS, 0, 1);
        assert!(documents.contains(&0) && documents.contains(&1));
        let found = logits(&case, &mut trainer, |_, _| {});
        let other = logits(&case, &mut trainer, |name, ids| {
            for (id, &document) in ids.iter_mut().zip(&documents) {
                match name {
                    TOKENS if document == 0 => *id = 7,
                    TYPES if document == 0 => *id = 1,
                    _ => {}
                }
            }
        });
        let each = case.config.classes.unwrap_or(case.config.vocab);
        let rows = found.chunks(each).zip(other.chunks(each)).enumerate();
        for (place, (one, other)) in rows {
            let padding = case.config.classes.is_none() && documents[place] == 0;
            assert_eq!(one == other, !padding, "{} at {place}", case.name);
        }
        // It does where padding is a part of the text.
        let all = logits(&case, &mut trainer, |name, ids| {
            if name == DOCUMENTS {
                ids.fill(1);
            }
        });
        assert_ne!(found, all);
    }
}

#[test]
fn files_that_name_norms_as_tensorflow_does_are_read() {
    for case in cases() {
        let model = case.model();
        let old = |name: &str| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            name.replace("LayerNorm.bias", "LayerNorm.beta")
        };
        let new = |name: &str| {
            let name = name.replace("LayerNorm.gamma", "LayerNorm.weight");
            name.replace("LayerNorm.beta", "LayerNorm.bias")
        };
        let mut get = |name: &str| Ok(case.weights.require(&new(name))?.to_values()?);
        let names: Vec<String> = case.weights.names().map(str::to_owned).collect();
        let mut renamed: Vec<String> = names.iter().map(|name| old(name)).collect();
        assert_ne!(names, renamed);
        let own = import(&*model, &names, &mut get).expect("the model");
        // Heads of other purposes and positions lie beside them.
        for name in ["cls.seq_relationship.weight", "bert.embeddings.position_ids"] {
            renamed.push(name.to_owned());
        }
        assert_eq!(import(&*model, &renamed, &mut get).expect("the model"), own);
    }
}

#[test]
fn dropout_is_of_training_alone() {
    let [_, case] = cases();
    let first = |attention_dropout: f64, dropout: f64| {
        let config = BertConfig { attention_dropout, dropout, ..case.config.clone() };
        let case = Case { config, ..Case::open("bert-classes-case") };
        let mut trainer = case.trainer(Box::new(Cpu::new(1).expect("threads")));
        let evaluated = logits(&case, &mut trainer, |_, _| {});
        let accumulate = case.size("accumulate");
        let of = |name: &str| case.ids(name, 1, accumulate);
        let (read, expected) = (INPUTS.map(of), of("labels"));
        let batch = Batch::new().with("labels", &expected);
        let inputs = INPUTS.iter().zip(&read);
        let batch = inputs.fold(batch, |batch, (name, ids)| batch.with(name, ids));
        trainer.step(0, 1e-3, &batch).expect("a step");
        (evaluated, block_on(trainer.outcome()).expect("an outcome").loss)
    };
    let (evaluated, loss) = first(0.0, 0.0);
    for dropout in [(0.5, 0.0), (0.0, 0.5)] {
        let (with, dropped) = first(dropout.0, dropout.1);
        assert_eq!(with, evaluated);
        assert_ne!(dropped, loss, "{dropout:?}");
        assert_eq!(first(dropout.0, dropout.1).1, dropped, "{dropout:?}");
    }
}
