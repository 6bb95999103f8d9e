//! Programs that read a model: they give what a training plan's do, in the bytes of weights and caches alone.

use conformance::draw::Draw;
use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::ops::Nf4;
use tightrope_core::{Backend, Class};
use tightrope_nn::{
    Batch, Family, FrozenBits, Kind, ModelConfig, Optimizer, Parameter, Planned, Precision,
    Programs, Trainer, TrainerConfig, initial_values, preset,
};

use crate::devices::devices;
use crate::text::VOCAB;

const SEQ_LEN: usize = 24;

fn config(family: Family, precision: Precision) -> TrainerConfig {
    let preset = preset(if family == Family::Gpt2 { "tiny" } else { "llama-tiny" });
    let model = ModelConfig {
        family,
        layers: 2,
        context: SEQ_LEN,
        vocab: VOCAB,
        ..preset.expect("a preset")
    };
    TrainerConfig {
        precision,
        batch: 2,
        micro_batch: 2,
        seed: 3,
        decode: SEQ_LEN,
        logits: true,
        losses: true,
        ..TrainerConfig::new(model.build(SEQ_LEN).expect("a model"))
    }
}

fn inference(config: &TrainerConfig, weight_bits: FrozenBits) -> TrainerConfig {
    TrainerConfig { programs: Programs::Inference { loss: true, weight_bits }, ..config.clone() }
}

fn trainer(config: &TrainerConfig, device: Box<dyn Backend>) -> Trainer {
    let planned = Planned::new(config, &*device).expect("a plan");
    let peak = planned.plan.peak_bytes();
    let trainer = Trainer::new(planned, device).expect("memory");
    assert_eq!(trainer.allocated_bytes(), peak);
    trainer
}

/// Loss, losses of samples, logits and those of decoded tokens, one after the other.
fn read(trainer: &mut Trainer) -> Vec<f32> {
    let tokens: Vec<i32> = (0..2 * SEQ_LEN as i32).map(|i| i * i % VOCAB as i32).collect();
    let batch = Batch::text(&tokens, &tokens);
    let mut found = vec![block_on(trainer.evaluate(&batch)).expect("a loss").loss];
    found.extend(block_on(trainer.losses(&batch)).expect("losses"));
    found.extend(block_on(trainer.logits(&batch)).expect("logits").0);
    for (position, &token) in tokens[..SEQ_LEN].iter().enumerate() {
        found.extend(block_on(trainer.decode(token, position)).expect("logits"));
    }
    found
}

#[test]
fn nothing_that_is_read_depends_on_a_training_step() {
    let models = [
        (Family::Gpt2, Precision::F32),
        (Family::Llama, Precision::BF16),
        (Family::Gpt2, Precision::F16),
    ];
    let cases = models.into_iter().flat_map(|model| [0, 1, 2].map(|device| (model, device)));
    let cases = Draw::of_today().some("models read on a device", cases.collect(), 4);
    for ((family, precision), device) in cases {
        let config = config(family, precision);
        let mut trained = trainer(&config, devices().swap_remove(device));
        trained.initialise().expect("weights");
        let mut alone =
            trainer(&inference(&config, FrozenBits::Precision), devices().swap_remove(device));
        alone.initialise().expect("weights");
        assert_eq!(read(&mut trained), read(&mut alone), "{family:?} in {precision:?}");
    }
}

#[test]
fn no_gradient_no_state_and_no_master_exist() {
    let config = config(Family::Gpt2, Precision::BF16);
    let cpu = Cpu::new(1).expect("a thread");
    let training = Planned::new(&config, &cpu).expect("a plan").plan;
    let plan = |config: &TrainerConfig| Planned::new(config, &cpu).expect("a plan").plan;
    let whole = plan(&inference(&config, FrozenBits::Precision));
    for info in &whole.graph.tensors {
        let class = info.class;
        assert!(
            ![Class::Gradient, Class::Optimizer].contains(&class),
            "{} is {class:?}",
            info.name
        );
        assert!(!info.name.ends_with(".low"), "{}", info.name);
    }
    let weights: usize = config.model.parameters().iter().map(Parameter::elements).sum();
    assert!(whole.report().by_class["weight"] < 2 * weights as u64 + 1024);
    assert!(whole.peak_bytes() < training.peak_bytes() / 3);
    // A decoder alone has no activations of a batch, and no inputs of one.
    let decoder = TrainerConfig {
        programs: Programs::Inference { loss: false, weight_bits: FrozenBits::Precision },
        logits: false,
        losses: false,
        ..config.clone()
    };
    let decoder = plan(&decoder);
    assert_eq!(decoder.graph.programs.len(), 1);
    assert!(decoder.peak_bytes() < whole.peak_bytes());
    assert!(decoder.graph.find("targets").is_err());
    let none = TrainerConfig { decode: 0, logits: false, losses: false, ..config.clone() };
    let none = TrainerConfig {
        programs: Programs::Inference { loss: false, weight_bits: FrozenBits::Precision },
        ..none
    };
    let refused = Planned::new(&none, &cpu).err().expect("a refusal").to_string();
    assert!(refused.contains("none is asked for"), "{refused}");
}

