//! Runs that are evaluated on files of their own.

use std::fs::File;

use super::*;

#[test]
fn a_run_is_evaluated_on_the_files_that_are_named_for_it() {
    let dir = folder();
    fs::write(dir.path().join("val.txt"), "to be or not to be, that is the question\n".repeat(9))
        .unwrap();
    let train = format!("train {TINY} --tokenizer byte --validation val.txt --eval-every 6 --json");
    let trained = ok(dir.path(), &format!("{train} --data text.txt --out a"));
    assert!(stderr(&trained).contains("evaluated on `val.txt`"), "{}", stderr(&trained));
    let trained = json(&trained);
    // Of 369 bytes each but the first is predicted.
    assert_eq!(trained["heldout_tokens"], 368);
    assert_eq!(metrics(&dir.path().join("a"), "heldout_loss")[0]["step"], 6);
    let scored = json(&ok(dir.path(), "eval a --json"));
    assert_eq!(
        (&scored["loss"], &scored["data"]),
        (&trained["heldout_loss"], &"all of val.txt".into())
    );
    let of_others = json(&ok(dir.path(), "eval a --data text.txt --json"));
    assert_ne!(of_others["loss"], trained["heldout_loss"]);
    // Nothing of the data is held out besides: it's trained on as where nothing is evaluated.
    let words = format!("train {TINY} --data text.txt --set data.holdout=0 --out b --json");
    let alone = json(&ok(dir.path(), &words));
    assert_eq!(
        (&alone["last_loss"], &alone["heldout_loss"]),
        (&trained["last_loss"], &Value::Null)
    );
    fs::remove_dir_all(dir.path().join("a/checkpoints/step-12")).unwrap();
    let resumed = json(&ok(dir.path(), "train --resume a --json"));
    assert_eq!(resumed["heldout_loss"], trained["heldout_loss"]);

    // Standard input has no end to hold out.
    let input = File::open(dir.path().join("text.txt")).unwrap();
    let piped =
        command(dir.path(), &format!("{train} --data - --out c")).stdin(input).output().unwrap();
    assert_eq!(json(&piped)["heldout_tokens"], 368, "{}", stderr(&piped));

    for (words, complaint) in [
        (
            "--data text.txt --set data.holdout=0.2 --validation val.txt",
            "both say what is held out",
        ),
        ("--data text.txt --validation -", "is read again and again, and standard input once"),
        ("--data text.txt --validation none.txt", "none.txt"),
    ] {
        let (_, message) = refused(dir.path(), &format!("train {TINY} {words} --out d"));
        assert!(message.contains(complaint), "{message}");
    }
    let (_, message) =
        refused(dir.path(), "train --preset vit-tiny --data digits --validation val.txt --out d");
    assert!(message.contains("`data.validation` is of a language model"), "{message}");
}

#[test]
fn conversations_are_evaluated_on_others() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |answers: &str| {
        let row = |answer: char| {
            format!(
                r#"{{"messages": [{{"role": "user", "content": "?"}}, {{"role": "assistant", "content": "{answer}"}}]}}"#
            ) + "\n"
        };
        answers.chars().map(row).collect::<String>()
    };
    fs::write(dir.path().join("train.jsonl"), rows("abcdefgh")).unwrap();
    fs::write(dir.path().join("val.jsonl"), rows("xyz")).unwrap();
    let words = "train --layers 1 --channels 32 --heads 2 --context 96 --batch 4 --threads 1 --device cpu --steps 2 \
                 --chat-template chatml --data train.jsonl --validation val.jsonl --out a --json";
    let trained = ok(dir.path(), words);
    assert!(
        stderr(&trained).contains("8 conversations to train on, 0 held out"),
        "{}",
        stderr(&trained)
    );
    // Of three rows a letter and the end of its turn.
    assert_eq!(json(&trained)["heldout_tokens"], 3 * (1 + "<|im_end|>".len()));
}

