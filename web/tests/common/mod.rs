//! An engine on the processor, and a setup that trains within seconds.

#![allow(dead_code, reason = "each test file uses a part")]

use std::rc::Rc;

use pollster::block_on;
use serde::Serialize;
use serde_json::Value;
use tightrope_web::device::{Armed, Choice, Devices};
use tightrope_web::engine::Engine;

/// An engine on the processor.
pub fn engine() -> Engine<Devices> {
    losable().0
}

/// An engine on the processor, and what makes it go away.
pub fn losable() -> (Engine<Devices>, Armed) {
    let armed = Armed::default();
    let devices = Devices::new(Choice::Cpu, false, Rc::clone(&armed));
    (block_on(Engine::open(devices, Rc::clone(&armed))).unwrap(), armed)
}

/// A tiny setup, with some values changed.
pub fn setup(changes: &[(&str, Value)]) -> String {
    let mut setup = serde_json::json!({
        "model": {
            "family": "gpt2", "layers": 2, "channels": 32, "heads": 2, "kv_heads": null,
            "hidden": 64, "context": 32, "vocab": null, "tied": true, "dropout": 0.1,
        },
        "train": {
            "batch": 8, "micro_batch": "auto", "steps": 80, "optimizer": "adamw", "lr": 5e-3,
            "min_lr": null, "warmup": null, "schedule": "cosine", "weight_decay": 0.1,
            "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1, "seed": 1337,
        },
        "lora": { "rank": 0 },
        "memory": {
            "budget": null, "recompute": "auto", "loss_chunk": "auto", "consume_gradients": false,
            "offload": [],
        },
        "data": { "kind": "built-in", "holdout": 0.1 },
        "run": { "precision": "f32" },
    });
    for (path, value) in changes {
        *setup.pointer_mut(path).unwrap() = value.clone();
    }
    setup.to_string()
}

/// The object that the page would get.
pub fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

/// Begins a run.
pub fn start(engine: &mut Engine<Devices>, setup: &str) -> Value {
    block_on(engine.start(setup, None, None)).unwrap()
}

/// The losses of this many steps.
pub fn train(engine: &mut Engine<Devices>, count: u64) -> Vec<f32> {
    let records = block_on(engine.step(count)).unwrap();
    records.iter().map(|record| record.loss).collect()
}
