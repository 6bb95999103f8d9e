//! Length of a run: by steps, by passes over its data, and by neither.

use super::*;

const SMALL: &str =
    "--layers 1 --channels 16 --heads 2 --context 32 --batch 4 --threads 1 --device cpu";

/// A folder with `rows.jsonl`: twenty rows of the same length.
fn rows() -> TempDir {
    let dir = folder();
    let row = |n: u32| {
        format!("{{\"prompt\": \"{} and one make \", \"completion\": \"{}\"}}\n", 10 + n, 11 + n)
    };
    fs::write(dir.path().join("rows.jsonl"), (0..20).map(row).collect::<String>()).unwrap();
    dir
}

fn toml(run: &Path) -> String {
    fs::read_to_string(run.join("run.toml")).unwrap()
}

/// Every fine-tuning of some rows began with sums: 1,850 steps were hundreds of passes over them.
#[test]
fn passes_over_rows_become_steps_which_a_resumed_run_keeps() {
    let dir = rows();
    let words = format!("train --data rows.jsonl {SMALL} --json");
    let output = ok(dir.path(), &format!("{words} --epochs 3 --save-every 5 --out a"));
    // Two of twenty are held out.
    let told = "3 epochs of 18 rows in batches of 4: 14 steps";
    assert!(stderr(&output).contains(told), "{}", stderr(&output));
    assert_eq!(json(&output)["steps"], 14);
    let run = dir.path().join("a");
    assert!(toml(&run).contains("\nsteps = 14\n") && !toml(&run).contains("epochs"));
    let last = run.join("checkpoints/step-14");
    let model = || fs::read(last.join("model.safetensors")).unwrap();
    let expected = model();
    // As if it had been killed after step 10: it ends where it was to end.
    fs::remove_dir_all(&last).unwrap();
    assert_eq!(json(&ok(dir.path(), "train --resume a --json"))["steps"], 14);
    assert!(model() == expected, "other bytes");
    // More passes, by the same words.
    let more = ok(dir.path(), "train --resume a --epochs 4 --json");
    assert_eq!(json(&more)["steps"], 18);
    assert!(stderr(&more).contains("follows the schedule of 18 steps"), "{}", stderr(&more));

    let without = ok(dir.path(), &format!("{words} --out b"));
    let told = format!("note: neither --steps nor --epochs is given: {told}");
    assert!(stderr(&without).contains(&told), "{}", stderr(&without));
    assert_eq!(json(&without)["steps"], 14);
    let part = ok(dir.path(), &format!("{words} --epochs 0.5 --out c"));
    assert_eq!(json(&part)["steps"], 3);
    // Of packed rows, sequences are counted: several rows are in each.
    let packed = ok(dir.path(), &format!("{words} --epochs 4 --context 64 --packing --out d"));
    assert!(stderr(&packed).contains("4 epochs of 6 packed sequences"), "{}", stderr(&packed));
    assert_eq!(json(&packed)["steps"], 6);
    // A file of settings that says steps is gone over by a flag.
    let config = format!("{words} --config a/run.toml --epochs 1 --out e");
    assert_eq!(json(&ok(dir.path(), &config))["steps"], 5);
}

#[test]
fn passes_over_text_are_of_windows_and_a_pipe_has_none() {
    let dir = rows();
    let sizes = TINY.replace("--steps 12", "");
    let words = format!("train --data text.txt {sizes} --out a --epochs 0.1 --json");
    let output = ok(dir.path(), &words);
    let text = fs::metadata(dir.path().join("text.txt")).unwrap().len() as f64;
    // A tenth is held out, and one window less is taken than fits.
    let windows = (0.9 * text / 16.0).floor() - 1.0;
    assert_eq!(json(&output)["steps"].as_f64().unwrap(), (0.1 * windows / 4.0).ceil());
    let told = format!("0.1 epochs of {windows} windows");
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));

    let input = fs::File::open(dir.path().join("text.txt")).unwrap();
    let words = format!("train --data - --tokenizer byte {sizes} --epochs 1 --out b");
    let refused = command(dir.path(), &words).stdin(input).output().unwrap();
    let told = "`train.epochs` counts passes over the data, and standard input";
    assert!(stderr(&refused).contains(told), "{}", stderr(&refused));
    assert_eq!(refused.status.code(), Some(2));
    assert!(!dir.path().join("b").exists());
}

#[test]
fn steps_and_epochs_together_are_refused_by_name() {
    let dir = rows();
    let (code, message) =
        refused(dir.path(), &format!("train --data rows.jsonl {SMALL} --steps 3 --epochs 2"));
    assert_eq!(code, 2);
    assert!(
        message.contains("`train.steps` and `train.epochs` both say how long to train"),
        "{message}"
    );
    let (code, message) = refused(dir.path(), &format!("train {SMALL} --epochs 0"));
    assert!(code == 2 && message.contains("`train.epochs` must be"), "{message}");
}