/// A folder `rows` with `train.jsonl` and `validation.jsonl`, of conversations that end in these letters.
fn splits(answers: [&str; 2]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("rows")).unwrap();
    for (name, answers) in ["train", "validation"].into_iter().zip(answers) {
        let row = |answer: char| {
            format!(
                r#"{{"messages": [{{"role": "user", "content": "?"}}, {{"role": "assistant", "content": "{answer}"}}]}}"#
            ) + "\n"
        };
        let rows: String = answers.chars().map(row).collect();
        fs::write(dir.path().join(format!("rows/{name}.jsonl")), rows).unwrap();
    }
    dir
}

/// Regression: `eval` scored the training split.
#[test]
fn a_folder_is_scored_on_the_split_that_a_run_is_evaluated_on() {
    let dir = splits(["abcdefgh", "xyz"]);
    let words = "train --layers 1 --channels 32 --heads 2 --context 96 --batch 4 --threads 1 --device cpu --steps 2 \
                 --chat-template chatml --data rows --out a --json";
    let trained = json(&ok(dir.path(), words));
    assert_eq!(trained["heldout_tokens"], 3 * (1 + "<|im_end|>".len()));
    for words in ["eval a --json", "eval a --data rows --json"] {
        let scored = json(&ok(dir.path(), words));
        assert_eq!(scored["loss"], trained["heldout_loss"], "{words}");
    }
    ok(dir.path(), "export a model");
    let words = "eval model --chat-template chatml --tokenizer byte --json --data";
    let of_folder = ok(dir.path(), &format!("{words} rows"));
    assert!(stderr(&of_folder).contains("`validation` is scored"), "{}", stderr(&of_folder));
    let of_file = ok(dir.path(), &format!("{words} rows/validation.jsonl --set data.holdout=1"));
    assert_eq!(json(&of_folder)["loss"], json(&of_file)["loss"]);
    assert_eq!(json(&of_folder)["tokens"], trained["heldout_tokens"]);
    // A note counts the rows behind the context.
    let long = "?".repeat(200);
    let row = format!(
        r#"{{"messages": [{{"role": "user", "content": "{long}"}}, {{"role": "assistant", "content": "a"}}]}}"#
    );
    let row = fs::read_to_string(dir.path().join("rows/validation.jsonl")).unwrap() + &row;
    fs::write(dir.path().join("long.jsonl"), row).unwrap();
    let cut = stderr(&ok(dir.path(), "eval a --data long.jsonl --set data.holdout=1"));
    assert!(cut.contains("1 row is left out"), "{cut}");
}

/// Regression: `--validation` was refused for pairs.
#[test]
fn pairs_are_evaluated_on_others_against_the_same_reference() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("pairs")).unwrap();
    for (name, numbers) in [("train", 0..12), ("test", 40..45)] {
        let row = |n: u32| {
            format!(r#"{{"prompt": "{n}? ", "chosen": "yes", "rejected": "no {n}"}}"#) + "\n"
        };
        let rows: String = numbers.map(row).collect();
        fs::write(dir.path().join(format!("pairs/{name}.jsonl")), rows).unwrap();
    }
    let words = "train --layers 1 --channels 32 --heads 2 --context 24 --threads 1 --device cpu --batch 4 --steps 6 --lr 1e-2 \
                 --set run.save_every=3 --data pairs --json";
    let trained = ok(dir.path(), &format!("{words} --out a"));
    assert!(stderr(&trained).contains("evaluated on `test`"), "{}", stderr(&trained));
    let trained = json(&trained);
    assert_eq!(trained["heldout_tokens"], 5);
    assert!(trained["heldout_margin"].as_f64().unwrap() > 0.01, "{trained}");
    for words in ["eval a --json", "eval a --data pairs/test.jsonl --set data.holdout=1 --json"] {
        let scored = json(&ok(dir.path(), words));
        assert_eq!(scored["loss"], trained["heldout_loss"], "{words}");
    }
    // A resumed run reads the reference from its checkpoint, since its weights have changed.
    ok(dir.path(), &format!("{words} --out b"));
    fs::remove_dir_all(dir.path().join("b/checkpoints/step-6")).unwrap();
    let resumed = json(&ok(dir.path(), "train --resume b --json"));
    assert_eq!(resumed["heldout_loss"], trained["heldout_loss"]);
    let [one, other] = ["a", "b"].map(|run| {
        fs::read(dir.path().join(format!("{run}/checkpoints/step-6/model.safetensors"))).unwrap()
    });
    assert!(one == other);
}
