//! Ranks that are processes as torchrun starts them: its variables say who they are, and they meet by TCP.
#![cfg(target_os = "linux")]

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const RANK: &str = env!("CARGO_BIN_EXE_tightrope-rank");
const COUNT: usize = 4;
/// Within which every other rank has named one that is lost: its time-out of 10 s, and what it takes to be sure and to end.
const SOON: Duration = Duration::from_secs(30);

/// Starts ranks with these words.
fn started(words: &[&str]) -> Vec<Child> {
    // A port with one after it that nobody listens at now.
    let port = || {
        let listener = TcpListener::bind(("127.0.0.1", 0)).ok()?;
        let port = listener.local_addr().ok()?.port();
        TcpListener::bind(("127.0.0.1", port.checked_add(1)?)).ok()?;
        Some(port)
    };
    let port = (0..100).find_map(|_| port()).expect("two free ports").to_string();
    let start = |rank: usize| {
        let (rank, count) = (rank.to_string(), COUNT.to_string());
        let mut command = Command::new(RANK);
        command.args(words).env("RANK", &rank).env("LOCAL_RANK", &rank);
        command.env("WORLD_SIZE", &count).env("LOCAL_WORLD_SIZE", &count);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a process")
    };
    (0..COUNT).map(start).collect()
}

/// What ranks say; those that are `left` are ended then.
#[track_caller]
fn said(words: &[&str], left: Option<usize>) -> Vec<(Option<i32>, String)> {
    let since = Instant::now();
    let mut children = started(words);
    let left = left.map(|rank| (rank, children.remove(rank)));
    let outcome = |output: Output| {
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let mut all: Vec<_> =
        children.into_iter().map(|child| outcome(child.wait_with_output().unwrap())).collect();
    assert!(since.elapsed() < SOON, "{words:?} took {:?}: {all:?}", since.elapsed());
    if let Some((rank, mut child)) = left {
        child.kill().unwrap();
        all.insert(rank, outcome(child.wait_with_output().unwrap()));
    }
    all
}

#[test]
fn bytes_arrive_as_they_were_sent_over_tcp() {
    for (rank, (code, said)) in said(&["exchange"], None).into_iter().enumerate() {
        assert!(code == Some(0) && said.contains("bytes of 4 ranks are right"), "{rank}: {said}");
    }
}

#[test]
fn a_rank_that_is_lost_is_named_over_tcp() {
    for (words, left, expected) in [
        ("failed", None, "ends: rank 2: no space is left on the disk"),
        // What it sent last may have been on its way.
        ("gone", None, "ends: rank 2: it has ended; this rank waited for step"),
        ("killed", None, "ends: rank 2: it has ended; this rank waited for step"),
        ("stopped", Some(2), "ends: rank 2: no answer within 10 s; this rank waited for step"),
    ] {
        for (rank, (code, said)) in said(&[words], left).into_iter().enumerate() {
            assert!(rank == 2 || code == Some(1) && said.contains(expected), "{words}: {said}");
        }
    }
}
