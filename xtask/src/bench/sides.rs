//! The sides of the comparison: where their programs are, what they're told, and what they say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::{Case, Options, text_of};
use crate::{built, cargo, executable, root};

pub const THREADS: &str = "2";
/// Steps before the timed ones.
pub const WARMUP: usize = 3;
const LR: &str = "3e-4";

/// Sequences in the data for each that is read: they are drawn anywhere in it, and none should be met twice.
const SPARE: usize = 64;

/// Runs PyTorch's script with one batch for all steps, which it has no flag for.
const FIXED_BATCH: &str = "\
import runpy, sys, torch
draw = torch.randint
torch.randint = lambda low, high, size: draw(low, high, (1, *size[1:])).expand(size)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
";

/// Who trains, in one of the ways that its library offers.
pub struct Side {
    /// The library.
    pub library: &'static str,
    /// Its compiler or backend.
    pub way: &'static str,
    program: PathBuf,
    devices: &'static [&'static str],
}

/// What a side trains on.
#[derive(Clone, Copy, PartialEq)]
pub enum Batches {
    /// Random tokens, others in each step.
    Fresh,
    /// The same sequence in each step, alone in its batch, so that the loss must fall.
    Fixed,
}

/// What one run of a side tells.
#[derive(Clone, Debug)]
pub struct Figures {
    pub tokens_per_s: f64,
    pub resident_bytes: f64,
    pub first_loss: f64,
    pub last_loss: f64,
    /// The library's version.
    pub version: String,
}

/// The sides that are here, Tightrope first, and what is said of the others.
///
/// # Errors
/// When a program doesn't build.
pub fn found(options: &Options) -> anyhow::Result<(Vec<Side>, Vec<String>)> {
    let side = |library, way, program: &Path, devices| Side {
        library,
        way,
        program: program.to_owned(),
        devices,
    };
    let own = match std::env::var_os("TIGHTROPE") {
        Some(binary) => PathBuf::from(binary),
        None => built("release")?,
    };
    let mut sides = vec![side("tightrope", "", &own, &["cpu", "wgpu"])];
    let mut absent = vec![];
    let asked = |device: &str| options.cases.iter().any(|case| case.device == device);
    let compared = |library: &str| options.libraries.iter().any(|name| name == library);
    if compared("pytorch") && asked("cpu") {
        if options.peer.is_file() && text_of(&mut python(&["-c", "import torch"])).is_ok() {
            for compile in ["none", "default"] {
                sides.push(side("pytorch", compile, &options.peer, &["cpu"]));
            }
        } else {
            absent.push(format!(
                "PyTorch isn't run: needs {} and a python3 that imports torch (pip install torch==2.11.0)",
                options.peer.display()
            ));
        }
    }
    if !compared("burn") && !compared("candle") {
        return Ok((sides, absent));
    }
    if !options.rust_peers.join("Cargo.toml").is_file() {
        absent.push(format!(
            "Burn and candle aren't run: needs the workspace {}",
            options.rust_peers.display()
        ));
        return Ok((sides, absent));
    }
    if compared("burn") {
        // What no case asks for isn't built: the backend for WebGPU takes longest.
        let backends = [("cpu", "flex"), ("wgpu", "wgpu")];
        let backends = backends.into_iter().filter(|(device, _)| asked(device));
        let features: Vec<&str> = backends.map(|(_, feature)| feature).collect();
        let burn = rust_peer(&options.rust_peers, "burn-gpt", &features)?;
        sides.push(side("burn", "flex", &burn, &["cpu"]));
        sides.push(side("burn", "wgpu", &burn, &["wgpu"]));
    }
    if compared("candle") && asked("cpu") {
        let candle = rust_peer(&options.rust_peers, "candle-gpt", &[])?;
        sides.push(side("candle", "cpu", &candle, &["cpu"]));
    }
    Ok((sides, absent))
}

/// Builds a program in Burn or candle for this processor, into a folder of its own, and gives its path.
fn rust_peer(workspace: &Path, package: &str, features: &[&str]) -> anyhow::Result<PathBuf> {
    let mut features = features.to_vec();
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        features.push("x86-v4");
    }
    let mut command = cargo();
    command
        .args(["build", "--release", "--locked", "--package", package])
        .args(["--no-default-features", "--features", &features.join(",")])
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", root().join("target-peers"))
        .env("RUSTFLAGS", "-C target-cpu=native");
    executable(&mut command).with_context(|| format!("{package} in {}", workspace.display()))
}

impl Side {
    #[cfg(test)]
    pub fn of(library: &'static str) -> Self {
        Self { library, way: "", program: PathBuf::new(), devices: &[] }
    }

    pub fn name(&self) -> String {
        format!("{} {}", self.library, self.way).trim_end().to_owned()
    }

    pub fn is_tightrope(&self) -> bool {
        self.library == "tightrope"
    }

    pub fn runs_on(&self, device: &str) -> bool {
        self.devices.contains(&device)
    }

    /// Trains, `steps` behind those that warm up.
    ///
    /// # Errors
    /// When it fails, or says something else than its figures.
    pub fn train(
        &self,
        case: &Case,
        batches: Batches,
        steps: usize,
        scratch: &Path,
    ) -> anyhow::Result<Figures> {
        let mut command = match self.library {
            "tightrope" => self.tightrope(case, batches, steps, scratch)?,
            "pytorch" => self.pytorch(case, batches, steps),
            _ => self.rust(case, batches, steps),
        };
        let resident = if self.is_tightrope() { "resident_peak_bytes" } else { "peak_resident" };
        // Which cargo sets for the tests: the driver of the processor would leave shaders as they are.
        command.env_remove("GALLIVM_PERF");
        figures(&text_of(&mut command)?, resident).with_context(|| self.name())
    }

