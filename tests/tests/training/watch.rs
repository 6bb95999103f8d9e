//! Tensors of a step that the host reads by name.

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_nn::{
    Batch, ModelConfig, Optimizer, Planned, Precision, Trainer, TrainerConfig, preset,
};

use crate::text::{VOCAB, train};

const LR: f64 = 0.5;
const WEIGHT: &str = "h.1.mlp.up.weight";

fn config(watch: &[&str]) -> TrainerConfig {
    let model = ModelConfig {
        layers: 2,
        vocab: VOCAB,
        context: 16,
        dropout: 0.0,
        ..preset("tiny").expect("a preset")
    };
    TrainerConfig {
        batch: 4,
        micro_batch: 4,
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        weight_decay: 0.0,
        clip: None,
        watch: watch.iter().map(|&name| name.to_owned()).collect(),
        ..TrainerConfig::new(model.build(16).expect("a model"))
    }
}

fn trainer(config: &TrainerConfig) -> Trainer {
    let cpu = Cpu::new(2).expect("threads");
    let planned = Planned::new(config, &cpu).expect("a plan");
    let predicted = planned.plan.arena_bytes;
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted);
    trainer.initialise().expect("weights");
    trainer
}

/// What the first step leaves, each with its name.
fn after_a_step(config: &TrainerConfig) -> Vec<(String, Vec<f32>)> {
    let mut trainer = trainer(config);
    train(&mut trainer, 0..1, LR);
    named(&mut trainer)
}

fn named(trainer: &mut Trainer) -> Vec<(String, Vec<f32>)> {
    let values = block_on(trainer.watched_values()).expect("values");
    let named = trainer.watched().iter().zip(values);
    let named = named.map(|(watched, values)| {
        assert_eq!(watched.shape.iter().product::<usize>(), values.len(), "{}", watched.name);
        (watched.name.clone(), values)
    });
    named.collect()
}

fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = found.iter().zip(expected);
    let apart = square(&mut pairs.map(|(a, b)| f64::from(a - b)));
    apart / square(&mut expected.iter().map(|&x| f64::from(x)))
}

fn gradient() -> String {
    format!("grad.{WEIGHT}")
}

#[test]
fn a_gradient_is_what_the_update_takes() {
    let config = config(&[&gradient()]);
    let mut trainer = trainer(&config);
    let weight = trainer.parameters().iter().position(|it| it.name == WEIGHT).expect("a weight");
    let before = block_on(trainer.weight(weight)).expect("values");
    train(&mut trainer, 0..1, LR);
    let after = block_on(trainer.weight(weight)).expect("values");
    let moved: Vec<f32> = before.iter().zip(&after).map(|(a, b)| (a - b) / LR as f32).collect();
    let [(name, found)] = &named(&mut trainer)[..] else { panic!("one is watched") };
    assert_eq!(*name, gradient());
    // A weight of about 0.02 has 6e-9 between its neighbours.
    assert!(distance(found, &moved) < 1e-3, "{}", distance(found, &moved));
    assert!(found.iter().any(|x| x.abs() > 1e-5));
}

#[test]
fn it_is_the_same_in_several_passes_and_at_any_scale_of_the_loss() {
    let whole = config(&[&gradient()]);
    let [(_, expected)] = &after_a_step(&whole)[..] else { panic!("one is watched") };
    let parts = TrainerConfig { micro_batch: 1, ..whole.clone() };
    let scaled = TrainerConfig { precision: Precision::F16, ..whole.clone() };
    let both = TrainerConfig { micro_batch: 2, ..scaled.clone() };
    for (config, tolerance) in [(parts, 1e-5), (scaled, 0.02), (both, 0.02)] {
        let [(_, found)] = &after_a_step(&config)[..] else { panic!("one is watched") };
        let distance = distance(found, expected);
        assert!(distance < tolerance, "{distance} in {} passes", config.accumulation());
    }
}

