//! Attention that stores its scores has the loss and gradients of fused attention, under every mask and on every device.

use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{Backend, DeviceKind};
use tightrope_nn::inputs::{DOCUMENTS, POSITIONS, TYPES};
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::{
    Batch, BertConfig, Family, LanguageModel, Model, ModelConfig, Offload, Optimizer, Planned,
    Precision, Trainer, TrainerConfig,
};

use crate::devices::{devices, relative_l2};
use crate::text::{VOCAB, saved};

const SEQ_LEN: usize = 21;
const BATCH: usize = 2;

/// A small model of a family, with windows that are shorter than its sequences where it has any.
fn settings(family: Family) -> ModelConfig {
    let preset = if family == Family::Gpt2 { "tiny" } else { "llama-tiny" };
    let mut details = family.details(2);
    details.window = details.window.map(|_| 6);
    let preset = tightrope_nn::preset(preset).expect("a preset");
    ModelConfig { family, layers: 2, context: SEQ_LEN, vocab: VOCAB, details, ..preset }
}

fn language(family: Family) -> LanguageModel {
    LanguageModel::new(&settings(family), SEQ_LEN).expect("a model")
}

/// Steps by plain gradient descent, so that weights show the gradients as they are.
fn config(model: Arc<dyn Model>, attention: AttentionKind) -> TrainerConfig {
    let mut config = TrainerConfig {
        batch: BATCH,
        micro_batch: BATCH,
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        clip: None,
        ..TrainerConfig::new(model)
    };
    config.build.attention = attention;
    config
}

/// The loss of a step, and what it moves all weights by.
fn step(config: &TrainerConfig, device: Box<dyn Backend>, batch: &Batch<'_>) -> (f32, Vec<f32>) {
    let planned = Planned::new(config, &*device).expect("a plan");
    let predicted = planned.plan.peak_bytes();
    let mut trainer = Trainer::new(planned, device).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted);
    trainer.initialise().expect("weights");
    let before = saved(&mut trainer);
    trainer.step(0, 1.0, batch).expect("a step");
    let loss = block_on(trainer.outcome()).expect("an outcome").loss;
    let pairs = saved(&mut trainer).into_values().zip(before.into_values());
    let moved = pairs.flat_map(|((_, after), (_, before))| {
        after.into_iter().zip(before).map(|(after, before)| after - before)
    });
    (loss, moved.collect())
}

/// Numbers below `below`, one for each position.
fn ids(stride: usize, below: usize) -> Vec<i32> {
    (0..BATCH * SEQ_LEN).map(|at| ((at * stride + at * at) % below) as i32).collect()
}

/// Where positions are in documents of so many tokens, and which those are.
fn documents(length: usize) -> [Vec<i32>; 2] {
    let at = |at: usize| at % SEQ_LEN;
    let of = |value: fn(usize, usize) -> usize| {
        (0..BATCH * SEQ_LEN).map(|position| value(at(position), length) as i32).collect()
    };
    [of(|at, length| at / length), of(|at, length| at % length)]
}

/// Holds that a step is the same by both kinds of attention on a device.
fn hold(name: &str, model: &Arc<dyn Model>, device: fn() -> Box<dyn Backend>, batch: &Batch<'_>) {
    let fused = config(Arc::clone(model), AttentionKind::Fused);
    let eager = config(Arc::clone(model), AttentionKind::Eager);
    let ((loss, expected), (found_loss, found)) =
        (step(&fused, device(), batch), step(&eager, device(), batch));
    let off = relative_l2(&found, &expected);
    println!("{name}: the loss is off by {:e}, gradients by {off:e}", found_loss - loss);
    assert!((loss - found_loss).abs() < 1e-5, "{name}: a loss of {found_loss}, fused {loss}");
    assert!(off > 0.0 && off < 1e-5, "{name}: gradients are off by {off:e}");
}

fn cpu() -> Box<dyn Backend> {
    Box::new(Cpu::new(2).expect("threads"))
}

#[test]
fn eager_attention_has_the_gradients_of_fused_attention() {
    let (tokens, targets) = (ids(7, VOCAB), ids(11, VOCAB));
    let [of, positions] = documents(8);
    let whole = Batch::text(&tokens, &targets);
    let packed = Batch::text(&tokens, &targets).with(DOCUMENTS, &of).with(POSITIONS, &positions);
    for &family in Family::ALL {
        let apart: Arc<dyn Model> = Arc::new(language(family));
        hold(&format!("{family:?}"), &apart, cpu, &whole);
        let together: Arc<dyn Model> = Arc::new(language(family).packed());
        hold(&format!("{family:?}, packed"), &together, cpu, &packed);
    }
}

