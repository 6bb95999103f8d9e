//! Decoders that classify texts: from the weights of a language model to what transformers loads, with adapters and without.

use std::fmt::Write as _;

use serde_json::json as value;

use super::*;

/// Words of a run that takes a moment.
const QUICK: &str = "--batch 8 --threads 1 --device cpu";

/// A folder with rows whose class a word decides, and a small Llama of bytes in Hugging Face's layout, which continues text.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = String::new();
    for n in 0..80usize {
        let (filler, word) = (["the", "my", "a"][n % 3], ["good", "bad"][n % 2]);
        let label = ["praise", "blame"][n % 2];
        writeln!(
            rows,
            r#"{{"text": "{filler} film was {word}{}", "label": "{label}"}}"#,
            ".".repeat(n % 4)
        )
        .unwrap();
    }
    fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    fs::write(dir.path().join("text.txt"), "the film was good. a bad film. ".repeat(40)).unwrap();
    let words = format!(
        "train --preset llama-tiny --layers 1 --channels 32 --context 32 --data text.txt --steps 2 {QUICK} --out lm"
    );
    ok(dir.path(), &words);
    ok(dir.path(), "export lm base");
    dir
}

fn file(dir: &TempDir, name: &str) -> Value {
    let bytes = fs::read(dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_slice(&bytes).unwrap()
}

/// Holds that the runs `a` and `b` have the same bits in these files.
fn same(dir: &TempDir, step: u32, files: &[&str]) {
    for file in files {
        let of = |run: &str| {
            fs::read(dir.path().join(format!("{run}/checkpoints/step-{step}/{file}"))).unwrap()
        };
        assert!(of("a") == of("b"), "{file}");
    }
}

#[test]
fn a_decoder_is_given_classes_trained_resumed_and_exported() {
    let dir = folder();
    let (code, message) = refused(dir.path(), "train --init base --data rows.jsonl");
    assert_eq!(code, 2, "{message}");
    assert!(
        message.contains("the rows have a `label`, and the model classifies nothing")
            && message.contains("--set model.classes=N"),
        "{message}"
    );
    let words = format!(
        "train --init base --data rows.jsonl --set model.classes=2 --lr 4e-3 --steps 60 --save-every 30 {QUICK} --out a --json"
    );
    let output = ok(dir.path(), &words);
    let (trained, err) = (json(&output), stderr(&output));
    assert!(err.contains("has no score.weight: they begin anew"), "{err}");
    assert!(err.contains("llama: 1 layers of 32 channels") && err.contains("2 classes"), "{err}");
    assert!(err.contains("% of the positions are padding"), "{err}");
    assert_eq!(trained["heldout_accuracy"], 1.0, "{trained}");
    assert_eq!(trained["heldout_tokens"], 8);
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    let checkpoint = file(&dir, "a/checkpoints/step-60/config.json");
    assert_eq!(checkpoint["architectures"], value!(["LlamaForSequenceClassification"]));

    let scored = json(&ok(dir.path(), "eval a --json"));
    let [loss, accuracy] = ["loss", "accuracy"].map(|key| &scored[key]);
    assert_eq!((loss, accuracy), (&trained["heldout_loss"], &trained["heldout_accuracy"]));
    let found = json(&ok(dir.path(), "eval a --predict rows.jsonl --json"));
    assert_eq!(found["classes"], value!(["blame", "praise"]));
    let predictions = found["predictions"].as_array().unwrap();
    for (n, row) in predictions.iter().enumerate() {
        assert_eq!(row["label"], ["praise", "blame"][n % 2], "{n}: {row}");
    }
    assert_eq!(predictions.len(), 80);
    ok(dir.path(), "train --resume a/checkpoints/step-30 --out b");
    same(&dir, 60, &["model.safetensors", "optimizer.safetensors", "manifest.json"]);

    // Cut otherwise, it learns the same.
    let cut = json(&ok(dir.path(), &words.replace("--out a", "--out cut --micro-batch 2")));
    let off = cut["heldout_loss"].as_f64().unwrap() - trained["heldout_loss"].as_f64().unwrap();
    assert!(off.abs() < 1e-4, "{off}");

    ok(dir.path(), "export a hf");
    let exported = file(&dir, "hf/config.json");
    assert_eq!(exported["architectures"], value!(["LlamaForSequenceClassification"]));
    assert_eq!(exported["id2label"], value!({ "0": "blame", "1": "praise" }));
    assert_eq!(exported["label2id"], value!({ "blame": 0, "praise": 1 }));
    let of_export = json(&ok(
        dir.path(),
        &format!("eval hf --data rows.jsonl --set data.holdout=0 {QUICK} --json"),
    ));
    assert_eq!((&of_export["accuracy"], &of_export["texts"]), (&1.0.into(), &80.into()));
    // Its classes are known: no setting says them again.
    let further = format!("train --init hf --data rows.jsonl --steps 1 {QUICK} --out c");
    assert!(!stderr(&ok(dir.path(), &further)).contains("begin anew"));
    for (words, expected) in [
        ("generate a", "a model of the family llama that classifies texts, and continues none"),
        ("train --init hf --data rows.jsonl --set model.classes=3", "has 2"),
        ("train --init hf --data rows.jsonl --format text", "the model classifies texts"),
        ("train --init hf --data text.txt", "it has no labelled rows"),
        ("train --init base --set model.classes=2", "no file of them is named"),
        (
            "train --init base --data rows.jsonl --set model.classes=1",
            "`model.classes` is 1, and the labels make 2",
        ),
        (
            "train --init base --data rows.jsonl --set model.classes=2 --packing",
            "`data.packing` is of a language model, and the model is a decoder that classifies texts",
        ),
    ] {
        let (_, message) = refused(dir.path(), words);
        assert!(message.contains(expected), "`{words}`: {message}");
    }
}

#[test]
fn the_head_is_trained_whole_beside_adapters_as_peft_does() {
    let dir = folder();
    let words = format!(
        "train --init base --data rows.jsonl --set model.classes=2 --lora-rank 4 --lr 1e-2 --steps 60 --save-every 30 {QUICK} --out a --json"
    );
    let trained = json(&ok(dir.path(), &words));
    assert_eq!(trained["heldout_accuracy"], 1.0, "{trained}");
    let adapters = file(&dir, "a/checkpoints/step-60/adapter_config.json");
    assert_eq!(adapters["task_type"], "SEQ_CLS");
    assert_eq!(adapters["modules_to_save"], value!(["classifier", "score"]));
    ok(dir.path(), "train --resume a/checkpoints/step-30 --out b");
    same(&dir, 60, &["adapter_model.safetensors", "optimizer.safetensors", "manifest.json"]);
    let scored = json(&ok(dir.path(), "eval a --json"));
    assert_eq!(scored["loss"], trained["heldout_loss"]);
    ok(dir.path(), "export a merged --merge");
    let merged = json(&ok(
        dir.path(),
        &format!("eval merged --data rows.jsonl --set data.holdout=0 {QUICK} --json"),
    ));
    assert_eq!(merged["accuracy"], 1.0, "{merged}");

    // PEFT's own adapters of a classifier go on.
    let case =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/llama-classes-lora-case");
    ok(dir.path(), &format!("verify {} --device cpu", case.display()));
    let beside = format!("{} --lora-init {}", case.display(), case.join("adapters").display());
    ok(dir.path(), &format!("export {beside} theirs --merge"));
    assert_eq!(
        file(&dir, "theirs/config.json")["architectures"],
        value!(["LlamaForSequenceClassification"])
    );
}

/// Regression: the validation split of a labelled folder was ignored.
#[test]
fn labelled_rows_are_evaluated_on_others() {
    let dir = folder();
    fs::create_dir(dir.path().join("rows")).unwrap();
    let rows = fs::read_to_string(dir.path().join("rows.jsonl")).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    for (name, lines) in [("train", &lines[..60]), ("validation", &lines[60..])] {
        fs::write(dir.path().join(format!("rows/{name}.jsonl")), lines.join("\n")).unwrap();
    }
    let words = format!("train --init base --set model.classes=2 {QUICK} --steps 4 --json");
    let trained = json(&ok(dir.path(), &format!("{words} --data rows --out a")));
    assert_eq!(trained["heldout_tokens"], 20, "{trained}");
    let named =
        format!("{words} --data rows/train.jsonl --validation rows/validation.jsonl --out b");
    let named = json(&ok(dir.path(), &named));
    assert_eq!(named["heldout_loss"], trained["heldout_loss"]);
    for words in ["eval a --json", "eval a --data rows --json"] {
        assert_eq!(json(&ok(dir.path(), words))["loss"], trained["heldout_loss"], "{words}");
    }
}

/// PEFT's way of classifying: the base continues texts, and its head for classes lies with the adapters.
#[test]
fn adapters_with_a_head_classify_beside_a_model_that_continues_texts() {
    let dir = folder();
    let rows = fs::read_to_string(dir.path().join("rows.jsonl")).unwrap();
    let rows = rows.replace("\"praise\"", "0").replace("\"blame\"", "1");
    fs::write(dir.path().join("numbers.jsonl"), rows).unwrap();
    let words = format!(
        "train --init base --data numbers.jsonl --lora-rank 4 --set model.classes=2 {QUICK} --steps 6 --lr 1e-2 --out a --json"
    );
    let trained = json(&ok(dir.path(), &words));
    assert_eq!(file(&dir, "a/checkpoints/step-6/adapter_config.json")["task_type"], "SEQ_CLS");
    let beside = "--lora-init a/checkpoints/step-6 --threads 1 --device cpu";
    let scored = json(&ok(dir.path(), &format!("eval base --data numbers.jsonl {beside} --json")));
    let loss = |scored: &Value, name: &str| scored[name].as_f64().unwrap();
    let (found, expected) = (loss(&scored, "loss"), loss(&trained, "heldout_loss"));
    assert!((found - expected).abs() < 1e-6, "{scored}, {trained}");
    // Within the contexts of both.
    fs::write(dir.path().join("short.txt"), "the film was good").unwrap();
    let own = json(&ok(dir.path(), "eval a --predict short.txt --json"));
    let of_base = json(&ok(dir.path(), &format!("eval base --predict short.txt {beside} --json")));
    assert_eq!(own["predictions"], of_base["predictions"]);
    ok(dir.path(), "export base merged --merge --lora-init a/checkpoints/step-6");
    let class = &file(&dir, "merged/config.json")["architectures"][0];
    assert_eq!(class, "LlamaForSequenceClassification");
    let merged = json(&ok(dir.path(), "eval merged --data numbers.jsonl --json"));
    assert!((loss(&merged, "loss") - expected).abs() < 1e-5, "{merged}, {trained}");
}
