use std::fs;
use std::path::{Path, PathBuf};

use tempfile::{TempDir, tempdir};

use super::*;
use crate::{IGNORED, Loader, LoaderConfig, Tokenizer};

const VOCAB: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ngood\nbad\nfilm\n##s\nit\nis\nnot\n.\n";

fn tokenizer(dir: &Path) -> Tokenizer {
    let file = dir.join("vocab.txt");
    fs::write(&file, VOCAB).unwrap();
    Tokenizer::open(file).unwrap()
}

fn file(rows: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    fs::write(&path, rows.join("\n")).unwrap();
    (folder, path)
}

fn refusal(rows: &[&str], key: Option<&str>, known: Option<&Classes>) -> String {
    let (_folder, path) = file(rows);
    LabelledTexts::open(&[path], key, known).unwrap_err().to_string()
}

#[test]
fn a_vocabulary_of_word_pieces_is_read_as_bert_has_it() {
    let folder = tempdir().unwrap();
    let tokenizer = tokenizer(folder.path());
    // Case and accents go, words are cut into pieces, and what no pieces make is unknown.
    assert_eq!(tokenizer.encode("Good FILMS, é.").unwrap(), [6, 8, 9, 1, 1, 13]);
    let specials = tokenizer.specials().unwrap();
    let found = [specials.padding, specials.begin, specials.end, specials.mask];
    assert_eq!((found, tokenizer.eos()), ([0, 2, 3, 4], Some(3)));
    let refused = Tokenizer::Byte.specials().unwrap_err().to_string();
    assert!(refused.contains("has no tokens [CLS], [SEP] and [MASK]"), "{refused}");
    fs::write(folder.path().join("vocab.txt"), "a\nb\n").unwrap();
    let refused = Tokenizer::open(folder.path().join("vocab.txt")).err().unwrap().to_string();
    assert!(refused.contains("it has no [UNK]"), "{refused}");
}

