//! `cargo xtask planning`: how long planning takes, on one core: a model of 48 layers within one budget, and all plans
//! from the fastest to the smallest. Times differ from run to run, so they are printed and held by no test.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::{built, object_of};

/// The model, and the sequences of an optimizer step: each number of them that divides these is planned for.
const MODEL: &str = "gpt2-xl";
const BATCHES: [&str; 3] = ["4", "8", "16"];
/// Runs of which the median counts.
const RUNS: usize = 10;

/// Measures and prints.
///
/// # Errors
/// Where `tightrope` can't be built, or fails.
pub fn run() -> anyhow::Result<bool> {
    let binary = built("release")?;
    for batch in BATCHES {
        measure(&binary, batch)?;
    }
    Ok(true)
}

/// Measures and prints for one batch.
fn measure(binary: &Path, batch: &str) -> anyhow::Result<()> {
    let mut sweeps = vec![];
    let mut budget = 0;
    for _ in 0..RUNS {
        let sweep = object_of(command(binary, batch).arg("--sweep"))?;
        sweeps.push(number(&sweep["sweep_s"])?);
        let plans = sweep["plans"].as_array().context("a sweep lists plans")?;
        // In the middle there's most to choose.
        let middle = plans.get(plans.len() / 2).context("a sweep has plans")?;
        budget = middle["peak_bytes"].as_u64().context("a plan has bytes")?;
    }
    let mut plans = vec![];
    for _ in 0..RUNS {
        let plan = object_of(command(binary, batch).args(["--memory", &format!("{budget}B")]))?;
        plans.push(number(&plan["plan_s"])?);
    }
    println!("{MODEL}, batch {batch}, one core, medians of {RUNS} runs");
    println!("within {budget} bytes  {:.3} s", median(plans));
    println!("every plan             {:.3} s", median(sweeps));
    Ok(())
}

/// `tightrope plan` of the model, on one core.
fn command(binary: &Path, batch: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "0"]).arg(binary).arg("plan");
    command.args(["--preset", MODEL, "--batch", batch]);
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
