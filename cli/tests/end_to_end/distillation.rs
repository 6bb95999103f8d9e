//! Distillation from a teacher's directory to a run: learned, resumed, scored without the teacher, and refused.

use super::*;

/// Sizes of a student that takes a moment.
const SMALL: &str =
    "--layers 1 --channels 32 --heads 2 --context 24 --threads 1 --device cpu --batch 4";

/// A folder with `text.txt` and a teacher, `llama`, that knows it a little.
fn taught() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text.txt"), "a text that says yes and no. ".repeat(40)).unwrap();
    let words = "--family llama --layers 2 --channels 48 --heads 3 --context 32 --vocab 256 --tokenizer byte";
    ok(
        dir.path(),
        &format!(
            "train --data text.txt {words} --threads 1 --device cpu --batch 4 --steps 20 --lr 1e-2 --out llama"
        ),
    );
    dir
}

/// Bytes of a file of a checkpoint of a run.
fn kept(dir: &TempDir, run: &str, file: &str) -> Vec<u8> {
    fs::read(dir.path().join(format!("{run}/checkpoints/step-8/{file}"))).unwrap()
}

#[test]
fn a_student_learns_of_its_teacher_and_goes_on_bit_for_bit() {
    let dir = taught();
    let words = format!(
        "train --data text.txt {SMALL} --teacher llama --teacher-temperature 3 --soft-share 0.8 --steps 8 --micro-batch 2 --lr 1e-2 \
         --set run.save_every=4 --log-every 1"
    );
    let trained = json(&ok(dir.path(), &format!("{words} --out a --json")));
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    let lines = fs::read_to_string(dir.path().join("a/metrics.jsonl")).unwrap();
    let steps: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<_> = steps.iter().filter(|line| line["divergence"].is_number()).collect();
    assert_eq!(steps.len(), 8, "{lines}");
    for step in &steps {
        let number = |name: &str| step[name].as_f64().unwrap();
        let loss = 0.2 * number("cross_entropy") + 0.8 * 9.0 * number("divergence");
        assert!((number("loss") - loss).abs() < 1e-4, "{step}");
    }
    let divergence = |at: usize| steps[at]["divergence"].as_f64().unwrap();
    assert!(divergence(7) < 0.8 * divergence(0), "{lines}");
    // Planned as it's trained: the teacher is in the plan.
    let planned = |words: &str| json(&ok(dir.path(), words))["peak_bytes"].as_u64().unwrap();
    let plan = format!("plan {SMALL} --vocab 256 --tokenizer byte --json");
    assert!(planned(&format!("{plan} --teacher llama")) > planned(&plan));

    // What is scored is the student, which needs no teacher.
    fs::rename(dir.path().join("llama"), dir.path().join("moved")).unwrap();
    assert_eq!(json(&ok(dir.path(), "eval a --json"))["loss"], trained["heldout_loss"]);
    ok(dir.path(), "generate a --prompt yes --max-tokens 3");
    let (code, message) = refused(dir.path(), "train --resume a --steps 9");
    assert!(code != 0 && message.contains("llama"), "{message}");
    ok(dir.path(), "train --resume a/checkpoints/step-4 --data text.txt --teacher moved --out b");
    fs::rename(dir.path().join("moved"), dir.path().join("llama")).unwrap();
    // From a checkpoint alone, the teacher is where it was.
    ok(dir.path(), "train --resume a/checkpoints/step-4 --data text.txt --out c");
    fs::remove_dir_all(dir.path().join("a/checkpoints/step-8")).unwrap();
    ok(dir.path(), "train --resume a");
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let [one, other, again] = ["a", "b", "c"].map(|run| kept(&dir, run, file));
        assert!(one == other && one == again, "{file}");
    }
    let weights = String::from_utf8_lossy(&kept(&dir, "a", "model.safetensors")).into_owned();
    assert!(!weights.contains("teacher"));
    // Another teacher isn't the one that it began with, and a run that began without stays without.
    let (code, message) = refused(dir.path(), "train --resume a --steps 9 --teacher b");
    assert!(code == 2 && message.contains("aren't those of the teacher"), "{message}");
    let (code, message) = refused(dir.path(), "train --resume llama --steps 21 --teacher llama");
    assert!(code == 2 && message.contains("began without a teacher"), "{message}");
}

#[test]
fn what_no_student_learns_of_is_refused() {
    let dir = taught();
    let teacher = format!("train --data text.txt {SMALL} --steps 1 --out none");
    let pieces = "tokenizer train text.txt --vocab 260 --out pieces";
    ok(dir.path(), pieces);
    ok(
        dir.path(),
        &format!("train --data text.txt --tokenizer pieces {SMALL} --steps 1 --out cut"),
    );
    let vit =
        "train --family vit --data digits --threads 1 --device cpu --batch 4 --steps 1 --out vit";
    ok(dir.path(), vit);
    for (words, problem) in [
        ("--teacher nowhere", "`nowhere` is no model directory"),
        ("--teacher cut", "isn't"),
        ("--teacher cut", "that of the teacher in `cut`: they have 256 and 260 tokens"),
        ("--teacher vit", "predicts no next token"),
        (
            "--teacher llama --teacher-temperature 0",
            "`train.teacher_temperature` must be a number above 0",
        ),
        ("--teacher llama --soft-share -0.1", "`train.soft_share` must be a number from 0 to 1"),
        ("--teacher llama --context 33", "context of 32 tokens is shorter than sequences of 33"),
        ("--teacher-temperature 3", "no teacher is named"),
    ] {
        let (code, message) = refused(dir.path(), &format!("{teacher} {words}"));
        assert!(code == 2 && message.contains(problem), "{words}: {message}");
    }
}
