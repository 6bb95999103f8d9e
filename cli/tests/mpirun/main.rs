//! `tightrope train` as several ranks over real MPI libraries. `cargo xtask mpi` installs both and runs these; `MPICH` and `OPEN_MPI` name
//! the folders.
#![cfg(target_os = "linux")]

mod cut_off;
mod faults;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::Value;

const TIGHTROPE: &str = env!("CARGO_BIN_EXE_tightrope");
const MPIS: [&str; 2] = ["MPICH", "OPEN_MPI"];

/// `tightrope train` as so many ranks, over the MPI of this name.
fn ranks(mpi: &str, count: usize, words: &[&str]) -> Command {
    described(started(mpi, count), words)
}

/// `tightrope train` as so many ranks, and no more of its words.
fn started(mpi: &str, count: usize) -> Command {
    let home = env::var_os(mpi).unwrap_or_else(|| panic!("{mpi} is set by cargo xtask mpi"));
    let mut command = Command::new(Path::new(&home).join("bin/mpirun"));
    if mpi == "OPEN_MPI" {
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    }
    command.args(["-n", &count.to_string(), TIGHTROPE, "train"]);
    command
}

/// `tightrope train` as one process.
fn alone(words: &[&str]) -> Command {
    let mut command = Command::new(TIGHTROPE);
    command.arg("train");
    described(command, words)
}

