use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use tempfile::{TempDir, tempdir};

use super::*;
use crate::{BucketCount, Error, IGNORED, Loader, Result, RowBatch, Tokenizer};

mod formats;
mod masks;
mod preferences;
mod refusals;

fn file(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn template(name: &str) -> ChatTemplate {
    ChatTemplate::find(Some(name), &TemplateFiles::default(), &Tokenizer::Byte, None)
        .unwrap()
        .unwrap()
}

fn config<'a>(format: RowFormat, template: Option<&'a ChatTemplate>) -> ChatsConfig<'a> {
    ChatsConfig {
        format,
        tokenizer: &Tokenizer::Byte,
        template,
        templated_texts: false,
        train_on: TrainOn::Assistant,
        context: None,
    }
}

/// A row of bytes as text, with what is trained on in brackets.
fn shown(rows: &Rows, row: usize) -> String {
    let (mut text, mut before) = (Vec::new(), false);
    for (id, trained) in rows.get(row) {
        if trained != before {
            text.push(if trained { b'[' } else { b']' });
            before = trained;
        }
        text.push(id as u8);
    }
    if before {
        text.push(b']');
    }
    String::from_utf8(text).unwrap()
}

const ROW: &str =
    r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#;

#[test]
fn rows_are_cut_to_the_context_and_dropped_where_nothing_is_left() {
    let folder = tempdir().unwrap();
    let path = file(&folder, "a.jsonl", format!("{ROW}\n").repeat(2));
    let chatml = template("chatml");
    let open = |context| {
        let config = ChatsConfig { context, ..config(RowFormat::Messages, Some(&chatml)) };
        Chats::open(&[&path], &config)
    };
    let whole = open(None).unwrap();
    let text = shown(&whole.rows(), 1);
    assert_eq!(text, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n");
    let length = text.len() - 2;
    assert_eq!(whole.lengths(), [length as u32; 2]);
    let (rows, tokens, trained) = (2, 2 * length, 2 * 11);
    let all = Counts { rows, tokens, trained, templated: 2, merged: 0, truncated: 0, dropped: 0 };
    assert_eq!(whole.counts(), all);
    assert_eq!(open(Some(length - 1)).unwrap().counts(), all);
    let cut = open(Some(length - 3)).unwrap();
    assert_eq!((cut.counts().truncated, cut.counts().trained), (2, 2 * 10));
    assert_eq!(cut.sources()[0].tokens, 2 * length as u64);
    let none = open(Some(length - 14)).err().unwrap().to_string();
    assert!(none.contains("2 rows") && none.contains("--context"), "{none}");
}

#[test]
fn an_epoch_takes_each_row_once_and_a_loader_goes_on_anywhere() {
    let folder = tempdir().unwrap();
    let rows: String =
        (0..7).map(|n| format!("{{\"prompt\": \"{n}\", \"completion\": \"ab{n}\"}}\n")).collect();
    let path = file(&folder, "a.jsonl", rows);
    let chats = Chats::open(&[&path], &config(RowFormat::PromptCompletion, None)).unwrap();
    let (train, held) = chats.split(0.3).unwrap();
    assert_eq!((train.len(), held.len()), (4, 3));
    let apart = |rows: &Rows| Sequences::new(rows.clone(), 8, false).unwrap();
    let mut loader = Loader::of_sequences(apart(&train), 2, 5, 0).unwrap();
    let batches: Vec<_> = (0..6).map(|_| loader.next().unwrap()).collect();
    let mut seen = Vec::new();
    for (index, batch) in batches.iter().enumerate() {
        let on = Loader::of_sequences(apart(&train), 2, 5, 2 * index as u64);
        let on = on.unwrap().next().unwrap();
        assert_eq!(on, *batch, "{index}");
        for (inputs, targets) in batch.tokens.chunks(8).zip(batch.targets.chunks(8)) {
            let n = inputs[0];
            assert_eq!(inputs, [n, 97, 98, n, 0, 0, 0, 0]);
            let [a, b] = [97, 98];
            let none = IGNORED;
            assert_eq!(targets, [a, b, n, 10, none, none, none, none]);
            seen.push(n);
        }
    }
    for epoch in seen.chunks_mut(4) {
        epoch.sort_unstable();
    }
    assert!(seen[..4] == seen[4..8] && seen[..4] == seen[8..], "{seen:?}");
    let padded: Vec<_> = apart(&held).batches(2, None).unwrap().collect();
    assert_eq!(padded.len(), 2);
    let mut held: Vec<i32> = padded.iter().flat_map(|b| [b.tokens[0], b.tokens[8]]).collect();
    assert_eq!(held.pop(), Some(0));
    assert!(padded[1].targets[8..].iter().all(|&target| target == IGNORED));
    held.extend(&seen[..4]);
    held.sort_unstable();
    assert_eq!(held, (0..7).map(|n| i32::from(b'0') + n).collect::<Vec<_>>());
}

#[test]
fn batches_are_of_like_length_and_each_epoch_has_every_row_once() {
    let folder = tempdir().unwrap();
    let completion = |n: usize| "x".repeat(if n.is_multiple_of(3) { 28 } else { 1 + n % 4 });
    let row = |n| format!("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", n, completion(n));
    let rows: String = (100..141).map(row).collect();
    let path = file(&folder, "a.jsonl", rows);
    let chats = Chats::open(&[&path], &config(RowFormat::PromptCompletion, None)).unwrap();
    let whole = Sequences::new(chats.rows(), 32, false).unwrap();
    let sequences = whole.clone().in_buckets(BucketCount::Auto);
    // Short rows take 4 to 7 positions.
    assert_eq!(sequences.buckets(), [6, 8, 32]);
    let padding = sequences.padding_in_batches(4, 5).unwrap();
    assert!(padding < 0.3 && whole.padding() > 0.5, "{padding}, {}", whole.padding());
    assert_eq!(whole.padding_in_batches(4, 5).unwrap(), whole.padding());
    for batch in [1, 3, 4, 7, 64] {
        let mut loader = Loader::of_sequences(sequences.clone(), batch, 5, 0).unwrap();
        let longer = sequences.clone().padded_to(&[]);
        let (mut numbers, mut short) = (Vec::new(), 0);
        let batches = 3 * 41_usize.div_ceil(batch);
        for index in 0..batches {
            let found = loader.next().unwrap();
            let length = found.tokens.len() / batch;
            short += usize::from(length < 32);
            assert!([6, 8, 32].contains(&length), "{length}");
            let at = (index * batch) as u64;
            let again = Loader::of_sequences(sequences.clone(), batch, 5, at).unwrap().next();
            assert_eq!(again.unwrap(), found, "{index}");
            // The same rows, as long as they're padded without buckets.
            let padded = Loader::of_sequences(longer.clone(), batch, 5, at).unwrap().next();
            let padded = padded.unwrap();
            for (one, other) in found.tokens.chunks(length).zip(padded.tokens.chunks(32)) {
                assert_eq!(one, &other[..length]);
                numbers.push(one[..3].to_vec());
            }
        }
        let wide = batches - short;
        // Two in three rows are short; a batch of an epoch's ends may hold a long one.
        assert!(batch > 7 || short > wide, "{short} and {wide} of {batch}");
        for epoch in numbers[..3 * 41].chunks(41) {
            let epoch: BTreeSet<&Vec<i32>> = epoch.iter().collect();
            assert_eq!(epoch.len(), 41, "{batch}");
        }
    }
}

#[test]
fn packed_rows_are_each_in_one_sequence_of_an_epoch() {
    let folder = tempdir().unwrap();
    let completion = |n: usize| "x".repeat(1 + n * n % 5);
    let rows: String = (0..9)
        .map(|n| format!("{{\"prompt\": \"{n}\", \"completion\": \"{}\"}}\n", completion(n)))
        .collect();
    let path = file(&folder, "a.jsonl", rows);
    let chats = Chats::open(&[&path], &config(RowFormat::PromptCompletion, None)).unwrap();
    let sequences = Sequences::new(chats.rows(), 8, true).unwrap();
    assert!(sequences.len() < sequences.rows() && sequences.padding() < 0.25, "{sequences:?}");
    let mut loader = Loader::of_sequences(sequences.clone(), sequences.len(), 5, 0).unwrap();
    let starts = |batch: &RowBatch| -> Vec<i32> {
        let rows = batch.tokens.iter().zip(batch.documents.iter().zip(&batch.positions));
        rows.filter(|(_, (row, at))| **row >= 0 && **at == 0).map(|(token, _)| *token).collect()
    };
    let (one, other) = (starts(&loader.next().unwrap()), starts(&loader.next().unwrap()));
    assert_ne!(one, other, "each epoch has its order");
    for mut epoch in [one, other] {
        epoch.sort_unstable();
        assert_eq!(epoch, (0..9).map(|n| i32::from(b'0') + n).collect::<Vec<_>>());
    }
    let all: Vec<RowBatch> = sequences.batches(2, None).unwrap().collect();
    let trained = all.iter().flat_map(|batch| &batch.targets).filter(|&&id| id != IGNORED).count();
    assert_eq!(trained, chats.counts().trained);
    assert!(sequences.batches(0, None).is_err() && Sequences::new(chats.rows(), 0, true).is_err());
}
