//! Rows of several lengths in batches of like length.

use super::*;

/// A step of a model that takes a moment.
const SMALL: &str =
    "--layers 1 --channels 32 --heads 2 --context 96 --batch 4 --threads 1 --device cpu";

/// A folder with `rows.jsonl`: forty rows, of which two in three are short.
fn rows() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let answer = |n: usize| "abc".repeat(if n.is_multiple_of(3) { 28 } else { 3 + n % 3 });
    let row = |n| format!("{{\"prompt\": \"{n:02}? \", \"completion\": \"{}\"}}\n", answer(n));
    fs::write(dir.path().join("rows.jsonl"), (0..40).map(row).collect::<String>()).unwrap();
    dir
}

fn weights(dir: &TempDir, run: &str) -> Vec<u8> {
    fs::read(dir.path().join(format!("{run}/checkpoints/step-25/model.safetensors"))).unwrap()
}

#[test]
fn batches_of_like_length_train_in_the_same_arena_and_go_on_bit_for_bit() {
    let dir = rows();
    let words = format!(
        "train --data rows.jsonl {SMALL} --steps 25 --set data.holdout=0 --set run.save_every=7 --set run.log_every=1"
    );
    let trained = ok(dir.path(), &format!("{words} --buckets auto --out a --json"));
    let notes = stderr(&trained);
    assert!(notes.contains("batches are of like length, padded to 24, 96 tokens"), "{notes}");
    let trained = json(&trained);
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    let whole = json(&ok(dir.path(), &format!("{words} --buckets 1 --out whole --json")));
    let peak = |run: &Value| run["measured_peak_bytes"].as_u64().unwrap();
    let inputs = peak(&trained) - peak(&whole);
    assert!(inputs > 0 && inputs < 4096, "{inputs} bytes");
    // Steps of 4 sequences of 24 and of 96 tokens.
    let text = fs::read_to_string(dir.path().join("a/metrics.jsonl")).unwrap();
    let steps = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let tokens = steps.filter(|line| line["loss"].is_number()).map(|line| {
        (line["tokens_per_s"].as_f64().unwrap() * line["step_s"].as_f64().unwrap()).round() as usize
    });
    let tokens: Vec<usize> = tokens.collect();
    let short = tokens.iter().filter(|&&tokens| tokens == 4 * 24).count();
    let long = tokens.iter().filter(|&&tokens| tokens == 4 * 96).count();
    assert!(short + long == 25 && short > long && long > 4, "{tokens:?}");

    ok(dir.path(), "train --resume a/checkpoints/step-21 --data rows.jsonl --out b");
    assert!(weights(&dir, "a") == weights(&dir, "b"));
    assert!(weights(&dir, "a") != weights(&dir, "whole"));
    let (_, message) = refused(dir.path(), "train --resume a --steps 26 --buckets 1");
    assert!(message.contains("`data.buckets` was \"auto\""), "{message}");
    let longer = json(&ok(dir.path(), "train --resume a --steps 27 --json"));
    assert_eq!(peak(&longer), peak(&trained));
    // What isn't said of an earlier run is what it did.
    ok(dir.path(), "train --resume whole --steps 26");
}

#[test]
fn lengths_are_of_rows_that_are_not_packed() {
    let dir = rows();
    let train = |words: &str| format!("train {SMALL} --steps 1 --out none {words}");
    let (code, message) = refused(dir.path(), &train("--data rows.jsonl --packing --buckets auto"));
    assert!(code == 2 && message.contains("leave one of --packing and --buckets out"), "{message}");
    fs::write(dir.path().join("text.txt"), "a text ".repeat(100)).unwrap();
    let (code, message) = refused(dir.path(), &train("--data text.txt --buckets 2"));
    assert!(code == 2 && message.contains("leave --buckets out"), "{message}");
    let (code, message) = refused(dir.path(), &train("--data rows.jsonl --buckets 0"));
    assert!(code == 2 && message.contains("a number of lengths"), "{message}");
    let words = "data show rows.jsonl --context 96 --set train.batch=4 --json";
    let shown = json(&ok(dir.path(), words));
    assert_eq!(shown["buckets"], serde_json::json!([24, 96]));
    let share = |name: &str| shown[name].as_f64().unwrap();
    assert!(share("padding_buckets") < 0.5 * share("padding"), "{shown}");
    let note = ok(dir.path(), &train("--data rows.jsonl --buckets 1"));
    assert!(stderr(&note).contains("--buckets auto"), "{}", stderr(&note));
}