fn described(mut command: Command, words: &[&str]) -> Command {
    let run = ["--preset", "tiny", "--device", "cpu", "--batch", "12", "--threads", "1", "--json"];
    command.args(run).args(words).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that ends well says as JSON.
#[track_caller]
fn said(mut command: Command) -> Value {
    let Output { status, stdout, stderr } = command.output().expect("a program");
    assert!(status.success(), "{status}\n{}\n{}", text(&stdout), text(&stderr));
    let lines = text(&stdout);
    // One rank speaks, once.
    assert_eq!(lines.lines().count(), 1, "{lines}");
    serde_json::from_str(&lines).expect("JSON")
}

/// The tensors of a run's checkpoint.
fn weights(run: &Path, steps: u64) -> Vec<u8> {
    let path = run.join(format!("checkpoints/step-{steps}/model.safetensors"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn run(&self, name: &str) -> (PathBuf, String) {
        let path = self.0.path().join(name);
        let text = path.to_str().expect("UTF-8").to_owned();
        (path, text)
    }
}

#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn ranks_train_alike_over_every_mpi_and_go_on_with_any_number() {
    let folder = Folder::new();
    let mut first: Option<(Value, Vec<u8>)> = None;
    for mpi in MPIS {
        let (run, out) = folder.run(mpi);
        let words = ["--steps", "6", "--save-every", "3", "--set", "train.warmup=2", "--out", &out];
        let ended = said(ranks(mpi, 4, &words));
        let (loss, found) = (ended["last_loss"].clone(), weights(&run, 6));
        assert_eq!(ended["predicted_peak_bytes"], ended["measured_peak_bytes"]);
        told_of_every_rank(&run, &ended);
        match &first {
            None => first = Some((loss.clone(), found)),
            Some((of_first, weights)) => {
                assert_eq!((of_first, weights), (&loss, &found), "{mpi}");
            }
        }
        // From the middle on: with as many, with fewer, and alone.
        for (name, count) in [("four", 4), ("three", 3), ("one", 1)] {
            let from = run.join("checkpoints/step-3");
            let (run, out) = folder.run(&format!("{mpi}-{name}"));
            let words = ["--resume", from.to_str().expect("UTF-8"), "--out", &out];
            let command = if count == 1 { alone(&words) } else { ranks(mpi, count, &words) };
            let ended = said(command);
            if count == 4 {
                assert_eq!(ended["last_loss"], loss, "{mpi}");
                assert!(
                    Some(weights(&run, 6)) == first.as_ref().map(|(_, weights)| weights.clone())
                );
            }
            let near =
                ended["last_loss"].as_f64().expect("a loss") - loss.as_f64().expect("a loss");
            assert!(near.abs() < 1e-3, "{near} with {count}");
        }
    }
}

/// Holds that the run of four says how long each computed and waited: at its end, and with each logged step.
fn told_of_every_rank(run: &Path, ended: &Value) {
    let check = |ranks: &Value| {
        let ranks = ranks.as_array().expect("ranks");
        assert_eq!(ranks.len(), 4, "{ranks:?}");
        for times in ranks {
            let [step, waited] =
                ["step_s", "waited_s"].map(|key| times[key].as_f64().expect("seconds"));
            // All wait for each other before a step and in it.
            assert!(0.0 < waited && waited < step, "{times}");
        }
    };
    check(&ended["ranks"]);
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let lines: Vec<Value> =
        metrics.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let steps: Vec<&Value> = lines.iter().filter(|line| !line["loss"].is_null()).collect();
    assert!(!steps.is_empty(), "{metrics}");
    steps.into_iter().for_each(|line| check(&line["ranks"]));
}

/// GPUs that are emulated, linked by what stands for NCCL: processes that share memory.
#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn linked_gpus_train_with_the_bits_of_one_process() {
    let folder = Folder::new();
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
    fs::create_dir_all(&compiled).expect("a folder");
    let trained = |name: &str, mpi: Option<&str>, shard: &str, offload: &str| {
        let (run, out) = folder.run(name);
        let mut command = match mpi {
            Some(mpi) => started(mpi, 2),
            None => Command::new(TIGHTROPE),
        };
        if mpi.is_none() {
            command.arg("train");
        }
        command.args([
            "--preset",
            "tiny",
            "--device",
            "cuda",
            "--batch",
            "2",
            "--micro-batch",
            "1",
        ]);
        command.args(["--context", "16", "--set", "model.layers=1", "--threads", "1", "--json"]);
        command.args(["--gradient-sums", "ordered", "--shard", shard, "--steps", "2"]);
        if !offload.is_empty() {
            command.args(["--offload", offload]);
        }
        command.args(["--eval-every", "0", "--set", "data.holdout=0"]);
        command.args(["--out", &out]).stdin(Stdio::null());
        command.env("TIGHTROPE_EMULATED", "").env("TIGHTROPE_CHECK_KERNELS", "off");
        command.env("TMPDIR", &compiled);
        let Output { status, stdout, stderr } = command.output().expect("a program");
        let told = text(&stderr);
        assert!(status.success(), "{status}\n{}\n{told}", text(&stdout));
        let is_linked = told.contains("emulated NCCL 2.32.3 carries what ranks exchange");
        assert_eq!(is_linked, mpi.is_some(), "{told}");
        weights(&run, 2)
    };
    for offload in ["", "optimizer", "optimizer,gradients,activations,weights"] {
        let alone = trained(&format!("alone-{offload}"), None, "0", offload);
        for (mpi, shard) in [("MPICH", "2"), ("OPEN_MPI", "3")] {
            let found = trained(&format!("{mpi}-{offload}"), Some(mpi), shard, offload);
            assert!(found == alone, "{mpi}, --shard {shard}, --offload {offload}");
        }
    }
}

/// Whatever ranks hold shards of, they write the same checkpoint, and each takes less; another number of ranks goes on from it.
#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn shards_train_alike_and_take_less() {
    let folder = Folder::new();
    let mut first: Option<Vec<u8>> = None;
    let mut peaks = vec![];
    for (mpi, shard) in [(0, "0"), (0, "1"), (1, "1"), (1, "2"), (0, "3"), (1, "3")] {
        let mpi = MPIS[mpi];
        let (run, out) = folder.run(&format!("{mpi}-{shard}"));
        let words = ["--steps", "4", "--save-every", "2", "--shard", shard, "--out", &out];
        let ended = said(ranks(mpi, 4, &words));
        assert_eq!(ended["predicted_peak_bytes"], ended["measured_peak_bytes"], "shard {shard}");
        peaks.push((shard, ended["measured_peak_bytes"].as_u64().expect("bytes")));
        let found = weights(&run, 4);
        match &first {
            None => first = Some(found),
            Some(first) => assert!(*first == found, "shard {shard} over {mpi}"),
        }
    }
    peaks.dedup_by_key(|(shard, _)| *shard);
    let [none, state, gradients, weights_too] = [0, 1, 2, 3].map(|index: usize| peaks[index].1);
    assert!(state < none && gradients <= state && weights_too < gradients, "{peaks:?}");
    // A run of shards goes on in one process, and in others.
    let from = folder.run(&format!("{}-3", MPIS[0])).0.join("checkpoints/step-2");
    let from = from.to_str().expect("UTF-8");
    for count in [1, 2] {
        let (run, out) = folder.run(&format!("on-{count}"));
        let words = ["--resume", from, "--out", &out];
        let command = if count == 1 { alone(&words) } else { ranks(MPIS[0], count, &words) };
        let ended = said(command);
        assert!(ended["last_loss"].as_f64().expect("a loss").is_finite());
        assert!(!weights(&run, 4).is_empty());
    }
}

