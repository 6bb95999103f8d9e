//! Checkpoints that are written while training goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tightrope::devices::Devices;
use tightrope::recipe::{Planned, Recipe};
use tightrope::settings::Settings;

/// A run of six steps in `dir` that saves after every other one, within `memory`.
fn planned(dir: &Path, memory: &str) -> Planned {
    let mut said = Settings::default();
    for words in [
        "model.preset=tiny",
        "train.steps=6",
        "train.batch=2",
        "run.save_every=2",
        "run.device=cpu",
        "run.threads=1",
        &format!("memory.budget={memory}"),
        &format!("run.out={}", dir.display()),
    ] {
        said.read_argument(words).unwrap();
    }
    let recipe = Recipe::new(&said).unwrap();
    let device = Devices::default().open(&recipe.step.device).unwrap();
    recipe.plan(device).unwrap()
}

/// Steps until the run ends, with its error.
fn train(planned: Planned, mut after: impl FnMut(u64)) -> tightrope::Result<()> {
    let mut devices = Devices::default();
    let (run, _) = planned.start(move |spec| devices.open(spec))?.begin()?;
    for stepped in run {
        after(stepped?.step);
    }
    Ok(())
}

/// Names and contents of the files of all checkpoints, without their manifests, which name the budget.
fn checkpoints(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let folders = fs::read_dir(dir.join("checkpoints")).unwrap().flatten();
    let files = folders.filter(|folder| folder.path().is_dir()).flat_map(|folder| {
        fs::read_dir(folder.path()).unwrap().flatten().map(move |file| {
            let name = format!("{:?}/{:?}", folder.file_name(), file.file_name());
            (name, fs::read(file.path()).unwrap())
        })
    });
    files.filter(|(name, _)| !name.contains("manifest")).collect()
}

#[test]
fn they_are_the_same_as_those_that_training_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let [beside, waiting] = ["beside", "waiting"].map(|name| dir.path().join(name));
    let plan = planned(&beside, "1GiB");
    let copy = plan.checkpoint_copy().expect("there is room");
    let peak = plan.step.plan.peak_bytes();
    train(plan, |_| ()).unwrap();
    let plan = planned(&waiting, &(peak + copy - 1).to_string());
    assert_eq!((plan.checkpoint_copy(), plan.step.plan.peak_bytes()), (None, peak));
    train(plan, |_| ()).unwrap();
    let (found, expected) = (checkpoints(&beside), checkpoints(&waiting));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected && found.len() >= 6, "{:?}", found.keys());
    let last = found.iter().filter(|(file, _)| file.contains("step-6"));
    let last: usize = last.map(|(_, bytes)| bytes.len()).sum();
    assert!(last as u64 >= copy, "{last} bytes hold the {copy} of the copy");
}

#[test]
fn what_keeps_one_from_being_written_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let ended = train(planned(&run, "1GiB"), |step| {
        if step == 1 {
            fs::write(run.join("checkpoints"), "in the way").unwrap();
        }
    });
    let said = format!("{:?}", ended.unwrap_err());
    assert!(said.contains("can't write the checkpoint of step 2"), "{said}");
}

#[test]
fn a_directory_that_is_gone_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let ended = train(planned(&run, "1GiB"), |step| {
        if step == 3 {
            fs::rename(&run, dir.path().join("moved")).unwrap();
        }
    });
    let said = format!("{:?}", ended.unwrap_err());
    assert!(said.contains("was moved or removed") && said.contains("run-rescued"), "{said}");
    // On a busy machine the checkpoint of step 2 isn't written yet when its place is gone.
    let rescued = |step: u64| {
        let checkpoint = format!("run-rescued/checkpoints/step-{step}/model.safetensors");
        dir.path().join(checkpoint).is_file()
    };
    assert!(rescued(2) || rescued(4), "{said}");
}
