//! Token ids against those of transformers, recorded by `tests/parity/record_tokenizers.py`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;

use serde::Deserialize;

use crate::Tokenizer;

const CASES: &[u8] = include_bytes!("../../../../../tests/parity/tokenizers/cases.json.gz");

#[derive(Deserialize)]
struct Recorded {
    texts: Vec<String>,
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    files: BTreeMap<String, String>,
    /// The first six digits of a hash of the ids, of each text.
    plain: String,
    /// With the tokens that are put around a text.
    around: String,
}

/// FNV-1a, as the recording script has it.
fn hashed(ids: impl Iterator<Item = u32>) -> String {
    let hash = ids.flat_map(u32::to_le_bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")[..6].to_owned()
}

#[test]
fn ids_are_those_of_transformers() {
    let mut text = String::new();
    flate2::read::GzDecoder::new(CASES).read_to_string(&mut text).unwrap();
    let Recorded { texts, cases } = serde_json::from_str(&text).unwrap();
    assert_eq!((texts.len(), cases.len()), (500, 10));
    let mut other = Vec::new();
    for (name, case) in &cases {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in &case.files {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let tokenizer = Tokenizer::open(Tokenizer::file_in(folder.path())).unwrap();
        for (index, text) in texts.iter().enumerate() {
            let place = 6 * index..6 * index + 6;
            let plain = hashed(tokenizer.encode(text).unwrap().into_iter());
            let around = tokenizer.encode_spans(text, true).unwrap();
            let around = hashed(around.into_iter().map(|(id, _)| id));
            for (way, found, expected) in
                [("plain", plain, &case.plain), ("around", around, &case.around)]
            {
                if found != expected[place.clone()] {
                    other.push(format!("{name}, {way}, {index}: {text:?}"));
                }
            }
        }
    }
    assert!(other.is_empty(), "{} ids differ:\n{}", other.len(), other.join("\n"));
}