/// Ranks that have a part of each sequence train as one process does, but for the order of sums; and a run of theirs goes on in one.
#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn ranks_share_the_context_of_a_sequence() {
    let folder = Folder::new();
    let words = ["--steps", "4", "--save-every", "2", "--warmup", "1"];
    let (_, out) = folder.run("alone");
    let alone = said(alone(&[&words[..], &["--out", &out]].concat()));
    let loss = |ended: &Value| ended["last_loss"].as_f64().expect("a loss");
    let mut found = vec![];
    for (mpi, shard) in [(MPIS[0], "0"), (MPIS[1], "3")] {
        let (run, out) = folder.run(&format!("{mpi}-{shard}"));
        let shared = ["--context-ranks", "2", "--shard", shard, "--out", &out];
        let ended = said(ranks(mpi, 4, &[&words[..], &shared].concat()));
        assert_eq!(ended["predicted_peak_bytes"], ended["measured_peak_bytes"], "shard {shard}");
        let (found_loss, expected) = (loss(&ended), loss(&alone));
        assert!((found_loss - expected).abs() < 1e-4, "{found_loss}, and alone {expected}");
        found.push(weights(&run, 4));
    }
    assert!(found[0] == found[1], "shards change bits of ranks that share contexts");
    let from = folder.run(&format!("{}-3", MPIS[1])).0.join("checkpoints/step-2");
    let (_, out) = folder.run("on");
    let ended = said(self::alone(&["--resume", from.to_str().expect("UTF-8"), "--out", &out]));
    assert!((loss(&ended) - loss(&alone)).abs() < 1e-4, "{ended}");
}

/// Four ranks with a micro-batch each train as one process does that sums four in order, whatever they hold shards of: GPT-2 of 10.8M
/// parameters, and two blocks of the one of 124M. All stages with `TIGHTROPE_DRAW=all`.
#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn ranks_of_gpt2_have_the_bits_of_one_process() {
    let folder = Folder::new();
    let shapes: [&[&str]; 2] = [
        &["--preset", "shakespeare"],
        &["--preset", "gpt2", "--layers", "2", "--tokenizer", "gpt2", "--context", "64"],
    ];
    for (shape, model) in shapes.iter().enumerate() {
        let steps = ["--batch", "4", "--micro-batch", "1", "--steps", "3", "--warmup", "1"];
        let less = ["--set", "data.holdout=0.005"];
        let words = |more: [&'static str; 2]| [*model, &steps, &less, &more].concat();
        let (run, out) = folder.run(&format!("alone-{shape}"));
        let ordered = words(["--gradient-sums", "ordered"]);
        let alone = said(alone(&[&ordered[..], &["--out", &out]].concat()));
        let expected = weights(&run, 3);
        let day = faults::words().0;
        let drawn = faults::drawn(&day, 0, "shard", 4) as usize;
        // Of each model one stage a day, and not the same.
        let of_day = |stage: usize| (drawn + 2 * shape) % 4 == stage;
        for (stage, shard) in ["0", "1", "2", "3"].into_iter().enumerate() {
            if day != "all" && !of_day(stage) {
                continue;
            }
            let mpi = MPIS[stage % 2];
            let (run, out) = folder.run(&format!("{mpi}-{shard}-{shape}"));
            let cut = words(["--shard", shard]);
            let ended = said(ranks(mpi, 4, &[&cut[..], &["--out", &out]].concat()));
            let what = format!("{model:?}, shard {shard}, {mpi}");
            assert_eq!(ended["predicted_peak_bytes"], ended["measured_peak_bytes"], "{what}");
            assert_eq!(ended["last_loss"], alone["last_loss"], "{what}");
            assert!(weights(&run, 3) == expected, "{what}");
            fs::remove_dir_all(run).expect("a run's folder");
        }
    }
}

