//! Exact scores against those that lm-evaluation-harness and transformers recorded of the same model: `tests/parity/scores`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tightrope::devices::Devices;
use tightrope::generate::Loaded;
use tightrope::score::{ChoiceScores, TextScores};
use tightrope::settings::Settings;

use super::{json, ok, refused, run};

/// The records of each tokenizer.
const TOKENIZERS: [&str; 2] = ["plain", "marked"];

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/scores")
}

fn records() -> Value {
    serde_json::from_slice(&fs::read(recorded().join("scores.json")).unwrap()).unwrap()
}

/// The model, with the tokenizer of these records.
fn model(tokenizer: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(recorded().join("model")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    if tokenizer == "marked" {
        let file = dir.path().join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        json["post_processor"] = records()["post_processor"].clone();
        fs::write(file, json.to_string()).unwrap();
    }
    dir
}

fn loaded(model: &TempDir, device: &str) -> Loaded {
    let mut said = Settings::default();
    said.read_argument(&format!("run.device={device}")).unwrap();
    Loaded::open(model.path(), &said).unwrap()
}

fn choices(model: &TempDir, device: &str, file: &str) -> ChoiceScores {
    let loaded = loaded(model, device);
    let opened = Devices::default().open(loaded.device()).unwrap();
    loaded.score_choices(opened, &[recorded().join(file)]).unwrap()
}

fn texts(model: &TempDir, device: &str, stride: Option<usize>) -> TextScores {
    let loaded = loaded(model, device);
    let opened = Devices::default().open(loaded.device()).unwrap();
    loaded.score_texts(opened, &[recorded().join("texts.jsonl")], stride).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The largest difference, relative to what is expected.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let of = |(found, expected): (&f64, &f64)| (found - expected).abs() / expected.abs();
    found.iter().zip(expected).map(of).fold(0.0, f64::max)
}

fn agree_on_choices(device: &str) {
    let records = records();
    let mut truncated = 0;
    for tokenizer in TOKENIZERS {
        let model = model(tokenizer);
        for name in ["hellaswag", "arc"] {
            let found = choices(&model, device, &format!("{name}.jsonl"));
            let record = &records[tokenizer][name];
            let expected = record["log_likelihoods"].as_array().unwrap();
            for (index, expected) in expected.iter().enumerate() {
                let off = difference(&found.log_likelihoods[index], &numbers(expected));
                assert!(off < 1e-4, "{device}, {tokenizer} {name} {}: {off:e}", index + 1);
            }
            let accuracies = [
                ("acc", found.acc()),
                ("acc_norm", found.acc_norm()),
                ("acc_bytes", found.acc_bytes()),
            ];
            for (kind, accuracy) in accuracies {
                let stderr = record[format!("{kind}_stderr")].as_f64().unwrap();
                assert_eq!(
                    accuracy.value,
                    record[kind].as_f64().unwrap(),
                    "{tokenizer} {name} {kind}"
                );
                assert!(
                    (accuracy.stderr.unwrap() - stderr).abs() < 1e-12,
                    "{tokenizer} {name} {kind}"
                );
            }
            truncated += found.truncated;
        }
    }
    assert_eq!(truncated, 24, "rows were cut that the harness doesn't cut");
}

fn agree_on_texts(device: &str) {
    let records = records();
    for tokenizer in TOKENIZERS {
        let model = model(tokenizer);
        let record = &records[tokenizer]["texts"];
        let found = texts(&model, device, None);
        let off = difference(&found.of_documents, &numbers(&record["log_likelihoods"]));
        assert!(off < 1e-4, "{device}, {tokenizer}: {off:e}");
        let figures = [found.word_perplexity(), found.byte_perplexity(), found.bits_per_byte()];
        let expected = ["word_perplexity", "byte_perplexity", "bits_per_byte"]
            .map(|name| record[name].as_f64().unwrap());
        // e to the power of 12 has twelve times the sum's relative difference.
        let off = difference(&figures, &expected);
        assert!(off < 1e-4, "{device}, {tokenizer}: {figures:?}");
        // Strides are recorded without the mark that the other tokenizer adds besides.
        for (stride, expected) in record["strided"].as_object().unwrap() {
            let found = texts(&model, device, Some(stride.parse().unwrap()));
            let off = difference(&found.of_documents, &numbers(expected));
            assert!(off < 1e-4, "{device}, {tokenizer}, stride {stride}: {off:e}");
            assert_eq!(found.tokens, texts(&model, device, None).tokens);
        }
    }
}

#[test]
fn choices_score_as_in_the_harness() {
    agree_on_choices("cpu");
}

#[test]
fn texts_score_as_in_the_harness_and_in_sliding_windows_as_in_transformers() {
    agree_on_texts("cpu");
}

#[test]
fn a_gpu_scores_as_the_processor() {
    let model = model("plain");
    let records = records();
    let found = choices(&model, "wgpu", "arc.jsonl");
    let expected = records["plain"]["arc"]["log_likelihoods"].as_array().unwrap();
    for (found, expected) in found.log_likelihoods.iter().zip(expected) {
        let off = difference(found, &numbers(expected));
        assert!(off < 1e-4, "{off:e}");
    }
    let found = texts(&model, "wgpu", Some(16));
    let off =
        difference(&found.of_documents, &numbers(&records["plain"]["texts"]["strided"]["16"]));
    assert!(off < 1e-4, "{off:e}");
}

#[test]
fn the_command_prints_scores() {
    let model = model("plain");
    let (dir, root) = (model.path(), recorded());
    let file = |name: &str| root.join(name).display().to_string();
    let found = json(&ok(
        dir,
        &format!("eval . --device cpu --json --choices {}", file("hellaswag.jsonl")),
    ));
    assert_eq!((found["acc"].as_f64(), found["acc_norm"].as_f64()), (Some(0.5), Some(0.6)));
    assert_eq!((found["questions"].as_u64(), found["truncated"].as_u64()), (Some(10), Some(9)));
    let found =
        json(&ok(dir, &format!("eval . --device cpu --json --texts {}", file("texts.jsonl"))));
    assert_eq!((found["documents"].as_u64(), found["bytes"].as_u64()), (Some(4), Some(518)));
    let loss = found["loss"].as_f64().unwrap();
    assert!((found["perplexity"].as_f64().unwrap() - loss.exp()).abs() < 1e-9 * loss.exp());
}

#[test]
fn weights_that_torch_saved_are_the_same() {
    let model = model("plain");
    let dir = model.path();
    let text = recorded().join("texts.jsonl").display().to_string();
    let score = || json(&ok(dir, &format!("eval . --device cpu --json --texts {text}")));
    let expected = score();
    fs::remove_file(dir.join("model.safetensors")).unwrap();
    let (_, message) = refused(dir, &format!("eval . --device cpu --texts {text}"));
    assert!(message.contains("model.safetensors"), "{message}");
    let file = "pytorch_model.bin";
    fs::copy(recorded().join(file), dir.join(file)).unwrap();
    assert_eq!(score(), expected);
    // A byte in the middle is a weight's.
    let mut bytes = fs::read(dir.join(file)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.join(file), bytes).unwrap();
    let (_, message) = refused(dir, &format!("eval . --device cpu --texts {text}"));
    assert!(message.contains("pytorch_model.bin") && message.contains("is damaged"), "{message}");
}

#[test]
fn a_model_of_bytes_has_no_token_before_a_text() {
    let dir = super::folder();
    ok(dir.path(), &format!("train {} --out a -q --data text.txt", super::TINY));
    fs::write(dir.path().join("short.txt"), "2 and 3").unwrap();
    let found = json(&ok(dir.path(), "eval a --texts short.txt --json"));
    assert_eq!((found["tokens"].as_u64(), found["bytes"].as_u64()), (Some(6), Some(6)));
    let bits = found["loss"].as_f64().unwrap() / std::f64::consts::LN_2;
    assert!((found["bits_per_byte"].as_f64().unwrap() - bits).abs() < 1e-12);
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let model = model("plain");
    let dir = model.path();
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    write("one.txt", "text");
    write("empty.txt", "");
    write("row.jsonl", "{\"question\": \"Q\", \"choices\": 3, \"answerKey\": \"A\"}\n");
    let long = "sword and crown ".repeat(30);
    let row = serde_json::json!({
        "question": "Q", "choices": { "text": ["a", long], "label": ["A", "B"] }, "answerKey": "A",
    });
    write("long.jsonl", &row.to_string());
    for (words, what) in [
        ("--texts one.txt --stride 49", "the stride is 49, and the model sees 48 tokens at once"),
        ("--texts one.txt --stride 0", "the stride is 0"),
        ("--texts empty.txt", "no token to score"),
        ("--texts missing.txt", "missing.txt"),
        ("--choices row.jsonl", "row.jsonl, row 1: its `choices` are a number"),
        ("--choices long.jsonl", "long.jsonl, row 1: ending 2 has"),
        ("--choices one.txt", "it holds no rows of JSON or Parquet"),
    ] {
        let (_, message) = refused(dir, &format!("eval . --device cpu {words}"));
        assert!(message.contains(what), "{words}: {message}");
    }
    for words in ["--stride 4", "--choices row.jsonl --texts one.txt"] {
        assert_eq!(run(dir, &format!("eval . {words}")).status.code(), Some(2), "{words}");
    }
}
