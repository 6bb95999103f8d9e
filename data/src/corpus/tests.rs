use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use tempfile::{TempDir, tempdir};

use super::ids::{MAGIC_16, MAGIC_32};
use super::*;

/// `printf two | zstd`, by zstd 1.5: a frame with its checksum.
const ZSTANDARD: &[u8] = b"\x28\xb5\x2f\xfd\x04\x58\x19\0\0two\x8b\x44\xf4\xec";

/// By pyarrow: columns `id` of 64-bit integers, `text` and `body` of strings; three rows in two row groups, the second text null; Snappy.
const PARQUET: &[u8] = include_bytes!("tests/three.parquet");

/// By pyarrow: the same columns, `text` by a dictionary and `body` of large strings; Zstandard.
const ARROW: &[u8] = include_bytes!("tests/three.arrow");

fn file(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Files of bytes as tokens.
fn open(files: &[PathBuf]) -> Result<Corpus> {
    Corpus::open(files, Corpus::TEXT_KEY, &Tokenizer::Byte)
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
    let corpus = open(&files).unwrap();
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
fn json_arrays_and_other_fields_are_documents() {
    let folder = tempdir().unwrap();
    let array =
        file(&folder, "a.json", r#"[{"id": [1], "body": "one"}, "two", {"body": "\u00e9"}]"#);
    let objects = file(&folder, "b.json", "{\"body\": \"three\"}\n{\"body\": \"four\"}\n");
    let corpus = Corpus::open(&[array, objects], "body", &Tokenizer::Byte).unwrap();
    assert_eq!(bytes(&corpus.tokens()), "one\ntwo\né\nthree\nfour\n".as_bytes());
}

#[test]
fn a_column_of_a_table_is_documents() {
    let folder = tempdir().unwrap();
    for (name, table) in [("a.parquet", PARQUET), ("a.arrow", ARROW)] {
        let path = file(&folder, name, table);
        let read = |key| Corpus::open(&[&path], key, &Tokenizer::Byte);
        assert_eq!(bytes(&read("text").unwrap().tokens()), "one\nthrée\n".as_bytes());
        assert_eq!(bytes(&read("body").unwrap().tokens()), b"a\nb\nc\n");
        let message = |key| read(key).unwrap_err().to_string();
        assert!(message("content").contains("no column `content`, and has `id`, `text`, `body`"));
        assert!(message("id").contains("isn't of text"));
    }
}

#[test]
fn packed_files_are_what_they_hold() {
    let folder = tempdir().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"{\"text\": \"one\"}\n").unwrap();
    let gzip = gzip.finish().unwrap();
    // Two members, as `cat` joins files.
    let twice = file(&folder, "a.jsonl.gz", [&gzip[..], &gzip].concat());
    let frames = file(&folder, "b.txt.zst", [ZSTANDARD, ZSTANDARD].concat());
    let corpus = open(&[twice, frames]).unwrap();
    assert_eq!(bytes(&corpus.tokens()), b"one\none\ntwotwo");
    assert_eq!(corpus.sources()[1].name, "b.txt.zst");
}

#[test]
fn ids_without_a_header_are_sixteen_bits_wide() {
    let folder = tempdir().unwrap();
    let words: Vec<u8> = [50_256u16, 15, 7].iter().flat_map(|id| id.to_le_bytes()).collect();
    let files = [file(&folder, "train.bin", words)];
    assert_eq!(ids(&open(&files).unwrap().tokens()), [50_256, 15, 7]);
    assert!(Corpus::is_of_ids(&files).unwrap());
    assert!(!Corpus::is_of_ids::<PathBuf>(&[]).unwrap());
}

#[test]
fn folders_and_globs_are_their_files_by_name() {
    let folder = tempdir().unwrap();
    for name in ["deep", ".git"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    for (name, text) in [
        ("b.txt", "2"),
        ("a.md", "1"),
        ("deep/c.txt", "3"),
        ("picture.png", "x"),
        (".hidden.txt", "x"),
        (".git/text.txt", "x"),
    ] {
        file(&folder, name, text);
    }
    let corpus = open(&[folder.path().to_owned()]).unwrap();
    assert_eq!(bytes(&corpus.tokens()), b"123");
    let names: Vec<_> = corpus.sources().iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["a.md", "b.txt", "deep/c.txt"]);
    let corpus = open(&[folder.path().join("**/*.txt")]).unwrap();
    assert!(bytes(&corpus.tokens()).ends_with(b"23"));
    let empty = tempdir().unwrap();
    let error = open(&[empty.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("it has no .txt"), "{error}");
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
        let error = open(&[path]).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        error
    };
    assert!(message("latin.txt", b"caf\xe9 au lait").contains("byte 3"));
    assert!(message("empty.txt", b"").contains("0 token(s)"));
    assert!(message("bom.txt", BYTE_ORDER_MARK).contains("0 token(s)"));
    assert!(message("one.txt", b"a").contains("1 token(s)"));
    assert!(message("blank.jsonl", b"\n \n").contains("0 token(s)"));
    assert!(message("a.jsonl", b"{\"text\":\"x\"}\n{\"text\":7}\n").contains("line 2, column 9"));
    assert!(message("b.jsonl", b"{\"txt\":\"x\"}").contains("it has no `text`, and has `txt`"));
    assert!(message("c.jsonl", b"[1]\n").contains("line 1"));
    assert!(message("d.jsonl", b"{\"text\":\"\xff\"}").contains("byte 9"));
    assert!(message("e.jsonl", b"{\"text\":\"x\"} {}").contains("line 1, column 14"));
    assert!(message("short.bin", &[0; 1023]).contains("1023 bytes"));
    assert!(message("zeros.bin", &[0; 2048]).contains("zeros alone"));
    let shard = |version, count, body: &[u8]| shard_bytes(MAGIC_16, version, count, body);
    assert!(message("version.bin", &shard(2, 1, &[0; 2])).contains("version is 2"));
    assert!(message("cut.bin", &shard(1, 3, &[0; 5])).contains("counts 3 tokens"));
    assert!(message("long.bin", &shard(1, 2, &[0; 6])).contains("6 bytes follow"));
    assert!(message("negative.bin", &shard(1, -1, &[])).contains("counts -1"));
    assert!(message("none.bin", &shard(1, 0, &[])).contains("0 token(s)"));
    let huge = shard_bytes(MAGIC_32, 1, i32::MAX, &[0; 8]);
    assert!(message("huge.bin", &huge).contains("counts 2147483647"));

    assert!(
        message("text.bin", "Plainly a text\n".repeat(9).as_bytes()).contains("rename it to .txt")
    );
    assert!(message("table.parquet", b"PAR1....PAR1").contains("fetch it again"));
    assert!(message("table.arrow", b"ARROW1\0\0").contains("it has no schema"));
    assert!(message("cut.txt.gz", &[0x1f, 0x8b, 8, 0]).contains("can't be unpacked"));
    assert!(message("cut.txt.zst", &[0x28, 0xb5, 0x2f, 0xfd, 4]).contains("can't be unpacked"));
    for (name, bytes, command) in [
        ("a.txt.bz2", &b"BZh91AY&SY\xc1\0\x01\x02"[..], "bunzip2"),
        ("a.jsonl.xz", b"\xfd7zXZ\0\0\x04\xe6", "unxz"),
        ("a.txt.lz4", b"\x04\x22\x4d\x18\x64\x40\xa7", "unlz4"),
        ("a.txt", b"PK\x03\x04\x14\0\0\0", "unzip"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c\0\x04", "7z x"),
    ] {
        assert!(message(name, bytes).contains(command), "{name}");
    }
    assert!(open(&[file(&folder, "a.txt", "BZhou, PK and 7z are names")]).is_ok());
    assert!(message("f.json", b"[{\"text\": \"x\"},\n {\"content\": \"y\"}]").contains("line 2"));
    assert!(message("g.json", b"{\"text\": \"x\"}\n7").contains("line 2"));

    let refused = |path: PathBuf| open(&[path]).unwrap_err().to_string();
    assert!(refused(folder.path().join("absent.txt")).contains("check the path"));
    assert!(refused(folder.path().join("*.none")).contains("no file matches it"));
    let nothing = open(&[]).unwrap_err().to_string();
    assert!(nothing.contains("the corpus holds 0 token(s)"), "{nothing}");
    #[cfg(unix)]
    assert!(refused("/dev/zero".into()).contains("not a regular file"));
}

#[test]
fn mutated_inputs_never_panic() {
    let folder = tempdir().unwrap();
    let seeds: [(&str, Vec<u8>); 7] = [
        ("x.parquet", PARQUET.to_vec()),
        ("x.arrow", ARROW.to_vec()),
        ("x.json", "[{\"text\":\"a\"}, \"b\"]".into()),
        ("x.txt.zst", ZSTANDARD.to_vec()),
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
            if let Ok(corpus) = open(&[path]) {
                assert_eq!(ids(&corpus.tokens()).len(), corpus.tokens().len());
            }
        }
    }
}

#[test]
fn shards_hold_what_was_encoded() {
    let folder = tempdir().unwrap();
    let path = file(&folder, "a.txt", "hello shards".repeat(40));
    let corpus = open(&[path]).unwrap();
    for (vocab, width) in [(256, 2), (1 << 17, 4)] {
        let out = folder.path().join(format!("{width}"));
        let files = corpus.tokens().write_shards(vocab, &out, 100).unwrap();
        assert_eq!(files.len(), 5);
        assert_eq!(fs::metadata(&files[0]).unwrap().len(), 1024 + 100 * width);
        assert_eq!(ids(&open(std::slice::from_ref(&out)).unwrap().tokens()), ids(&corpus.tokens()));
        let refusal = corpus.tokens().write_shards(vocab, &out, 100).unwrap_err().to_string();
        assert!(refusal.contains("isn't empty"), "{refusal}");
    }
    assert!(corpus.tokens().write_shards(100, &folder.path().join("x"), 100).is_err());
}

#[test]
fn packed_files_that_become_too_large_and_wide_ids_are_refused() {
    use std::io::Write as _;
    let folder = tempdir().unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&vec![b'a'; 64 << 20]).unwrap();
    let path = file(&folder, "a.txt.gz", packed.finish().unwrap());
    let refused = open(&[path]).unwrap_err().to_string();
    assert!(refused.contains("TIGHTROPE_MAX_UNPACKED"), "{refused}");
    let wide = |width: usize| -> Vec<u8> {
        let id = |id: u64| (id * 37 % 250).to_le_bytes()[..width].to_vec();
        (0..400).flat_map(id).collect()
    };
    for (width, words) in [(4, "32 bits"), (8, "64 bits")] {
        let path = file(&folder, "wide.bin", wide(width));
        let refused = open(&[path]).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    open(&[file(&folder, "narrow.bin", wide(2))]).unwrap();
}

#[test]
fn a_folder_with_splits_is_what_is_trained_on() {
    let folder = tempdir().unwrap();
    for name in ["train-00000.txt", "test-00000.txt", "README.md"] {
        file(&folder, name, "text of a file");
    }
    let corpus = open(&[folder.path().to_owned()]).unwrap();
    assert_eq!(corpus.sources().len(), 1);
    let split = held_out_split(&[folder.path()]).unwrap().unwrap();
    assert_eq!((split.name, split.files.len()), ("test", 1));
}

#[test]
fn configurations_of_a_card_are_not_mixed() {
    let card = |text: &str| format!("---\nconfigs:\n{text}---\n# A title\n");
    let folder = |files: &[&str], text: &str| {
        let folder = tempdir().unwrap();
        for name in files {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            file(&folder, name, r#"{"text": "a text"}"#);
        }
        file(&folder, "README.md", card(text));
        folder
    };
    let [en, de] = ["en", "default"].map(|name| {
        format!(
            "- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}/*.jsonl\n"
        )
    });
    let sources = |folder: &TempDir| -> Result<usize> {
        Ok(open(&[folder.path().to_owned()])?.sources().len())
    };
    let files = ["en/a.jsonl", "default/b.jsonl", "default/c.jsonl"];
    assert_eq!(sources(&folder(&files, &format!("{en}{de}"))).unwrap(), 2);
    assert_eq!(sources(&folder(&files[1..], &format!("{en}{de}"))).unwrap(), 2);
    let other = de.replace("name: default", "name: de");
    let refused = sources(&folder(&files, &format!("{en}{other}"))).unwrap_err().to_string();
    assert!(refused.contains("configurations en, de"), "{refused}");
    let splits = "- config_name: default\n  data_files:\n  - split: train\n    path: a.jsonl\n  - split: test\n    path: b.jsonl\n";
    let refused = sources(&folder(&["a.jsonl", "b.jsonl"], splits)).unwrap_err().to_string();
    assert!(refused.contains("splits train, test"), "{refused}");
    let named = splits.replace("a.jsonl", "train.jsonl").replace("b.jsonl", "test.jsonl");
    assert_eq!(sources(&folder(&["train.jsonl", "test.jsonl"], &named)).unwrap(), 1);
}
