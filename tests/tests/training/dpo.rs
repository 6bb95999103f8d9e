//! Direct preference optimization: parity with TRL's loss on every device, pairs that don't count, and extreme margins.

use std::path::Path;
use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::Backend;
use tightrope_data::SafeTensors;
use tightrope_nn::inputs::{REFERENCE, TARGETS, TOKENS};
use tightrope_nn::{
    Batch, BuildOptions, Exported, LanguageModel, Lora, Model, ModelConfig, Optimizer, Planned,
    Trainer, TrainerConfig, export,
};

use crate::devices::{devices, drawn_devices, relative_l2};

/// A case that was recorded by TRL's formula.
struct Case {
    name: &'static str,
    config: ModelConfig,
    weights: SafeTensors,
    /// What is trained beside frozen weights.
    adapters: Option<(Lora, SafeTensors)>,
    record: SafeTensors,
}

/// Numbers of some batches.
struct Pairs {
    tokens: Vec<i32>,
    targets: Vec<i32>,
    reference: Vec<f32>,
}

impl Pairs {
    fn batch(&self) -> Batch<'_> {
        let batch = Batch::new().with(TOKENS, &self.tokens).with(TARGETS, &self.targets);
        batch.with(REFERENCE, &self.reference)
    }
}

impl Case {
    fn open(name: &'static str) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/dpo").join(name);
        let open = |name: &str| SafeTensors::open(dir.join(name)).expect("a file of the case");
        let json = |name: &str| -> serde_json::Value {
            let text = std::fs::read(dir.join(name)).expect("a file of the case");
            serde_json::from_slice(&text).expect("JSON")
        };
        let adapters = dir.join("adapters").exists().then(|| {
            let lora = Lora::from_peft(&json("adapters/adapter_config.json")).expect("adapters");
            (lora, open("adapters/adapter_model.safetensors"))
        });
        Self {
            name,
            config: ModelConfig::from_hf(&json("config.json")).expect("a model"),
            adapters,
            weights: open("model.safetensors"),
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

    /// So many micro-batches from `first` on.
    fn pairs(&self, first: usize, count: usize) -> Pairs {
        let sequences = 2 * self.size("pairs");
        let ids = |name: &str| {
            let each = sequences * self.size("seq");
            let recorded = self.record.require(name).expect(name).to_i32().expect(name);
            recorded[first * each..][..count * each].to_vec()
        };
        let reference = self.values("reference")[first * sequences..][..count * sequences].to_vec();
        Pairs { tokens: ids("tokens"), targets: ids("targets"), reference }
    }

    /// A trainer of steps of so many passes, with the recorded weights, on `device`.
    fn trainer(&self, device: Box<dyn Backend>, passes: usize) -> Trainer {
        let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|key| self.setting(key));
        let model = LanguageModel::new(&self.config, self.size("seq")).expect("a model");
        let model = model.of_pairs(self.setting("beta")).expect("a beta");
        let config = TrainerConfig {
            batch: self.size("pairs") * passes,
            micro_batch: self.size("pairs"),
            // Fewer rows than a sequence has.
            build: BuildOptions { loss_chunk: 8, ..BuildOptions::default() },
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            weight_decay: self.setting("weight_decay"),
            clip: Some(self.setting("clip")),
            watch: if passes == 1 { vec!["grad.*".to_owned()] } else { vec![] },
            lora: self.adapters.as_ref().map(|(lora, _)| lora.clone()),
            losses: true,
            ..TrainerConfig::new(Arc::new(model) as Arc<dyn Model>)
        };
        let planned = Planned::new(&config, &*device).expect("a plan");
        let mut trainer = Trainer::new(planned, device).expect("memory");
        let mut get = |name: &str| Ok(self.weights.require(name)?.to_values()?);
        trainer.load_weights(self.weights.names(), &mut get).expect("weights");
        if let Some((_, adapters)) = &self.adapters {
            let mut get = |name: &str| Ok(adapters.require(name)?.to_values()?);
            trainer.load_adapters(adapters.names(), &mut get).expect("adapters");
        }
        trainer
    }
}

fn cases() -> [Case; 3] {
    ["llama", "gemma2", "llama-lora"].map(Case::open)
}

fn cpu() -> Box<dyn Backend> {
    Box::new(Cpu::new(2).expect("threads"))
}

#[test]
fn loss_rewards_and_every_gradient_are_those_of_trl() {
    for case in cases() {
        for device in devices() {
            let name = format!("{} on {}", case.name, device.name());
            let mut trainer = case.trainer(device, 1);
            let pairs = case.pairs(0, 1);
            let evaluated = block_on(trainer.evaluate(&pairs.batch())).expect("a loss");
            trainer.step(0, 0.0, &pairs.batch()).expect("a step");
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            assert_eq!(outcome.metrics.len(), 4, "{name}");
            for (loss, metrics) in
                [(outcome.loss, &outcome.metrics), (evaluated.loss, &evaluated.metrics)]
            {
                let found = metrics.iter().map(|(name, value)| (name.as_str(), *value));
                for (figure, value) in found.chain([("loss", loss)]) {
                    let off = (value - case.values(figure)[0]).abs();
                    assert!(off < 1e-5, "{name}: {figure} {off:e} off");
                }
            }
            let found = block_on(trainer.watched_values()).expect("gradients");
            let list = trainer.parameters().to_vec();
            assert_eq!(found.len(), list.len(), "{name}");
            for (watched, values) in trainer.watched().iter().zip(found) {
                let parameter = list.iter().find(|it| watched.name == format!("grad.{}", it.name));
                let exported = export(parameter.expect("a parameter"), &values);
                for Exported { name: tensor, values, .. } in exported {
                    let off = relative_l2(&values, &case.values(&format!("grad.{tensor}")));
                    assert!(off < 1e-4, "{name}: the gradient of {tensor} is {off:e} off");
                }
            }
        }
    }
}

#[test]
fn five_steps_are_those_of_trl() {
    for case in cases() {
        for device in drawn_devices(case.name) {
            let name = format!("{} on {}", case.name, device.name());
            let (passes, lr) = (case.size("accumulate"), case.setting("lr"));
            let mut trainer = case.trainer(device, passes);
            let [losses, norms] = ["train.losses", "train.grad_norms"].map(|it| case.values(it));
            for step in 0..case.size("steps") {
                let pairs = case.pairs(1 + step * passes, passes);
                trainer.step(step as u64, lr, &pairs.batch()).expect("a step");
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
                    let off = relative_l2(&values, &case.values(&format!("after.{tensor}")));
                    assert!(off < 1e-4, "{name}: {tensor} {off:e} off");
                }
            }
        }
    }
}

