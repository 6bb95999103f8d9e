//! Steps of f16 that are skipped, and what is told of them.

use std::fs;
use std::path::Path;

use tightrope::devices::Devices;
use tightrope::recipe::Recipe;
use tightrope::settings::Settings;

/// A run whose first step takes its weights so far that f16 can't hold what the next ones compute: what it told, and its files.
fn train(dir: &Path, detect: bool, accumulated: bool) -> (Vec<String>, Vec<Vec<u8>>) {
    let mut said = Settings::default();
    for words in [
        "model.preset=tiny",
        "train.steps=4",
        "train.batch=4",
        &format!("train.micro_batch={}", if accumulated { 2 } else { 4 }),
        "train.lr=5000",
        "train.warmup=0",
        "run.precision=f16",
        "run.device=cpu",
        "run.threads=1",
        "memory.budget=1GiB",
        &format!("run.detect_anomaly={detect}"),
        &format!("run.out={}", dir.display()),
    ] {
        said.read_argument(words).unwrap();
    }
    let recipe = Recipe::new(&said).unwrap();
    let mut devices = Devices::default();
    let device = devices.open(&recipe.step.device).unwrap();
    let started = recipe.plan(device).unwrap().start(move |spec| devices.open(spec)).unwrap();
    let (run, _) = started.begin().unwrap();
    let notes = run.flat_map(|stepped| stepped.unwrap().notes).collect();
    let step = dir.join("checkpoints/step-4");
    let files = ["model.safetensors", "optimizer.safetensors", "manifest.json"];
    (notes, files.map(|name| fs::read(step.join(name)).unwrap()).to_vec())
}

#[test]
fn each_skipped_step_names_its_op_and_no_number_changes() {
    for accumulated in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (silent, expected) = train(&dir.path().join("silent"), false, accumulated);
        let (notes, found) = train(&dir.path().join("told"), true, accumulated);
        assert!(silent.is_empty(), "{silent:?}");
        assert!(!notes.is_empty(), "no step was skipped");
        for note in &notes {
            let told = note.contains("is skipped: the first output that isn't finite is `");
            assert!(told && note.contains(" of op "), "{note}");
        }
        assert!(found == expected, "a step that was looked at changed the run");
    }
}
