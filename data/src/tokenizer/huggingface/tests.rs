use std::fs;

use serde_json::{Value, json};
use tempfile::tempdir;

use super::*;
use crate::permutation::mix;
use crate::{Corpus, Tokenizer};

mod parity;

/// A byte-level BPE like GPT-2's: 256 bytes, merges of two letters, one special token.
fn byte_level() -> Value {
    let printable = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut vocab = serde_json::Map::new();
    let mut shifted = 256;
    for byte in 0..=255u8 {
        let stand_in = if printable(&byte) {
            char::from(byte)
        } else {
            shifted += 1;
            char::from_u32(shifted - 1).unwrap()
        };
        vocab.insert(stand_in.to_string(), json!(byte));
    }
    let mut merges = Vec::new();
    for (index, (left, right)) in
        [("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "a")].iter().enumerate()
    {
        vocab.insert(format!("{left}{right}"), json!(256 + index));
        merges.push(json!([left, right]));
    }
    vocab.insert("<|endoftext|>".into(), json!(260));
    json!({
        "version": "1.0",
        "added_tokens": [{"id": 260, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "vocab": vocab, "merges": merges}
    })
}

/// Words behind "▁", which is also put in front of a text: no cut is harmless.
fn metaspace() -> Value {
    json!({
        "version": "1.0",
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": false, "merges": [],
            "vocab": {"<unk>": 0, "</s>": 1, "▁": 2, "a": 3, "b": 4, "\n": 5}}
    })
}

fn parse(json: &Value) -> HuggingFace {
    HuggingFace::parse("tokenizer.json", json.to_string().as_bytes(), None).unwrap()
}

#[test]
fn byte_level_text_round_trips() {
    let tokenizer = Tokenizer::HuggingFace(Box::new(parse(&byte_level())));
    assert_eq!((tokenizer.vocab_size(), tokenizer.eos()), (261, Some(260)));
    assert_eq!(tokenizer.encode("the in a").unwrap(), [257, 32, 258, 259]);
    assert!(tokenizer.encode("").unwrap().is_empty());
    for text in ["naïve — 文\n\n x", "<|endoftext|>", " \t\r\n"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap(), text);
    }
    assert!(tokenizer.decode(&[261]).unwrap_err().to_string().contains("vocabulary of 261"));
    assert!(tokenizer.name().starts_with("huggingface-"));
    let json = byte_level().to_string().into_bytes();
    assert_eq!(tokenizer.files(), [("tokenizer.json".to_owned(), json)]);
}

#[test]
fn the_configured_end_of_text_token_comes_first() {
    let file = byte_level().to_string();
    let eos = |config: &str| {
        HuggingFace::parse("t", file.as_bytes(), Some(config.as_bytes())).unwrap().eos()
    };
    assert_eq!(eos(r#"{"eos_token": "the"}"#), Some(257));
    assert_eq!(eos(r#"{"eos_token": {"content": "in", "lstrip": false}}"#), Some(258));
    // transformers adds a token that the file lacks.
    assert_eq!(eos(r#"{"eos_token": "absent"}"#), Some(261));
    for config in [r#"{"eos_token": null}"#, "{}", "not json"] {
        assert_eq!(eos(config), Some(260));
    }
    assert_eq!(parse(&metaspace()).eos(), Some(1));

    let folder = tempdir().unwrap();
    let config = br#"{"eos_token": "the"}"#.to_vec();
    let saved = HuggingFace::parse("t", file.as_bytes(), Some(&config)).unwrap();
    assert_ne!(saved.name(), parse(&byte_level()).name());
    for (name, bytes) in saved.files() {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let opened = Tokenizer::open(folder.path().join("tokenizer.json")).unwrap();
    assert_eq!((opened.eos(), opened.name()), (Some(257), saved.name()));
}

/// Compares with one call of the library on all of the text.
#[test]
fn pieces_encode_as_the_whole() {
    let mut text = String::new();
    let words = ["the", " in", "\n", "\n\n", " a", "é", "x\n", ".\ny", "  ", "<|endoftext|>"];
    let mut random = 1;
    while text.len() < 3 * PIECE {
        random = mix(random);
        text.push_str(words[random as usize % words.len()]);
    }
    let tokenizer = parse(&byte_level());
    assert!(tokenizer.pieces(&text).unwrap().len() >= 3);
    let whole = tokenizer.encode_piece(&text).unwrap();
    assert_eq!(tokenizer.encode(&text).unwrap(), whole);

    let tokenizer = parse(&metaspace());
    let text = "a b\nb a ".repeat(PIECE / 4);
    assert_eq!(tokenizer.pieces(&text).unwrap(), [&text]);
}

#[test]
fn documents_end_in_the_end_of_text_token() {
    let folder = tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let tokenizer = Tokenizer::open(at("tokenizer.json", &byte_level().to_string())).unwrap();
    let files =
        [at("a.txt", "the"), at("b.jsonl", "{\"text\":\"in\"}\n{\"text\":\"\"}\n{\"text\":\"a\"}")];
    let corpus = Corpus::open(&files, Corpus::TEXT_KEY, &tokenizer).unwrap();
    let mut ids = [0; 6];
    corpus.tokens().read(0..6, &mut ids).unwrap();
    assert_eq!(ids, [257, 260, 258, 260, 97, 260]);
    corpus.check_vocab(261).unwrap();
    assert!(corpus.check_vocab(260).is_err());
    let absent = Tokenizer::open(folder.path().join("absent.json")).err().unwrap();
    assert!(absent.to_string().contains("check the path"), "{absent}");
}

#[test]
fn broken_files_are_errors() {
    let refused = |text: &str| HuggingFace::parse("bad.json", text.as_bytes(), None).err().unwrap();
    for text in ["", "{}", "[]", "\u{0}", r#"{"model": 1}"#, &"[".repeat(100_000)] {
        assert!(refused(text).to_string().contains("bad.json: not a usable"), "{}", refused(text));
    }
    let mut empty = metaspace();
    empty["model"]["vocab"] = json!({});
    assert!(refused(&empty.to_string()).to_string().contains("vocabulary is empty"));
    let mut huge = metaspace();
    huge["model"]["vocab"]["a"] = json!(u32::MAX);
    assert!(refused(&huge.to_string()).to_string().contains("beyond 2³¹"));
}

/// Parses, encodes and decodes with damaged files; a panic would fail the test.
#[test]
fn mutated_files_never_panic() {
    let seeds = [byte_level().to_string(), metaspace().to_string()];
    let mut usable = 0;
    for case in 0..600u64 {
        let mut bytes = seeds[case as usize % 2].clone().into_bytes();
        for round in 0..1 + case % 3 {
            let random = mix(mix(case) ^ round);
            let at = (random >> 16) as usize % bytes.len();
            let other = (random >> 40) as usize % bytes.len();
            match random % 4 {
                0 => bytes[at] ^= 1 << (random >> 8 & 7),
                1 => bytes[at] = b"0129\"[]{},:-n"[(random >> 8) as usize % 13],
                2 => drop(bytes.drain(at..bytes.len().min(at + 1 + other % 40))),
                _ => bytes.swap(at, other),
            }
        }
        if let Ok(tokenizer) = HuggingFace::parse("mutated", &bytes, None) {
            usable += 1;
            if let Ok(ids) = tokenizer.encode("the ab\n é<unk>") {
                let _ = tokenizer.decode(&ids);
            }
        }
    }
    assert!(usable > 0);
}

#[test]
fn a_panic_of_the_library_is_an_error() {
    assert_eq!(guarded(|| 7), Ok(7));
    let message = guarded(|| panic!("index {} out of range", 3)).map(|()| 0).unwrap_err();
    assert_eq!(message, "the tokenizers library panicked: index 3 out of range");
}

#[test]
fn truncation_and_padding_that_a_file_keeps_are_left_out() {
    let mut json = byte_level();
    json["truncation"] =
        json!({ "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0 });
    json["padding"] = json!({ "strategy": { "Fixed": 24 }, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "!" });
    let (kept, plain) = (parse(&json), parse(&byte_level()));
    let text = "the in a the in a the";
    assert_eq!(kept.encode(text).unwrap(), plain.encode(text).unwrap());
    assert_eq!(kept.encode_spans(text, true).unwrap(), plain.encode_spans(text, true).unwrap());
    assert_eq!(kept.added().unwrap(), [Vec::<u32>::new(), Vec::new()]);
}

/// Ids as transformers 5.24 gives them.
#[test]
fn tokens_that_lie_beside_the_file_are_added() {
    let json = byte_level().to_string();
    let with = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        HuggingFace::with_files("t", json.as_bytes(), files.collect()).unwrap()
    };
    let decoder = r#"{"added_tokens_decoder": {"262": {"content": "<b>", "special": false},
        "261": {"content": "<a>", "special": true}}, "pad_token": "<p>", "eos_token": "<a>"}"#;
    let listed =
        with(&[("tokenizer_config.json", decoder), ("added_tokens.json", r#"{"<c>": 270}"#)]);
    assert_eq!(listed.encode("<a>the<b><p>").unwrap(), [261, 257, 262, 263]);
    assert_eq!((listed.eos(), listed.vocab_size()), (Some(261), 264));
    let named = with(&[
        (
            "special_tokens_map.json",
            r#"{"bos_token": {"content": "<s>"}, "additional_special_tokens": ["<x>"]}"#,
        ),
        ("added_tokens.json", r#"{"<c>": 261, "<s>": 262}"#),
    ]);
    assert_eq!(named.encode("<c><s><x>").unwrap(), [261, 262, 263]);
    assert_eq!(named.bos(), Some(262));
    assert_ne!(listed.name(), named.name());
    // transformers 5 leaves a tokenizer.json's own post-processor, and its lack of one.
    let around = with(&[(
        "tokenizer_config.json",
        r#"{"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "add_eos_token": false}"#,
    )]);
    let around = Tokenizer::HuggingFace(Box::new(around));
    assert_eq!(around.encode_with_specials("the").unwrap(), [257]);
    assert_eq!(around.around_texts().unwrap(), [vec![], vec![262]]);
}

/// Ids as transformers 5.24 gives them.
#[test]
fn special_tokens_are_text_where_the_configuration_splits_them() {
    let json = byte_level().to_string();
    let ids = |config: &str, text: &str| {
        let read = HuggingFace::parse("t", json.as_bytes(), Some(config.as_bytes())).unwrap();
        (read.encode(text).unwrap(), read.name().to_owned())
    };
    let (whole, name) = ids(r#"{"eos_token": "</s>"}"#, "a</s>");
    let (split, other) = ids(r#"{"eos_token": "</s>", "split_special_tokens": true}"#, "a</s>");
    assert_eq!(whole, [97, 261]);
    assert_eq!(split, [97, 60, 47, 115, 62]);
    assert_ne!(name, other);
}

/// Ids as transformers 5.24 gives them.
#[test]
fn classes_normalize_and_split_by_their_configuration() {
    let ids = |json: &Value, config: &Value, text: &str| {
        let (json, config) = (json.to_string(), config.to_string());
        let read = HuggingFace::parse("t", json.as_bytes(), Some(config.as_bytes())).unwrap();
        read.encode(text).unwrap()
    };
    let mut spaced = byte_level();
    spaced["pre_tokenizer"]["add_prefix_space"] = json!(true);
    for json in [byte_level(), spaced.clone()] {
        for (class, key, expected) in [
            ("GPT2Tokenizer", Value::Null, [97, 32, 257]),
            ("GPT2TokenizerFast", json!(true), [259, 32, 257]),
            ("Qwen2Tokenizer", json!(false), [97, 32, 257]),
        ] {
            let config = json!({"tokenizer_class": class, "add_prefix_space": key});
            assert_eq!(ids(&json, &config, "a the"), expected, "{config}");
        }
    }
    let of_file = json!({"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": false});
    assert_eq!(ids(&spaced, &of_file, "a the"), [259, 32, 257]);

    let words = ["[UNK]", "a", "A", "é", "e", "E", "文", "É", "文文"];
    let vocab: serde_json::Map<String, Value> =
        words.into_iter().zip(0..).map(|(word, id)| (word.to_owned(), json!(id))).collect();
    let bert = |lowercase: bool| {
        json!({
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": lowercase},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocab}
        })
    };
    for lowercase in [true, false] {
        for (config, expected) in [
            (json!({}), &[1, 4, 4, 6, 6][..]),
            (json!({"tokenizer_class": "BertTokenizer", "do_lower_case": false}), &[2, 7, 3, 6, 6]),
            (json!({"do_lower_case": true, "strip_accents": false}), &[1, 3, 3, 6, 6]),
            (json!({"tokenize_chinese_chars": false}), &[1, 4, 4, 8]),
            (json!({"do_lower_case": false, "strip_accents": true}), &[2, 5, 4, 6, 6]),
        ] {
            assert_eq!(ids(&bert(lowercase), &config, "A É é 文文"), expected, "{config}");
        }
    }
    let of_file = json!({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true});
    assert_eq!(ids(&bert(false), &of_file, "A É é 文文"), [2, 7, 3, 6, 6]);
}

#[test]
fn replacements_that_multiply_a_text_are_refused() {
    let mut json = byte_level();
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    json["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![double; 40] });
    let refused = HuggingFace::parse("t", json.to_string().as_bytes(), None).err().unwrap();
    assert!(refused.to_string().contains("normalizer makes a text"), "{refused}");
}

/// Ids are those of `vocab.json`, as in transformers' GPT2Tokenizer, and not of the order of merges.
#[test]
fn a_vocabulary_and_merges_make_a_tokenizer() {
    let folder = tempdir().unwrap();
    let at = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    at("vocab.json", r#"{"<|endoftext|>": 0, "a": 1, "b": 2, "Ġ": 3, "ab": 5, "Ġab": 4}"#);
    at("merges.txt", "#version: 0.2\na b\nĠ ab\n");
    let tokenizer = Tokenizer::open(Tokenizer::file_in(folder.path())).unwrap();
    assert_eq!(tokenizer.encode("ab abb<|endoftext|>").unwrap(), [5, 4, 2, 0]);
    assert_eq!((tokenizer.eos(), tokenizer.vocab_size()), (Some(0), 6));
    // Each row as transformers 5.24 has it.
    for (asked, ids) in [
        (r#""add_bos_token": true"#, &[0, 5][..]),
        (r#""add_eos_token": true"#, &[5, 6]),
        (r#""add_bos_token": true, "add_eos_token": true"#, &[0, 5, 6]),
        (r#""add_bos_token": false"#, &[5]),
        (r#""add_prefix_space": false"#, &[5]),
    ] {
        for class in ["GPT2Tokenizer", "Qwen2TokenizerFast"] {
            let config = format!(
                r#"{{"tokenizer_class": "{class}", "bos_token": "<|endoftext|>", "eos_token": "</s>", {asked}}}"#
            );
            at("tokenizer_config.json", &config);
            let tokenizer = Tokenizer::open(folder.path().join("vocab.json")).unwrap();
            assert_eq!(tokenizer.encode_with_specials("ab").unwrap(), ids, "{class}, {asked}");
            // As a checkpoint keeps it.
            let kept = tempdir().unwrap();
            for (name, bytes) in tokenizer.files() {
                fs::write(kept.path().join(name), bytes).unwrap();
            }
            let again = Tokenizer::open(Tokenizer::file_in(kept.path())).unwrap();
            assert_eq!(again.name(), tokenizer.name(), "{class}, {asked}");
            assert_eq!(again.encode_with_specials("ab").unwrap(), ids, "{class}, {asked}");
        }
    }
    at("tokenizer_config.json", r#"{"tokenizer_class": "CLIPTokenizer"}"#);
    let refused = Tokenizer::open(folder.path().join("vocab.json")).err().unwrap().to_string();
    assert!(refused.contains("CLIPTokenizer"), "{refused}");
}
