//! Training, generation and evaluation from outside: the built binary on tiny models.

mod archives;
mod best;
mod chats;
mod classifiers;
mod contexts;
mod distillation;
mod encoders;
mod epochs;
mod exports;
mod faults;
mod heldout;
mod images;
mod kernels;
mod lengths;
mod limits;
mod lora;
mod models;
mod narrow;
mod narrow_reading;
mod offload;
mod pipes;
mod plan_files;
mod preferences;
mod profiles;
mod quantized;
mod ranks;
mod refusals;
mod round_trips;
mod runs;
mod scores;
mod settings;
mod validation;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Words of a run of 12 steps that takes a moment.
const TINY: &str =
    "--layers 1 --channels 16 --heads 2 --context 16 --batch 4 --steps 12 --threads 1";

/// A command in `dir`.
fn command(dir: &Path, words: &str) -> Command {
    prepared(Command::new(env!("CARGO_BIN_EXE_tightrope")), dir, words)
}

/// As [`command`], of a process that ignores no signal, as what a script runs in the background does: these tests, too.
#[cfg(unix)]
fn heeding(dir: &Path, words: &str) -> Command {
    if !cfg!(target_os = "linux") {
        return command(dir, words);
    }
    let mut env = Command::new("env");
    env.args(["--default-signal=HUP,INT,TERM,USR1,XCPU", env!("CARGO_BIN_EXE_tightrope")]);
    prepared(env, dir, words)
}

fn prepared(mut command: Command, dir: &Path, words: &str) -> Command {
    command.args(words.split_whitespace()).current_dir(dir);
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    // Other tests do, and a processor that stands for a GPU compiles each kernel for seconds.
    command.env("TIGHTROPE_CHECK_KERNELS", "off");
    // No test asks a server of others.
    command.env("HF_HUB_OFFLINE", "1");
    command
}

fn run(dir: &Path, words: &str) -> Output {
    command(dir, words).output().unwrap()
}

/// A run that must end well.
fn ok(dir: &Path, words: &str) -> Output {
    let output = run(dir, words);
    assert!(output.status.success(), "`{words}`: {}", stderr(&output));
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The last line of stdout as JSON.
fn json(output: &Output) -> Value {
    let text = stdout(output);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A folder with `text.txt`.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text: String =
        (0..200).map(|n| format!("{n} and {} make {}\n", n + 1, 2 * n + 1)).collect();
    fs::write(dir.path().join("text.txt"), text).unwrap();
    dir
}

/// Exit code and message of a command that must fail. Where another command line would do, the message has a line of help.
fn refused(dir: &Path, words: &str) -> (i32, String) {
    let output = run(dir, words);
    let message = stderr(&output);
    assert!(!output.status.success(), "`{words}` succeeded: {}", stdout(&output));
    assert!(message.contains("error: "), "`{words}`: {message}");
    assert!(!message.contains("panicked"), "`{words}`: {message}");
    let code = output.status.code().unwrap();
    assert!(code == 1 || message.contains("\nhelp: "), "`{words}`: {message}");
    (code, message)
}

/// The lines of a run's metrics that have `key`: `loss` of steps, `heldout_loss` of evaluations.
fn metrics(run: &Path, key: &str) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line.get(key).is_some()).collect()
}
