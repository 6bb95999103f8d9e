//! What a run leaves behind, and how it is stopped and resumed.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::*;

fn files(checkpoint: PathBuf) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(&checkpoint).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| (path.file_name().unwrap().display().to_string(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_run_directory_holds_what_it_should() {
    let dir = folder();
    let words = format!(
        "train --data text.txt --out a {TINY} --log-every 4 --eval-every 6 --sample-every 5 \
         --save-every 5"
    );
    let output = ok(dir.path(), &words);
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(out.contains("held-out loss") && out.contains("sample:"), "{out}");
    assert!(out.contains("tightrope generate a"), "{out}");
    for word in ["parameters", "peak", "text.txt", "device", "cpu", "step 6: held-out loss"] {
        assert!(err.contains(word), "{word}: {err}");
    }
    let a = dir.path().join("a");
    for name in
        ["run.toml", "plan.json", "metrics.jsonl", "samples/step-5.txt", "samples/step-12.txt"]
    {
        assert!(a.join(name).metadata().unwrap().len() > 0, "{name}");
    }
    let names = |path: PathBuf| -> Vec<String> {
        let names = fs::read_dir(path).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(names(a.clone()).iter().any(|name| name.starts_with("events.out.tfevents.")));
    let mut checkpoints = names(a.join("checkpoints"));
    checkpoints.retain(|name| !name.starts_with('.'));
    checkpoints.sort();
    assert_eq!(checkpoints, ["step-10", "step-12"], "the oldest is pruned");
    let lines = metrics(&a, "loss");
    let steps: Vec<u64> = lines.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 4, 8, 12]);
    assert_eq!(lines[3]["tokens"], 12 * 64);
    let held_out = metrics(&a, "heldout_loss");
    assert_eq!(held_out.last().unwrap()["step"], 12);
    let plan: Value = serde_json::from_slice(&fs::read(a.join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan["choices"]["micro_batch"], 4);
    assert!(plan["by_class"]["weight"].as_u64().unwrap() > 0);
}

#[test]
fn the_object_of_a_run() {
    let dir = folder();
    let object = json(&ok(dir.path(), &format!("train --data text.txt --out a --json {TINY}")));
    assert_eq!(object["steps"], 12);
    assert_eq!(object["run"], "a");
    assert_eq!(object["predicted_peak_bytes"], object["measured_peak_bytes"]);
    let number = |key: &str| object[key].as_f64().unwrap_or_else(|| panic!("{key}: {object}"));
    assert!((number("first_loss") - 256f64.ln()).abs() < 0.3);
    assert!(number("last_loss") < number("first_loss"));
    assert!(number("heldout_loss") > 0.0);
    assert!(number("resident_peak_bytes") > number("measured_peak_bytes"));
    assert!((number("tokens_per_s") * number("step_s") - 64.0).abs() < 1e-6);
    assert!(number("predicted_step_s") > 0.0);
}

#[test]
fn equal_seeds_give_equal_bytes_wherever_the_run_lies() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY}"));
    ok(dir.path(), &format!("train --data text.txt --out b {TINY} --threads 2 --log-every 1"));
    let of = |run: &str| files(dir.path().join(run).join("checkpoints/step-12"));
    assert_eq!(of("a").len(), 4);
    assert!(of("a") == of("b"));
}

#[test]
fn a_resumed_run_ends_in_the_same_bytes_whatever_bits_its_state_has() {
    let dir = folder();
    let last = |run: &str| dir.path().join(run).join("checkpoints/step-12");
    for bits in [32, 16, 8] {
        let words = format!(
            "train --data text.txt {TINY} --channels 64 --set memory.optimizer_bits={bits} \
             --save-every 10"
        );
        let run = format!("run-{bits}");
        ok(dir.path(), &format!("{words} --out {run}"));
        let expected = files(last(&run));
        fs::remove_dir_all(last(&run)).unwrap();
        let other = if bits == 8 { 32 } else { 8 };
        let changed = format!("train --resume {run} --set memory.optimizer_bits={other}");
        let (code, message) = refused(dir.path(), &changed);
        assert_eq!(code, 2, "{message}");
        let complaint =
            format!("`memory.optimizer_bits` was {bits} when the run began, and is {other}");
        assert!(message.contains(&complaint), "{message}");
        let object = json(&ok(dir.path(), &format!("train --resume {run} --json")));
        assert_eq!(object["predicted_peak_bytes"], object["measured_peak_bytes"]);
        assert!(files(last(&run)) == expected, "{bits} bits");
    }
}

