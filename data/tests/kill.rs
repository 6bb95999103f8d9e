//! Checkpoints when the process dies, or the disk refuses, at any moment.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tightrope_core::{DType, Type};
use tightrope_data::checkpoint::{self, FORMAT, latest_complete};
use tightrope_data::{Checkpoint, Contents, DataState, Manifest, Result, Tensor};

/// Set for the child: the run folder it saves to.
const SAVES_TO: &str = "TIGHTROPE_TEST_SAVES_TO";
const KILLS: u32 = 250;
const ELEMENTS: usize = 4096;

fn save(root: &Path, step: u64) -> Result<()> {
    let bytes: Vec<u8> = (0..ELEMENTS).flat_map(|i| element(step, i).to_le_bytes()).collect();
    let ty = Type::new(DType::F32, [ELEMENTS]);
    let manifest = Manifest {
        format: FORMAT,
        step,
        tokens_seen: step,
        seed: 1,
        data: DataState::new(step, &[], "byte", 0.0),
        schedule: Value::Null,
        settings: Value::Null,
        model: Value::Null,
        base: None,
        teacher: None,
        evaluations: None,
        checksums: BTreeMap::new(),
    };
    let contents = Contents {
        model: vec![Tensor::new("w", ty.clone(), &bytes)],
        optimizer: vec![Tensor::new("w.m", ty, &bytes)],
        extra: vec![("config.json".into(), b"{}".to_vec())],
    };
    checkpoint::save(root, manifest, contents, 2).map(drop)
}

fn element(step: u64, index: usize) -> f32 {
    (step * 7 + index as u64) as f32
}

fn check(checkpoint: &Checkpoint) {
    let values = checkpoint.model.get("w").unwrap().to_f32().unwrap();
    let step = checkpoint.manifest.step;
    assert!(values.iter().enumerate().all(|(i, &value)| value == element(step, i)));
}

/// What is in the checkpoints folder, but for the lock.
fn names(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".lock").collect()
}

fn child(root: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "saving_child"]).env(SAVES_TO, root);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Nothing by itself; as the child of the tests below, saves until it is killed or fails.
#[test]
fn saving_child() {
    let Some(root) = env::var_os(SAVES_TO) else { return };
    let root = Path::new(&root);
    // Every third step is saved twice: replacing has moments of its own.
    let mut step = latest_complete(root).map_or(0, |(checkpoint, _)| checkpoint.manifest.step);
    loop {
        step += 1;
        save(root, step).unwrap();
        if step.is_multiple_of(3) {
            save(root, step).unwrap();
        }
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_complete_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    save(root, 1).unwrap();
    // Follows the machine's speed, so that about half of the children get to save.
    let mut span = 20e-3;
    let mut last = 1;
    let mut advanced = 0;
    for kill in 0..KILLS {
        let mut saver = child(root).spawn().unwrap();
        // The golden ratio spreads moments evenly.
        let delay = (f64::from(kill) * 0.618_033_988_749_895).fract() * span;
        thread::sleep(Duration::from_secs_f64(delay));
        saver.kill().unwrap();
        saver.wait().unwrap();

        let (checkpoint, skipped) = latest_complete(root).unwrap();
        assert!(skipped.is_empty(), "kill {kill}: {skipped:?}");
        let step = checkpoint.manifest.step;
        assert!(step >= last, "kill {kill}: step {step} after {last}");
        check(&checkpoint);
        span *= if step > last { 0.9 } else { 1.1 };
        advanced += u32::from(step > last);
        last = step;
    }
    assert!(advanced > KILLS / 10, "only {advanced} of {KILLS} children saved anything");
    save(root, last + 1).unwrap();
    let names = names(root);
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("step-")), "{names:?}");
}

/// A file-size limit of 8 or 16 KiB (shells count differently) makes the kernel refuse a write half-way, as a full disk does.
#[test]
fn a_refused_write_leaves_the_earlier_checkpoint_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    save(root, 1).unwrap();
    let exe = env::current_exe().unwrap();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact saving_child"])
        .arg(exe)
        .env(SAVES_TO, root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success() && status.code().is_some(), "{status}");
    let (checkpoint, skipped) = latest_complete(root).unwrap();
    assert!(skipped.is_empty());
    assert_eq!(checkpoint.manifest.step, 1);
    check(&checkpoint);
    assert_eq!(names(root), ["step-1"]);
}
