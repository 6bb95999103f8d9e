//! The vision transformer: parity with transformers on every device, and scikit-learn's digits.

use std::path::Path;
use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::ops::Map;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{DType, Graph, Plan, Role, Session, Tensor, Type, Wanted, grad};
use tightrope_data::{ImageBatches, ImageDataset, ImageLoaderConfig, Loader, SafeTensors};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Batch, BuildOptions, Exported, Free, FrozenBits, IMAGES, Import, Inputs, LABELS, LearningRate,
    Lora, Model, Offload, Optimizer, Pass, Planned, Precision, Rates, Schedule, Trainer,
    TrainerConfig, Vit, VitConfig, Weights, export, vit_presets,
};

use crate::devices::{devices, relative_l2};

/// A case that transformers recorded.
struct Case {
    config: VitConfig,
    weights: SafeTensors,
    record: SafeTensors,
}

impl Case {
    fn open() -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/vit-case");
        let open = |name: &str| SafeTensors::open(dir.join(name)).expect("a file of the case");
        let json = std::fs::read(dir.join("config.json")).expect("a file of the case");
        let json = serde_json::from_slice(&json).expect("JSON");
        Self {
            config: VitConfig::from_hf(&json).expect("a model"),
            weights: open("model.safetensors"),
            record: open("case.safetensors"),
        }
    }

    fn model(&self) -> Vit {
        Vit::new(&self.config).expect("a model")
    }

    fn setting(&self, key: &str) -> f64 {
        self.record.metadata()[key].parse().expect("a number")
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.record.require(name).expect(name).to_f32().expect(name)
    }

    /// Images and labels of batch `index`; batch 0 is the one of the gradients.
    fn batch(&self, index: usize) -> (Vec<f32>, Vec<i32>) {
        let batch = self.setting("batch") as usize;
        let [height, width] = self.config.image;
        let pixels = batch * self.config.colors * height * width;
        let labels = self.record.require("labels").expect("labels").to_i32().expect("labels");
        let images = self.values("images");
        (images[index * pixels..][..pixels].to_vec(), labels[index * batch..][..batch].to_vec())
    }
}

/// Holds that each tensor is within 1e-4 of the recorded one, rows apart whose gradient is rounding noise.
fn close_to(case: &Case, prefix: &str, model: &Vit, found: &mut dyn FnMut(usize) -> Vec<f32>) {
    for (index, parameter) in model.parameters().iter().enumerate() {
        for Exported { name, shape, values } in export(parameter, &found(index)) {
            let recorded = case.record.require(&format!("{prefix}{name}")).expect("a tensor");
            assert_eq!(recorded.to_values().expect("numbers").0, shape, "{name}");
            if parameter.rows_without_gradient(&name).len() == shape[0] {
                continue;
            }
            let distance = relative_l2(&values, &recorded.to_f32().expect("numbers"));
            assert!(distance < 1e-4, "{prefix}{name}: {distance:e}");
        }
    }
}

#[test]
fn loss_logits_and_gradients_are_those_of_transformers() {
    let case = Case::open();
    let (model, batch) = (case.model(), case.setting("batch") as usize);
    for device in devices() {
        let mut graph = Graph::new();
        let weights = Weights::declare(&mut graph, model.parameters(), Precision::F32);
        let weights = weights.expect("weights");
        let inputs = Inputs::declare(&mut graph, &model.inputs(), batch).expect("inputs");
        graph.begin(Role::Train);
        let one = Type::new(DType::F32, [1]);
        let seed = graph.one(Map::fill(1.0, &one), &[], "seed").expect("a seed");
        let options = BuildOptions::default();
        let mut pass = Pass::training(&mut graph, &weights, inputs.clone(), options, None);
        let loss = model.loss(&mut pass).expect("a loss");
        let wanted: Vec<Wanted> = weights.trained().1.iter().map(|&t| t.into()).collect();
        let gradients = grad(&mut graph, loss, seed, &wanted).expect("gradients");
        let gradients: Vec<Tensor> = gradients.into_iter().flatten().collect();
        [loss].iter().chain(&gradients).for_each(|&tensor| graph.result(tensor));
        graph.begin(Role::Logits);
        let mut pass = Pass::evaluation(&mut graph, &weights, inputs.clone(), options);
        let logits = model.logits(&mut pass).expect("logits").expect("it has some");
        graph.result(logits);

        let plan = Plan::new(graph, &Options::default(), &*device).expect("a plan");
        let name = device.name();
        let mut session = Session::new(plan, device).expect("memory");
        let import = Import::new(&model, case.weights.names()).expect("the model's tensors");
        let mut get = |name: &str| Ok(case.weights.require(name)?.to_values()?);
        for (parameter, &tensor) in weights.parameters().iter().zip(weights.tensors()) {
            let values = import.read(parameter, &mut get).expect("values");
            session.write_values(tensor, &values).expect("a weight");
        }
        let (images, labels) = case.batch(0);
        session.write_values(inputs.get(IMAGES).expect("images"), &images).expect("images");
        session.write_ids(inputs.get(LABELS).expect("labels"), &labels).expect("labels");
        session.run(Role::Train).expect("a pass");
        let found = block_on(session.read_values(loss)).expect("a loss")[0];
        let off = (found - case.values("loss")[0]).abs();
        assert!(off < 1e-5, "{name}: loss {found}, {off:e} off");
        close_to(&case, "grad.", &model, &mut |index| {
            block_on(session.read_values(gradients[index])).expect("a gradient")
        });
        session.run(Role::Logits).expect("a pass");
        let found = block_on(session.read_values(logits)).expect("logits");
        let off = found.iter().zip(case.values("logits")).map(|(a, b)| (a - b).abs());
        let off = off.fold(0.0, f32::max);
        assert!(off < 1e-4, "{name}: logits {off:e} off");
    }
}