/// Starts a long run, sends it a signal once it has trained some steps, and returns its exit code,
/// stderr and the steps it said it had done.
#[cfg(unix)]
fn stopped_by(dir: &Path, signal: i32) -> (i32, String) {
    let words = format!("train --data text.txt --out a {TINY} --steps 100000 --log-every 1");
    let child = heeding(dir, &words).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let metrics = dir.join("a/metrics.jsonl");
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < 5 {
        assert!(Instant::now() < deadline, "the run doesn't start");
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([format!("-{signal}"), pid]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

#[test]
#[cfg(unix)]
fn signals_write_a_checkpoint_and_the_run_goes_on() {
    // What a closed terminal and Slurm send, beside Ctrl+C and `kill`.
    let others: &[i32] = if cfg!(target_os = "linux") { &[1, 10, 24] } else { &[] };
    for signal in [&[2, 15], others].concat() {
        let dir = folder();
        let (code, message) = stopped_by(dir.path(), signal);
        assert_eq!(code, 130, "{message}");
        assert!(message.contains("continue with: tightrope train --resume a"), "{message}");
        let step: u64 = message
            .split_once("stopped after step ")
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
            .unwrap();
        assert!(dir.path().join(format!("a/checkpoints/step-{step}")).is_dir());
        // The schedule depends on the number of steps, so the whole run has the same.
        let end = step + 5;
        let rest = "--set train.schedule=constant --warmup 0";
        ok(dir.path(), &format!("train --resume a --steps {end} {rest}"));
        let lines = metrics(&dir.path().join("a"), "loss");
        assert_eq!(lines.len() as u64, end, "a line a step, none twice");
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY} --save-every 5"));
    let step = |step: u64| dir.path().join(format!("a/checkpoints/step-{step}"));
    let expected = files(step(12));
    let model = step(12).join("model.safetensors");
    let bytes = fs::read(&model).unwrap();
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [&bytes[..bytes.len() / 2], &flipped] {
        fs::write(&model, damaged).unwrap();
        let output = ok(dir.path(), "train --resume a");
        let message = stderr(&output);
        assert!(message.contains("step-12 is damaged and was passed over"), "{message}");
        assert!(files(step(12)) == expected);
    }
    fs::write(step(10).join("model.safetensors"), "").unwrap();
    fs::write(&model, "").unwrap();
    let (code, message) = refused(dir.path(), "train --resume a");
    assert_eq!(code, 1);
    assert!(message.contains("step-10") && message.contains("step-12"), "{message}");
}

#[test]
fn resume_finds_the_run() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt {TINY}"));
    ok(dir.path(), "train --resume --steps 14");
    assert!(dir.path().join("runs/1/checkpoints/step-14").is_dir());
    ok(dir.path(), &format!("train --data text.txt {TINY}"));
    assert!(dir.path().join("runs/2/checkpoints/step-12").is_dir());
    ok(dir.path(), "train --out runs/1 --resume --steps 15");
    assert!(dir.path().join("runs/1/checkpoints/step-15").is_dir());
    // A run that was ended before its first checkpoint starts again.
    fs::remove_dir_all(dir.path().join("runs/2/checkpoints")).unwrap();
    let output = ok(dir.path(), "train --resume runs/2");
    assert!(stderr(&output).contains("no checkpoint yet"), "{}", stderr(&output));
}

#[test]
fn the_same_words_begin_a_run_and_go_on_with_it() {
    let dir = folder();
    let last = || files(dir.path().join("a/checkpoints/step-12"));
    let words = format!("train --data text.txt --out a --auto-resume --save-every 5 {TINY}");
    ok(dir.path(), &words);
    let expected = last();
    // As if it had been killed after step 10.
    fs::remove_dir_all(dir.path().join("a/checkpoints/step-12")).unwrap();
    ok(dir.path(), &words);
    assert!(last() == expected, "other bytes");
    let lines = metrics(&dir.path().join("a"), "loss");
    assert_eq!(lines.last().unwrap()["step"], 12);
    // Once it's done there is nothing left to do.
    ok(dir.path(), &words);
    assert!(last() == expected, "other bytes");
    let (code, message) = refused(dir.path(), &format!("train --auto-resume {TINY}"));
    assert!(code == 2 && message.contains("name it with --out"), "{message}");
}

#[test]
fn a_full_disk_leaves_the_earlier_checkpoint() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY} --channels 96"));
    // Files of 128 blocks at most, which are of 512 or of 1024 bytes: the weights are larger.
    let shell = "ulimit -f 128; trap '' XFSZ; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", shell, env!("CARGO_BIN_EXE_tightrope"), "train", "--resume", "a"])
        .args(["--steps", "13"])
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .current_dir(dir.path())
        .output()
        .unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("can't write the checkpoint of step 13"), "{message}");
    assert!(
        message.contains("model.safetensors") && message.contains("free some space"),
        "{message}"
    );
    assert!(!dir.path().join("a/checkpoints/step-13").exists());
    let object = json(&ok(dir.path(), "train --resume a --steps 13 --json"));
    assert_eq!(object["steps"], 13);
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run() {
    let dir = folder();
    let words = "--optimizer sgd --lr 1e18 --clip 0 --warmup 0 --schedule constant";
    let (code, message) =
        refused(dir.path(), &format!("train --data text.txt --out a {TINY} {words}"));
    assert_eq!(code, 1);
    assert!(message.contains("the first output that isn't finite is `"), "{message}");
    let saved = tightrope::data::checkpoint::latest_complete(dir.path().join("a")).unwrap().0;
    for tensor in saved.model.tensors() {
        assert!(tensor.to_f32().unwrap().iter().all(|value| value.is_finite()), "{tensor:?}");
    }
    // f16 skips such steps until the scale is low enough.
    let object = json(&ok(
        dir.path(),
        &format!("train --data text.txt --out b {TINY} --precision f16 --json"),
    ));
    assert_eq!(object["steps"], 12);
}

