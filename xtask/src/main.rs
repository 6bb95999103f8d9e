//! Developer tasks of the workspace: `cargo xtask test`, `cooperative`, `emulated`, `kernels`, `gpu`, `mpi`,
//! `instructions`, `only`, `oracle`, `bench`, `npm`, `picture`, `planning`, `python`, `stranger`, `timed`, `torture`, `web` and `widget`.

mod bench;
mod cargo;
mod checks;
mod counts;
mod gpu;
mod highs;
mod instructions;
mod mesa;
mod mpi;
mod npm;
mod nvidia;
mod packages;
mod picture;
mod planning;
mod python;
mod shell;
mod system;
mod torture;
mod web;
mod wheels;
mod widget;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};

use crate::cargo::cargo;
use crate::shell::{Draw, command_line};

const USAGE: &str = "\
usage: cargo xtask TASK

  test      format, lints, documentation and every test; the last line counts them
              --all                    all cases of tests that try a part of them, drawn by the date
  cooperative
            matmuls by cooperative matrices, on a Vulkan driver that has them
  only NAME …
            the stages of `test` with these names
  python    the package for Python, installed under target/ and tested
              --all                    as a wheel, which other days than one of seven do without
  notebooks the same, and a part of the course's notebooks executed there
              --all                    all of them
  npm       the package for npm, built, packed and run with its examples in Chromium
  emulated  CUDA's kernels and their driver, on a GPU that is emulated
  kernels   every CUDA kernel through NVIDIA's compilers, held against backend-cuda/kernels.tsv
  mpi       several processes over MPICH and Open MPI, some of which are killed or stopped
  gpu       bench/gpu.sh rehearsed: every stage on an emulated device, with faults and without
              --all                    every kind of fault in every stage
  instructions
            training by each instruction set that the processor has a wider one than, files drawn by the date
              --all                    all files
  oracle    plans held against the optimum that HiGHS finds
  timed     tests that measure how long planning takes, and whether ops take as long as predicted, alone on the machine
  stranger  a crate outside the workspace that trains models of its own
  bench     side by side with PyTorch, Burn and candle, into bench/results/; with a binary that is built already
            where TIGHTROPE names one
              --peer FILE              PyTorch's script (../shared/peers/pytorch.py)
              --rust-peers DIR         the workspace of Burn's and candle's (../shared/peers/rust)
              --runs N                 runs of each side, which take turns (3)
              --steps N                measured steps of a run (10)
              --model shakespeare|gpt2
                                       only this one; may be repeated, as the next three
              --device cpu|wgpu
              --precision f32|bf16
              --library pytorch|burn|candle
  picture   docs/scale.svg, one step on more and more GPUs, drawn as the planner predicts it now
  planning  seconds that planning takes on one core, of 48 layers
              --wasm                   as WebAssembly
  torture   kills, faults, lost power and flipped bits, and whether runs survive them
              --minutes N              time for all of it (2)
              --seed S                 what it's drawn by (the day)
              --only SCENARIO          the scenarios whose names begin so
              --case N                 one case of it, again
  web       the engine as WebAssembly and the page, into web/page/dist
              --serve [PORT]           and serve it (8080)
              --test                   and run the tests of both in Chromium
  widget    the module that notebooks load, into python/tightrope/static
              --test                   holds it against its sources, and tests it in JupyterLab
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first().map(|(task, rest)| (task.as_str(), rest)) {
        Some(("test", [])) => checks::run_all(Draw::Part),
        Some(("test", [all])) if all == "--all" => checks::run_all(Draw::All),
        Some(("cooperative", [])) => checks::run_only(&[checks::COOPERATIVE], Draw::Files),
        Some(("python", [])) => checks::run_only(&checks::PACKAGE_FOR_PYTHON, Draw::Files),
        Some(("python", [all])) if all == "--all" => {
            checks::run_only(&checks::PACKAGE_FOR_PYTHON, Draw::All)
        }
        Some(("notebooks", [])) => checks::run_only(&checks::COURSE, Draw::Files),
        Some(("notebooks", [all])) if all == "--all" => {
            checks::run_only(&checks::COURSE, Draw::All)
        }
        Some(("npm", [])) => checks::run_only(&checks::WITH_NPM, Draw::Files),
        Some(("emulated", [])) => checks::run_only(&[checks::EMULATED], Draw::Files),
        Some(("kernels", [])) => checks::run_only(&[checks::KERNELS], Draw::Files),
        Some(("mpi", [])) => checks::run_only(&[checks::MPI], Draw::Files),
        Some(("gpu", [])) => checks::run_only(&checks::ON_A_GPU, Draw::Files),
        Some(("gpu", [all])) if all == "--all" => checks::run_only(&checks::ON_A_GPU, Draw::All),
        Some(("instructions", [])) => checks::run_only(&checks::NARROWER, Draw::Files),
        Some(("instructions", [all])) if all == "--all" => {
            checks::run_only(&checks::NARROWER, Draw::All)
        }
        Some(("oracle", [])) => checks::run_only(&[checks::ORACLE], Draw::Files),
        Some(("only", [_, ..])) => checks::run_named(&words[1..]),
        Some(("timed", [])) => checks::run_only(&checks::IN_TIME, Draw::Files),
        Some(("stranger", [])) => checks::run_only(&[checks::STRANGER], Draw::Files),
        Some(("bench", options)) => bench::run(options),
        Some(("picture", [])) => picture::run(),
        Some(("planning", options)) => planning::run(options),
        Some(("torture", options)) => torture::run(options),
        Some(("widget", [])) => widget::run(),
        Some(("widget", [test])) if test == "--test" => {
            checks::run_only(&checks::WIDGETS, Draw::Files)
        }
        Some(("web", [test])) if test == "--test" => checks::run_only(&checks::WEB, Draw::Files),
        Some(("web", options)) => web::run(options),
        Some(("help" | "--help", _)) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// Builds `tightrope` in a profile and gives its path.
fn built(profile: &str) -> anyhow::Result<PathBuf> {
    let words = ["build", "--profile", profile, "--locked", "--package", "tightrope-cli"];
    executable(cargo().args(words).current_dir(root()))
}

/// Runs a build of cargo's and gives the path of its last binary.
fn executable(build: &mut Command) -> anyhow::Result<PathBuf> {
    let output = build
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("can't start cargo")?;
    ensure!(output.status.success(), "{} failed", command_line(build));
    // Cargo says where the binary is, wherever the target directory may be.
    let messages = String::from_utf8_lossy(&output.stdout);
    let path = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    path.with_context(|| format!("{} makes no binary", command_line(build)))
}

/// Runs a command and reads the last line of its stdout as an object.
fn object_of(command: &mut Command) -> anyhow::Result<serde_json::Value> {
    let shown = command_line(command);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("can't start {shown}"))?;
    ensure!(output.status.success(), "{shown} failed with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("{shown} printed no JSON: {line}"))
}
