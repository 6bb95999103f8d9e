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
    let rows = texts.encode(&tokenizer(folder.path()), TextReader::Encoder, 10).unwrap();
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
    let short =
        texts.encode(&tokenizer(folder.path()), TextReader::Encoder, 3).unwrap_err().to_string();
    assert!(short.contains("model.context"), "{short}");
}

#[test]
fn columns_of_two_texts_are_read_together() {
    for [one, other] in [
        ["question", "sentence"],
        ["question1", "question2"],
        ["question", "passage"],
        ["text", "text_pair"],
        ["text1", "text2"],
    ] {
        let row =
            |label| format!(r#"{{"{one}": "good", "{other}": "bad film", "label": {label}}}"#);
        let (folder, path) = file(&[&row(0), &row(1)]);
        assert!(is_labelled(std::slice::from_ref(&path), None).unwrap(), "{one}");
        let texts = LabelledTexts::open(&[path], None, None).unwrap();
        let rows = texts.encode(&tokenizer(folder.path()), TextReader::Encoder, 8).unwrap();
        let batch = PaddedTexts::new(rows, 1, 8, None).unwrap().next().unwrap();
        assert_eq!(batch.types[..6], [0, 0, 0, 1, 1, 1], "{one}, {other}");
    }
}

#[test]
fn a_decoder_is_told_where_the_last_token_is_that_is_not_padding() {
    let (_folder, path) = file(&[
        r#"{"text": "good day", "label": 1}"#,
        // Ends with the padding token, and holds it: transformers looks for the last other one.
        r#"{"text": "a.day..", "label": 0}"#,
        r#"{"text": "...", "label": 0}"#,
        r#"{"sentence1": "ab", "sentence2": "a film of it", "label": 2}"#,
    ]);
    let texts = LabelledTexts::open(&[path], None, None).unwrap();
    let of = |padding| {
        let reader = TextReader::Decoder { padding, fill: u32::from(b'.') };
        let rows = texts.encode(&Tokenizer::Byte, reader, 8).unwrap();
        assert_eq!(rows.cut(), 1);
        PaddedTexts::new(rows, 6, 8, None).unwrap().next().unwrap()
    };
    let batch = of(Some(u32::from(b'.')));
    assert_eq!(batch.last, [7, 4, 0, 7, 0, 0]);
    assert_eq!(batch.labels, [1, 0, 0, 2, IGNORED, IGNORED]);
    let bytes: Vec<u8> = batch.tokens.iter().map(|&token| token as u8).collect();
    assert_eq!(bytes.chunks(8).nth(1), Some(&b"a.day..."[..]));
    assert_eq!(bytes.chunks(8).nth(3), Some(&b"aba film"[..]));
    assert_eq!((batch.types, batch.documents), (vec![], vec![]));
    // The last token counts if none is padding.
    assert_eq!(of(None).last, [7, 6, 2, 7, 0, 0]);
}

#[test]
fn every_epoch_takes_each_row_once_and_a_loader_resumes() {
    let rows: Vec<String> = (0..7)
        .map(|n| format!(r#"{{"text": "{}", "label": {n}}}"#, "good ".repeat(n + 1)))
        .collect();
    let (folder, path) = file(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let texts = LabelledTexts::open(&[path], None, None).unwrap();
    assert_eq!((texts.classes().count, texts.classes().names.len()), (7, 0));
    let rows = texts.encode(&tokenizer(folder.path()), TextReader::Encoder, 12).unwrap();
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

/// A folder with rows of numbers as labels, and a card that names the classes.
fn folder_with_card(names: [&str; 2]) -> TempDir {
    let folder = tempdir().unwrap();
    let [no, yes] = names;
    let card = format!(
        "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n    dtype:\n      class_label:\n        names:\n          '0': {no}\n          '1': {yes}\n---\n# Reviews\n"
    );
    fs::write(folder.path().join("README.md"), card).unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    let rows = "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 1}\n";
    fs::write(folder.path().join("data/rows.jsonl"), rows).unwrap();
    folder
}

#[test]
fn numbers_have_the_names_that_the_data_set_gives_them() {
    let folder = folder_with_card(["no", "yes"]);
    let paths = [folder.path()];
    assert!(is_labelled(&paths, None).unwrap());
    let open = |known: Option<&Classes>| LabelledTexts::open(&paths, None, known);
    let classes = |count: usize, names: &[&str]| {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Classes { count, names }
    };
    assert_eq!(open(None).unwrap().classes(), &classes(2, &["no", "yes"]));
    // A model without names takes them, and one with the same names in another order has its own numbers.
    assert_eq!(open(Some(&classes(2, &[]))).unwrap().classes(), &classes(2, &["no", "yes"]));
    let labels = |known: &Classes| {
        let texts = open(Some(known)).unwrap();
        assert_eq!(texts.classes(), known);
        let reader = TextReader::Decoder { padding: None, fill: 0 };
        let rows = texts.encode(&Tokenizer::Byte, reader, 4).unwrap();
        let batch = PaddedTexts::new(rows, 2, 4, None).unwrap().next().unwrap();
        (batch.labels, texts.note().map(str::to_owned))
    };
    assert_eq!(labels(&classes(2, &["no", "yes"])), (vec![0, 1], None));
    assert_eq!(labels(&classes(2, &["yes", "no"])), (vec![1, 0], None));
    let (found, note) = labels(&classes(2, &["bad", "good"]));
    assert_eq!(found, [0, 1]);
    let note = note.unwrap();
    assert!(note.contains("calls its classes no, yes, and the model bad, good"), "{note}");
    assert_eq!(labels(&classes(3, &[])).0, [0, 1]);
    let rows = folder.path().join("data/rows.jsonl");
    fs::write(&rows, r#"{"text": "a", "label": 2}"#).unwrap();
    let message = open(None).unwrap_err().to_string();
    assert!(
        message.contains("row 1: its `label` is 2, and the data set names 2 classes"),
        "{message}"
    );
}

#[test]
fn data_sets_of_the_datasets_library_name_their_classes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/labels");
    let names: Vec<String> =
        serde_json::from_slice(&fs::read(root.join("names.json")).unwrap()).unwrap();
    for place in ["rows.parquet", "saved", "card", "saved/data-00000-of-00001.arrow"] {
        let texts = LabelledTexts::open(&[root.join(place)], None, None).unwrap();
        assert_eq!(texts.classes(), &Classes { count: 5, names: names.clone() }, "{place}");
        let reader = TextReader::Decoder { padding: None, fill: 0 };
        let rows = texts.encode(&Tokenizer::Byte, reader, 8).unwrap();
        let batch = PaddedTexts::new(rows, 6, 8, None).unwrap().next().unwrap();
        assert_eq!(batch.labels, [1, 0, 4, 2, 3, 1], "{place}");
    }
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
