//! Direct preference optimization from rows to a run: learned, resumed, scored, shown and refused.

use super::*;

/// Sizes of a model that takes a moment, of sequences that hold the pairs below.
const SMALL: &str =
    "--layers 1 --channels 32 --heads 2 --context 24 --threads 1 --device cpu --batch 4";

/// A folder with `pairs.jsonl`, twenty prompts of which the answer `yes` is preferred to `no`, and `text.txt`.
fn pairs() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let row =
        |n: u32| format!(r#"{{"prompt": "{n}? ", "chosen": "yes", "rejected": "no {n}"}}"#) + "\n";
    write(&dir, "pairs.jsonl", (0..20).map(row).collect::<String>());
    write(&dir, "text.txt", "a text that says yes and no. ".repeat(40));
    dir
}

fn write(dir: &TempDir, file: &str, text: impl AsRef<[u8]>) {
    fs::write(dir.path().join(file), text).unwrap();
}

/// Bytes of a file of a checkpoint of a run.
fn kept(dir: &TempDir, run: &str, file: &str) -> Vec<u8> {
    fs::read(dir.path().join(format!("{run}/{file}"))).unwrap()
}

#[test]
fn the_preferred_answer_is_learned_and_a_run_goes_on_bit_for_bit() {
    let dir = pairs();
    let words = format!(
        "train --data pairs.jsonl {SMALL} --dpo-beta 0.2 --steps 8 --micro-batch 2 --lr 1e-2 --set data.holdout=0.25 \
         --set run.save_every=3 --log-every 1"
    );
    let trained = ok(dir.path(), &format!("{words} --out a --json"));
    let notes = stderr(&trained);
    assert!(notes.contains("15 pairs to train on, 5 held out"), "{notes}");
    assert!(notes.contains("4 pairs in 2 micro-batches"), "{notes}");
    let trained = json(&trained);
    let number = |name: &str| trained[name].as_f64().unwrap_or_else(|| panic!("{name}: {trained}"));
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    assert_eq!(trained["heldout_tokens"], 5);
    // The model begins as its own reference.
    assert!((number("first_loss") - std::f64::consts::LN_2).abs() < 1e-5, "{trained}");
    assert!(number("heldout_loss") < 0.4 && number("heldout_accuracy") == 1.0, "{trained}");
    let margin = number("heldout_chosen_reward") - number("heldout_rejected_reward");
    assert!((margin - number("heldout_margin")).abs() < 1e-4 && margin > 0.5, "{trained}");
    let metrics = String::from_utf8(kept(&dir, "a", "metrics.jsonl")).unwrap();
    for name in ["chosen_reward", "rejected_reward", "margin", "accuracy"] {
        assert!(metrics.lines().next().unwrap().contains(&format!("\"{name}\":")), "{metrics}");
    }
    let scored = json(&ok(dir.path(), "eval a --json"));
    assert_eq!(scored["loss"], trained["heldout_loss"]);
    assert_eq!((&scored["pairs"], &scored["margin"]), (&5.into(), &trained["heldout_margin"]));
    let shown = stdout(&ok(dir.path(), "eval a"));
    assert!(
        shown.contains("nats per pair") && shown.contains("accuracy         100.00%"),
        "{shown}"
    );
    ok(dir.path(), "generate a --prompt 1? --max-tokens 3");
    // By the same weights as those that it exports, one row after the other.
    ok(dir.path(), "export a exported");
    write(&dir, "rows.txt", "1? yes 2? no");
    write(
        &dir,
        "asked.jsonl",
        r#"{"question": "1?", "choices": {"text": ["yes", "no"], "label": ["A", "B"]}, "answerKey": "A"}"#,
    );
    for (words, name) in [("--texts rows.txt", "loss"), ("--choices asked.jsonl", "acc")] {
        let of =
            |what: &str| json(&ok(dir.path(), &format!("eval {what} {words} --json --device cpu")));
        let [run, exported] = ["a", "exported"].map(of);
        assert!(run[name].is_number() && run[name] == exported[name], "{run} {exported}");
    }

    // The reference is the run's: of the first weights, not of those that it goes on with.
    ok(dir.path(), &format!("{words} --out b --set run.save_every=4"));
    ok(dir.path(), "train --resume b/checkpoints/step-4 --data pairs.jsonl --out c");
    fs::remove_dir_all(dir.path().join("b/checkpoints/step-8")).unwrap();
    ok(dir.path(), "train --resume b");
    assert!(notes.contains("goes over 20 pairs once"), "{notes}");
    for file in ["model.safetensors", "optimizer.safetensors", "reference.safetensors"] {
        let file = format!("checkpoints/step-8/{file}");
        let [one, other, again] = ["a", "b", "c"].map(|run| kept(&dir, run, &file));
        assert!(one == other && one == again, "{file}");
    }
    // A run that begins with the same weights on the same pairs takes the reference; one with others, or of which it's damaged, doesn't.
    let taken = "the reference is that of `./a`";
    let said = |more: &str| stderr(&ok(dir.path(), &format!("{words} {more}")));
    assert!(said("--out d --dpo-beta 0.5").contains(taken));
    for more in ["--out e --seed 7", "--out f --precision bf16", "--out g --context 20"] {
        assert!(!said(more).contains("the reference is that of"), "{more}");
    }
    for run in ["a", "b", "c", "d"] {
        let path = dir.path().join(run).join("checkpoints/step-8/reference.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    assert!(said("--out h").contains("goes over 20 pairs once"));
    ok(dir.path(), "train --resume h --steps 9");
    write(&dir, "other.jsonl", r#"{"prompt": "", "chosen": "a", "rejected": "b"}"#);
    for (more, what) in [
        ("--train-on all", "is of other pairs, or of other tokens of them"),
        ("--format text", "it has no `text`"),
        ("--data other.jsonl", "is of other pairs, or of other tokens of them"),
        // Answers are cut.
        ("--context 5", "is of other pairs, or of other tokens of them"),
    ] {
        let (_, message) = refused(dir.path(), &format!("train --resume h --steps 10 {more}"));
        assert!(message.contains(what), "{more}: {message}");
    }
}

#[test]
fn adapters_learn_preferences_beside_the_model_that_they_are_compared_with() {
    let dir = pairs();
    ok(dir.path(), &format!("train --data text.txt {SMALL} --steps 4 --out base"));
    let words = "train --init base --data pairs.jsonl --lora-rank 4 --threads 1 --device cpu --batch 4 --steps 8 --lr 3e-2 \
                 --set data.holdout=0.25 --set run.save_every=4";
    let trained = json(&ok(dir.path(), &format!("{words} --out a --json")));
    let first = trained["first_loss"].as_f64().unwrap();
    assert!((first - std::f64::consts::LN_2).abs() < 1e-5, "{trained}");
    assert!(trained["heldout_margin"].as_f64().unwrap() > 0.0, "{trained}");
    ok(dir.path(), "train --resume a/checkpoints/step-4 --data pairs.jsonl --out b");
    for file in ["adapter_model.safetensors", "reference.safetensors"] {
        let file = format!("checkpoints/step-8/{file}");
        assert!(kept(&dir, "a", &file) == kept(&dir, "b", &file), "{file}");
    }
    assert_eq!(json(&ok(dir.path(), "eval a --json"))["loss"], trained["heldout_loss"]);
    for (more, rate) in [
        ("pairs.jsonl --out c", "1e-6"),
        ("pairs.jsonl --out d --lora-rank 2", "1e-5"),
        ("text.txt --out e", "2e-5"),
        ("text.txt --out f --lora-rank 2", "2e-4"),
        ("pairs.jsonl --out g --lr 3e-3", "3e-3"),
    ] {
        let words =
            format!("train --init base --threads 1 --device cpu --batch 4 --steps 1 --data {more}");
        let told = stderr(&ok(dir.path(), &words));
        assert!(told.contains(&format!("with a peak learning rate of {rate}\n")), "{more}: {told}");
    }
}

#[test]
fn what_is_no_preference_is_refused_or_counted() {
    let dir = pairs();
    let good = r#"{"prompt": "q ", "chosen": "a", "rejected": "b"}"#;
    let train = |file: &str| format!("train --data {file} {SMALL} --steps 1 --out none");
    for (row, problem) in [
        (r#"{"prompt": "q", "chosen": "a"}"#, "bad.jsonl, row 2: it has no `rejected`"),
        (
            r#"{"prompt": "q", "chosen": "a", "rejected": "a"}"#,
            "bad.jsonl, row 2: its `chosen` and its",
        ),
    ] {
        write(&dir, "bad.jsonl", format!("{good}\n{row}\n"));
        let words = format!("{} --format preference", train("bad.jsonl"));
        let (_, message) = refused(dir.path(), &words);
        assert!(message.contains(problem), "{message}");
    }
    let long = "q".repeat(40);
    write(&dir, "long.jsonl", format!("{good}\n{good}\n{}\n", good.replace("q ", &long)));
    let said = stderr(&ok(dir.path(), &train("long.jsonl").replace("none", "long")));
    assert!(
        said.contains("1 row is left out: an answer, or all that tells the two apart"),
        "{said}"
    );
    for (words, problem) in [
        (format!("{} --packing", train("pairs.jsonl")), "a pair of preferences is two sequences"),
        (
            format!("{} --dpo-beta 0.1", train("text.txt")),
            "`train.dpo_beta` is for rows of preferences",
        ),
        (
            format!("{} --dpo-beta 0", train("pairs.jsonl")),
            "`train.dpo_beta` must be a number above 0",
        ),
    ] {
        let (code, message) = refused(dir.path(), &words);
        assert!(code == 2 && message.contains(problem), "{message}");
    }
    // A model that wasn't trained on preferences has no reference.
    ok(dir.path(), &format!("train --data text.txt {SMALL} --steps 1 --out plain"));
    let (code, message) = refused(dir.path(), "eval plain --data pairs.jsonl");
    assert!(code == 2 && message.contains("was not trained on preferences"), "{message}");
    let shown = stdout(&ok(dir.path(), "data show pairs.jsonl --rows 1"));
    assert!(shown.contains("row 1, chosen: ") && shown.contains("row 1, rejected: "), "{shown}");
    assert!(shown.contains("0? ⟦no 0\n⟧"), "{shown}");
}
