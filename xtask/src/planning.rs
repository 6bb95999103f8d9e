//! `cargo xtask planning`: how long planning takes, on one core: a model of 48 layers within single budgets, and all plans
//! from the fastest to the smallest; with `--wasm`, the latter as WebAssembly. Times differ from run to run, so they are
//! printed and held by no test.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::shell::Shell;
use crate::{built, object_of, root, web};

/// The model, and the sequences of an optimizer step: each number of them that divides these is planned for.
const MODEL: &str = "gpt2-xl";
const BATCHES: [&str; 3] = ["4", "8", "16"];
const PRECISIONS: [&str; 2] = ["f32", "bf16"];
/// Single budgets that are planned for, in parts of a sweep's plans from the fastest to the smallest.
const PARTS: usize = 4;
/// Runs of which the median counts.
const RUNS: usize = 5;

/// Measures and prints.
///
/// # Errors
/// Where a tool is missing, `tightrope` can't be built, or fails.
pub fn run(options: &[String]) -> anyhow::Result<bool> {
    match options {
        [] => natively()?,
        [wasm] if wasm == "--wasm" => as_wasm()?,
        _ => bail!("usage: cargo xtask planning [--wasm]"),
    }
    Ok(true)
}

fn natively() -> anyhow::Result<()> {
    let binary = built("release")?;
    println!("{MODEL} on one core, medians of {RUNS} runs");
    println!("within a budget: of {} from the most bytes to the fewest", PARTS + 1);
    println!("bound: the most that a step of the sweep is predicted to take above its bound");
    println!("batch  precision  every plan  bound    within a budget");
    for precision in PRECISIONS {
        for batch in BATCHES {
            println!("{}", measured(&binary, batch, precision)?);
        }
    }
    Ok(())
}

/// A line of figures for one batch.
fn measured(binary: &Path, batch: &str, precision: &str) -> anyhow::Result<String> {
    let mut sweeps = vec![];
    let mut plans = vec![];
    for _ in 0..RUNS {
        let sweep = object_of(command(binary, batch, precision).arg("--sweep"))?;
        sweeps.push(number(&sweep["sweep_s"])?);
        plans = sweep["plans"].as_array().context("a sweep lists plans")?.clone();
    }
    let mut gap: f64 = 0.0;
    for plan in &plans {
        let bound = number(&plan["step_bound_s"])?;
        gap = gap.max(number(&plan["predicted_step_s"])? / bound - 1.0);
    }
    let gap = 100.0 * gap;
    let mut line = format!("{batch:<7}{precision:<11}{:>8.3} s  {gap:>4.2} %", median(sweeps));
    for part in 0..=PARTS {
        let place = part * plans.len().saturating_sub(1) / PARTS;
        let plan = plans.get(place).context("a sweep has plans")?;
        let budget = format!("{}B", plan["peak_bytes"]);
        let mut runs = vec![];
        for _ in 0..RUNS {
            let plan = object_of(command(binary, batch, precision).args(["--memory", &budget]))?;
            runs.push(number(&plan["plan_s"])?);
        }
        line += &format!("  {:.3} s", median(runs));
    }
    Ok(line)
}

/// Runs the sweeps as WebAssembly in Node.js, which has the JavaScript engine of Chromium.
fn as_wasm() -> anyhow::Result<()> {
    let module = web::conformance(&mut Shell::live())?;
    let script = root().join("tests").join("browser").join("planning.mjs");
    println!("{MODEL} as WebAssembly, medians of {RUNS} runs");
    println!("batch  precision  every plan");
    for precision in PRECISIONS {
        for batch in BATCHES {
            let mut node = Command::new("taskset");
            node.args(["--cpu-list", "0", "node"]).arg(&script).arg(&module);
            let runs = object_of(node.args([MODEL, batch, precision, &RUNS.to_string()]))?;
            let runs = runs.as_array().context("the script prints a list")?;
            let seconds = runs.iter().map(number).collect::<anyhow::Result<Vec<f64>>>()?;
            println!("{batch:<7}{precision:<11}{:>8.3} s", median(seconds));
        }
    }
    Ok(())
}

/// `tightrope plan` of the model, on one core.
fn command(binary: &Path, batch: &str, precision: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "0"]).arg(binary).arg("plan");
    command.args(["--preset", MODEL, "--batch", batch, "--precision", precision]);
    command.args(["--device", "cpu", "--json"]);
    command
}

fn number(value: &Value) -> anyhow::Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number of seconds"))
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    match seconds.len() % 2 {
        0 => f64::midpoint(seconds[middle - 1], seconds[middle]),
        _ => seconds[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
