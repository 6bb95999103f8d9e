//! The conformance cases as a module that a browser runs; `cargo xtask web --test` loads it. `cargo xtask planning --wasm`
//! has it plan.

#![cfg(target_arch = "wasm32")]

use conformance::cases;
use conformance::conformance::{Mode, run};
use serde_json::json;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_wgpu::{Options, Wgpu};
use tightrope_core::{Backend, Graph, Node};
use tightrope_nn::{Free, Planner, Precision, Rates, TrainerConfig, preset};
use wasm_bindgen::prelude::*;

/// Every case on the browser's adapter, with its own limits or with those that every adapter has. `unsupported`
/// is the checked-in list of what may have no kernel. Gives JSON: the device, the table of families, the cases
/// that passed, and what is wrong.
///
/// # Errors
/// Where the browser has no adapter.
#[wasm_bindgen]
pub async fn check(default_limits: bool, unsupported: String) -> Result<String, JsError> {
    let options = Options { default_limits, ..Options::default() };
    let mut backend = Wgpu::open(&options).await?;
    let report = run(&mut backend, &cases::all(), Mode::Check).await;
    let passed: usize = report.lines.values().map(|line| line.passed).sum();
    let result = json!({
        "device": backend.name(),
        "table": report.to_string(),
        "passed": passed,
        "problems": report.problems(&unsupported),
    });
    Ok(result.to_string())
}

/// Plans steps of so many sequences of the preset `model` for the processor, from the fastest plan to the smallest. How
/// many there are.
///
/// # Errors
/// Where there is no such preset or precision.
#[wasm_bindgen]
pub fn sweep(model: &str, batch: usize, precision: &str) -> Result<usize, JsError> {
    let precision: Precision = serde_json::from_value(json!(precision))?;
    let model = preset(model)?;
    let config = TrainerConfig {
        batch,
        micro_batch: batch,
        precision,
        decode: model.context,
        ..TrainerConfig::new(model.build(model.context)?)
    };
    let cpu = Cpu::new(1)?;
    let rates = Rates::of(&cpu.name(), precision, cpu.threads());
    let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
    let mut planner = Planner::new(&config, Free::ALL, &cpu, seconds)?;
    Ok(tightrope_nn::sweep(|budget| planner.within(budget))?.len())
}