#[test]
fn ten_steps_of_adamw_are_those_of_transformers() {
    let case = Case::open();
    let batch = case.setting("batch") as usize;
    let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|key| case.setting(key));
    let config = TrainerConfig {
        batch,
        micro_batch: batch,
        optimizer: Optimizer::AdamW { beta1, beta2, eps },
        weight_decay: case.setting("weight_decay"),
        clip: Some(case.setting("clip")),
        ..TrainerConfig::new(case.config.build().expect("a model"))
    };
    for device in devices() {
        let name = device.name();
        let planned = Planned::new(&config, &*device).expect("a plan");
        let mut trainer = Trainer::new(planned, device).expect("memory");
        let mut get = |name: &str| Ok(case.weights.require(name)?.to_values()?);
        trainer.load_weights(case.weights.names(), &mut get).expect("weights");
        for step in 0..case.setting("steps") as usize {
            let (images, labels) = case.batch(1 + step);
            let batch = Batch::new().with(IMAGES, &images).with(LABELS, &labels);
            trainer.step(step as u64, case.setting("lr"), &batch).expect("a step");
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            let off = (outcome.loss - case.values("train.losses")[step]).abs();
            assert!(off < 1e-4, "{name}, step {step}: loss {}, {off:e} off", outcome.loss);
            let off = (outcome.grad_norm / case.values("train.grad_norms")[step] - 1.0).abs();
            assert!(off < 1e-4, "{name}, step {step}: gradient norm {off:e} off");
        }
        close_to(&case, "after.", &case.model(), &mut |index| {
            block_on(trainer.weight(index)).expect("a weight")
        });
    }
}

fn preset() -> VitConfig {
    vit_presets().find(|(name, _)| *name == "vit-tiny").expect("a preset").1
}

/// A model of the digits, in steps of 32 images.
fn digits() -> TrainerConfig {
    let optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8 };
    TrainerConfig {
        batch: 32,
        micro_batch: 32,
        optimizer,
        ..TrainerConfig::new(preset().build().expect("a model"))
    }
}

fn trainer(config: &TrainerConfig) -> Trainer {
    let cpu = Cpu::new(2).expect("threads");
    let planned = Planned::new(config, &cpu).expect("a plan");
    let host = Box::new(Cpu::new(1).expect("a thread"));
    let mut trainer = Trainer::offloading(planned, Box::new(cpu), host).expect("memory");
    trainer.initialise().expect("weights");
    trainer
}

/// Losses of the first `steps` on the digits that aren't held out.
fn train(trainer: &mut Trainer, steps: u64, lr: impl Fn(u64) -> f64) -> Vec<f32> {
    let (train, _) = ImageDataset::digits().expect("digits").split(0.2).expect("a split");
    let normalization = train.normalization().expect("pixels");
    let order = ImageLoaderConfig { batch: trainer.config().batch, seed: 1, normalization };
    let mut loader = Loader::of_images(train, order, 0).expect("a loader");
    let step = |step| {
        let read = loader.next().expect("images");
        let batch = Batch::new().with(IMAGES, &read.images).with(LABELS, &read.labels);
        trainer.step(step, lr(step), &batch).expect("a step");
        block_on(trainer.outcome()).expect("an outcome").loss
    };
    (0..steps).map(step).collect()
}

