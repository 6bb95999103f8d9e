//! `cargo xtask bench`: side by side with PyTorch, Burn and candle on this machine, in turn, and the results as a file.
//!
//! Everybody trains GPT-2 as published by AdamW with clipping, on two threads, with the programs of `../shared/peers`.
//! Two sizes of it: that of the preset `shakespeare`, and GPT-2 of 124M.

mod comparison;
mod sides;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use crate::root;
use comparison::compare;

/// What to compare, from the command line.
struct Options {
    /// PyTorch's script.
    peer: PathBuf,
    /// The workspace of the programs in Burn and candle.
    rust_peers: PathBuf,
    /// Runs of each side.
    runs: usize,
    /// Timed steps of each run.
    steps: usize,
    /// Whom to compare with.
    libraries: Vec<String>,
    cases: Vec<Case>,
}

/// A model, named as its preset, and the batch of a step.
struct Model {
    name: &'static str,
    layers: usize,
    channels: usize,
    heads: usize,
    vocab: usize,
    batch: usize,
    seq_len: usize,
}

/// One comparison.
#[derive(Clone, Copy)]
struct Case {
    model: &'static Model,
    device: &'static str,
    /// As Tightrope names it.
    precision: &'static str,
}

const MODELS: [Model; 2] = [
    Model {
        name: "shakespeare",
        layers: 6,
        channels: 384,
        heads: 6,
        vocab: 256,
        batch: 16,
        seq_len: 256,
    },
    Model {
        name: "gpt2",
        layers: 12,
        channels: 768,
        heads: 12,
        vocab: 50_257,
        batch: 1,
        seq_len: 512,
    },
];
const LIBRARIES: [&str; 3] = ["pytorch", "burn", "candle"];
/// Devices and precisions.
const ARITHMETIC: [(&str, &str); 3] = [("cpu", "f32"), ("cpu", "bf16"), ("wgpu", "f32")];

impl Options {
    fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            peer: root().join("../shared/peers/pytorch.py"),
            rust_peers: root().join("../shared/peers/rust"),
            runs: 3,
            steps: 10,
            libraries: vec![],
            cases: vec![],
        };
        let (mut models, mut devices, mut precisions) = (vec![], vec![], vec![]);
        let known = |flag: &str, value: &str| match flag {
            "--model" => MODELS.iter().any(|model| model.name == value),
            "--device" => ARITHMETIC.iter().any(|&(device, _)| device == value),
            "--precision" => ARITHMETIC.iter().any(|&(_, precision)| precision == value),
            _ => false,
        };
        let mut words = words.iter();
        while let Some(flag) = words.next() {
            let value = words.next().with_context(|| format!("{flag} takes a value"))?;
            match flag.as_str() {
                "--peer" => options.peer = value.into(),
                "--rust-peers" => options.rust_peers = value.into(),
                "--runs" => options.runs = value.parse().context("--runs takes a number")?,
                "--steps" => options.steps = value.parse().context("--steps takes a number")?,
                "--library" if LIBRARIES.contains(&value.as_str()) => {
                    options.libraries.push(value.clone());
                }
                "--model" if known(flag, value) => models.push(value.as_str()),
                "--device" if known(flag, value) => devices.push(value.as_str()),
                "--precision" if known(flag, value) => precisions.push(value.as_str()),
                _ => bail!("unknown option {flag} {value}; see `cargo xtask help`"),
            }
        }
        if options.runs == 0 || options.steps == 0 {
            bail!("--runs and --steps must be at least 1");
        }
        if options.libraries.is_empty() {
            options.libraries = LIBRARIES.map(str::to_owned).to_vec();
        }
        let asked = |given: &[&str], name: &str| given.is_empty() || given.contains(&name);
        for model in MODELS.iter().filter(|model| asked(&models, model.name)) {
            for (device, precision) in ARITHMETIC {
                if asked(&devices, device) && asked(&precisions, precision) {
                    options.cases.push(Case { model, device, precision });
                }
            }
        }
        if options.cases.is_empty() {
            bail!("on wgpu, f32 alone is compared: name --device cpu, or --precision f32");
        }
        Ok(options)
    }
}

/// Runs the comparisons and writes them into `bench/results/peers-DATE.json`; `false` where a side is absent.
///
/// # Errors
/// When a side fails, its output can't be read, or its losses don't fall as the others'.
pub fn run(words: &[String]) -> anyhow::Result<bool> {
    let options = Options::parse(words)?;
    let (sides, absent) = sides::found(&options)?;
    for missing in &absent {
        println!("{missing}");
    }
    let scratch = std::env::temp_dir().join(format!("tightrope-bench-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).context("can't make a folder for the runs")?;
    let done = options.cases.iter().try_for_each(|case| {
        match compare(&options, case, &sides, &scratch)? {
            Some(row) => write(&options, row),
            None => Ok(()),
        }
    });
    std::fs::remove_dir_all(&scratch).context("can't remove the folder of the runs")?;
    done?;
    Ok(absent.is_empty())
}

/// Puts a case's row into the day's file, in the place of an earlier one.
fn write(options: &Options, mut row: Value) -> anyhow::Result<()> {
    let date = text_of(Command::new("date").arg("+%F"))?.trim().to_owned();
    let folder = root().join("bench").join("results");
    let path = folder.join(format!("peers-{date}.json"));
    let mut result = match std::fs::read_to_string(&path) {
        Ok(text) => {
            serde_json::from_str(&text).with_context(|| format!("can't read {}", path.display()))?
        }
        Err(_) => json!({"cpu": cpu(), "date": date, "threads": sides::THREADS, "rows": []}),
    };
    let of_case = |row: &Value| ["model", "device", "precision"].map(|key| row[key].clone());
    row["runs"] = options.runs.into();
    row["steps"] = options.steps.into();
    let rows = result["rows"].as_array_mut().context("the day's file has no list of rows")?;
    rows.retain(|other| of_case(other) != of_case(&row));
    rows.push(row);
    std::fs::create_dir_all(&folder).context("can't make bench/results")?;
    std::fs::write(&path, serde_json::to_string_pretty(&result)? + "\n")
        .with_context(|| format!("can't write {}", path.display()))?;
    println!("  written to {}", path.display());
    Ok(())
}

/// What a command prints.
fn text_of(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("can't start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(anyhow!("{command:?} failed: {}", said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> anyhow::Result<Options> {
        Options::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn unknown_options_are_refused() {
        for words in [
            "--precision f64",
            "--model gpt3",
            "--device cuda",
            "--library jax",
            "--runs 0",
            "--runs",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        assert_eq!(parse("--runs 2").expect("options").runs, 2);
    }

    #[test]
    fn options_choose_among_the_cases() {
        let cases = |words: &str| {
            let options = parse(words).expect("options");
            let name =
                |case: &Case| format!("{} {} {}", case.model.name, case.device, case.precision);
            options.cases.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(cases("").len(), MODELS.len() * ARITHMETIC.len());
        assert_eq!(cases("--model gpt2 --precision f32"), ["gpt2 cpu f32", "gpt2 wgpu f32"]);
        assert_eq!(cases("--device wgpu"), ["shakespeare wgpu f32", "gpt2 wgpu f32"]);
        assert!(parse("--device wgpu --precision bf16").is_err());
    }
}
