//! Adafactor: parity with transformers' on every device, the bytes of its state, and runs with all else that decides a step.

use std::path::Path;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::Backend;
use tightrope_data::SafeTensors;
use tightrope_nn::{
    Batch, BuildOptions, Exported, Master, ModelConfig, Offload, Optimizer, Planned, Precision,
    Trainer, TrainerConfig, export, preset,
};

use crate::devices::{drawn_devices, relative_l2};
use crate::text::{VOCAB, saved, train};

#[test]
fn twenty_steps_are_those_of_transformers() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/optimizers/adafactor");
    let [weights, record] = ["model.safetensors", "case.safetensors"]
        .map(|name| SafeTensors::open(dir.join(name)).expect("a file of the case"));
    let config = std::fs::read(dir.join("config.json")).expect("a file of the case");
    let config = ModelConfig::from_hf(&serde_json::from_slice(&config).expect("JSON")).unwrap();
    let setting = |key: &str| -> f64 { record.metadata()[key].parse().expect("a number") };
    let [batch, seq, steps] = ["batch", "seq", "steps"].map(|key| setting(key) as usize);
    let tokens = record.require("tokens").unwrap().to_i32().unwrap();
    let losses = record.require("losses").unwrap().to_f32().unwrap();
    for device in drawn_devices("Adafactor") {
        let name = device.name().to_owned();
        let config = TrainerConfig {
            batch,
            micro_batch: batch,
            build: BuildOptions { loss_chunk: 16, ..BuildOptions::default() },
            optimizer: Optimizer::Adafactor,
            weight_decay: setting("weight_decay"),
            clip: None,
            ..TrainerConfig::new(config.build(seq).expect("a model"))
        };
        let mut trainer = Trainer::new(Planned::new(&config, &*device).unwrap(), device).unwrap();
        let mut get = |name: &str| Ok(weights.require(name)?.to_values()?);
        trainer.load_weights(weights.names(), &mut get).expect("weights");
        for (step, tokens) in tokens.chunks(batch * (seq + 1)).enumerate() {
            let rows = tokens.chunks(seq + 1);
            let inputs: Vec<i32> = rows.clone().flat_map(|row| &row[..seq]).copied().collect();
            let targets: Vec<i32> = rows.flat_map(|row| &row[1..]).copied().collect();
            trainer.step(step as u64, setting("lr"), &Batch::text(&inputs, &targets)).unwrap();
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            let off = (outcome.loss - losses[step]).abs();
            assert!(off < 1e-5, "{name}, step {step} of {steps}: loss {off:e} off");
        }
        for (index, parameter) in trainer.parameters().to_vec().iter().enumerate() {
            let values = block_on(trainer.weight(index)).expect("a weight");
            let padding = &values[parameter.stored()..];
            assert!(padding.iter().all(|&value| value == 0.0), "{name}: {}", parameter.name);
            for Exported { name: tensor, values, .. } in export(parameter, &values) {
                let recorded = record.require(&format!("after.{tensor}")).unwrap();
                let off = relative_l2(&values, &recorded.to_f32().unwrap());
                assert!(off < 1e-5, "{name}: {tensor} {off:e} off");
            }
        }
    }
}

#[test]
fn its_state_is_rows_and_columns() {
    let plan = |optimizer| {
        let model = preset("gpt2").unwrap().build(64).unwrap();
        let config = TrainerConfig { optimizer, ..TrainerConfig::new(model) };
        let planned = Planned::new(&config, &Cpu::new(1).unwrap()).unwrap();
        let graph = &planned.plan.graph;
        let slots = ["exp_avg", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"];
        let parameters = config.model.parameters();
        let names =
            parameters.iter().flat_map(|it| slots.map(|slot| format!("optim.{}.{slot}", it.name)));
        names.filter_map(|name| Some(graph.ty(graph.find(&name).ok()?).bytes())).sum::<usize>()
    };
    let adamw = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };
    let [adafactor, adamw] = [Optimizer::Adafactor, adamw].map(plan);
    println!("GPT-2: {adafactor} bytes of Adafactor's state, {adamw} of AdamW's");
    // A row and a column of every matrix, and all of every vector.
    assert!(adafactor < 1_300_000 && adamw > 990_000_000, "{adafactor} {adamw}");
}

fn config() -> TrainerConfig {
    let mut model = preset("llama-tiny").unwrap();
    (model.vocab, model.context) = (VOCAB, 32);
    TrainerConfig {
        batch: 8,
        micro_batch: 8,
        optimizer: Optimizer::Adafactor,
        seed: 5,
        ..TrainerConfig::new(model.build(32).unwrap())
    }
}

fn trainer(config: &TrainerConfig) -> Trainer {
    let cpu = || Cpu::new(2).expect("threads");
    let planned = Planned::new(config, &cpu()).expect("a plan");
    let predicted = planned.plan.arena_bytes;
    let host: Box<dyn Backend + Send> = Box::new(cpu());
    let mut trainer = Trainer::offloading(planned, Box::new(cpu()), host).expect("memory");
    if !config.offload.any() {
        assert_eq!(trainer.allocated_bytes(), predicted);
    }
    trainer.initialise().expect("weights");
    trainer
}

#[test]
fn it_learns_in_16_bits_offloaded_and_over_several_passes() {
    let offload = Offload { optimizer: true, ..Offload::NONE };
    let whole = train(&mut trainer(&config()), 0..40, 3e-3);
    assert!(whole[39] < 0.8 * whole[0], "{whole:?}");
    for changed in [
        TrainerConfig { micro_batch: 2, ..config() },
        TrainerConfig { offload, ..config() },
        TrainerConfig { precision: Precision::BF16, ..config() },
        TrainerConfig { precision: Precision::BF16, master: Master::None, ..config() },
        TrainerConfig { consume_gradients: true, clip: None, ..config() },
    ] {
        let exact = changed.precision == Precision::F32 && changed.clip.is_some();
        let losses = train(&mut trainer(&changed), 0..40, 3e-3);
        let off = (losses[39] - whole[39]).abs();
        assert!(off < if exact { 1e-2 } else { 0.15 }, "{changed:?}: {off}");
    }
}

#[test]
fn a_run_continues_from_what_was_saved_bit_for_bit() {
    for precision in [Precision::F32, Precision::BF16] {
        let config = TrainerConfig { precision, micro_batch: 4, ..config() };
        let mut whole = trainer(&config);
        train(&mut whole, 0..5, 1e-3);
        let checkpoint = saved(&mut whole);
        let mut resumed = trainer(&config);
        let get = |name: &str| Ok(checkpoint[name].clone());
        let states: Vec<String> = resumed.saved_states().into_iter().map(|it| it.name).collect();
        let weights = checkpoint.keys().filter(|name| !states.contains(name));
        resumed.load_weights(weights, &mut { get }).expect("weights");
        resumed.load_states(&states, &mut { get }).expect("state");
        let losses = [&mut whole, &mut resumed].map(|trainer| train(trainer, 5..9, 1e-3));
        assert_eq!(losses[0], losses[1]);
        assert!(saved(&mut whole) == saved(&mut resumed));
    }
}