    fn tightrope(
        &self,
        case: &Case,
        batches: Batches,
        steps: usize,
        scratch: &Path,
    ) -> anyhow::Result<Command> {
        let model = case.model;
        let steps = WARMUP + steps;
        let sequences = if batches == Batches::Fixed { 1 } else { SPARE * steps * model.batch };
        let data = scratch.join("tokens.bin");
        fs::write(&data, shard(sequences * (model.seq_len + 1), model.vocab))
            .context("can't write tokens")?;
        let out = scratch.join("run");
        let batch = batches.sequences(case).to_string();
        let mut command = Command::new(&self.program);
        command.args(["train", "--json", "--quiet", "--preset", model.name]);
        command.args(["--context", &model.seq_len.to_string()]);
        command.args(["--batch", &batch, "--micro-batch", &batch, "--steps", &steps.to_string()]);
        command.args(["--device", case.device, "--precision", case.precision]);
        command.args(["--threads", THREADS, "--lr", LR, "--min-lr", LR, "--warmup", "0"]);
        command.args(["--set", "train.beta2=0.95", "--set", "data.holdout=0"]);
        command.args(["--set", &format!("model.vocab={}", model.vocab)]);
        command.arg("--data").arg(data).arg("--out").arg(&out);
        if out.exists() {
            fs::remove_dir_all(&out).context("can't remove the run before")?;
        }
        Ok(command)
    }

    fn pytorch(&self, case: &Case, batches: Batches, steps: usize) -> Command {
        let mut command = match batches {
            Batches::Fresh => python(&[]),
            Batches::Fixed => python(&["-c", FIXED_BATCH]),
        };
        command.arg(&self.program).args(shared_words(case, batches, steps));
        let precision = if case.precision == "f32" { "fp32" } else { case.precision };
        command.args(["--device", case.device, "--compile", self.way, "--precision", precision]);
        command
    }

    fn rust(&self, case: &Case, batches: Batches, steps: usize) -> Command {
        let data = if batches == Batches::Fixed { "fixed" } else { "fresh" };
        let mut command = Command::new(&self.program);
        command.args(shared_words(case, batches, steps));
        command.args(["--backend", self.way, "--precision", case.precision, "--data", data]);
        command
    }
}

impl Batches {
    /// Sequences of a batch.
    fn sequences(self, case: &Case) -> usize {
        if self == Self::Fixed { 1 } else { case.model.batch }
    }
}

/// What all peers are told in the same words.
fn shared_words(case: &Case, batches: Batches, steps: usize) -> Vec<String> {
    let model = case.model;
    let numbers = [
        ("--layers", model.layers),
        ("--channels", model.channels),
        ("--heads", model.heads),
        ("--vocab", model.vocab),
        ("--batch", batches.sequences(case)),
        ("--seq", model.seq_len),
        ("--warmup", WARMUP),
        ("--steps", steps),
    ];
    let mut words = vec!["--threads".to_owned(), THREADS.to_owned()];
    for (flag, number) in numbers {
        words.extend([flag.to_owned(), number.to_string()]);
    }
    words
}

/// A token shard of random ids below `vocab`: those that the peers in Rust draw, by splitmix64 from 1.
fn shard(tokens: usize, vocab: usize) -> Vec<u8> {
    /// Magic, version, and the 253 words behind the count.
    const HEADER: [u32; 2] = [20_240_520, 1];
    const REST: usize = 253;
    let mut bytes = vec![];
    for word in [HEADER[0], HEADER[1], tokens as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.resize(bytes.len() + REST * size_of::<u32>(), 0);
    let mut state: u64 = 1;
    for _ in 0..tokens {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let id = (mixed ^ (mixed >> 31)) % vocab as u64;
        bytes.extend((id as u16).to_le_bytes());
    }
    bytes
}

/// The figures in the last line of a run's output, one JSON object.
fn figures(output: &str, resident: &str) -> anyhow::Result<Figures> {
    let last = output.lines().last().context("the run printed nothing")?;
    let object: Value = serde_json::from_str(last).context("the run's last line isn't JSON")?;
    let number = |key: &str| {
        object[key].as_f64().with_context(|| format!("the run printed no number `{key}`"))
    };
    Ok(Figures {
        tokens_per_s: number("tokens_per_s")?,
        resident_bytes: number(resident)?,
        first_loss: number("first_loss")?,
        last_loss: number("last_loss")?,
        version: object["version"].as_str().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

fn python(words: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_last_line() {
        let output = "loading\n{\"tokens_per_s\": 5.5, \"peak_resident\": 7, \"first_loss\": 3, \"last_loss\": 2.5}\n";
        let found = figures(output, "peak_resident").expect("figures");
        assert_eq!((found.tokens_per_s, found.resident_bytes), (5.5, 7.0));
        assert_eq!((found.first_loss, found.last_loss), (3.0, 2.5));
        assert!(figures(output, "resident_peak_bytes").is_err());
        // A loss that isn't finite is null.
        assert!(figures(&output.replace("2.5}", "null}"), "peak_resident").is_err());
    }

    #[test]
    fn shards_hold_what_the_peers_draw() {
        let bytes = shard(3, 50_257);
        assert_eq!(bytes.len(), 256 * 4 + 3 * 2);
        let ids: Vec<u16> = bytes[1024..]
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        // The first numbers of splitmix64 from 1.
        let drawn: [u64; 3] = [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67, 0xf893_a2ee_fb32_555e];
        assert_eq!(ids, drawn.map(|number| (number % 50_257) as u16));
    }
}