#[test]
fn texts_and_pairs_are_padded_cut_and_typed() {
    let (folder, path) = file(&[
        r#"{"sentence1": "a good film", "sentence2": "it is good", "label": "same"}"#,
        r#"{"sentence1": "a good film", "sentence2": "it is not good . it is bad", "label": "other"}"#,
        r#"{"sentence1": "bad", "sentence2": "not good", "label": "same"}"#,
    ]);
    assert!(is_labelled(std::slice::from_ref(&path), None).unwrap());
    let texts = LabelledTexts::open(&[path], None, None).unwrap();
    assert_eq!(texts.classes().names, ["other", "same"]);
    let rows = texts.encode(&tokenizer(folder.path()), 10).unwrap();
    assert_eq!((rows.len(), rows.cut()), (3, 1));
    let batches: Vec<TextBatch> = PaddedTexts::new(rows.clone(), 2, 10, None).unwrap().collect();
    let (tokens, types) = (&batches[0].tokens, &batches[0].types);
    assert_eq!(tokens[..10], [2, 5, 6, 8, 3, 10, 11, 6, 3, 0]);
    assert_eq!(types[..10], [0, 0, 0, 0, 0, 1, 1, 1, 1, 0]);
    assert_eq!(batches[0].documents[..10], [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!((tokens[10], tokens[19]), (2, 3));
    assert_eq!(batches[0].labels, [1, 0]);
    assert_eq!(batches[1].labels, [1, IGNORED]);
    assert!(batches[1].documents[10..].iter().all(|&document| document == 0));
    let short = texts.encode(&tokenizer(folder.path()), 3).unwrap_err().to_string();
    assert!(short.contains("model.context"), "{short}");
}

#[test]
fn every_epoch_takes_each_row_once_and_a_loader_resumes() {
    let rows: Vec<String> = (0..7)
        .map(|n| format!(r#"{{"text": "{}", "label": {n}}}"#, "good ".repeat(n + 1)))
        .collect();
    let (folder, path) = file(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let texts = LabelledTexts::open(&[path], None, None).unwrap();
    assert_eq!((texts.classes().count, texts.classes().names.len()), (7, 0));
    let rows = texts.encode(&tokenizer(folder.path()), 12).unwrap();
    let loader = |position| {
        let config = LoaderConfig { batch: 7, context: 12, seed: 3 };
        Loader::of_texts(rows.clone(), config, position).unwrap()
    };
    let mut from_start = loader(0);
    let epochs: Vec<TextBatch> = (0..3).map(|_| from_start.next().unwrap()).collect();
    for epoch in &epochs {
        let mut labels = epoch.labels.clone();
        labels.sort_unstable();
        assert_eq!(labels, [0, 1, 2, 3, 4, 5, 6]);
    }
    assert_ne!(epochs[0].labels, epochs[1].labels);
    assert_eq!(loader(14).next().unwrap(), epochs[2]);
    let (train, held_out) = rows.split(0.3).unwrap();
    assert_eq!((train.len(), held_out.len()), (4, 3));
    assert_eq!(rows.sources()[0].tokens as usize, rows.tokens());
}

#[test]
fn rows_that_cannot_be_classified_are_refused_by_number() {
    let good = r#"{"text": "a", "label": 0}"#;
    for (row, words) in [
        (r#"{"text": "a"}"#, "row 2: it has no `label`"),
        (r#"{"text": " ", "label": 0}"#, "row 2: its `text` is empty"),
        (r#"{"text": 3, "label": 0}"#, "row 2: its `text` is a number, not a text"),
        (r#"{"body": "a", "label": 0}"#, "row 2: it has no `text`, no `sentence`"),
        (
            r#"{"text": "a", "label": "x"}"#,
            "is the text \"x\", and that of the first row is the number 0",
        ),
        (r#"{"text": "a", "label": -1}"#, "row 2: its `label` is -1, as of a row without one"),
        (r#"{"text": "a", "label": 0.5}"#, "row 2: its `label` is 0.5, not a whole number"),
        (r#"{"text": "a", "label": 70000}"#, "there are at most 65536 classes"),
        (r#"{"text": "a", "label": null}"#, "row 2: its `label` is null"),
        (r#"{"text": "a", "label": ""}"#, "row 2: its `label` is empty"),
        (r#"[1]"#, "row 2: it is an array, not an object"),
    ] {
        let message = refusal(&[good, row], None, None);
        assert!(message.contains(words) && message.contains("rows.jsonl"), "{message}");
    }
    assert!(refusal(&[good], Some("body"), None).contains("row 1: it has no `body`"));
    assert!(refusal(&[""], None, None).contains("it has no rows"));
}

#[test]
fn labels_that_a_model_does_not_know_are_refused() {
    let names = ["no", "yes"].map(str::to_owned).to_vec();
    let named = Classes { count: 2, names };
    let numbered = Classes { count: 2, names: vec![] };
    let row = |label: &str| format!(r#"{{"text": "a", "label": {label}}}"#);
    for (label, known, words) in [
        (r#""maybe""#, &named, "\"maybe\", which the model doesn't know; its classes are no, yes"),
        ("2", &named, "its `label` is 2, and the model knows 2 classes, from 0 on"),
        ("2", &numbered, "its `label` is 2, and the model knows 2 classes, from 0 on"),
        (r#""yes""#, &numbered, "have no names; give numbers below 2"),
    ] {
        let message = refusal(&[&row(label)], None, Some(known));
        assert!(message.contains(words), "{message}");
    }
    let (_folder, path) = file(&[&row("1")]);
    let texts = LabelledTexts::open(&[path], None, Some(&named)).unwrap();
    assert_eq!(texts.classes(), &named);
}

#[test]
fn texts_without_labels_are_not_labelled() {
    for (row, key, is) in [
        (r#"{"text": "a", "label": 1}"#, None, true),
        (r#"{"premise": "a", "hypothesis": "b", "label": 1}"#, None, true),
        (r#"{"text": "a"}"#, None, false),
        (r#"{"body": "a", "label": 1}"#, None, false),
        (r#"{"body": "a", "label": 1}"#, Some("body"), true),
    ] {
        let (_folder, path) = file(&[row]);
        assert_eq!(is_labelled(&[path], key).unwrap(), is, "{row}");
    }
}
