use std::fs;
use std::path::PathBuf;

use tempfile::{TempDir, tempdir};

use super::*;

fn file(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn ids(tokens: &Tokens) -> Vec<i32> {
    let mut out = vec![0; tokens.len()];
    tokens.read(0..tokens.len(), &mut out).unwrap();
    out
}

fn bytes(tokens: &Tokens) -> Vec<u8> {
    ids(tokens).into_iter().map(|id| u8::try_from(id).unwrap()).collect()
}

fn shard_bytes(magic: i32, version: i32, count: i32, body: &[u8]) -> Vec<u8> {
    let mut words = [0i32; 256];
    words[..3].copy_from_slice(&[magic, version, count]);
    words.iter().flat_map(|w| w.to_le_bytes()).chain(body.iter().copied()).collect()
}

#[test]
fn text_shards_and_json_lines_make_one_stream() {
    let folder = tempdir().unwrap();
    let files = [
        file(&folder, "a.txt", "\u{feff}héllo"),
        file(&folder, "b.jsonl", "{\"text\": \"one\\n\"}\r\n\n{\"id\": 3, \"text\": \"two\"}"),
        file(&folder, "c.bin", shard_bytes(MAGIC_16, 1, 2, &[65, 0, 66, 0])),
        file(&folder, "d.bin", shard_bytes(MAGIC_32, 1, 1, &[67, 0, 0, 0])),
    ];
    let corpus = Corpus::open(&files, &Tokenizer::Byte).unwrap();
    assert_eq!(bytes(&corpus.tokens()), "hélloone\n\ntwo\nABC".as_bytes());
    let sources = corpus.sources();
    let content = Some(content("\u{feff}héllo".as_bytes()));
    assert_eq!(sources[0], Source { name: "a.txt".into(), tokens: 6, content });
    assert_eq!(sources.iter().map(|s| s.tokens).collect::<Vec<_>>(), [6, 9, 2, 1]);
    corpus.check_vocab(256).unwrap();
    let error = corpus.check_vocab(67).unwrap_err().to_string();
    assert!(error.contains("a.txt, token 0") || error.contains("vocabulary of 67"), "{error}");
}

#[test]
fn the_last_fraction_is_held_out() {
    let corpus = Corpus::from_bytes("abc", b"0123456789", &Tokenizer::Byte).unwrap();
    let (train, held) = corpus.split(0.1).unwrap();
    assert_eq!((bytes(&train), bytes(&held)), (b"012345678".to_vec(), b"9".to_vec()));
    let (train, held) = corpus.split(0.0).unwrap();
    assert_eq!((train.len(), held.len()), (10, 0));
    for bad in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(corpus.split(bad), Err(Error::Setting { .. })));
    }
}

#[test]
fn documents_in_memory_need_no_file() {
    let documents = [("a", b"one"), ("b", b"two")];
    let corpus = Corpus::from_documents(documents, &Tokenizer::Byte).unwrap();
    assert_eq!(bytes(&corpus.tokens()), b"onetwo");
    assert_eq!(corpus.sources()[1].name, "b");
    assert!(Corpus::from_bytes("x", vec![b'a', 0xff], &Tokenizer::Byte).is_err());
}

#[test]
fn bad_input_is_refused_with_its_place() {
    let folder = tempdir().unwrap();
    let message = |name: &str, bytes: &[u8]| {
        let path = file(&folder, name, bytes);
        let error = Corpus::open(&[&path], &Tokenizer::Byte).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        error
    };
    assert!(message("latin.txt", b"caf\xe9 au lait").contains("byte 3"));
    assert!(message("empty.txt", b"").contains("0 token(s)"));
    assert!(message("bom.txt", BYTE_ORDER_MARK).contains("0 token(s)"));
    assert!(message("one.txt", b"a").contains("1 token(s)"));
    assert!(message("blank.jsonl", b"\n \n").contains("0 token(s)"));
    assert!(message("a.jsonl", b"{\"text\":\"x\"}\n{\"text\":7}\n").contains("line 2, column 9"));
    assert!(message("b.jsonl", b"{\"txt\":\"x\"}").contains("missing field `text`"));
    assert!(message("c.jsonl", b"[1]\n").contains("line 1"));
    assert!(message("d.jsonl", b"{\"text\":\"\xff\"}").contains("byte 9"));
    assert!(message("e.jsonl", b"{\"text\":\"x\"} {}").contains("line 1, column 14"));
    assert!(message("short.bin", &[0; 1023]).contains("1023 bytes"));
    assert!(message("magic.bin", &[0; 2048]).contains("starts with 0"));
    let shard = |version, count, body: &[u8]| shard_bytes(MAGIC_16, version, count, body);
    assert!(message("version.bin", &shard(2, 1, &[0; 2])).contains("version is 2"));
    assert!(message("cut.bin", &shard(1, 3, &[0; 5])).contains("counts 3 tokens"));
    assert!(message("long.bin", &shard(1, 2, &[0; 6])).contains("6 bytes follow"));
    assert!(message("negative.bin", &shard(1, -1, &[])).contains("counts -1"));
    assert!(message("none.bin", &shard(1, 0, &[])).contains("0 token(s)"));
    let huge = shard_bytes(MAGIC_32, 1, i32::MAX, &[0; 8]);
    assert!(message("huge.bin", &huge).contains("counts 2147483647"));

    let open = |path: PathBuf| Corpus::open(&[path], &Tokenizer::Byte).unwrap_err().to_string();
    assert!(open(folder.path().to_owned()).contains("not a regular file"));
    assert!(open(folder.path().join("absent.txt")).contains("check the path"));
    let nothing = Corpus::open::<&str>(&[], &Tokenizer::Byte).unwrap_err().to_string();
    assert!(nothing.contains("the corpus holds 0 token(s)"), "{nothing}");
    #[cfg(unix)]
    assert!(open("/dev/zero".into()).contains("not a regular file"));
}

#[test]
fn mutated_inputs_never_panic() {
    let folder = tempdir().unwrap();
    let seeds: [(&str, Vec<u8>); 3] = [
        ("x.jsonl", "{\"text\":\"é\\u00e9\"}\n{\"text\":\"b\",\"n\":[1]}\n".into()),
        ("x.bin", shard_bytes(MAGIC_16, 1, 3, &[1, 0, 2, 0, 3, 0])),
        ("x.txt", "plain → text".into()),
    ];
    for (name, seed) in seeds {
        for case in 0..400u64 {
            let mut bytes = seed.clone();
            let random = crate::permutation::mix(case);
            let at = (random >> 8) as usize % bytes.len();
            match case % 3 {
                0 => bytes[at] ^= 1 << (random % 8),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, random as u8),
            }
            let path = file(&folder, name, &bytes);
            if let Ok(corpus) = Corpus::open(&[path], &Tokenizer::Byte) {
                assert_eq!(ids(&corpus.tokens()).len(), corpus.tokens().len());
            }
        }
    }
}
