//! Kernels that are checked before their first use, on an emulated device on which some go wrong.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;
use tightrope::core::DeviceKind;

use crate::{command, folder, json, stderr, stdout};

/// A step in bf16 with matmuls and attention on tensor cores, on the device that follows.
const STEP: &str = "train --data text.txt --layers 1 --channels 64 --heads 1 --context 64 --batch 2 \
                    --steps 2 --threads 1 --precision bf16 --json --device";

const NEW: &str = "weren't seen on it before";
const RIGHT: &str = "agree with the references";

/// A user's folders.
struct User {
    dir: TempDir,
}

impl User {
    /// Of whom rates are kept: measuring them on an emulated device takes minutes.
    fn new() -> (Self, Value) {
        let user = Self { dir: folder() };
        let output = user.run("", &format!("{STEP} cpu"));
        assert!(output.status.success(), "{}", stderr(&output));
        let caches = user.dir.path().join("caches/tightrope");
        for file in fs::read_dir(&caches).unwrap().map(|entry| entry.unwrap().path()) {
            let mut kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let device = kept["device"].as_str().unwrap().to_owned();
            let (_, model) = device.split_once(" in ").unwrap();
            kept["device"] = format!("cuda (emulated) in {model}").into();
            kept["kernels"] = tightrope::rates::kernels(DeviceKind::Cuda).into();
            // They stay, whatever the tests beside took of the processor.
            for rates in kept["by_precision"].as_object_mut().unwrap().values_mut() {
                rates["trust"] = "again".into();
            }
            let debug = if cfg!(debug_assertions) { "-debug" } else { "" };
            let name = format!("rates-cuda-emulated{debug}.json");
            fs::write(caches.join(name), kept.to_string()).unwrap();
        }
        (user, json(&output))
    }

    fn run(&self, emulated: &str, words: &str) -> Output {
        self.run_with("TIGHTROPE_EMULATED", emulated, words)
    }

    /// The same on wgpu, with shaders that go wrong.
    fn run_on_wgpu(&self, faults: &str, words: &str) -> Output {
        self.run_with("TIGHTROPE_FAULTY_SHADERS", faults, words)
    }

    fn run_with(&self, variable: &str, faults: &str, words: &str) -> Output {
        let dir = self.dir.path();
        let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
        fs::create_dir_all(&compiled).unwrap();
        let mut command = command(dir, words);
        command.env("XDG_CACHE_HOME", dir.join("caches")).env("TMPDIR", compiled);
        command.env(variable, faults).env_remove("TIGHTROPE_CHECK_KERNELS");
        command.output().unwrap()
    }

    /// What a step says on a device like this, and what came of it.
    fn trains(&self, emulated: &str, device: &str) -> (String, Value) {
        let output = self.run(emulated, &format!("{STEP} {device}"));
        assert!(output.status.success(), "{}", stderr(&output));
        (stderr(&output), json(&output))
    }
}

/// Whether losses are those of the processor, as near as bf16 is.
fn near(found: &Value, expected: &Value) {
    for loss in ["first_loss", "last_loss", "heldout_loss"] {
        let [found, expected] = [found, expected].map(|of| of[loss].as_f64().unwrap());
        assert!((found - expected).abs() < 0.02, "{loss} {found}, should be {expected}");
    }
}

#[test]
fn kernels_are_checked_once_for_each_device_and_driver() {
    let (user, expected) = User::new();
    let (said, found) = user.trains("", "cuda");
    assert!(said.contains(NEW) && said.contains(RIGHT), "{said}");
    near(&found, &expected);
    let (said, _) = user.trains("", "cuda");
    assert!(!said.contains(NEW), "{said}");
    // A run's plan makes samples of text too, so that generating has nothing new either.
    let generated = user.run("", "generate --prompt 1 --max-tokens 2 --device cuda");
    assert!(!stderr(&generated).contains(NEW), "{}", stderr(&generated));
    // Another driver, of which nothing is known.
    let (said, _) = user.trains("unused=wrong", "cuda");
    assert!(said.contains(NEW) && said.contains(RIGHT), "{said}");
}

