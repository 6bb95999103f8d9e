//! Input that can't work: each case has its exit code and says what is wrong and where.

use super::*;

#[test]
fn data() {
    let dir = folder();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("empty.txt", b"");
    write("one.txt", b"a");
    write("short.txt", b"a few words");
    write("latin.txt", b"caf\xe9 au lait, a cup of it");
    let shard = |ids: &[u16]| {
        let mut header = [0i32; 256];
        header[..3].copy_from_slice(&[20_240_520, 1, ids.len() as i32]);
        let header = header.iter().flat_map(|word| word.to_le_bytes());
        header.chain(ids.iter().flat_map(|id| id.to_le_bytes())).collect::<Vec<u8>>()
    };
    let mut ids = [7u16; 500];
    ids[123] = 300;
    write("ids.bin", &shard(&ids));
    write("torn.bin", &shard(&ids)[..1500]);
    write("other.jsonl", b"{\"content\": \"a text\"}");
    write("table.arrow", b"ARROW1..");
    fs::create_dir(dir.path().join("empty")).unwrap();
    for (file, words) in [
        ("absent.txt", "absent.txt"),
        ("empty.txt", "empty.txt holds 0 token(s)"),
        ("one.txt", "one.txt holds 1 token(s)"),
        ("short.txt", "context 16 needs 17"),
        ("latin.txt", "latin.txt is not UTF-8 text at byte 3"),
        ("ids.bin", "ids.bin, token 123: id 300 is outside the vocabulary of 256"),
        ("torn.bin", "torn.bin isn't a usable file of token ids"),
        ("empty", "empty: it has no .txt"),
        ("other.jsonl", "has `content`; each document must be an object with its text in \"text\""),
        ("table.arrow", "table.arrow can't be read as Arrow: it ends within a message"),
        ("*.none", "no file matches it"),
    ] {
        let (code, message) = refused(dir.path(), &format!("train --out a --data {file} {TINY}"));
        assert_eq!(code, 1, "{message}");
        assert!(message.contains(words), "{file}: {message}");
    }
    ok(dir.path(), &format!("train --out b --data ids.bin --vocab 301 {TINY}"));
}

#[test]
fn settings() {
    let dir = folder();
    for (words, code, complaint) in [
        ("--heads 3", 2, "doesn't divide the 16 of `model.channels`"),
        ("--preset gpt-2", 2, "did you mean `gpt2`?"),
        ("--micro-batch 3", 2, "doesn't divide the 4 of `train.batch`"),
        ("--init nowhere", 2, "`nowhere` is no model directory"),
        ("--tokenizer nowhere.json", 1, "nowhere.json"),
        ("--set memory.offload=optimizer", 2, "`memory.offload`"),
        ("--set memory.optimizer_bits=4", 2, "memory.optimizer_bits"),
        ("--device cuda", 1, "no device `cuda"),
        ("--device wgpu:99", 1, "none is number 99"),
        ("--recompute [\"h.9.attn\"]", 1, "no tensor `h.9.attn`"),
    ] {
        let (found, message) =
            refused(dir.path(), &format!("train --data text.txt --out a {TINY} {words}"));
        assert_eq!(found, code, "{words}: {message}");
        assert!(message.contains(complaint), "{words}: {message}");
        assert!(!dir.path().join("a").exists(), "{words} leaves a run directory");
    }
    let (_, message) = refused(dir.path(), &format!("train --device cuda {TINY}"));
    assert!(message.contains("found: cpu"), "{message}");
}

#[test]
fn a_budget_that_cannot_be_met() {
    let dir = folder();
    let words = format!("train --data text.txt --out a {TINY} --json");
    let (code, message) = refused(dir.path(), &format!("{words} --memory 1KiB"));
    assert_eq!(code, 3);
    let (_, rest) = message.split_once("--memory ").unwrap();
    let enough: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    let bytes: u64 = message.split_once('(').unwrap().1.split_once(' ').unwrap().0.parse().unwrap();
    assert!(refused(dir.path(), &format!("{words} --memory {}", bytes - 1)).0 == 3);
    let object = json(&ok(dir.path(), &format!("{words} --memory {enough}")));
    // Rounded up to be read.
    let most = bytes.next_multiple_of(1 << 10);
    assert!(object["measured_peak_bytes"].as_u64().unwrap() <= most, "{enough}");
}

#[test]
fn a_budget_changes_the_plan_and_not_the_model() {
    let dir = folder();
    let words = format!("train --data text.txt {TINY} --layers 4 --json");
    let free = json(&ok(dir.path(), &format!("{words} --out free")));
    let peak = free["predicted_peak_bytes"].as_u64().unwrap();
    let tight = json(&ok(dir.path(), &format!("{words} --out tight --memory {}", peak * 9 / 10)));
    assert!(tight["predicted_peak_bytes"].as_u64().unwrap() <= peak * 9 / 10);
    let loss = |object: &Value| object["heldout_loss"].as_f64().unwrap();
    assert!((loss(&free) - loss(&tight)).abs() < 1e-3, "{free} {tight}");
}

#[test]
fn a_directory_that_holds_a_run() {
    let dir = folder();
    let words = format!("train --data text.txt --out a {TINY}");
    ok(dir.path(), &words);
    let (code, message) = refused(dir.path(), &words);
    assert_eq!(code, 2);
    assert!(message.contains("--resume a") && message.contains("another --out"), "{message}");
    let (code, message) = refused(dir.path(), "train --resume nowhere");
    assert_eq!(code, 2);
    assert!(message.contains("`nowhere` holds no run"), "{message}");
    let empty = tempfile::tempdir().unwrap();
    for words in ["train --resume", "generate", "eval"] {
        let (code, message) = refused(empty.path(), words);
        assert_eq!(code, 2);
        assert!(message.contains("no run under `runs/`"), "{message}");
    }
}