/// Every query of an encoder attends to all keys of its own document: what is padded is another.
#[test]
fn eager_attention_of_encoders_has_the_gradients_of_fused_attention() {
    let preset = tightrope_nn::bert_presets().find(|(name, _)| *name == "bert-tiny");
    let (_, preset) = preset.expect("a preset");
    let sizes =
        BertConfig { layers: 2, vocab: VOCAB, dropout: 0.0, attention_dropout: 0.0, ..preset };
    let model = sizes.build(SEQ_LEN).expect("a model");
    let (tokens, targets, types) = (ids(7, VOCAB), ids(11, VOCAB), ids(3, 2));
    let [of, _] = documents(15);
    let batch = Batch::text(&tokens, &targets).with(TYPES, &types);
    hold("bert", &model, cpu, &batch.with(DOCUMENTS, &of));
}

#[test]
fn eager_attention_is_the_same_on_every_device() {
    let (tokens, targets) = (ids(7, VOCAB), ids(11, VOCAB));
    let [of, positions] = documents(8);
    let packed = Batch::text(&tokens, &targets).with(DOCUMENTS, &of).with(POSITIONS, &positions);
    // Windows, caps and groups of heads.
    let model: Arc<dyn Model> = Arc::new(language(Family::Gemma2).packed());
    let losses = devices().into_iter().map(|device| {
        let (name, kind) = (device.name(), device.kind());
        let eager = config(Arc::clone(&model), AttentionKind::Eager);
        let (loss, moved) = step(&eager, device, &packed);
        (name, kind, loss, moved)
    });
    let losses: Vec<_> = losses.collect();
    let (_, first, loss, moved) = &losses[0];
    assert_eq!((*first, losses.len()), (DeviceKind::Cpu, 3));
    for (name, _, other, others) in &losses[1..] {
        assert!((loss - other).abs() < 1e-5, "{name}: a loss of {other}, the processor's {loss}");
        let off = relative_l2(others, moved);
        assert!(off < 1e-5, "{name}: gradients are off by {off:e}");
    }
}

#[test]
fn eager_attention_keeps_its_probabilities_unless_they_are_recomputed() {
    // So long that they are the largest.
    const SEQ_LEN: usize = 256;
    let model = ModelConfig { context: SEQ_LEN, ..settings(Family::Llama) };
    let (heads, model) = (model.heads, model.build(SEQ_LEN).expect("a model"));
    let peak = |attention, checkpoint| {
        let options = Options { checkpoint, ..Options::default() };
        let config = TrainerConfig { options, ..config(Arc::clone(&model), attention) };
        Planned::new(&config, &*cpu()).expect("a plan").plan.peak_bytes()
    };
    let layer = (4 * BATCH * heads * SEQ_LEN * SEQ_LEN) as u64;
    let more = |checkpoint: Checkpoint| {
        peak(AttentionKind::Eager, checkpoint.clone()) - peak(AttentionKind::Fused, checkpoint)
    };
    let (kept, recomputed) = (more(Checkpoint::None), more(Checkpoint::Block));
    // Both layers', one more while gradients are made, and masks.
    assert!((2 * layer..4 * layer).contains(&kept), "{kept} bytes more, a layer has {layer}");
    assert!(recomputed < kept, "{recomputed} bytes more, {kept} with all kept");
}

#[test]
fn memory_changes_no_bit_of_eager_attention() {
    let (tokens, targets) = (ids(7, VOCAB), ids(11, VOCAB));
    let batch = Batch::text(&tokens, &targets);
    for precision in [Precision::F32, Precision::BF16] {
        let model = ModelConfig { dropout: 0.2, ..settings(Family::Gpt2) };
        let model = model.build(SEQ_LEN).expect("a model");
        let base = TrainerConfig { precision, ..config(model, AttentionKind::Eager) };
        let kept = step(&base, cpu(), &batch);
        for checkpoint in [Checkpoint::Block, Checkpoint::Sqrt] {
            let options = Options { checkpoint, ..Options::default() };
            let other = step(&TrainerConfig { options, ..base.clone() }, cpu(), &batch);
            assert!(kept == other, "{precision:?}: recomputation changes numbers");
        }
    }
}

/// A mask that was made for all blocks at once would be sent to the host for each, as something that it begins with.
#[test]
fn no_mask_waits_on_the_host() {
    let transfers = |attention| {
        let offload = Offload { activations: true, ..Offload::NONE };
        let config =
            TrainerConfig { offload, ..config(Arc::new(language(Family::Gemma2)), attention) };
        let plan = Planned::new(&config, &*devices()[1]).expect("a plan").plan;
        let nodes = plan.graph.programs.iter().flat_map(|program| &program.nodes);
        nodes.filter(|node| node.op.transfer().is_some()).count()
    };
    let fused = transfers(AttentionKind::Fused);
    assert!(fused > 0 && transfers(AttentionKind::Eager) == fused);
}
