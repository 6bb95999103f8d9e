//! Ranks that are processes, as torchrun starts them: each writes its own part of a checkpoint.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tightrope::data::Checkpoint;
use tightrope::data::checkpoint::list;

use super::{command, folder, ok, stderr};

/// Words of a run with weights that are worth cutting, and with as many passes for any number of ranks.
const LARGER: &str = "--layers 1 --channels 64 --heads 2 --context 16 --batch 12 --micro-batch 1 --threads 1 \
    --data text.txt --log-every 1 --rank-timeout 3";

/// `words` as so many ranks.
pub(super) fn started(dir: &Path, count: usize, words: &str) -> Vec<Child> {
    let port = free_port();
    (0..count).map(|rank| rank_of(dir, (rank, count), port, words).spawn().unwrap()).collect()
}

/// A port that nobody listens at now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `words` as one of `count` ranks, which meet at this port.
fn rank_of(dir: &Path, (rank, count): (usize, usize), port: u16, words: &str) -> Command {
    let mut command = command(dir, words);
    let [rank, count, port] = [rank.to_string(), count.to_string(), port.to_string()];
    for (name, value) in [
        ("RANK", rank.as_str()),
        ("WORLD_SIZE", &count),
        ("LOCAL_RANK", &rank),
        ("LOCAL_WORLD_SIZE", &count),
        ("MASTER_ADDR", "127.0.0.1"),
        ("TIGHTROPE_PORT", &port),
    ] {
        command.env(name, value);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(super) fn ended(ranks: Vec<Child>) -> Vec<Output> {
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

/// Ports at which a process listens on 127.0.0.1.
fn listened(process: u32) -> Vec<u16> {
    let links = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    let sockets: Vec<String> = targets.map(|target| target.display().to_string()).collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_own = sockets.contains(&format!("socket:[{}]", fields.get(9)?));
        let port = fields[1].strip_prefix("0100007F:")?;
        (is_own && fields[3] == "0A").then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    table.lines().filter_map(port).collect()
}

/// Sends to a port whatever somebody might who isn't a rank, by connections that stay open; how many there were.
fn attack(port: u16, open: &mut Vec<TcpStream>) -> usize {
    // A hello of the protocol, and the card of rank 1 of 3 with a proof that is none.
    let hello = [&b"tightrp\x02"[..], &[5; 32]].concat();
    let forged = [&hello[..], &[1, 0, 0, 0, 3, 0, 0, 0, 9, 9], &[0; 32]].concat();
    let old = b"tightrp\x01\x01\0\0\0\x09\x09".to_vec();
    let garbage = vec![0xA5; 100_000];
    let all = [forged, old, b"GET / HTTP/1.1\r\n\r\n".to_vec(), garbage, vec![], vec![b't']];
    let before = open.len();
    for bytes in all {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        // A rank may close the connection before all is sent.
        let _ = stream.write_all(&bytes);
        open.push(stream);
    }
    open.len() - before
}

/// Impostors, some with the protocol's own words, a drip, silent clients and garbage at every port where ranks wait for each other.
#[test]
fn ranks_train_to_the_same_bits_whoever_else_connects_with_them() {
    let dir = folder();
    let dir = dir.path();
    let words = format!("{LARGER} --steps 3 --shard 2");
    for output in ended(started(dir, 3, &format!("train --out undisturbed {words}"))) {
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let port = free_port();
    let rank = |out: &str, rank, secret: &str| {
        let mut command = rank_of(dir, (rank, 3), port, &format!("train --out {out} {words}"));
        command.env("TIGHTROPE_SECRET", secret).spawn().unwrap()
    };
    const SECRET: &str = "known to the ranks of the run";
    let mut ranks = vec![rank("attacked", 0, SECRET)];
    // Three that run the same program: first as rank 1, with other secrets and with none.
    let impostors = [(1, "another"), (1, ""), (2, "a third one")];
    let impostors = impostors.map(|(of, secret)| rank("of-impostors", of, secret));
    let (is_done, attacks) = (AtomicBool::new(false), AtomicUsize::new(0));
    let first = ranks[0].id();
    let outputs = thread::scope(|scope| {
        scope.spawn(|| {
            let mut open = vec![];
            while !is_done.load(Ordering::Relaxed) {
                for port in listened(first) {
                    attacks.fetch_add(attack(port, &mut open), Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(20));
                // As many as one process may have open.
                if open.len() > 300 {
                    open.drain(..100);
                }
            }
        });
        let since = Instant::now();
        while attacks.load(Ordering::Relaxed) < 30 {
            assert!(since.elapsed() < Duration::from_secs(30), "rank 0 doesn't listen");
            thread::sleep(Duration::from_millis(10));
        }
        ranks.push(rank("attacked", 1, SECRET));
        // The second of three listens once it has met the first.
        let second = ranks[1].id();
        let mut open = vec![];
        while listened(second).is_empty() {
            assert!(since.elapsed() < Duration::from_secs(30), "rank 1 doesn't listen");
            thread::sleep(Duration::from_millis(10));
        }
        for port in listened(second) {
            assert_eq!(attack(port, &mut open), 6);
        }
        scope.spawn(move || {
            for port in listened(second) {
                let mut drip = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let _ = drip.set_read_timeout(Some(Duration::from_millis(50)));
                for byte in b"tightrp\x02" {
                    let _ = drip.write_all(&[*byte]);
                    let _ = drip.read(&mut [0; 64]);
                }
            }
        });
        ranks.push(rank("attacked", 2, SECRET));
        let outputs = ended(ranks);
        is_done.store(true, Ordering::Relaxed);
        outputs
    });
    for mut impostor in impostors {
        // It isn't met, and tries until it's ended.
        let _ = impostor.kill();
        assert!(!impostor.wait().unwrap().success());
    }
    for output in &outputs {
        assert!(output.status.success(), "{}", stderr(output));
    }
    let said = stderr(&outputs[0]);
    assert!(said.contains("note: rank 0: ") && said.contains("without the secret"), "{said}");
    assert!(tensors(dir, "attacked", 3) == tensors(dir, "undisturbed", 3));
    assert!(!dir.join("of-impostors").exists());
}

#[test]
fn ranks_elsewhere_need_a_secret_or_the_word_that_none_is_needed() {
    let dir = folder();
    let dir = dir.path();
    let words = format!("{LARGER} --steps 1");
    let outputs = |secret: &str, out: &str, words: &str| {
        let port = free_port();
        let rank = |rank| {
            let words = format!("train --out {out} {words}");
            let mut command = rank_of(dir, (rank, 2), port, &words);
            command.env("MASTER_ADDR", "0.0.0.0").env("TIGHTROPE_SECRET", secret);
            command.spawn().unwrap()
        };
        ended((0..2).map(rank).collect())
    };
    for output in outputs("", "refused", &words) {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("0.0.0.0 is no loopback address"), "{said}");
        assert!(said.contains("TIGHTROPE_SECRET") && said.contains("--insecure-ranks"), "{said}");
    }
    let insecure = format!("{words} --insecure-ranks");
    for (secret, out, words) in [("a secret", "secret", &words), ("", "insecure", &insecure)] {
        for output in outputs(secret, out, words) {
            assert!(output.status.success(), "{out}: {}", stderr(&output));
        }
    }
}
