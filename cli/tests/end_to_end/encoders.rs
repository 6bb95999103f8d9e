//! An encoder from outside: masked tokens of a text, then classes of texts from those weights, and rows that can't be classified.

use std::fmt::Write as _;

use super::*;

/// Words of a run that takes a moment.
const SMALL: &str = "--preset bert-tiny --layers 2 --channels 16 --heads 2 --context 16 --batch 8 --threads 1 --device cpu --tokenizer wp";

/// A folder with a text, a vocabulary of word pieces and rows whose class a word decides.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let words = ["the", "film", "was", "good", "bad", "very", "not", "a", "day", "."];
    fs::create_dir(dir.path().join("wp")).unwrap();
    let vocab = format!("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{}\n##s\n", words.join("\n"));
    fs::write(dir.path().join("wp/vocab.txt"), vocab).unwrap();
    let (mut text, mut rows, mut pairs) = (String::new(), String::new(), String::new());
    for n in 0..120usize {
        let [filler, word] = [words[n % 3], if n % 2 == 0 { "good" } else { "bad" }];
        let label = if n % 2 == 0 { "praise" } else { "blame" };
        writeln!(text, "the {filler} was very {word} . a day was not {word}").unwrap();
        writeln!(rows, r#"{{"text": "the {filler} was {word} .", "label": "{label}"}}"#).unwrap();
        writeln!(
            pairs,
            r#"{{"premise": "the film was {word}", "hypothesis": "a {filler} was {word} not very", "label": {}}}"#,
            n % 3
        )
        .unwrap();
    }
    for (name, text) in [("text.txt", text), ("rows.jsonl", rows), ("pairs.jsonl", pairs)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn read(dir: &TempDir, file: &str) -> Vec<u8> {
    fs::read(dir.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn config(dir: &TempDir, run: &str) -> Value {
    serde_json::from_slice(&read(dir, &format!("{run}/config.json"))).unwrap()
}

/// Whether two runs ended with the same bits.
fn same(dir: &TempDir, [one, other]: [&str; 2], step: u32) {
    for file in ["model.safetensors", "optimizer.safetensors", "manifest.json", "tokenizer.json"] {
        let of = |run: &str| read(dir, &format!("{run}/checkpoints/step-{step}/{file}"));
        assert!(of(one) == of(other), "{file} of {one} and {other}");
    }
}

#[test]
fn masked_tokens_are_learnt_scored_and_resumed() {
    let dir = folder();
    let words = format!(
        "train {SMALL} --data text.txt --lr 4e-3 --steps 60 --save-every 30 --eval-every 30 --out a --json"
    );
    let output = ok(dir.path(), &words);
    let (trained, err) = (json(&output), stderr(&output));
    assert!(err.contains("bert: 2 layers of 16 channels") && err.contains(" tok/s"), "{err}");
    let [first, last] = ["first_loss", "last_loss"].map(|key| trained[key].as_f64().unwrap());
    assert!(last < first - 0.5, "{first} to {last}");
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    assert!(!dir.path().join("a/samples").exists());
    assert_eq!(config(&dir, "a/checkpoints/step-60")["architectures"][0], "BertForMaskedLM");

    // Masks of what is held out are the same each time, and so is the loss.
    let scored = json(&ok(dir.path(), "eval a --json"));
    assert_eq!(scored["loss"], trained["heldout_loss"]);
    assert_eq!(scored["tokens"], trained["heldout_tokens"]);
    assert!(scored["bits_per_byte"].is_null(), "{scored}");
    let shown = stdout(&ok(dir.path(), "eval a"));
    assert!(shown.contains("perplexity"), "{shown}");

    ok(dir.path(), "train --resume a/checkpoints/step-30 --out b");
    same(&dir, ["a", "b"], 60);

    // Token ids are masked as text is.
    ok(dir.path(), "data tokenize text.txt --tokenizer wp --out ids");
    let of = |data: &str| {
        let words = format!(
            "train --init a --data {data} --steps 2 --batch 8 --seed 3 --device cpu --json --out {data}-run"
        );
        json(&ok(dir.path(), &words))["last_loss"].clone()
    };
    assert_eq!(of("ids"), of("text.txt"));

    let (code, message) = refused(dir.path(), "generate a");
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("a model of the family bert, which continues no text"), "{message}");
}

#[test]
fn texts_are_classified_from_the_weights_of_masked_tokens() {
    let dir = folder();
    ok(dir.path(), &format!("train {SMALL} --data text.txt --steps 2 --out masked"));
    let words = "train --init masked --data rows.jsonl --batch 8 --lr 4e-3 --steps 60 --save-every 30 \
                 --threads 1 --device cpu --out a --json";
    let output = ok(dir.path(), words);
    let (trained, err) = (json(&output), stderr(&output));
    assert!(
        err.contains("has no bert.pooler.dense.weight, bert.pooler.dense.bias, classifier."),
        "{err}"
    );
    assert!(err.contains("they begin anew") && err.contains("2 classes"), "{err}");
    assert!(err.contains("% of the positions are padding"), "{err}");
    assert_eq!(trained["heldout_accuracy"], 1.0, "{trained}");
    assert_eq!(trained["heldout_tokens"], 12);
    let file = config(&dir, "a/checkpoints/step-60");
    assert_eq!(file["architectures"][0], "BertForSequenceClassification");
    assert_eq!(file["id2label"], serde_json::json!({ "0": "blame", "1": "praise" }));

    let scored = json(&ok(dir.path(), "eval a --json"));
    let [loss, accuracy] = ["loss", "accuracy"].map(|key| &scored[key]);
    assert_eq!((loss, accuracy), (&trained["heldout_loss"], &trained["heldout_accuracy"]));
    assert_eq!(scored["texts"], 12);
    let shown = stdout(&ok(dir.path(), "eval a"));
    assert!(shown.contains("nats per text") && shown.contains("accuracy   100.00%"), "{shown}");

    let found = json(&ok(dir.path(), "eval a --predict rows.jsonl --json"));
    assert_eq!(found["classes"], serde_json::json!(["blame", "praise"]));
    for (n, row) in found["predictions"].as_array().unwrap().iter().enumerate() {
        assert_eq!(
            row["label"],
            if n.is_multiple_of(2) { "praise" } else { "blame" },
            "{n}: {row}"
        );
        assert!(row["probability"].as_f64().unwrap() > 0.5, "{row}");
        let all = row["probabilities"].as_array().unwrap().iter();
        assert!((all.map(|it| it.as_f64().unwrap()).sum::<f64>() - 1.0).abs() < 1e-6, "{row}");
    }
    assert_eq!(found["predictions"].as_array().unwrap().len(), 120);
    let shown = stdout(&ok(dir.path(), "eval a --predict rows.jsonl"));
    assert!(shown.starts_with("praise  0.") && shown.contains("  the the was good ."), "{shown}");
    let (code, message) = refused(dir.path(), "eval masked --predict rows.jsonl");
    assert!(code == 2 && message.contains("knows no classes"), "{message}");

    ok(dir.path(), "train --resume a/checkpoints/step-30 --out b");
    same(&dir, ["a", "b"], 60);

    // What others load is a model to score and to start from: its classes are known.
    ok(dir.path(), "export a hf");
    let of_export =
        json(&ok(dir.path(), "eval hf --data rows.jsonl --batch 8 --set data.holdout=0 --json"));
    assert_eq!((&of_export["accuracy"], &of_export["texts"]), (&1.0.into(), &120.into()));
    let further = "train --init hf --data rows.jsonl --batch 8 --steps 1 --device cpu --out c";
    assert!(!stderr(&ok(dir.path(), further)).contains("begin anew"));
    // And its encoder one of masked tokens.
    let masked = "train --init hf --data rows.jsonl --format text --steps 1 --device cpu --out d";
    let err = stderr(&ok(dir.path(), masked));
    assert!(err.contains("has no cls.predictions.transform.dense.weight"), "{err}");
    let adapters = "train --init masked --data rows.jsonl --lora-rank 2 --steps 1 --device cpu";
    let (code, message) = refused(dir.path(), adapters);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("which adapters would leave as random as they begin"), "{message}");
}

#[test]
fn pairs_of_texts_are_classified() {
    let dir = folder();
    let wide = SMALL.replace("--channels 16", "--channels 64");
    let words = format!("train {wide} --data pairs.jsonl --lr 1e-3 --steps 150 --out a --json");
    let trained = json(&ok(dir.path(), &words));
    // Which third a row is of shows in a word of the second text.
    assert_eq!(trained["heldout_accuracy"], 1.0, "{trained}");
    let planned = json(&ok(dir.path(), "plan --preset bert-tiny --set model.classes=3 --json"));
    assert!(planned["peak_bytes"].as_u64().unwrap() > 4_000_000, "{planned}");
}

#[test]
fn what_cannot_be_classified_is_refused() {
    let dir = folder();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let good = r#"{"text": "good", "label": "praise"}"#;
    for (name, row) in [
        ("bare", r#"{"text": "good"}"#),
        ("empty", r#"{"text": "", "label": "praise"}"#),
        ("mixed", r#"{"text": "good", "label": 1}"#),
        ("other", r#"{"text": "good", "label": "doubt"}"#),
    ] {
        write(&format!("{name}.jsonl"), &format!("{good}\n{row}\n"));
    }
    write("many.jsonl", r#"{"text": "good", "label": 99999}"#);
    write("regression.jsonl", r#"{"text": "good", "label": 0.5}"#);
    ok(dir.path(), &format!("train {SMALL} --data rows.jsonl --steps 1 --out known"));
    for (words, expected) in [
        ("train SMALL --data bare.jsonl", "bare.jsonl, row 2: it has no `label`"),
        ("train SMALL --data empty.jsonl", "empty.jsonl, row 2: its `text` is empty"),
        ("train SMALL --data mixed.jsonl", "mixed.jsonl, row 2: its `label` is the number 1"),
        (
            "train SMALL --data many.jsonl",
            "many.jsonl, row 1: its `label` is 99999, and there are at most",
        ),
        (
            "train SMALL --data regression.jsonl",
            "regression.jsonl, row 1: its `label` is 0.5, not a whole",
        ),
        (
            "train SMALL --data rows.jsonl --set model.classes=1",
            "`model.classes` is 1, and the labels make 2",
        ),
        ("train SMALL --data text.txt --format labelled", "it has no labelled rows"),
        (
            "train SMALL --data rows.jsonl --format alpaca",
            "`data.format` is alpaca, and the model is an encoder",
        ),
        ("train SMALL --set model.classes=2", "no file of them is named"),
        ("train SMALL --data rows.jsonl --context 3", "model.context is 3: it must be at least 4"),
        ("train SMALL --data text.txt --context 2", "without room for a token"),
        (
            "eval known --data other.jsonl --set data.holdout=0",
            "other.jsonl, row 2: its `label` is \"doubt\", which the model doesn't know; its classes are blame, praise",
        ),
        (
            "eval known --data bare.jsonl --set data.holdout=0",
            "bare.jsonl, row 2: it has no `label`",
        ),
        ("train --init known --data other.jsonl", "other.jsonl, row 2: its `label` is \"doubt\""),
        (
            "train --preset tiny --data rows.jsonl --format labelled",
            "the rows are texts with labels, and the model continues text",
        ),
        ("train --preset tiny --set model.classes=2", "no file of them is named"),
        (
            "train SMALL --set model.kv_heads=1",
            "`model.kv_heads` is of a language model, and the model is an encoder",
        ),
        ("train SMALL --tokenizer byte --data text.txt", "has no tokens [CLS], [SEP] and [MASK]"),
        ("train --preset bert-tiny --data text.txt", "no tokenizer is named for the text"),
        ("generate known", "the family bert, which continues no text"),
    ] {
        let small = SMALL
            .replace("--context 16", if words.contains("--context") { "" } else { "--context 16" });
        let small = match words.contains("--tokenizer") {
            true => small.replace("--tokenizer wp", ""),
            false => small,
        };
        let (_, message) = refused(dir.path(), &words.replace("SMALL", &small));
        assert!(message.contains(expected), "`{words}`: {message}");
    }
    assert!(!dir.path().join("runs").exists());
}