#[test]
fn digits_are_read_97_times_of_100() {
    const STEPS: u64 = 1000;
    let mut trainer = trainer(&digits());
    let schedule = Schedule::Linear;
    let rate = LearningRate { schedule, lr: 2e-3, min_lr: 4e-5, warmup: 100, steps: STEPS };
    train(&mut trainer, STEPS, |step| rate.lr_at(step));
    let (train, held_out) = ImageDataset::digits().expect("digits").split(0.2).expect("a split");
    let normalization = train.normalization().expect("pixels");
    let order = ImageLoaderConfig { batch: 32, seed: 1, normalization };
    let batches = ImageBatches::new(held_out, order, None).expect("batches");
    let (mut right, mut scored) = (0.0, 0.0);
    for batch in batches {
        let batch = batch.expect("images");
        let count = batch.labels.iter().filter(|&&label| label >= 0).count() as f32;
        let given = Batch::new().with(IMAGES, &batch.images).with(LABELS, &batch.labels);
        let found = block_on(trainer.evaluate(&given)).expect("an evaluation");
        assert_eq!(found.metrics[0].0, "accuracy");
        (right, scored) = (right + found.metrics[0].1 * count, scored + count);
    }
    println!("{:.2} % of {scored} digits", 100.0 * right / scored);
    assert!(right >= 0.97 * scored, "{right} of {scored} digits");
}

#[test]
fn a_step_tells_its_accuracy_however_it_is_cut() {
    let whole = digits();
    let (train, _) = ImageDataset::digits().expect("digits").split(0.2).expect("a split");
    let normalization = train.normalization().expect("pixels");
    let order = ImageLoaderConfig { batch: 32, seed: 1, normalization };
    let read = Loader::of_images(train, order, 0).expect("a loader").next().expect("images");
    let batch = Batch::new().with(IMAGES, &read.images).with(LABELS, &read.labels);
    let offload = Offload { optimizer: true, gradients: true, ..Offload::NONE };
    for (micro_batch, offload) in [(32, Offload::NONE), (8, Offload::NONE), (16, offload)] {
        let model = Arc::new(Vit::new(&VitConfig { dropout: 0.0, ..preset() }).expect("a model"));
        let config = TrainerConfig { micro_batch, offload, model, ..whole.clone() };
        let mut trainer = trainer(&config);
        // Evaluation of the same weights on the same images, a micro-batch at a time.
        let mut expected = 0.0;
        for part in 0..32 / micro_batch {
            let pixels = read.images.len() / 32 * micro_batch;
            let images = &read.images[part * pixels..][..pixels];
            let labels = &read.labels[part * micro_batch..][..micro_batch];
            let part = Batch::new().with(IMAGES, images).with(LABELS, labels);
            let found = block_on(trainer.evaluate(&part)).expect("an evaluation");
            expected += found.metrics[0].1 * micro_batch as f32 / 32.0;
        }
        for step in 0..30 {
            trainer.step(step, 1e-3, &batch).expect("a step");
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            let [(name, accuracy)] = &outcome.metrics[..] else { panic!("{outcome:?}") };
            assert_eq!(name, "accuracy");
            assert!((0.0..=1.0).contains(accuracy), "{accuracy}");
            if step == 0 {
                assert!((accuracy - expected).abs() < 1e-6, "{accuracy}, not {expected}");
            }
            expected = *accuracy;
        }
        assert!(expected > 0.5, "{expected} after 30 steps on one batch");
    }
}

#[test]
fn budgets_adapters_and_offloading_change_no_number() {
    let whole = digits();
    let cpu = Cpu::new(2).expect("threads");
    let rates = Rates::of("cpu", Precision::F32, 2);
    let seconds = |graph: &Graph, node: &tightrope_core::Node| rates.seconds(graph, node);
    let (fastest, smallest) = {
        let within = |budget| Planned::within(&whole, budget, Free::NONE, &cpu, &seconds);
        let fastest = within(u64::MAX).expect("a plan").0.expect("no limit");
        (fastest.plan.peak_bytes(), within(1).expect("a refusal").1)
    };
    assert!(smallest < fastest * 3 / 4, "{smallest} of {fastest} bytes");
    let losses = |config: &TrainerConfig| train(&mut trainer(config), 4, |_| 1e-3);
    let expected = losses(&whole);
    let options = Options { checkpoint: Checkpoint::Block, ..Options::default() };
    assert_eq!(losses(&TrainerConfig { options, ..whole.clone() }), expected);
    let offload = Offload { optimizer: true, gradients: true, activations: true, weights: true };
    assert_eq!(losses(&TrainerConfig { offload, ..whole.clone() }), expected);

    let targets = vec![ALL_LINEAR.to_owned()];
    let lora = Lora {
        rank: 4,
        alpha: 8.0,
        targets,
        dropout: 0.0,
        base_bits: FrozenBits::B8,
        variant: Default::default(),
    };
    let adapted = trainer(&TrainerConfig { lora: Some(lora), ..whole.clone() });
    // Queries, keys, values, what joins heads, and the two layers of an MLP, in each of four blocks.
    assert_eq!(adapted.saved_weights().len(), 4 * 6 * 2);
    let frozen = vec!["patches.*".to_owned(), "h.0.*".to_owned()];
    let frozen = trainer(&TrainerConfig { frozen, ..whole });
    assert!(
        frozen.weights().has_frozen() && frozen.states().len() < 2 * frozen.saved_weights().len()
    );
}
