//! What can go wrong around a run: other processes, changed files, links, signals, and weights that diverge. Nothing is lost
//! and nothing goes on silently.
#![cfg(unix)]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::{TINY, command, folder, heeding, ok, refused, run, stderr};

/// Waits until `is_so`, for a minute at most.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: it never is so");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A run of very many steps into `a`, a few of which it has done.
fn under_way(dir: &Path) -> Child {
    let words = format!(
        "train --data text.txt --out a {TINY} --steps 1000000 --save-every 1000000 --log-every 1"
    );
    let child = heeding(dir, &words).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let metrics = dir.join("a/metrics.jsonl");
    wait("steps are logged", || {
        fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() >= 5)
    });
    child
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn weights(dir: &Path, run: &str, step: u64) -> Vec<u8> {
    fs::read(dir.join(format!("{run}/checkpoints/step-{step}/model.safetensors"))).unwrap()
}

#[test]
fn data_of_another_content_is_refused_by_its_name() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY}"));
    let file = dir.path().join("text.txt");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("make", "gave", 1)).unwrap();
    let (code, message) = refused(dir.path(), "train --resume a --steps 14");
    assert_eq!(code, 2);
    assert!(message.contains("`text.txt` isn't the file that the run began with"), "{message}");
    fs::write(&file, text).unwrap();
    ok(dir.path(), "train --resume a --steps 14");
}

#[test]
fn settings_that_changed_on_the_disk_are_refused_by_name() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY} --lr 2e-3"));
    let file = dir.path().join("a/run.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nbatch = 4\n"));
    fs::write(&file, text.replace("\nbatch = 4\n", "\nbatch = 8\n")).unwrap();
    let (code, message) = refused(dir.path(), "train --resume a --steps 14");
    assert_eq!(code, 2);
    assert!(message.contains("`train.batch` is 8 and was 4"), "{message}");
    assert!(message.contains("step-12"), "{message}");
    fs::write(&file, "").unwrap();
    let (code, message) = refused(dir.path(), "train --resume a --steps 14");
    assert_eq!(code, 2);
    assert!(message.contains("`train.lr` is") && message.contains("was 0.002"), "{message}");
    // What the command line says is meant.
    let meant = text.replace("\nbatch = 4\n", "\nbatch = 8\n");
    fs::write(&file, meant).unwrap();
    ok(dir.path(), "train --resume a --batch 8 --steps 14");
    // The file is whole again.
    ok(dir.path(), "train --resume a --steps 15");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("seed = 1337", "seed = 7"))
        .unwrap();
    fs::remove_dir_all(dir.path().join("a/checkpoints")).unwrap();
    let (code, message) = refused(dir.path(), "train --resume a");
    assert_eq!(code, 2);
    assert!(message.contains("no checkpoint to hold it against"), "{message}");
}

#[test]
fn a_directory_that_is_moved_ends_the_run_and_its_weights_are_kept() {
    let dir = folder();
    let child = under_way(dir.path());
    fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("`a` was moved or removed while the run trained"), "{message}");
    assert!(message.contains("tightrope train --resume a-rescued"), "{message}");
    assert!(!dir.path().join("a").exists(), "it was made again");
    let saved = fs::read_dir(dir.path().join("a-rescued/checkpoints")).unwrap();
    let steps = saved.filter_map(|entry| {
        entry.unwrap().file_name().into_string().unwrap().strip_prefix("step-")?.parse().ok()
    });
    let step: u64 = steps.max().unwrap();
    let rest = "--set train.schedule=constant --warmup 0";
    ok(dir.path(), &format!("train --resume a-rescued --steps {} {rest}", step + 2));
}

#[test]
fn one_process_trains_in_a_directory() {
    let dir = folder();
    let child = under_way(dir.path());
    let (code, message) = refused(dir.path(), "train --resume a --steps 2000000");
    assert_eq!(code, 2);
    assert!(message.contains(&format!("process {} on `", child.id())), "{message}");
    signal(&child, "-KILL");
    child.wait_with_output().unwrap();
    // A process that is gone holds nothing.
    ok(dir.path(), &format!("train --resume a --steps 12 {TINY} --warmup 0"));
}