#[test]
fn losses_of_short_rows_are_those_of_padded_ones() {
    for device in [0, 1, 2] {
        let config = TrainerConfig {
            decode: 0,
            logits: false,
            shorter: vec![8, 16],
            ..config(Family::Llama, Precision::F32)
        };
        let mut trainer =
            trainer(&inference(&config, FrozenBits::Precision), devices().swap_remove(device));
        trainer.initialise().expect("weights");
        for length in [16, 8] {
            let token = |row: i32, at: i32| (row * 17 + at * at * 5 + at) % VOCAB as i32;
            let mut padded = [vec![], vec![]];
            let mut short = [vec![], vec![]];
            for row in 0..2 {
                for (ids, length) in [(&mut padded, SEQ_LEN), (&mut short, length)] {
                    let ends = ids[0].len() + length;
                    for at in 0..7 {
                        ids[0].push(token(row, at));
                        ids[1].push(if at < 2 { -1 } else { token(row, at + 1) });
                    }
                    ids[0].resize(ends, 0);
                    ids[1].resize(ends, -1);
                }
            }
            let mut of = |[tokens, targets]: &[Vec<i32>; 2]| {
                block_on(trainer.losses(&Batch::text(tokens, targets))).expect("losses")
            };
            let (expected, found) = (of(&padded), of(&short));
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-6, "{found} and {expected}");
            }
            assert!(expected[0] != expected[1]);
        }
        let ids = vec![0; 2 * 9];
        assert!(block_on(trainer.losses(&Batch::text(&ids, &ids))).is_err());
    }
}

#[test]
fn a_step_of_a_plan_without_one_is_refused() {
    let config = inference(&config(Family::Gpt2, Precision::F32), FrozenBits::Precision);
    let mut trainer = trainer(&config, devices().swap_remove(0));
    let tokens = vec![0; 2 * SEQ_LEN];
    let refused = trainer.step(0, 0.1, &Batch::text(&tokens, &tokens)).expect_err("a refusal");
    assert!(refused.to_string().contains("a plan with a training step"), "{refused}");
    assert!(block_on(trainer.outcome()).is_err());
}

/// `values` of a parameter as they are stored in `bits`, by the formats' public descriptions.
fn rounded(parameter: &Parameter, bits: FrozenBits, values: &mut [f32]) {
    if parameter.kind != Kind::Linear {
        return;
    }
    match bits {
        FrozenBits::Precision => {}
        FrozenBits::B8 => {
            for block in values.chunks_mut(256) {
                let scale = block.iter().fold(0.0, |most: f32, x| most.max(x.abs())) / 127.0;
                for x in block.iter_mut().filter(|_| scale > 0.0) {
                    *x = (f64::from(*x) / f64::from(scale)).round_ties_even() as f32 * scale;
                }
            }
        }
        FrozenBits::B4 => {
            for part in &parameter.parts {
                let columns = parameter.columns();
                let part = &mut values[part.rows.start * columns..part.rows.end * columns];
                part.copy_from_slice(&Nf4::of(part).values(part.len()));
            }
        }
    }
}

