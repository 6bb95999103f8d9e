//! Checkpoints that go from the page to the command line and back.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use serde_json::{Value, json};
use tempfile::tempdir;
use tightrope::block_on;
use tightrope::data::Checkpoint;
use tightrope_web::device::{Armed, Choice, Devices};
use tightrope_web::engine::Engine;

use super::{TINY, folder, json as object, ok, refused, stdout};

/// Steps of the runs, and those that the first half makes.
const STEPS: u64 = 12;
const HALF: u64 = 5;
/// Part of the data that is held out: little of it, since the command line scores it all in the end.
const HOLDOUT: f64 = 0.01;

fn engine() -> Engine<Devices> {
    let armed = Armed::default();
    let devices = Devices::new(Choice::Cpu, false, Rc::clone(&armed));
    block_on(Engine::open(devices, armed)).unwrap()
}

/// The page's setup of what [`TINY`] is on the command line.
fn setup(kind: &str) -> String {
    json!({
        "model": { "layers": 1, "channels": 16, "heads": 2, "context": 16 },
        "train": { "batch": 4, "steps": STEPS },
        "data": { "kind": kind, "holdout": HOLDOUT },
    })
    .to_string()
}

/// A checkpoint of the page's after `steps`.
fn saved(setup: &str, text: Option<Vec<u8>>, steps: u64) -> Vec<u8> {
    let mut engine = engine();
    block_on(engine.start(setup, text, None)).unwrap();
    block_on(engine.step(steps)).unwrap();
    block_on(engine.checkpoint()).unwrap()
}

/// What two checkpoints must share to be of one run: all tensors, the data's state, the schedule.
fn essence(checkpoint: &Checkpoint) -> Value {
    let manifest = &checkpoint.manifest;
    json!([
        manifest.step,
        manifest.tokens_seen,
        manifest.seed,
        manifest.data,
        manifest.schedule,
        manifest.model,
        manifest.checksums
    ])
}

fn essence_of(path: &Path) -> Value {
    essence(&Checkpoint::open(path).unwrap())
}

fn essence_in(archive: Vec<u8>) -> Value {
    essence(&Checkpoint::from_archive("page.tar", archive).unwrap())
}

#[test]
fn the_command_line_continues_what_the_page_began() {
    let dir = folder();
    fs::write(dir.path().join("page.tar"), saved(&setup("built-in"), None, HALF)).unwrap();
    let output = ok(dir.path(), "train --resume page.tar --out a --device cpu --json");
    assert_eq!(object(&output)["steps"], STEPS);
    let end = essence_in(saved(&setup("built-in"), None, STEPS));
    assert_eq!(essence_of(&dir.path().join(format!("a/checkpoints/step-{STEPS}"))), end);
    // The same from the unpacked archive, and the run it makes is one like any other.
    let unpacked = dir.path().join(format!("a/checkpoints/step-{HALF}"));
    assert!(unpacked.is_dir());
    fs::rename(unpacked, dir.path().join("unpacked")).unwrap();
    ok(dir.path(), "train --resume unpacked --out b --device cpu --steps 12");
    assert_eq!(essence_of(&dir.path().join(format!("b/checkpoints/step-{STEPS}"))), end);
    ok(dir.path(), "train --resume b --device cpu --steps 14");
    let (code, message) = refused(dir.path(), "train --resume page.tar --out a --device cpu");
    assert!(code == 2 && message.contains("already holds a run"), "{message}");
}

#[test]
fn the_page_continues_what_the_command_line_began() {
    let dir = folder();
    ok(
        dir.path(),
        &format!(
            "train --out a {TINY} --set data.holdout={HOLDOUT} --save-every {HALF} --device cpu \
             --precision tf32"
        ),
    );
    let end = essence_of(&dir.path().join(format!("a/checkpoints/step-{STEPS}")));
    for folder in [format!("a/checkpoints/step-{}", 2 * HALF), "a/checkpoints".to_owned()] {
        // With the files at the top, and within a folder.
        let name =
            if folder.ends_with("checkpoints") { format!("step-{}", 2 * HALF) } else { ".".into() };
        let packed = Command::new("tar")
            .args(["-cf", "x.tar", "-C", &folder, &name])
            .current_dir(dir.path())
            .status();
        assert!(packed.unwrap().success());
        let archive = fs::read(dir.path().join("x.tar")).unwrap();
        let mut engine = engine();
        let setup = engine.setup_of(archive.clone()).unwrap();
        assert_eq!(
            (&setup["data"]["kind"], &setup["train"]["batch"]),
            (&json!("built-in"), &json!(4))
        );
        assert_eq!(setup["run"]["precision"], "f32", "tf32 is stored as f32");
        let started = block_on(engine.start(&setup.to_string(), None, Some(archive))).unwrap();
        assert_eq!(started["step"], 2 * HALF);
        block_on(engine.step(STEPS)).unwrap();
        assert_eq!(essence_in(block_on(engine.checkpoint()).unwrap()), end);
    }
}