#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn ranks_with_other_settings_or_data_are_named() {
    let folder = Folder::new();
    for mpi in MPIS {
        let (_, out) = folder.run(mpi);
        // The third rank has another learning rate.
        let home = env::var_os(mpi).expect("cargo xtask mpi");
        let mut command = Command::new(Path::new(&home).join("bin/mpirun"));
        if mpi == "OPEN_MPI" {
            command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        }
        let train = [TIGHTROPE, "train", "--preset", "tiny", "--device", "cpu", "--batch", "12"];
        for (count, rate) in [("2", "1e-3"), ("1", "2e-3")] {
            if count == "1" {
                command.arg(":");
            }
            command.args(["-n", count]).args(train).args(["--lr", rate, "--out", &out]);
        }
        let output = command.stdin(Stdio::null()).output().expect("mpirun");
        let errors = text(&output.stderr);
        assert!(!output.status.success());
        assert!(errors.contains("rank 2") && errors.contains("train.lr"), "{mpi}: {errors}");
        assert!(!Path::new(&out).exists(), "a run that never began has a directory");
    }
}

#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn a_signal_to_one_rank_ends_all_with_a_checkpoint() {
    let folder = Folder::new();
    for mpi in MPIS {
        let (run, out) = folder.run(mpi);
        let mut command =
            ranks(mpi, 3, &["--steps", "1000000", "--save-every", "0", "--out", &out]);
        let mut started =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun");
        let since = Instant::now();
        // Steps are being made.
        while fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines().count() < 3
        {
            assert!(since.elapsed() < Duration::from_secs(60), "no step was made");
            thread::sleep(Duration::from_millis(50));
        }
        let last = processes(&out).pop().expect("ranks");
        let kill = Command::new("kill").args(["-TERM", &last.to_string()]).status();
        assert!(kill.expect("kill").success());
        let since = Instant::now();
        while started.try_wait().expect("a process").is_none() {
            assert!(since.elapsed() < Duration::from_secs(30), "ranks go on");
            thread::sleep(Duration::from_millis(50));
        }
        let output = started.wait_with_output().expect("a process");
        let names = fs::read_dir(run.join("checkpoints")).expect("checkpoints").flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let saved = names.filter(|name| name.starts_with("step-")).count();
        assert_eq!(saved, 1, "{}\n{}", text(&output.stdout), text(&output.stderr));
        assert!(text(&output.stderr).contains("its checkpoint is written"));
        assert!(processes(&out).is_empty());
    }
}

/// A rank that is killed: the launch starts all again, which go on to the bits of a run that nothing befell.
#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn a_launch_starts_ranks_again_where_one_is_lost() {
    let folder = Folder::new();
    for mpi in MPIS {
        let launched = |out: &str, more: &[&str]| {
            let home = env::var_os(mpi).expect("cargo xtask mpi");
            let mut path = Path::new(&home).join("bin").into_os_string();
            path.push(":");
            path.push(env::var_os("PATH").unwrap_or_default());
            let mut command = Command::new(TIGHTROPE);
            command.env("PATH", path).args(["launch", "-n", "2"]).args(more).arg("train");
            let run = ["--steps", "40", "--save-every", "5", "--log-every", "1", "--out", out];
            described(command, &run)
        };
        let (whole, out) = folder.run(&format!("{mpi}-whole"));
        said(launched(&out, &[]));
        let (run, out) = folder.run(mpi);
        let mut command = launched(&out, &["--restarts", "2"]);
        let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let started = started.expect("a launch");
        let since = Instant::now();
        while !run.join("checkpoints/step-5").exists() {
            assert!(since.elapsed() < Duration::from_secs(60), "no checkpoint");
            thread::sleep(Duration::from_millis(5));
        }
        let ranks = processes(&out).into_iter().filter(|pid| {
            // The launch itself has the word too.
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            !line.split(|byte| *byte == 0).any(|word| word == b"launch")
        });
        let last = ranks.max().expect("ranks").to_string();
        assert!(Command::new("kill").args(["-KILL", &last]).status().expect("kill").success());
        let output = started.wait_with_output().expect("a process");
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{mpi}: {errors}");
        assert!(errors.contains("starting again, 1 of 2 times"), "{mpi}: {errors}");
        assert!(weights(&run, 40) == weights(&whole, 40), "{mpi}: other weights");
    }
}

/// The ranks with this word on their command line.
fn processes(word: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("Linux").flatten();
    let found = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = line.split(|byte| *byte == 0);
        let own = words.next()? == TIGHTROPE.as_bytes();
        (own && words.any(|other| other == word.as_bytes())).then_some(pid)
    });
    let mut found: Vec<u32> = found.collect();
    found.sort_unstable();
    found
}
