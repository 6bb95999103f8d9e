//! Data sets that `datasets` wrote, and the rows that it reads from them, recorded by `tests/parity/record_arrow.py`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Date32Array, RecordBatch, StringArray, StructArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use minijinja::Value;
use serde::Deserialize;
use serde_json::json;
use tempfile::{TempDir, tempdir};

use super::{column, rows};
use crate::bytes::Bytes;
use crate::corpus::{held_out_split, named};
use crate::{Corpus, Error, Result, RowFormat, Tokenizer, row_format};

const CASES: &[u8] = include_bytes!("../../../tests/parity/arrow/cases.json.gz");

#[derive(Deserialize)]
struct Case {
    kind: String,
    way: Option<String>,
    /// By split; of a folder without splits, by an empty name.
    rows: BTreeMap<String, Vec<serde_json::Value>>,
    /// By their paths; a character is a byte.
    files: BTreeMap<String, String>,
}

fn recorded() -> Vec<Case> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(CASES).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

impl Case {
    fn unpacked(&self) -> TempDir {
        let folder = tempdir().unwrap();
        for (path, bytes) in &self.files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes_of(bytes)).unwrap();
        }
        folder
    }

    /// The first table.
    fn table(&self) -> Vec<u8> {
        let table = self.files.iter().find(|(path, _)| path.ends_with(".arrow"));
        bytes_of(table.unwrap().1)
    }
}

fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn read(files: &[PathBuf]) -> Result<Vec<serde_json::Value>> {
    let mut all = Vec::new();
    for path in files {
        let bytes = Bytes::open(path)?;
        let mut expected = 0;
        rows("table", &bytes, &mut |number, row: Value| {
            expected += 1;
            assert_eq!(number, expected);
            all.push(serde_json::to_value(&row).unwrap());
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(all)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    named(&[folder]).unwrap().into_iter().map(|file| file.path).collect()
}

#[test]
fn rows_and_splits_are_those_of_the_datasets_library() {
    let cases = recorded();
    let ways: Vec<_> = cases.iter().map(|case| case.way.as_deref()).collect();
    for way in [None, Some("lz4"), Some("zstd"), Some("file")] {
        assert!(ways.contains(&way), "{way:?}");
    }
    for (index, case) in cases.iter().enumerate() {
        let folder = case.unpacked();
        for (split, expected) in &case.rows {
            let found = read(&files(&folder.path().join(split))).unwrap();
            assert_eq!(&found, expected, "case {index}, {:?}, split {split:?}", case.way);
        }
        // The whole folder is what is trained on, and another split what is evaluated on.
        let trained = case.rows.get("train").or_else(|| case.rows.values().next()).unwrap();
        assert_eq!(&read(&files(folder.path())).unwrap(), trained, "case {index}");
        let held_out = held_out_split(&[folder.path()]).unwrap();
        let expected = ["validation", "test"]
            .into_iter()
            .find(|&name| case.rows.contains_key(name) && case.rows.contains_key("train"));
        assert_eq!(held_out.as_ref().map(|split| split.name), expected, "case {index}");
        if let Some(split) = held_out {
            assert_eq!(read(&split.files).unwrap(), case.rows[split.name], "case {index}");
        }
    }
}

#[test]
fn texts_are_documents_and_formats_are_told() {
    for (index, case) in recorded().iter().enumerate() {
        let folder = case.unpacked();
        let format = row_format(&[folder.path()], RowFormat::Auto, None);
        let expected = match &*case.kind {
            "prompts" => RowFormat::PromptCompletion,
            "chats" => RowFormat::Messages,
            "typed" => {
                assert!(format.unwrap_err().to_string().contains("--format messages"));
                continue;
            }
            _ => RowFormat::Text,
        };
        assert_eq!(format.unwrap(), expected, "case {index}");
        let labelled = crate::is_labelled(&[folder.path()], None).unwrap();
        assert_eq!(labelled, case.kind == "labels", "case {index}");
        if case.kind != "texts" {
            continue;
        }
        let expected: Vec<&str> = case
            .rows
            .get("train")
            .or_else(|| case.rows.values().next())
            .unwrap()
            .iter()
            .filter_map(|row| row["text"].as_str())
            .collect();
        let mut found = Vec::new();
        let mut least = usize::MAX;
        for path in files(folder.path()) {
            let bytes = Bytes::open(&path).unwrap();
            let before = found.len();
            column("table", &bytes, "text", &mut |text| {
                found.push(text.to_owned());
                Ok(())
            })
            .unwrap();
            least = least.min(found[before..].iter().filter(|text| !text.is_empty()).count());
        }
        assert_eq!(found, expected, "case {index}");
        let corpus = Corpus::open(&[folder.path()], Corpus::TEXT_KEY, &Tokenizer::Byte);
        match corpus {
            // Each text that isn't empty ends in a newline.
            Ok(corpus) => {
                let texts = expected.iter().filter(|text| !text.is_empty());
                let bytes: usize = texts.map(|text| text.len() + 1).sum();
                assert_eq!(corpus.tokens().len(), bytes, "case {index}");
            }
            // A shard without a text.
            Err(_) => assert_eq!(least, 0, "case {index}"),
        }
        let other = Corpus::open(&[folder.path()], "body", &Tokenizer::Byte).unwrap_err();
        assert!(
            other.to_string().contains("no column `body`, and has `text`, `id`, `score`"),
            "{other}"
        );
        let other = Corpus::open(&[folder.path()], "id", &Tokenizer::Byte).unwrap_err();
        assert!(other.to_string().contains("its column `id` isn't of text"), "{other}");
    }
}

#[test]
fn folders_name_their_shards() {
    let cases = recorded();
    let case =
        cases.iter().find(|case| case.rows.contains_key("") && case.kind != "typed").unwrap();
    let folder = case.unpacked();
    // A shard of another time isn't one of the data set.
    fs::write(folder.path().join("data-00000-of-00009.arrow"), case.table()).unwrap();
    assert_eq!(read(&files(folder.path())).unwrap(), case.rows[""]);
    let state = |value: serde_json::Value| {
        fs::write(folder.path().join("state.json"), value.to_string()).unwrap();
        named(&[folder.path()]).map(|files| files.len()).map_err(|error| error.to_string())
    };
    for name in ["../data.arrow", "/etc/passwd", "a/b", "", "."] {
        let refused = state(json!({ "_data_files": [{ "filename": name }] })).unwrap_err();
        assert!(refused.contains("isn't a name within it"), "{name}: {refused}");
    }
    let old = json!({ "_data_files": [], "_indices_data_files": [{ "filename": "i.arrow" }] });
    assert!(state(old).unwrap_err().contains("old version"));
    // Data of that name.
    fs::remove_dir_all(folder.path()).unwrap();
    fs::create_dir(folder.path()).unwrap();
    assert_eq!(state(json!([{ "text": "Ohio" }])), Ok(1));
    fs::write(folder.path().join("dataset_dict.json"), r#"{"splits": ["train"]}"#).unwrap();
    let refused = named(&[folder.path()]).map(|files| files.len()).unwrap_err().to_string();
    assert!(refused.contains("train: it is a split without a state.json"), "{refused}");
}

#[test]
fn caches_are_their_tables() {
    let case = &recorded()[0];
    let folder = tempdir().unwrap();
    for name in ["imdb-train.arrow", "cache-0123456789abcdef.arrow"] {
        fs::write(folder.path().join(name), case.table()).unwrap();
    }
    fs::write(folder.path().join("dataset_info.json"), "{}").unwrap();
    let names: Vec<_> = named(&[folder.path()]).unwrap().into_iter().map(|it| it.source).collect();
    assert_eq!(names, ["imdb-train.arrow"]);
}

#[test]
fn damaged_tables_are_refused() {
    let discard = |bytes: &[u8]| {
        let rows = rows("table", bytes, &mut |_, _| Ok(ControlFlow::Continue(())));
        let texts = column("table", bytes, "text", &mut |_| Ok(()));
        (rows, texts)
    };
    for case in recorded() {
        let table = case.table();
        for at in 0..200_u64 {
            let random = crate::permutation::mix(at);
            let place = (random >> 8) as usize % table.len();
            let mut bytes = table.clone();
            match at % 4 {
                0 => bytes[place] ^= 1 << (random % 8),
                1 => bytes[place..(place + 8).min(table.len())].fill(0xff),
                2 => bytes.truncate(place),
                _ => bytes[place] = random as u8,
            }
            let _ = discard(&bytes);
        }
        let cut = discard(&table[..table.len() / 2]).0.unwrap_err();
        assert!(matches!(cut, Error::Arrow { .. }), "{cut}");
        assert!(cut.to_string().contains("ends within a message"), "{cut}");
    }
    for bytes in [&b""[..], b"ARROW1\0\0", &[0; 8]] {
        let refused = discard(bytes).0.unwrap_err().to_string();
        assert!(refused.contains("it has no schema"), "{refused}");
    }
}

fn written(columns: Vec<(&str, ArrayRef)>, compression: Option<CompressionType>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut bytes = Vec::new();
    let mut writer =
        StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

fn refusal(bytes: &[u8], key: &str) -> String {
    column("table", bytes, key, &mut |_| Ok(())).unwrap_err().to_string()
}

#[test]
fn tables_that_become_too_large_are_refused() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(32 << 20)]));
    let bytes = written(vec![("text", text)], Some(CompressionType::ZSTD));
    assert!(bytes.len() < 1 << 15, "{}", bytes.len());
    assert!(refusal(&bytes, "text").contains("TIGHTROPE_MAX_UNPACKED"));
}

#[test]
fn images_are_refused_by_their_column_and_dates_are_left_out() {
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\x89PNG"[..]]));
    let path: ArrayRef = Arc::new(StringArray::from(vec!["a.png"]));
    let image = StructArray::try_from(vec![("bytes", bytes), ("path", path)]).unwrap();
    let day: ArrayRef = Arc::new(Date32Array::from(vec![7]));
    let image: ArrayRef = Arc::new(image);
    let table = written(vec![("image", image), ("day", day)], None);
    let refused = refusal(&table, "text");
    assert!(refused.contains("has `image`, `day`; `image` holds files of pictures"), "{refused}");
    let refused = refusal(&table, "image");
    assert!(refused.contains("its column `image` holds files of pictures"), "{refused}");
    let mut found = Vec::new();
    rows("table", &table, &mut |_, row| {
        found.push(row.to_string());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("a.png") && !found[0].contains("day"), "{found:?}");
}