#[test]
fn nothing_is_written_through_links_or_waits_for_pipes() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY}"));
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "theirs").unwrap();
    for (name, target) in [
        ("metrics.jsonl", "elsewhere/file"),
        ("run.lock", "elsewhere/file"),
        ("checkpoints/.lock", "elsewhere/file"),
        ("samples", "elsewhere"),
        ("run.toml", "elsewhere/file"),
    ] {
        let (path, aside) = (dir.path().join("a").join(name), dir.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        symlink(dir.path().join(target), &path).unwrap();
        let (_, message) = refused(dir.path(), "train --resume a --steps 14");
        assert!(message.contains("link"), "{name}: {message}");
        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);

    let metrics = dir.path().join("a/metrics.jsonl");
    fs::remove_file(&metrics).unwrap();
    assert!(Command::new("mkfifo").arg(&metrics).status().unwrap().success());
    let (_, message) = refused(dir.path(), "train --resume a --steps 14");
    assert!(message.contains("not a regular file"), "{message}");
    fs::remove_file(&metrics).unwrap();
    ok(dir.path(), "train --resume a --steps 14");
}

#[test]
fn what_a_killed_process_left_is_removed_at_the_next_start() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY}"));
    let left = dir.path().join("a/checkpoints/.tmp-step-3");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("model.safetensors"), "half").unwrap();
    ok(dir.path(), "train --resume a");
    assert!(!left.exists());
}

#[test]
fn the_directory_of_a_run_that_made_nothing_is_taken_again() {
    let dir = folder();
    let mut slow = heeding(dir.path(), &format!("{SLOW} --out a --batch 256"));
    let child = slow.stderr(Stdio::piped()).spawn().unwrap();
    let settings = dir.path().join("a/run.toml");
    wait("it begins", || settings.is_file() && dir.path().join("a/metrics.jsonl").is_file());
    let again = format!("train --data text.txt --out a {TINY}");
    let (code, message) = refused(dir.path(), &again);
    assert_eq!(code, 2);
    assert!(message.contains(&format!("process {} on `", child.id())), "{message}");
    signal(&child, "-KILL");
    child.wait_with_output().unwrap();
    assert!(settings.is_file());
    ok(dir.path(), &again);
    let (code, message) = refused(dir.path(), &again);
    assert_eq!(code, 2);
    assert!(message.contains("`a` already holds a run"), "{message}");
}

/// A run whose step takes ten seconds and more.
const SLOW: &str = "train --preset gpt2 --layers 2 --channels 256 --heads 4 --context 256 --threads 1 --vocab 512 --tokenizer byte \
                    --steps 2 --warmup 0";

/// Seconds from a signal to the words with which the run begins its checkpoint, of a run whose step takes very long.
fn heeds(dir: &Path, words: &str, sent: &str) -> f64 {
    use std::io::{BufRead as _, BufReader};
    let mut slow = heeding(dir, &format!("{SLOW} --out slow {words}"));
    let mut child = slow.stderr(Stdio::piped()).spawn().unwrap();
    let metrics = dir.join("slow/metrics.jsonl");
    wait("it begins", || metrics.is_file());
    std::thread::sleep(Duration::from_millis(1500));
    signal(&child, sent);
    let asked = Instant::now();
    let mut took = None;
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("writing its checkpoint") {
            took = Some(asked.elapsed().as_secs_f64());
        }
        said += &format!("{line}\n");
    }
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(dir.join("slow/checkpoints/step-0").is_dir(), "{said}");
    took.unwrap_or_else(|| panic!("nothing was told: {said}"))
}

/// A step of a minute and more, in one pass and in several, is dropped.
#[test]
fn a_signal_is_heeded_within_a_long_step() {
    for (sent, words) in [
        ("-TERM", "--batch 256 --micro-batch 256 --recompute block"),
        ("-INT", "--batch 512 --micro-batch 64"),
    ] {
        let dir = folder();
        let took = heeds(dir.path(), words, sent);
        assert!(took < 2.0, "{words}: {took} s after {sent}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let dir = folder();
    for words in ["train --data text.txt --json", "train --data text.txt", "plan --json"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let command = command(dir.path(), &format!("{words} {TINY}")).stdout(full).output();
        let output: Output = command.unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains("can't print the results"), "{}", stderr(&output));
    }
}

#[test]
fn the_last_evaluation_answers_signals() {
    let dir = folder();
    let text = fs::read_to_string(dir.path().join("text.txt")).unwrap();
    fs::write(dir.path().join("long.txt"), text.repeat(2000)).unwrap();
    let words = format!("train --data long.txt --set data.holdout=0.9 --out a {TINY}");
    let child = heeding(dir.path(), &words).stderr(Stdio::piped()).spawn().unwrap();
    let last = dir.path().join("a/checkpoints/step-12");
    wait("it is saved", || last.is_dir());
    signal(&child, "-TERM");
    let asked = Instant::now();
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert!(asked.elapsed() < Duration::from_secs(5), "after {:?}", asked.elapsed());
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("score it with: tightrope eval a"), "{message}");
}