/// Log-likelihoods of the answers of a micro-batch, as the model stands.
fn log_likelihoods(trainer: &mut Trainer, pairs: &Pairs, seq: usize) -> Vec<f32> {
    let losses = block_on(trainer.losses(&pairs.batch())).expect("losses");
    let counts = pairs.targets.chunks(seq).map(|row| row.iter().filter(|&&id| id >= 0).count());
    losses.iter().zip(counts).map(|(loss, count)| -loss * count as f32).collect()
}

#[test]
fn rewards_are_zero_where_the_model_is_the_reference() {
    for case in cases() {
        let mut trainer = case.trainer(cpu(), 1);
        let mut pairs = case.pairs(1, 1);
        pairs.reference = log_likelihoods(&mut trainer, &pairs, case.size("seq"));
        trainer.step(0, 0.0, &pairs.batch()).expect("a step");
        let outcome = block_on(trainer.outcome()).expect("an outcome");
        assert!((outcome.loss - std::f32::consts::LN_2).abs() < 1e-6, "{}", outcome.loss);
        for (name, value) in &outcome.metrics {
            assert!(name == "accuracy" || value.abs() < 1e-6, "{name} is {value}");
        }
        assert!(outcome.grad_norm > 0.1, "{}", outcome.grad_norm);
    }
}

#[test]
fn a_pair_that_is_padding_counts_nowhere() {
    let [case, ..] = cases();
    let mut trainer = case.trainer(cpu(), 1);
    let mut pairs = case.pairs(0, 1);
    let seq = case.size("seq");
    let first = block_on(trainer.evaluate(&pairs.batch())).expect("a loss");
    // The last pair of the first batch is one: what its reference says changes nothing.
    let last = pairs.reference.len() - 2;
    assert!(pairs.targets[last * seq..].iter().all(|&target| target < 0));
    pairs.reference[last..].copy_from_slice(&[-3.0, 40.0]);
    assert_eq!(block_on(trainer.evaluate(&pairs.batch())).expect("a loss"), first);
    // Of padding alone the loss is 0, and no number is lost.
    pairs.targets.fill(-1);
    trainer.step(0, 0.1, &pairs.batch()).expect("a step");
    let outcome = block_on(trainer.outcome()).expect("an outcome");
    assert_eq!((outcome.loss, outcome.grad_norm), (0.0, 0.0));
}

#[test]
fn margins_of_any_size_have_a_loss_and_a_gradient() {
    for device in devices() {
        let [case, ..] = cases();
        let (name, beta) = (device.name().to_owned(), case.setting("beta") as f32);
        let mut trainer = case.trainer(device, 1);
        let mut pairs = case.pairs(1, 1);
        let own = log_likelihoods(&mut trainer, &pairs, case.size("seq"));
        for (margin, loss) in [(-3000.0_f32, 3000.0), (-19.0, 19.0), (-21.0, 21.0), (3000.0, 0.0)] {
            // The reference likes the chosen answer less by this much.
            let off = |(index, own): (usize, &f32)| own - [margin / beta, 0.0][index % 2];
            pairs.reference = own.iter().enumerate().map(off).collect();
            trainer.step(0, 0.0, &pairs.batch()).expect("a step");
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            assert!((outcome.loss - loss).abs() < 2e-3, "{name}: {} at {margin}", outcome.loss);
            assert_eq!(outcome.grad_norm > 0.1, margin < 0.0, "{name}: {}", outcome.grad_norm);
        }
    }
}