/// Names, values and shapes of a checkpoint of `model` with weights that a seed draws, rounded to `bits`.
fn checkpoint(config: &TrainerConfig, bits: FrozenBits) -> Vec<(String, Vec<f32>, Vec<usize>)> {
    let mut tensors = vec![];
    for parameter in config.model.parameters() {
        let mut values = initial_values(&parameter, 11);
        // Magnitudes that differ from block to block.
        let factor = |at: usize| 1.5 + uniform(5, at as u64 / 64) as f32;
        values.iter_mut().enumerate().for_each(|(at, x)| *x *= factor(at));
        rounded(&parameter, bits, &mut values);
        for part in &parameter.parts {
            let columns = parameter.columns();
            let rows = &values[part.rows.start * columns..part.rows.end * columns];
            let values = match part.transposed {
                false => rows.to_vec(),
                true => {
                    let count = part.rows.len();
                    (0..rows.len()).map(|at| rows[at % count * columns + at / count]).collect()
                }
            };
            tensors.push((part.name.clone(), values, parameter.part_shape(part)));
        }
    }
    tensors
}

fn load(trainer: &mut Trainer, tensors: &[(String, Vec<f32>, Vec<usize>)]) {
    let mut get = |name: &str| {
        let found = tensors.iter().find(|(known, ..)| known == name).expect("a tensor");
        Ok((found.2.clone(), found.1.clone()))
    };
    let names = tensors.iter().map(|(name, ..)| name);
    trainer.load_weights(names, &mut get).expect("weights");
}

#[test]
fn quantized_weights_read_as_those_that_were_rounded_before() {
    for device in [0, 1, 2] {
        for family in [Family::Gpt2, Family::Llama] {
            for bits in [FrozenBits::B8, FrozenBits::B4] {
                let config = config(family, Precision::F32);
                let plain = inference(&config, FrozenBits::Precision);
                let mut before = trainer(&plain, devices().swap_remove(device));
                load(&mut before, &checkpoint(&config, bits));
                let narrow = inference(&config, bits);
                let mut quantized = trainer(&narrow, devices().swap_remove(device));
                load(&mut quantized, &checkpoint(&config, FrozenBits::Precision));
                let (expected, found) = (read(&mut before), read(&mut quantized));
                let pairs = expected.iter().zip(&found);
                let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                println!("{family:?} in {bits:?} on device {device}: {worst:e} off");
                assert!(worst < 1e-5, "{family:?} in {bits:?}: {worst:e} off");
                // The likeliest tokens, which greedy decoding takes.
                let likeliest = |all: &[f32]| -> Vec<usize> {
                    let rows = all[all.len() - SEQ_LEN * VOCAB..].chunks(VOCAB);
                    rows.map(|row| (0..VOCAB).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap())
                        .collect()
                };
                assert_eq!(likeliest(&expected), likeliest(&found));
                let bytes = |trainer: &Trainer| trainer.session().plan().persistent_bytes;
                assert!(bytes(&quantized) < bytes(&before));
            }
        }
    }
}

#[test]
fn continuing_text_takes_weights_and_caches_alone() {
    let model = preset("gpt2").expect("a preset");
    let cpu = Cpu::new(1).expect("a thread");
    let cache = 2 * model.layers * model.context * model.channels;
    for precision in [Precision::F32, Precision::BF16] {
        let step = TrainerConfig {
            precision,
            optimizer: Optimizer::Sgd { momentum: 0.0 },
            decode: model.context,
            ..TrainerConfig::new(model.build(1).expect("a model"))
        };
        let bytes =
            |config: &TrainerConfig| Planned::new(config, &cpu).expect("a plan").plan.peak_bytes();
        let alone = |weight_bits| {
            let programs = Programs::Inference { loss: false, weight_bits };
            bytes(&TrainerConfig { programs, ..step.clone() })
        };
        let [whole, eight, four] =
            [FrozenBits::Precision, FrozenBits::B8, FrozenBits::B4].map(alone);
        println!(
            "GPT-2 124M, {precision:?}, 1,024 positions: {} bytes with a training step of one token, {whole} without, {eight} in 8 bits, \
             {four} in 4",
            bytes(&step)
        );
        let elements: usize = step.model.parameters().iter().map(Parameter::elements).sum();
        let held = (precision.dtype().size() * (elements + cache)) as u64;
        // The widest activation of a token is its logits.
        assert!(whole >= held && whole < held + (8 << 20), "{whole}, of which {held} are held");
        // Blocks are 85M of the 124M weights; the largest of them is dequantized at a time.
        let linear = 12 * 12 * 768 * 768;
        let size = precision.dtype().size();
        let saved = |bits: usize| (linear * size - linear * bits / 8 - linear / 12 * size) as u64;
        assert!(whole - eight > saved(9) && whole - four > saved(5), "{eight} and {four}");
    }
}