#[test]
fn weights_that_diverge_are_never_a_checkpoint() {
    let dir = folder();
    let wild = "--optimizer sgd --lr 1e30 --clip 0 --warmup 0 --schedule constant --save-every 1";
    for (out, more, said) in [
        ("a", "--set memory.consume_gradients=true", "has loss NaN and gradient norm NaN"),
        ("b", "", "isn't finite"),
    ] {
        let words = format!("train --data text.txt --out {out} {TINY} {wild} {more}");
        let (code, message) = refused(dir.path(), &words);
        assert_eq!(code, 1);
        assert!(message.contains(said), "{message}");
        let checkpoints = dir.path().join(out);
        // A run that made nothing takes its directory with it.
        if !checkpoints.exists() {
            continue;
        }
        for (step, path) in tightrope::data::checkpoint::list(&checkpoints).unwrap() {
            let saved = tightrope::data::Checkpoint::open(&path).unwrap();
            for tensor in saved.model.tensors() {
                let values = tensor.to_f32().unwrap();
                assert!(values.iter().all(|value| value.is_finite()), "step {step}: {tensor:?}");
            }
        }
    }
}

#[test]
fn weights_beyond_f16_are_never_a_checkpoint() {
    let dir = folder();
    let good = format!(
        "train --data text.txt --out a {TINY} --precision f16 --schedule constant --save-every 1"
    );
    ok(dir.path(), &format!("{good} --steps 3"));
    // Their masters are finite, and steps are skipped from then on.
    let (code, message) = refused(dir.path(), "train --resume a --lr 1e5 --steps 8");
    assert_eq!(code, 1);
    assert!(message.contains("which the precision doesn't hold"), "{message}");
    let kept = tightrope::data::checkpoint::list(dir.path().join("a")).unwrap();
    assert!(!kept.is_empty());
    for (step, path) in kept {
        let saved = tightrope::data::Checkpoint::open(&path).unwrap();
        for tensor in saved.model.tensors() {
            let values = tensor.to_f32().unwrap();
            assert!(values.iter().all(|value| value.abs() < 65_520.0), "step {step}: {tensor:?}");
        }
    }
    ok(dir.path(), "eval a --device cpu");
}

#[test]
fn a_run_that_goes_on_is_offered_no_other_model() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY} --steps 1"));
    let (code, message) = refused(dir.path(), "train --resume a --steps 2 --memory 20KiB");
    assert_eq!(code, 3);
    assert!(!message.contains("--preset"), "{message}");
}

#[test]
fn weights_that_a_dtype_does_not_hold_are_not_exported_in_it() {
    let dir = folder();
    let wild = "--optimizer sgd --lr 1e7 --clip 0 --warmup 0 --schedule constant --eval-every 0 --save-every 1 --steps 1";
    // Text that such weights continue may be no number, after the checkpoint was written.
    let _ = run(dir.path(), &format!("train --data text.txt --out a {TINY} {wild}"));
    let (code, message) = refused(dir.path(), "export a b --precision f16");
    assert_eq!(code, 2);
    assert!(message.contains("which f16 doesn't hold"), "{message}");
    ok(dir.path(), "export a c --precision bf16");
}