#[test]
fn activations_are_kept_whatever_is_recomputed() {
    let watch = ["h.0.mlp.gelu", "h.1.mlp", "h.*.attn.qkv"];
    let of = |checkpoint, micro_batch| {
        let options = Options { checkpoint, ..Options::default() };
        after_a_step(&TrainerConfig { options, micro_batch, ..config(&watch) })
    };
    let kept = of(Checkpoint::None, 4);
    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["h.0.mlp.gelu", "h.1.mlp", "h.0.attn.qkv", "h.1.attn.qkv"]);
    assert_eq!(of(Checkpoint::Block, 4), kept);
    // Of several passes, the last one's.
    for ((name, last), (_, all)) in of(Checkpoint::None, 1).iter().zip(&kept) {
        let own = &all[all.len() - last.len()..];
        assert!(distance(last, own) < 1e-5, "{name}");
    }
}

#[test]
fn watching_changes_no_loss() {
    let losses = |watch: &[&str]| train(&mut trainer(&config(watch)), 0..3, LR);
    assert_eq!(losses(&["h.*", "grad.*"]), losses(&[]));
}

#[test]
fn a_name_that_nothing_has_is_refused_with_the_most_similar() {
    let cpu = Cpu::new(1).expect("threads");
    let error = Planned::new(&config(&["h.0.mlp.gleu"]), &cpu).err().expect("a refusal");
    let text = error.to_string();
    assert!(text.contains("`h.0.mlp.gleu`; did you mean `h.0.mlp.gelu`?"), "{text}");
}

#[test]
fn logits_are_there_where_they_are_asked_for() {
    let config = TrainerConfig { logits: true, ..config(&[]) };
    let mut trainer = trainer(&config);
    let tokens: Vec<i32> = (0..64).map(|at| at % VOCAB as i32).collect();
    let batch = Batch::text(&tokens, &tokens);
    let (logits, shape) = block_on(trainer.logits(&batch)).expect("logits");
    assert_eq!(shape[..2], [4, 16]);
    // The mean loss of the same batch by the logits.
    let columns = shape[2];
    let rows = logits.chunks_exact(columns).zip(&tokens);
    let loss = rows.map(|(row, &target)| {
        let row = &row[..VOCAB];
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        sum.ln() - f64::from(row[target as usize])
    });
    let expected = loss.sum::<f64>() / tokens.len() as f64;
    let found = block_on(trainer.evaluate(&batch)).expect("a loss").loss;
    assert!((f64::from(found) - expected).abs() < 1e-5, "{found} and {expected}");
    let mut without = self::trainer(&self::config(&[]));
    assert!(block_on(without.logits(&batch)).is_err());
}

#[test]
fn losses_are_those_of_each_sample() {
    let config = TrainerConfig { losses: true, ..config(&[]) };
    let mut trainer = trainer(&config);
    let tokens: Vec<i32> = (0..64).map(|at| at * at % VOCAB as i32).collect();
    // Of the last sample nothing counts, of the one before its end alone.
    let counted = |at: usize| at < 32 || (44..48).contains(&at);
    let counts = |at| if counted(at) { tokens[at] } else { -1 };
    let targets: Vec<i32> = (0..64).map(counts).collect();
    let found = block_on(trainer.losses(&Batch::text(&tokens, &targets))).expect("losses");
    assert_eq!((found.len(), found[3]), (4, 0.0));
    for (sample, loss) in found.iter().enumerate() {
        let own = |at| if at / 16 == sample { targets[at] } else { -1 };
        let alone: Vec<i32> = (0..64).map(own).collect();
        let expected = block_on(trainer.evaluate(&Batch::text(&tokens, &alone))).expect("a loss");
        assert!((loss - expected.loss).abs() < 1e-6, "{sample}: {loss} and {}", expected.loss);
    }
    let mut without = self::trainer(&self::config(&[]));
    assert!(block_on(without.losses(&Batch::text(&tokens, &targets))).is_err());
}
