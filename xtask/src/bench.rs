//! `cargo xtask bench`: side by side with PyTorch on this machine, in turn, and the results as a file.
//!
//! The model is the one of `../shared/peers/pytorch.py`: GPT-2 as published with 6 layers of 384 channels and
//! 6 heads, byte vocabulary, 16 sequences of 256 tokens a step, AdamW with clipping, two threads.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use crate::root;

/// What to compare, from the command line.
struct Options {
    /// The script of the other side.
    peer: PathBuf,
    /// Runs of each side.
    runs: usize,
    /// Timed steps of each run.
    steps: usize,
    /// Precisions, as Tightrope names them.
    precisions: Vec<String>,
}

/// Ways PyTorch is run: without and with its compiler.
const COMPILE: [&str; 2] = ["none", "default"];
/// Steps before the timed ones.
const WARMUP: usize = 3;
const THREADS: &str = "2";

/// One run of either side.
#[derive(Clone, Copy)]
struct Figures {
    tokens_per_s: f64,
    resident_bytes: f64,
}

impl Options {
    fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            peer: root().join("../shared/peers/pytorch.py"),
            runs: 3,
            steps: 10,
            precisions: vec![],
        };
        let mut words = words.iter();
        while let Some(flag) = words.next() {
            let value = words.next().with_context(|| format!("{flag} takes a value"))?;
            match flag.as_str() {
                "--peer" => options.peer = value.into(),
                "--runs" => options.runs = value.parse().context("--runs takes a number")?,
                "--steps" => options.steps = value.parse().context("--steps takes a number")?,
                "--precision" if ["f32", "bf16"].contains(&value.as_str()) => {
                    options.precisions.push(value.clone());
                }
                _ => bail!("unknown option {flag} {value}; see `cargo xtask help`"),
            }
        }
        if options.precisions.is_empty() {
            options.precisions = vec!["f32".into(), "bf16".into()];
        }
        if options.runs == 0 || options.steps == 0 {
            bail!("--runs and --steps must be at least 1");
        }
        Ok(options)
    }
}

/// Runs the comparison and writes `bench/results/cpu-DATE.json`; `false` where the other side is absent.
///
/// # Errors
/// When either side fails or its output can't be read.
pub fn run(words: &[String]) -> anyhow::Result<bool> {
    let options = Options::parse(words)?;
    if !options.peer.is_file() || python(&["-c", "import torch"]).is_err() {
        println!(
            "not run: needs {} and a python3 that imports torch (pip install torch==2.11.0)",
            options.peer.display()
        );
        return Ok(false);
    }
    let scratch = std::env::temp_dir().join(format!("tightrope-bench-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).context("can't make a folder for the runs")?;
    let compared =
        options.precisions.iter().map(|precision| compare(&options, precision, &scratch));
    let rows: anyhow::Result<Vec<Value>> = compared.collect();
    std::fs::remove_dir_all(&scratch).context("can't remove the folder of the runs")?;
    let date = text_of(Command::new("date").arg("+%F"))?.trim().to_owned();
    let result = json!({
        "command": format!("cargo xtask bench --runs {} --steps {}", options.runs, options.steps),
        "cpu": cpu(),
        "date": date,
        "model": "GPT-2, 6 layers x 384 channels x 6 heads, vocabulary 256, 16 x 256 tokens a step",
        "rows": rows?,
        "threads": THREADS,
        "torch": python(&["-c", "import torch; print(torch.__version__)"])?.trim(),
    });
    let path = root().join("bench/results").join(format!("cpu-{date}.json"));
    std::fs::create_dir_all(root().join("bench/results")).context("can't make bench/results")?;
    std::fs::write(&path, serde_json::to_string_pretty(&result)? + "\n")
        .with_context(|| format!("can't write {}", path.display()))?;
    println!("written to {}", path.display());
    Ok(true)
}

/// All runs of one precision, the sides taking turns so that a slow minute hits both.
fn compare(options: &Options, precision: &str, scratch: &Path) -> anyhow::Result<Value> {
    let (mut own, mut peers) = (vec![], vec![vec![]; COMPILE.len()]);
    for turn in 0..options.runs {
        let out = scratch.join(format!("{precision}-{turn}"));
        own.push(tightrope(options, precision, &out)?);
        for (runs, compile) in peers.iter_mut().zip(COMPILE) {
            runs.push(pytorch(options, precision, compile)?);
        }
    }
    let own = median(&own);
    let peers: Vec<Figures> = peers.iter().map(|runs| median(runs)).collect();
    let fastest = peers.iter().map(|peer| peer.tokens_per_s).fold(0.0, f64::max);
    let smallest = peers.iter().map(|peer| peer.resident_bytes).fold(f64::INFINITY, f64::min);
    let speed = own.tokens_per_s / fastest;
    let memory = own.resident_bytes / smallest;
    println!("{precision}: medians of {} runs in turn", options.runs);
    let line = |name: &str, figures: &Figures| {
        let mebibytes = figures.resident_bytes / f64::from(1 << 20);
        println!(
            "  {name:<22} {:>7.0} tokens/s {mebibytes:>6.0} MiB resident",
            figures.tokens_per_s
        );
    };
    line("tightrope", &own);
    for (peer, compile) in peers.iter().zip(COMPILE) {
        line(&format!("pytorch, compile {compile}"), peer);
    }
    println!("  {speed:.2} x the faster one's speed, {memory:.2} x the smaller one's memory");
    let as_json = |figures: &Figures| json!({"tokens_per_s": figures.tokens_per_s, "resident_bytes": figures.resident_bytes});
    let peers: serde_json::Map<String, Value> =
        COMPILE.iter().zip(&peers).map(|(name, peer)| ((*name).into(), as_json(peer))).collect();
    Ok(json!({
        "precision": precision,
        "tightrope": as_json(&own),
        "pytorch_by_compile": peers,
        "speed_ratio": speed,
        "memory_ratio": memory,
    }))
}

fn tightrope(options: &Options, precision: &str, out: &Path) -> anyhow::Result<Figures> {
    let steps = (WARMUP + options.steps).to_string();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "tightrope",
        "--",
        "train",
        "--json",
    ]);
    command.args(["--preset", "shakespeare", "--batch", "16", "--micro-batch", "16"]);
    command.args(["--device", "cpu", "--precision", precision, "--threads", THREADS]);
    command.args(["--steps", &steps]);
    command.args(["--set", "data.holdout=0.01", "--out"]).arg(out);
    figures(&text_of(&mut command)?, "resident_peak_bytes")
}

