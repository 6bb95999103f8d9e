//! `tightrope verify`, `doctor` and `bench` from outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn tightrope(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tightrope"));
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).args(words).output().unwrap()
}

/// The one object on stdout.
fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A recorded case.
fn case() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/gpt2-small-case")
}

#[test]
fn a_right_device_is_verified() {
    let case = case();
    let output = tightrope(&["verify", case.to_str().unwrap(), "--json", "--device", "cpu"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let object = object(&output);
    assert_eq!(object["pass"], true);
    assert!(object["loss_abs_err"].as_f64().unwrap() <= 1e-5);
    assert!(object["logits_max_abs_err"].as_f64().unwrap() <= 1e-4);
    assert!(object["train_loss_max_abs_err"].as_f64().unwrap() <= 1e-4);
    for key in ["grad_rel_l2", "after_rel_l2"] {
        let by_name = object[key].as_object().unwrap();
        assert!(by_name.contains_key("transformer.wte.weight"), "{key}");
        assert!(by_name.values().all(|error| error.as_f64().unwrap() <= 1e-4), "{key}");
    }
}

#[test]
fn a_wrong_number_is_one_object_and_exit_code_1() {
    let case = case();
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "case.safetensors"] {
        std::fs::write(dir.path().join(name), std::fs::read(case.join(name)).unwrap()).unwrap();
    }
    let weights = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    // The sign of the last weight of the file.
    *bytes.last_mut().unwrap() ^= 0x80;
    std::fs::write(&weights, bytes).unwrap();
    let path = dir.path().to_str().unwrap();
    let output = tightrope(&["verify", path, case.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let object = object(&output);
    assert_eq!((&object["pass"], &object["exit_code"]), (&false.into(), &1.into()));
    assert_eq!(
        (&object["cases"][0]["pass"], &object["cases"][1]["pass"]),
        (&false.into(), &true.into())
    );
    assert!(object["error"].as_str().unwrap().contains(path), "{object}");
    let text = tightrope(&["verify", path]);
    assert!(String::from_utf8_lossy(&text.stdout).starts_with("FAIL"));
}

#[test]
fn a_folder_without_a_case_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let output = tightrope(&["verify", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("config.json") && message.contains("help: "), "{message}");
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let output = tightrope(&["verify", "anywhere", "--device", "cuda:7"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cuda:7"));
}

#[test]
fn the_machine() {
    let output = tightrope(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let object = object(&output);
    let devices = object["devices"].as_array().unwrap();
    let names: Vec<&str> = devices.iter().map(|device| device["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("cpu", "cuda"));
    assert!(names[1].starts_with("wgpu"), "{names:?}");
    assert!(devices[0]["cores"].as_u64().unwrap() > 0);
    assert!(devices[0]["presets"].as_array().unwrap().len() > 10);
    let text = tightrope(&["doctor"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("llama-1.1b"));
}

#[test]
fn figures_of_a_small_model() {
    let words = ["bench", "--json", "--preset", "tiny", "--batch", "4", "--micro-batch", "2"];
    let output = tightrope(&words);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let object = object(&output);
    let ops = object["ops"].as_array().unwrap();
    let shares: f64 = ops.iter().map(|op| op["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let of = |family: &str| ops.iter().any(|op| op["op"] == family);
    for family in ["matmul", "attention", "attention_grad", "layer_norm", "map"] {
        assert!(of(family), "no {family}");
    }
    assert!(ops.iter().all(|op| op["count"].as_u64().unwrap() > 0));
    // Whatever else the machine did while its peaks were measured.
    for op in ops {
        let percent = op["percent_of_peak"].as_f64().unwrap();
        assert!((0.0..100.0 + 1e-6).contains(&percent), "{op}");
    }
    let step = &object["step"];
    assert!(step["tokens_per_s"].as_f64().unwrap() > 0.0);
    let mfu = step["mfu"].as_f64().unwrap();
    assert!(mfu > 0.0 && mfu < 1.0, "{mfu}");
    assert!(step["peak_bytes"].as_u64().unwrap() > 0);
}

/// A shape per instruction set of whose loss a last chunk took more scratch than the plan had.
#[test]
fn every_instruction_set_trains_by_itself() {
    let doctor = object(&tightrope(&["doctor", "--json"]));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("text"), "so it goes. ".repeat(2000)).unwrap();
    let [data, out] = ["text", "run"].map(|name| dir.path().join(name).display().to_string());
    let by = |set: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tightrope"));
        command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env("TIGHTROPE_ISA", set);
        command.args(words).output().unwrap()
    };
    let sets = doctor["devices"][0]["instruction_sets"].as_array().unwrap();
    assert_eq!((&sets[0]["name"], &sets[0]["available"]), (&"portable".into(), &true.into()));
    for set in sets {
        let name = set["name"].as_str().unwrap();
        let shape = "--family llama --layers 1 --channels 256 --heads 4 --context 192 --batch 8 --vocab 6080";
        let run = "--tokenizer byte --steps 1 --threads 1 --device cpu";
        let mut words = vec!["train", "--data", &data, "--out", &out];
        words.extend([shape, run].iter().flat_map(|words| words.split(' ')));
        let output = by(name, &words);
        let said = String::from_utf8_lossy(&output.stderr);
        if set["available"] == true {
            assert_eq!(output.status.code(), Some(0), "{name}: {said}");
            std::fs::remove_dir_all(&out).unwrap();
        } else {
            assert_eq!(output.status.code(), Some(2), "{name}: {said}");
            assert!(said.contains(&format!("TIGHTROPE_ISA is `{name}`")), "{said}");
        }
    }
}
