//! Ranks that are processes, as torchrun starts them: each writes its own part of a checkpoint.
#![cfg(target_os = "linux")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tightrope::data::Checkpoint;
use tightrope::data::checkpoint::list;

use super::{command, folder, ok, stderr};

/// Words of a run with weights that are worth cutting, and with as many passes for any number of ranks.
const LARGER: &str = "--layers 1 --channels 64 --heads 2 --context 16 --batch 12 --micro-batch 1 --threads 1 \
    --data text.txt --log-every 1 --rank-timeout 3";

/// `words` as so many ranks.
fn started(dir: &Path, count: usize, words: &str) -> Vec<Child> {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let [count_text, host] = [count.to_string(), "127.0.0.1".to_owned()];
    let each = (0..count).map(|rank| {
        let mut command = command(dir, words);
        let rank = rank.to_string();
        for (name, value) in [
            ("RANK", &rank),
            ("WORLD_SIZE", &count_text),
            ("LOCAL_RANK", &rank),
            ("LOCAL_WORLD_SIZE", &count_text),
            ("MASTER_ADDR", &host),
            ("TIGHTROPE_PORT", &free),
        ] {
            command.env(name, value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    each.collect()
}

fn ended(ranks: Vec<Child>) -> Vec<Output> {
    ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
}

fn tensors(dir: &Path, run: &str, step: u64) -> [Vec<u8>; 2] {
    ["model", "optimizer"].map(|name| {
        fs::read(dir.join(format!("{run}/checkpoints/step-{step}/{name}.safetensors"))).unwrap()
    })
}

#[test]
fn ranks_write_the_files_of_one_process_and_others_go_on_with_them() {
    let dir = folder();
    let dir = dir.path();
    let saved = "--steps 6 --save-every 2";
    ok(dir, &format!("train --out alone {LARGER} {saved} --gradient-sums ordered"));
    for (count, shard, others) in [(2, 2, 3), (3, 3, 2)] {
        let run = format!("of-{count}");
        let words = format!("train --out {run} {LARGER} {saved} --shard {shard}");
        for output in ended(started(dir, count, &words)) {
            assert!(output.status.success(), "{}", stderr(&output));
        }
        for step in [4, 6] {
            assert!(tensors(dir, &run, step) == tensors(dir, "alone", step), "{run}, step {step}");
        }
        fs::remove_dir_all(dir.join(format!("{run}/checkpoints/step-6"))).unwrap();
        for output in ended(started(dir, others, &format!("train --resume {run}"))) {
            assert!(output.status.success(), "{}", stderr(&output));
        }
        assert!(tensors(dir, &run, 6) == tensors(dir, "alone", 6), "{run} by {others}");
    }
}

/// Whenever it's lost, it's named, and each checkpoint that is there is whole.
#[test]
fn a_rank_that_is_lost_while_checkpoints_are_written_leaves_whole_ones_and_is_named() {
    let dir = folder();
    let dir = dir.path();
    for (case, lost) in
        ["-KILL", "-STOP", "full", "-KILL", "-STOP", "full"].into_iter().zip([2, 1, 1, 1, 2, 2])
    {
        let what = format!("{case} of rank {lost}");
        let run = format!("{case}-{lost}").replace('-', "_");
        // Something is being written nearly always.
        let words = format!(
            "train --out {run} {LARGER} --steps 1000000 --save-every 1 --shard {lost} --set train.schedule=constant --warmup 0"
        );
        let mut ranks = started(dir, 3, &words);
        let since = Instant::now();
        while !dir.join(&run).join("checkpoints/step-3").exists() {
            assert!(since.elapsed() < Duration::from_secs(60), "{what}: no checkpoint");
            thread::sleep(Duration::from_millis(1));
        }
        let pid = ranks[lost].id().to_string();
        let befallen = match case {
            "full" => {
                Command::new("prlimit").args([&format!("--pid={pid}"), "--fsize=1000"]).status()
            }
            _ => Command::new("kill").args([case, &pid]).status(),
        };
        assert!(befallen.unwrap().success());
        let lost_one = ranks.remove(lost);
        let since = Instant::now();
        for output in ended(ranks) {
            let said = stderr(&output);
            assert!(
                !output.status.success() && said.contains(&format!("error: rank {lost}: ")),
                "{what}: {said}"
            );
            if case == "full" {
                assert!(
                    said.contains("can't write the checkpoint of step")
                        && said.contains("File too large"),
                    "{what}: {said}"
                );
            }
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{what}: {:?}", since.elapsed());
        if case == "-STOP" {
            assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        }
        lost_one.wait_with_output().unwrap();
        let all = list(dir.join(&run)).unwrap();
        assert!(!all.is_empty(), "{what}");
        for (step, path) in &all {
            let checkpoint =
                Checkpoint::open(path).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(checkpoint.manifest.step, *step);
        }
        let entries = fs::read_dir(dir.join(&run).join("checkpoints")).unwrap().flatten();
        let left = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".tmp"));
        assert_eq!(left.count(), 0, "{what}");
        let last = all.last().unwrap().0;
        ok(dir, &format!("train --resume {run} --steps {}", last + 1));
    }
}
