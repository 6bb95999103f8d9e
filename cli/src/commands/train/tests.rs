use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Parser as _;
use serde_json::Value;
use tightrope::block_on;
use tightrope::data::checkpoint;
use tightrope::rates::Source;
use tightrope_web::device::{Armed, Choice, Devices as Losable, Moment, Opener as _};

use super::*;
use crate::args::{Cli, Command};

const STEPS: u64 = 20;

/// A run of a model small enough for thousands of steps a second: 20 steps of 2 micro-batches, with
/// dropout, over a text of some epochs. It's asked to end at its question number `stop`: it asks between
/// ops and within them, in training, evaluations and samples.
fn run(dir: &Path, words: &str, stop: Option<usize>) -> Result<(), Failure> {
    run_counted(dir, words, stop, &Arc::default())
}

/// As [`run`], with how often it has asked.
fn run_counted(
    dir: &Path,
    words: &str,
    stop: Option<usize>,
    asked: &Arc<AtomicUsize>,
) -> Result<(), Failure> {
    let asked = Arc::clone(asked);
    let cancel = Cancel::when(move || {
        let before = asked.fetch_add(1, Ordering::SeqCst);
        stop.is_some_and(|stop| before >= stop)
    });
    let mut devices = Devices::default();
    run_on(dir, words, &mut |spec| devices.open(spec), cancel)
}

fn run_on(dir: &Path, words: &str, open: Open<'_>, cancel: Cancel) -> Result<(), Failure> {
    let text = dir.join("text.txt");
    if !text.exists() {
        let lines: String = (0..60).map(|n| format!("{n} squared is {}\n", n * n)).collect();
        fs::write(&text, lines).unwrap();
    }
    let (out, text) = (dir.join("run"), text.display().to_string());
    let line = format!(
        "tightrope train --layers 1 --channels 16 --heads 2 --context 8 --batch 4 --micro-batch 2 \
         --steps {STEPS} --lr 1e-2 --set model.dropout=0.1 --data {text} --eval-every 7 \
         --save-every 6 --json {words} {}",
        out.display()
    );
    let Command::Train(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else {
        unreachable!()
    };
    let rates = |device: &mut dyn Backend, precision, threads| Known {
        rates: Rates::of(&device.name(), precision, threads),
        source: Source::Default,
        links: None,
    };
    let progress = |steps, _| Progress::silent(steps);
    train(
        &args,
        World {
            open,
            rates: &rates,
            compare: &|_, _, _, _| None,
            listen: &|| Ok(()),
            cancel,
            progress: &progress,
            out: &mut io::sink(),
            together: None,
        },
    )
}

/// What metrics say of `what`, in their order.
fn recorded(dir: &Path, what: &str) -> Vec<Value> {
    let metrics = fs::read_to_string(dir.join("run/metrics.jsonl")).unwrap();
    let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|mut line| line.get_mut(what).map(Value::take)).collect()
}

/// The losses of the steps that were logged.
fn losses(dir: &Path) -> Vec<Value> {
    recorded(dir, "loss")
}

/// The files of the last checkpoint and their bytes.
fn last_checkpoint(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = dir.join(format!("run/checkpoints/step-{STEPS}"));
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files
        .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
        .collect()
}

/// Stops a run at moments all along it, up to its last evaluation, goes on, and compares the last checkpoints.
fn interrupted_runs_end_alike(words: &str) {
    /// Moments that are tried.
    const MOMENTS: usize = 23;
    let (whole, asked) = (tempfile::tempdir().unwrap(), Arc::default());
    run_counted(whole.path(), &format!("{words} --out"), None, &asked).unwrap();
    let asked = asked.load(Ordering::SeqCst);
    let expected = last_checkpoint(whole.path());
    let evaluations = recorded(whole.path(), "heldout_loss");
    assert_eq!(evaluations.len(), 3, "after steps 7, 14 and 20");
    assert!(expected.len() >= 4, "{:?}", expected.keys());
    let mut stopped_at = BTreeSet::new();
    for moment in (0..MOMENTS).map(|index| index * (asked - 2) / (MOMENTS - 1)) {
        let dir = tempfile::tempdir().unwrap();
        let stopped = run(dir.path(), &format!("{words} --out"), Some(moment));
        assert!(matches!(stopped, Err(Failure::Interrupted)), "{moment}: {stopped:?}");
        let newest = checkpoint::latest_complete(dir.path().join("run")).unwrap().0;
        stopped_at.insert(newest.manifest.step);
        run(dir.path(), &format!("{words} --resume"), None).unwrap();
        let found = last_checkpoint(dir.path());
        for (name, bytes) in &expected {
            assert!(found[name] == *bytes, "{name} differs after a stop at moment {moment}");
        }
        assert_eq!(found.len(), expected.len());
        assert_eq!(losses(dir.path()).len(), 3, "steps 1, 10 and 20");
        assert_eq!(recorded(dir.path(), "heldout_loss"), evaluations, "stopped at moment {moment}");
    }
    assert!(stopped_at.len() > 5 && stopped_at.contains(&STEPS), "{stopped_at:?}");
}

