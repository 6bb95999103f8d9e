//! Plans that are kept in files and used again.

use super::*;

/// A model whose plan for a budget recomputes activations.
const DEEP: &str = "--layers 4 --channels 16 --heads 2 --context 16 --batch 4 --steps 12 --threads 1 --data text.txt";

fn plan_of(dir: &Path, path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join(path)).unwrap()).unwrap()
}

/// Words for a budget a tenth below what the fastest plan takes.
fn tight(dir: &Path) -> String {
    let free = json(&ok(dir, &format!("plan --json {DEEP} --micro-batch 4")));
    format!("--memory {}", free["peak_bytes"].as_u64().unwrap() * 9 / 10)
}

#[test]
fn a_plan_is_made_again_from_its_file() {
    let dir = folder();
    let dir = dir.path();
    let budget = tight(dir);
    let planned = ok(dir, &format!("plan --json {DEEP} --micro-batch 4 {budget}"));
    fs::write(dir.join("printed.json"), &planned.stdout).unwrap();
    let expected = json(&planned);
    assert!(!expected["choices"]["recompute"].as_array().unwrap().is_empty(), "{expected}");
    let first = json(&ok(dir, &format!("train --json {DEEP} --plan printed.json --out a")));
    let second = json(&ok(dir, &format!("train --json {DEEP} --plan a/plan.json --out b")));
    for (run, object) in [("a", &first), ("b", &second)] {
        let written = plan_of(dir, &format!("{run}/plan.json"));
        for key in ["choices", "made_for", "peak_bytes"] {
            assert_eq!(written[key], expected[key], "{run}: {key}");
        }
        assert_eq!(object["predicted_peak_bytes"], expected["peak_bytes"]);
        assert_eq!(object["measured_peak_bytes"], expected["peak_bytes"]);
    }
    assert_eq!(first["heldout_loss"], second["heldout_loss"]);
    assert_eq!(plan_of(dir, "a/plan.json"), plan_of(dir, "b/plan.json"));
}

#[test]
fn a_run_that_goes_on_keeps_its_plan() {
    let dir = folder();
    let dir = dir.path();
    let words = format!("train --json {DEEP} --micro-batch 4 {} --out a", tight(dir));
    ok(dir, &words);
    let before = plan_of(dir, "a/plan.json");
    // Without its file the budget of the settings counts, which is now another.
    let settings = fs::read_to_string(dir.join("a/run.toml")).unwrap();
    let looser: String = settings
        .lines()
        .map(|line| {
            let line = if line.starts_with("budget = ") { "budget = \"1GiB\"" } else { line };
            format!("{line}\n")
        })
        .collect();
    fs::write(dir.join("a/run.toml"), looser).unwrap();
    ok(dir, "train --json --resume a --steps 13");
    assert_eq!(plan_of(dir, "a/plan.json")["choices"], before["choices"]);
    ok(dir, "train --json --resume a --steps 14 --memory 2GiB");
    assert!(plan_of(dir, "a/plan.json")["choices"]["recompute"].is_null());
}

#[test]
fn a_plan_of_another_step_is_refused_with_what_differs() {
    let dir = folder();
    let dir = dir.path();
    let words = format!("{DEEP} --micro-batch 4 {}", tight(dir));
    let planned = ok(dir, &format!("plan --json {words}"));
    fs::write(dir.join("p.json"), &planned.stdout).unwrap();
    let with = |path: &str, value: Value| {
        let mut changed = json(&planned);
        *changed.pointer_mut(path).unwrap() = value;
        fs::write(dir.join("changed.json"), changed.to_string()).unwrap();
    };
    for (change, complaint) in [
        ("--layers 3", "`model.layers` is 4 there and 3 here"),
        ("--batch 8", "`train.batch` is 4 there and 8 here"),
        ("--micro-batch 2", "`train.micro_batch` is 4 there and 2 here"),
        ("--precision bf16", "`run.precision` is f32 there and bf16 here"),
        ("--optimizer sgd", "`train.optimizer` is adamw there and sgd here"),
        ("--loss-chunk 8", "`memory.loss_chunk` is"),
        ("--recompute block", "`memory.recompute` is"),
        ("--set memory.optimizer_bits=8", "`memory.optimizer_bits` is 32 there and 8 here"),
    ] {
        let words = format!("train {DEEP} {change} --plan p.json --out a");
        let (code, message) = refused(dir, &words);
        assert_eq!(code, 2, "{change}: {message}");
        assert!(message.contains(complaint), "{change}: {message}");
        assert!(!dir.join("a").exists(), "{change} leaves a run directory");
    }
    for (path, value, complaint) in [
        ("/made_for/version", "0.0.1".into(), "is a plan of version 0.0.1, and this is"),
        ("/made_for/device", "cuda".into(), "the device is cuda there and cpu here"),
        ("/choices", Value::Null, "is no plan"),
        ("/choices/recompute/0", "h.9.attn".into(), "h.9.attn"),
    ] {
        with(path, value);
        let (_, message) = refused(dir, &format!("plan {DEEP} --plan changed.json"));
        assert!(message.contains(complaint), "{path}: {message}");
    }
    fs::write(dir.join("changed.json"), "choices").unwrap();
    for (file, complaint) in
        [("changed.json", "it isn't JSON"), ("none.json", "can't read the plan")]
    {
        let (code, message) = refused(dir, &format!("plan {DEEP} --plan {file}"));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(complaint), "{message}");
    }
    let (code, message) = refused(dir, &format!("plan {DEEP} --plan p.json --memory 10KiB"));
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("the plan in `p.json` takes"), "{message}");
}
