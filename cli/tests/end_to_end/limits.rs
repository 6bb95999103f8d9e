//! Plans and runs within control groups and resource limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{folder, json, stderr};

/// A command in `dir` after these words of a shell.
fn after(dir: &Path, before: &str, words: &str) -> Output {
    let line = format!("{before} && exec \"$0\" {words}");
    let mut command = Command::new("sh");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_tightrope")]).current_dir(dir);
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.output().unwrap()
}

/// The processor as `doctor` describes it, after these words of a shell.
fn doctor(dir: &Path, before: &str) -> Value {
    json(&after(dir, before, "doctor --json"))["devices"][0].clone()
}

/// Bytes of memory that a plan may take, after these words of a shell.
fn room(dir: &Path, before: &str) -> u64 {
    let output = after(dir, before, "plan --preset tiny --device cpu --json");
    json(&output)["budget_bytes"].as_u64().unwrap_or_else(|| panic!("{}", stderr(&output)))
}

/// A control group of its own below that of this process.
struct Group(PathBuf);

impl Group {
    /// `None` if the system has no such controller or doesn't let this process make groups: says so on stderr.
    fn new(controller: &str) -> Option<Self> {
        let left_out = |why: &str| {
            eprintln!("left out: a control group of version 1 for {controller}, since {why}");
            None
        };
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = own.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            names.split(',').any(|name| name == controller).then_some(path)
        });
        let Some(path) = path else { return left_out("this process is in none") };
        let parent =
            Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/'));
        let folder = parent.join(format!("tightrope test {controller} {}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => Some(Self(folder)),
            Err(error) => left_out(&error.to_string()),
        }
    }

    fn set(&self, file: &str, value: u64) {
        fs::write(self.0.join(file), value.to_string()).unwrap();
    }

    /// Words of a shell that enter it.
    fn enter(&self) -> String {
        format!("echo $$ > '{}/cgroup.procs'", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn address_space_is_a_limit_and_what_is_planned_within_it_runs() {
    let dir = folder();
    let device = doctor(dir.path(), "ulimit -v 700000");
    let least = &device["memory_limits"][0];
    assert_eq!(least["source"], "RLIMIT_AS (ulimit -v)");
    assert_eq!(least["bytes"], 700_000 * 1024);
    let free = device["memory_free_bytes"].as_u64().unwrap();
    assert!(free > 0 && free < 700_000 * 1024 && least["free_bytes"] == free);
    assert!(room(dir.path(), "ulimit -v 700000") < 700_000 * 1024);
    assert!(room(dir.path(), "ulimit -d 600000") < 600_000 * 1024);
    // Limits from too low for the model on: a run is refused before it begins, or has room for what a process takes besides its plan.
    let words = "train --layers 1 --channels 768 --heads 2 --context 16 --batch 4 --steps 2 --data text.txt --eval-every 0 \
                 --device cpu --threads 2 --json";
    let mut codes = vec![];
    for limit in [350_000, 450_000, 700_000] {
        let output = after(dir.path(), &format!("ulimit -v {limit}"), words);
        let (code, message) = (output.status.code(), stderr(&output));
        assert!(
            code == Some(0) || message.contains(" by RLIMIT_AS (ulimit -v))"),
            "{limit}: {code:?}: {message}"
        );
        codes.push(code);
    }
    assert_eq!((codes[0], codes[2]), (Some(3), Some(0)));
}

#[test]
#[cfg(target_os = "linux")]
fn a_control_groups_memory_is_a_limit() {
    let Some(group) = Group::new("memory") else { return };
    group.set("memory.limit_in_bytes", 400 << 20);
    let dir = folder();
    let device = doctor(dir.path(), &group.enter());
    let source = device["memory_limits"][0]["source"].as_str().unwrap();
    assert!(source.starts_with(group.0.to_str().unwrap()), "{source}");
    assert!(device["memory_free_bytes"].as_u64() < Some(400 << 20));
    assert!(room(dir.path(), &group.enter()) < 400 << 20);
}

#[test]
#[cfg(target_os = "linux")]
fn a_budget_beyond_a_control_groups_memory_is_no_reason_to_end() {
    let Some(group) = Group::new("memory") else { return };
    group.set("memory.limit_in_bytes", 90_000_000);
    let dir = folder();
    let enter = group.enter();
    // With a copy of a checkpoint beside it, the step takes more than the group has.
    let train = "train --data text.txt --tokenizer byte --layers 3 --channels 256 --heads 2 --context 8 --batch 1 --steps 3 \
                 --eval-every 0 --save-every 1 --device cpu --threads 1 --memory 1GiB --out a";
    let output = after(dir.path(), &enter, train);
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
    let output =
        after(dir.path(), &enter, "eval a --batch 8192 --micro-batch auto --memory 1GiB --json");
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
}

#[test]
#[cfg(target_os = "linux")]
fn a_control_groups_quota_of_processor_time_is_a_limit() {
    let Some(group) = Group::new("cpu") else { return };
    group.set("cpu.cfs_period_us", 100_000);
    group.set("cpu.cfs_quota_us", 120_000);
    let dir = folder();
    let device = doctor(dir.path(), &group.enter());
    assert_eq!(device["cores"], 1);
    assert_eq!(device["cpu_quota"]["cores"], 1.2);
    assert!(device["description"].as_str().unwrap().contains("1 thread,"), "{device}");
}