fn pytorch(options: &Options, precision: &str, compile: &str) -> anyhow::Result<Figures> {
    let peer = options.peer.to_str().context("the path of the peer isn't text")?;
    let precision = if precision == "f32" { "fp32" } else { precision };
    let (steps, warmup) = (options.steps.to_string(), WARMUP.to_string());
    let output = python(&[
        peer,
        "--device",
        "cpu",
        "--layers",
        "6",
        "--channels",
        "384",
        "--heads",
        "6",
        "--vocab",
        "256",
        "--batch",
        "16",
        "--seq",
        "256",
        "--threads",
        THREADS,
        "--steps",
        &steps,
        "--warmup",
        &warmup,
        "--precision",
        precision,
        "--compile",
        compile,
    ])?;
    figures(&output, "peak_resident")
}

/// The figures in the last line of a run's output, one JSON object.
fn figures(output: &str, resident: &str) -> anyhow::Result<Figures> {
    let last = output.lines().last().context("the run printed nothing")?;
    let object: Value = serde_json::from_str(last).context("the run's last line isn't JSON")?;
    let number = |key: &str| {
        object[key].as_f64().with_context(|| format!("the run printed no number `{key}`"))
    };
    Ok(Figures { tokens_per_s: number("tokens_per_s")?, resident_bytes: number(resident)? })
}

fn median(runs: &[Figures]) -> Figures {
    let of = |field: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        }
    };
    Figures {
        tokens_per_s: of(|run| run.tokens_per_s),
        resident_bytes: of(|run| run.resident_bytes),
    }
}

fn python(words: &[&str]) -> anyhow::Result<String> {
    text_of(Command::new("python3").args(words))
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

    #[test]
    fn medians_are_taken_field_by_field() {
        let run = |tokens_per_s, resident_bytes| Figures { tokens_per_s, resident_bytes };
        let odd = median(&[run(3.0, 10.0), run(1.0, 30.0), run(2.0, 20.0)]);
        assert_eq!((odd.tokens_per_s, odd.resident_bytes), (2.0, 20.0));
        let even = median(&[run(1.0, 4.0), run(2.0, 2.0)]);
        assert_eq!((even.tokens_per_s, even.resident_bytes), (1.5, 3.0));
    }

    #[test]
    fn figures_come_from_the_last_line() {
        let output = "loading\n{\"tokens_per_s\": 5.5, \"peak_resident\": 7}\n";
        let found = figures(output, "peak_resident").expect("figures");
        assert_eq!((found.tokens_per_s, found.resident_bytes), (5.5, 7.0));
        assert!(figures(output, "resident_peak_bytes").is_err());
    }

    #[test]
    fn unknown_options_are_refused() {
        let parse = |words: &[&str]| {
            Options::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert!(parse(&["--precision", "f64"]).is_err());
        assert!(parse(&["--runs", "0"]).is_err());
        assert_eq!(parse(&["--runs", "2"]).expect("options").runs, 2);
    }
}
