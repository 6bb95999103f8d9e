//! The conformance cases as a module that a browser runs; `cargo xtask web --test` loads it. `cargo xtask planning --wasm`
//! has it plan.

#![cfg(target_arch = "wasm32")]

use conformance::cases;
use conformance::conformance::{Mode, run};
use conformance::draw::Draw;
use serde_json::json;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_wgpu::{Options, Wgpu};
use tightrope_core::{Backend, Graph, Node};
use tightrope_nn::{Free, Planner, Precision, Rates, TrainerConfig, preset};
use wasm_bindgen::prelude::*;

/// One of so many cases is drawn, with the limits that every adapter has.
const WITH_DEFAULT_LIMITS: usize = 6;
/// With the adapter's own limits, under which few kernels are others.
const WITH_OWN_LIMITS: usize = 12;

/// Cases on the browser's adapter: a part that the words `drawn_by` draw, or all where there are none. `unsupported` is the
/// checked-in list of what may have no kernel. Gives JSON: the device, the table of families, the cases that passed, and what is
/// wrong.
///
/// # Errors
/// Where the browser has no adapter.
#[wasm_bindgen]
pub async fn check(
    default_limits: bool,
    drawn_by: Option<String>,
    unsupported: String,
) -> Result<String, JsError> {
    let options = Options { default_limits, ..Options::default() };
    let mut backend = Wgpu::open(&options).await?;
    let (of, what) = match default_limits {
        true => (WITH_DEFAULT_LIMITS, "cases with default limits"),
        false => (WITH_OWN_LIMITS, "cases with the adapter's limits"),
    };
    let cases = Draw::by(drawn_by).one_of(of, what, cases::all());
    let report = run(&mut backend, &cases, Mode::Check).await;
    let tried = |line: &&str| {
        let name = line.split('#').next().unwrap_or_default().trim();
        report.lines.keys().any(|(family, dtype)| format!("{family} {dtype}") == name)
    };
    let unsupported: Vec<&str> = unsupported.lines().filter(tried).collect();
    let passed: usize = report.lines.values().map(|line| line.passed).sum();
    let result = json!({
        "device": backend.name(),
        "table": report.to_string(),
        "passed": passed,
        "problems": report.problems(&unsupported.join("\n")),
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