#[test]
fn a_text_of_the_pages_goes_along() {
    let dir = folder();
    let text = fs::read(dir.path().join("text.txt")).unwrap();
    fs::write(dir.path().join("page.tar"), saved(&setup("text"), Some(text.clone()), HALF))
        .unwrap();
    fs::remove_file(dir.path().join("text.txt")).unwrap();
    let generated = ok(dir.path(), "generate page.tar --prompt 12 --max-tokens 8 --device cpu");
    assert!(stdout(&generated).starts_with("12"));
    let evaluated = ok(dir.path(), "eval page.tar --device cpu --json");
    assert_eq!(
        object(&evaluated)["tokens"],
        text.len() - (text.len() as f64 * (1.0 - HOLDOUT)) as usize - 1
    );
    ok(dir.path(), "train --resume page.tar --out a --device cpu");
    assert_eq!(fs::read(dir.path().join("a/data/text.txt")).unwrap(), text);
    ok(dir.path(), "train --resume a --device cpu --steps 14");
    let last = Checkpoint::open(dir.path().join(format!("a/checkpoints/step-{STEPS}"))).unwrap();
    let whole = Checkpoint::from_archive("x", saved(&setup("text"), Some(text), STEPS)).unwrap();
    let tensors = |checkpoint: &Checkpoint| {
        let mut sums = checkpoint.manifest.checksums.clone();
        // The page's checkpoint brings its text along; a run keeps it beside its checkpoints.
        sums.retain(|name, _| !name.starts_with("data-"));
        sums
    };
    assert_eq!(tensors(&last), tensors(&whole));
}

#[test]
fn a_task_of_the_pages_stays_there_and_its_weights_can_leave() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("page.tar"), saved(&setup("reverse"), None, HALF)).unwrap();
    for words in ["train --resume page.tar --out a --device cpu", "eval page.tar --device cpu"] {
        let (code, message) = refused(dir.path(), words);
        assert!(code == 2 && message.contains("the task `reverse`"), "{message}");
    }
    assert!(!dir.path().join("a").exists());
    ok(dir.path(), "generate page.tar --prompt abcdef> --max-tokens 6 --device cpu");
    ok(dir.path(), "train --init page.tar --steps 2 --batch 2 --out b --device cpu");
}

#[test]
fn archives_that_are_none_are_refused() {
    let dir = folder();
    let whole = saved(&setup("built-in"), None, 1);
    fs::write(dir.path().join("cut.tar"), &whole[..whole.len() / 2]).unwrap();
    let mut flipped = whole.clone();
    flipped[2000] ^= 1;
    fs::write(dir.path().join("flipped.tar"), flipped).unwrap();
    for file in ["cut.tar", "flipped.tar", "text.txt"] {
        for words in ["train --device cpu --resume", "generate", "eval"] {
            let (code, message) = refused(dir.path(), &format!("{words} {file}"));
            assert!(code != 0 && message.contains(file), "{message}");
        }
    }
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn both_sides_mean_the_same_by_what_they_leave_out() {
    let dir = folder();
    ok(dir.path(), &format!("train --out a --steps 1 --set data.holdout={HOLDOUT} --device cpu"));
    let native = Checkpoint::open(dir.path().join("a/checkpoints/step-1")).unwrap();
    let setup = json!({ "train": { "steps": 1 }, "data": { "holdout": HOLDOUT } }).to_string();
    let page = Checkpoint::from_archive("page.tar", saved(&setup, None, 1)).unwrap();
    let mut settings = native.manifest.settings.clone();
    settings["run"]["device"] = json!("auto");
    assert_eq!(page.manifest.settings, settings);
    assert_eq!(essence(&page), essence(&native));
}