#[test]
fn stopped_anywhere_and_resumed_a_run_ends_with_the_same_bytes() {
    interrupted_runs_end_alike("");
}

#[test]
fn so_does_one_of_f16_with_its_loss_scale() {
    interrupted_runs_end_alike("--precision f16 --optimizer lion");
}

#[test]
fn and_one_of_bf16() {
    interrupted_runs_end_alike("--precision bf16 --family llama --kv-heads 1 --optimizer sgd");
}

#[test]
fn and_one_that_keeps_its_best_checkpoint_and_counts_evaluations() {
    interrupted_runs_end_alike("--keep 1 --keep-best --patience 9");
}

#[test]
fn another_seed_gives_other_weights() {
    let [a, b] = [1, 2].map(|seed| {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), &format!("--seed {seed} --out"), None).unwrap();
        last_checkpoint(dir.path()).remove("model.safetensors").unwrap()
    });
    assert!(a != b);
}

#[test]
fn what_a_run_cannot_change_on_the_way_is_refused() {
    let (dir, whole, asked) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Arc::default());
    run_counted(whole.path(), "--out", None, &asked).unwrap();
    let stopped = run(dir.path(), "--out", Some(asked.load(Ordering::SeqCst) / 2));
    assert!(matches!(stopped, Err(Failure::Interrupted)));
    for (words, complaint) in [
        ("--seed 3", "`train.seed` was 1337"),
        ("--layers 2", "`model.layers` is 2, and the model"),
        ("--optimizer lion", "exp_avg_sq"),
        ("--set data.holdout=0.2", "`data.holdout` was 0.1"),
        ("--steps 2 --warmup 1", "more than `train.steps` = 2"),
    ] {
        let failure = run(dir.path(), &format!("{words} --resume"), None).unwrap_err();
        let Failure::Engine(error) = failure else { unreachable!() };
        let message = format!("{error}: {}", error.causes().join(": "));
        assert!(message.contains(complaint), "{words}: {message}");
    }
    fs::write(dir.path().join("text.txt"), "something else\n".repeat(99)).unwrap();
    let failure = run(dir.path(), "--resume", None).unwrap_err();
    assert_eq!(failure.code(), 2);
    let Failure::Engine(error) = failure else { unreachable!() };
    assert!(error.message().contains("the data was"), "{error}");
}

/// A run on a GPU that goes away at `moment`: its losses, its last checkpoint, and how many devices it took.
fn lost_at(moment: Option<Moment>) -> (Vec<Value>, BTreeMap<String, Vec<u8>>, u32) {
    /// The question whether to end at which the device goes away: in the middle of the run.
    const LOST: usize = 60;
    thread_local! {
        /// The run asks on the thread that it's on.
        static ARMED: Armed = Armed::default();
    }
    let armed = ARMED.with(Rc::clone);
    armed.set(None);
    let opened = Cell::new(0);
    let gpus = Losable::new(Choice::WebGpu, false, Rc::clone(&armed));
    let mut open = |_: &Spec| {
        opened.set(opened.get() + 1);
        Ok(block_on(gpus.open()).expect("an adapter: install mesa-vulkan-drivers").0)
    };
    let dir = tempfile::tempdir().unwrap();
    let asked = AtomicUsize::new(0);
    // While a checkpoint is written, its tensors are read: the run is stopped, and writes one.
    let saves = moment == Some(Moment::Save);
    let cancel = Cancel::when(move || {
        let asked = asked.fetch_add(1, Ordering::SeqCst);
        if asked == LOST {
            ARMED.with(|armed| armed.set(if saves { Some(Moment::Readback) } else { moment }));
        }
        saves && asked >= LOST
    });
    if moment == Some(Moment::Compile) {
        armed.set(moment);
    }
    let words = "--set run.log_every=1 --out";
    let ended = run_on(dir.path(), words, &mut open, cancel);
    assert!(ended.is_ok() || (saves && matches!(ended, Err(Failure::Interrupted))), "{ended:?}");
    let devices = opened.get();
    if saves {
        let words = "--set run.log_every=1 --resume";
        run_on(dir.path(), words, &mut open, Cancel::default()).unwrap();
    }
    assert!(moment == Some(Moment::Compile) || armed.get().is_none(), "{moment:?} never came");
    (losses(dir.path()), last_checkpoint(dir.path()), devices)
}

#[test]
fn a_gpu_lost_at_any_moment_changes_no_bit() {
    let (losses, checkpoint, devices) = lost_at(None);
    assert_eq!((losses.len(), devices), (STEPS as usize, 1));
    let check = |&(name, moment): &(&str, Moment)| {
        let disturbed = lost_at(Some(moment));
        assert_eq!(disturbed.0, losses, "losses, lost at {name}");
        assert!(disturbed.1 == checkpoint, "checkpoint, lost at {name}");
        // Nothing compiles while a run is under way: this one is lost at the beginning.
        assert_eq!(disturbed.2, 2, "lost at {name}");
    };
    let (some, others) = Moment::ALL.split_at(Moment::ALL.len() / 2);
    thread::scope(|scope| {
        scope.spawn(|| some.iter().for_each(check));
        others.iter().for_each(check);
    });
}