#[test]
fn a_longer_run_goes_on_with_its_warm_up_and_says_what_its_rate_does() {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY} --lr 1e-2"));
    // A lower rate ends at a tenth of itself, as the one before did.
    let resumed = ok(dir.path(), "train --resume a --steps 24 --lr 1e-4");
    let said = stderr(&resumed);
    assert!(
        said.contains("from step 13 on, the learning rate follows the schedule of 24 steps"),
        "{said}"
    );
    let rates: Vec<f64> = metrics(&dir.path().join("a"), "lr")
        .iter()
        .map(|line| line["lr"].as_f64().unwrap())
        .collect();
    assert!((rates.last().unwrap() - 1e-5).abs() < 1e-12, "{rates:?}");

    // The settings of a run are those of another one, in its own directory.
    ok(dir.path(), "train --config a/run.toml --steps 3 --out b");
    ok(dir.path(), "train --config a/run.toml --steps 3");
    assert!(dir.path().join("runs/1/checkpoints/step-3").is_dir());
    let (code, message) = refused(dir.path(), "train --config a/run.toml --steps 3 --out a");
    assert_eq!(code, 2, "{message}");
}

#[test]
fn a_quiet_run_prints_its_result_alone() {
    let dir = folder();
    let words = format!("train -q --data text.txt --out a {TINY} --device wgpu");
    // Libraries complain where nobody is logged in.
    let run = command(dir.path(), &words).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    assert_eq!((run.status.code(), stderr(&run).as_str()), (Some(0), ""));
    assert!(stdout(&run).contains("held-out loss"), "{}", stdout(&run));
}
