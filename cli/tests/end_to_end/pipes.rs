//! Text on standard input.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{TINY, command, folder, json, stderr};

/// A command in `dir` with a file of it on standard input.
fn piped(dir: &Path, words: &str, file: &str) -> Output {
    let input = File::open(dir.join(file)).unwrap();
    command(dir, words).stdin(input).output().unwrap()
}

fn ok(dir: &Path, words: &str, file: &str) -> Output {
    let output = piped(dir, words, file);
    assert!(output.status.success(), "`{words}`: {}", stderr(&output));
    output
}

#[test]
fn a_pipe_is_trained_on_as_it_comes_and_a_resumed_run_goes_on_in_it() {
    let dir = folder();
    let dir = dir.path();
    let train = format!("train --data - --tokenizer byte {TINY} --save-every 6 --json");
    let whole = json(&ok(dir, &format!("{train} --out whole"), "text.txt"));
    assert_eq!((&whole["steps"], &whole["heldout_loss"]), (&12.into(), &serde_json::Value::Null));
    fs::remove_dir_all(dir.join("whole/checkpoints/step-12")).unwrap();
    let resumed = json(&ok(dir, "train --resume whole --json", "text.txt"));
    assert_eq!(resumed["last_loss"], whole["last_loss"]);
    // Another text, and the end of one.
    fs::write(dir.join("other.txt"), "another text\n".repeat(20)).unwrap();
    let refused = piped(dir, "train --resume whole --steps 14", "other.txt");
    assert!(!refused.status.success() && stderr(&refused).contains("its content differs"));
    let short = ok(dir, &format!("{train} --out short"), "other.txt");
    assert_eq!(json(&short)["steps"], 4, "260 bytes are 4 steps of 64 targets");
    assert!(stderr(&short).contains("the data ended after step 4 of 12"), "{}", stderr(&short));
    let scored = ok(dir, "eval whole --set data.holdout=0 --json", "other.txt");
    assert_eq!(json(&scored)["tokens"], 259);
    for (file, words) in [("/dev/null", "training needs at least 2"), ("bin", "is not UTF-8")] {
        fs::write(dir.join("bin"), [b'a', 0xff, b'\n'].repeat(400)).unwrap();
        let refused = piped(dir, &train, file);
        assert_eq!(refused.status.code(), Some(1), "{file}");
        assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
    }
}

/// Who waits for more text answers a signal.
#[cfg(unix)]
#[test]
fn a_silent_pipe_is_left_at_a_signal() {
    let dir = folder();
    let words = format!("train --data - --tokenizer byte {TINY} --steps 100000 --out run");
    let mut command = command(dir.path(), &words);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = fs::read(dir.path().join("text.txt")).unwrap();
    let lines = text.repeat((80 << 10) / text.len());
    input.write_all(&lines).unwrap();
    let metrics = dir.path().join("run/metrics.jsonl");
    let begun = Instant::now();
    let trained = || fs::read_to_string(&metrics).is_ok_and(|text| text.contains("\"step\":1000"));
    while !trained() && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(trained(), "what came was trained on");
    let asked = Instant::now();
    terminate(child.id());
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(stderr(&output).contains("its checkpoint is written"), "{}", stderr(&output));
    drop(input);
}

#[cfg(unix)]
fn terminate(pid: u32) {
    let killed = std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
    assert!(killed.success());
}