#[test]
fn a_loss_that_only_rises_stops_the_run_and_the_last_checkpoint_stays() {
    let dir = folder();
    // Batches are the same, and what was learnt of them decays faster than it's learnt again.
    fs::write(dir.path().join("same.txt"), "a".repeat(4000)).unwrap();
    ok(dir.path(), &format!("train --data same.txt --out good {TINY} --steps 60"));
    let decay = "--optimizer sgd --lr 1e-6 --weight-decay 1000 --schedule constant --warmup 0";
    let words = format!(
        "train --data same.txt --init good --batch 4 --threads 1 --steps 200 --save-every 10 {decay} --out a"
    );
    let (code, message) = refused(dir.path(), &words);
    assert_eq!(code, 1);
    assert!(message.contains("the loss has risen at every step since step 1, to "), "{message}");
    assert!(message.contains("at step 65; the weights of step 60 are saved in `a`"), "{message}");
    let saved = tightrope::data::checkpoint::latest_complete(dir.path().join("a")).unwrap().0;
    assert_eq!(saved.manifest.step, 60);
}

#[test]
fn f16_that_skips_for_good_says_since_when_and_where() {
    let dir = folder();
    let wild = "--optimizer sgd --lr 1e30 --clip 0 --warmup 0 --schedule constant";
    let words = format!("train --data text.txt --out a {TINY} {wild} --steps 200 --precision f16");
    let (code, message) = refused(dir.path(), &words);
    assert_eq!(code, 1);
    assert!(message.contains("the first output that isn't finite is `"), "{message}");
    assert!(message.contains("no step from ") && message.contains("was finite"), "{message}");
}

#[test]
fn endless_files_and_too_many_threads_are_refused_at_once() {
    let dir = folder();
    for words in ["plan --config /dev/zero", "plan --threads 1000000"] {
        let begun = Instant::now();
        let (code, message) = refused(dir.path(), words);
        assert_eq!(code, 2, "{message}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{words}: {:?}", begun.elapsed());
    }
    // A pipe that ends is a file like another.
    let shell = format!("exec \"$0\" plan --config <(echo '[model]'; echo 'layers = 1') {TINY}");
    let shell = shell.replace(" --layers 1", "");
    let planned = Command::new("bash")
        .args(["-c", &shell, env!("CARGO_BIN_EXE_tightrope")])
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(planned.status.success(), "{}", stderr(&planned));
}

#[test]
fn a_run_that_goes_on_after_faults_ends_in_the_same_bytes() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out whole {TINY}"));
    let words = format!("train --data text.txt --out a {TINY} --save-every 3");
    let mut child = command(dir.path(), &words).stderr(Stdio::null()).spawn().unwrap();
    wait("a checkpoint", || dir.path().join("a/checkpoints/step-3").is_dir());
    // It may have ended by itself.
    let _ = child.kill();
    child.wait().unwrap();
    let resumed = run(dir.path(), "train --resume a");
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert!(weights(dir.path(), "a", 12) == weights(dir.path(), "whole", 12));
}

/// Under limits from too small to start up to enough, a run ends well or says what it lacks.
#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_from_the_system_is_said_and_is_no_abort() {
    let mut codes = vec![];
    for mebibytes in [2, 3, 4, 6, 8, 10, 16, 20, 22, 24, 26, 28, 32, 48, 64, 1024] {
        let dir = folder();
        let limited = |words: &str| {
            let inner = command(dir.path(), words);
            let mut limited = Command::new("prlimit");
            limited.arg(format!("--data={}", mebibytes << 20_u32));
            limited.arg(inner.get_program()).args(inner.get_args()).current_dir(dir.path());
            limited.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
            // A backtrace takes memory that there is none of.
            limited.env("RUST_BACKTRACE", "1").output().unwrap()
        };
        // Below this, the system doesn't load the program.
        if mebibytes < 4 && !limited("--version").status.success() {
            continue;
        }
        let output = limited(&format!("train --data text.txt --out a {TINY} --device cpu --json"));
        let (code, said) = (output.status.code(), stderr(&output));
        let named = match code {
            Some(0) => true,
            // A thread without memory for its stack is one that the system doesn't start.
            Some(1) => said.contains("each with a stack in memory, don't start"),
            Some(3) => said.contains("memory") && super::json(&output)["exit_code"] == 3,
            _ => false,
        };
        assert!(named, "{mebibytes} MiB: {:?}: {said}", output.status);
        codes.push(code);
    }
    assert!(codes.contains(&Some(3)), "{codes:?}");
    assert_eq!(codes.last(), Some(&Some(0)), "{codes:?}");
}