#[test]
fn a_kernel_that_computes_wrongly_is_left_out_and_named() {
    let (user, expected) = User::new();
    let faults =
        "multiprocessors=1,matmul_wgmma=wrong,matmul_mma=wrong,attention_mma=wrong,cuBLASLt=wrong";
    let (said, found) = user.trains(faults, "cuda");
    for variant in ["matmul_wgmma", "matmul_mma", "attention_mma", "cuBLASLt"] {
        assert!(said.contains(&format!("{variant} is left out: ")), "{variant}: {said}");
    }
    assert!(said.contains("report it with the output of `tightrope doctor`"), "{said}");
    near(&found, &expected);
    // Named again, and not tried again.
    let (said, found) = user.trains(faults, "cuda");
    assert!(said.contains("matmul_mma is left out: ") && !said.contains(NEW), "{said}");
    near(&found, &expected);
    let doctor = user.run(faults, "doctor");
    assert!(stdout(&doctor).contains("matmul_mma is left out: "), "{}", stdout(&doctor));
    let listed = &json(&user.run(faults, "doctor --json"))["wrong_kernels"];
    assert!(listed.as_array().unwrap().iter().any(|wrong| wrong["left_out"] == "attention_mma"));
}

#[test]
fn matmuls_whose_clusters_are_wrong_go_on_without_them() {
    let (user, _) = User::new();
    let step = STEP.replace("--batch 2", "--batch 4");
    let faults = "multiprocessors=2,matmul_wgmma.wgmma in clusters=wrong";
    let output = user.run(faults, &format!("{step} cuda"));
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("matmul_wgmma in clusters is left out: "), "{said}");
    assert!(!said.contains("matmul_wgmma is left out"), "{said}");
}

#[test]
fn a_kernel_that_faults_takes_only_its_own_process_down() {
    let (user, expected) = User::new();
    let (said, found) = user.trains("matmul_mma=fault", "cuda");
    assert!(said.contains("matmul_mma is left out: ") && said.contains("illegal memory"), "{said}");
    near(&found, &expected);
}

#[test]
fn a_kernel_that_hangs_is_given_up() {
    let (user, expected) = User::new();
    let (said, found) = user.trains("attention_mma=hang", "cuda");
    assert!(said.contains("attention_mma is left out: "), "{said}");
    assert!(said.contains("it didn't end within 20 s"), "{said}");
    near(&found, &expected);
}

#[test]
fn a_device_with_a_wrong_kernel_that_has_no_other_is_not_used() {
    let (user, expected) = User::new();
    for _ in 0..2 {
        let output = user.run("norm=wrong", &format!("{STEP} cuda"));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("computes wrongly: norm."), "{said}");
        assert!(said.contains("--device cpu"), "{said}");
    }
    let (said, found) = user.trains("norm=wrong", "auto");
    assert!(said.contains("doesn't take cuda:0"), "{said}");
    near(&found, &expected);
    // The same where it's found on the way.
    let (user, _) = User::new();
    let (said, found) = user.trains("norm=wrong", "auto");
    assert!(said.contains("--device auto takes") && said.contains("norm."), "{said}");
    near(&found, &expected);
}

#[test]
fn a_shader_that_goes_wrong_is_left_out_and_named() {
    let (user, expected) = User::new();
    let run = |fault: &str| {
        // What was found before is forgotten.
        for file in fs::read_dir(user.dir.path().join("caches/tightrope")).unwrap() {
            let path = file.unwrap().path();
            if path.file_name().unwrap().to_string_lossy().starts_with("checks-wgpu") {
                fs::remove_file(path).unwrap();
            }
        }
        let output = user.run_on_wgpu(fault, &format!("{STEP} wgpu"));
        (stderr(&output), output)
    };
    for (fault, word) in [("wrong", "output 0"), ("fault", "was lost"), ("refused", "no language")]
    {
        let (said, output) = run(&format!("subgroupShuffleXor={fault}"));
        assert!(output.status.success(), "{fault}: {said}");
        let found = said.contains("subgroups is left out: ") && said.contains(word);
        assert!(found, "{fault}: {said}");
        near(&json(&output), &expected);
    }
    let (said, output) = run("norm=wrong");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("computes wrongly: norm."), "{said}");
}
