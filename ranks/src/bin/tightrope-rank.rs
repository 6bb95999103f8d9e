//! A rank of its own process: what the tests start by `mpirun`, and what tells whether several processes work on a machine.
//!
//! ```text
//! mpirun -n 4 tightrope-rank exchange     moves bytes of every length in every order, and says what went well
//! mpirun -n 4 tightrope-rank time BYTES   how long an exchange takes
//! mpirun -n 4 tightrope-rank killed       rank 2 kills itself; the others name it
//! mpirun -n 4 tightrope-rank stopped      rank 2 stops
//! mpirun -n 4 tightrope-rank failed       rank 2 says why it can't go on
//! mpirun -n 4 tightrope-rank differ       rank 2 has other settings
//! mpirun -n 4 tightrope-rank gone         rank 2 ends early, as if all were well
//! mpirun -n 4 tightrope-rank endless      goes on until it's ended from outside
//! tightrope-rank launch N WORDS           starts N ranks with these words, by the mpirun that is found; a line of input asks them to end
//! ```

use std::time::{Duration, Instant, SystemTime};
use std::{env, process};
#[cfg(unix)]
use std::{
    io,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread::Builder,
};

use tightrope_core::{Ranks, RanksError};
#[cfg(unix)]
use tightrope_ranks::Launch;
use tightrope_ranks::{agree, connect, exit};

/// How long ranks wait for each other.
const TIME_OUT: Duration = Duration::from_secs(10);

fn main() {
    #[cfg(unix)]
    launch();
    let mut ranks = match connect(TIME_OUT, false) {
        Ok(Some(connected)) => {
            connected.note.iter().for_each(|note| println!("{note}"));
            connected.ranks
        }
        Ok(None) => {
            println!("alone");
            return;
        }
        Err(error) => {
            println!("not connected: {error}");
            exit(1)
        }
    };
    let rank = ranks.rank();
    let words: Vec<String> = env::args().skip(1).collect();
    let done = run(&mut *ranks, &words);
    drop(ranks);
    match done {
        Ok(said) => {
            println!("rank {rank}: {said}");
            exit(0)
        }
        Err(error) => {
            println!("rank {rank} ends: {error}");
            exit(1)
        }
    }
}

/// Starts ranks, where this process is told to.
#[cfg(unix)]
fn launch() {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let ["launch", count] =
        [0, 1].map(|at| words.get(at).and_then(|word| word.to_str()).unwrap_or_default())
    else {
        return;
    };
    let done = || -> Result<i32, Box<dyn std::error::Error>> {
        let count = count.parse()?;
        let mut command = Command::new(env::current_exe()?);
        command.args(&words[2..]);
        // A line of input stands for Ctrl+C.
        static STOP: AtomicBool = AtomicBool::new(false);
        Builder::new().spawn(|| {
            let read = io::stdin().read_line(&mut String::new());
            STOP.store(read.is_ok_and(|bytes| bytes > 0), Ordering::Relaxed);
        })?;
        let ended = Launch::find(None)?.run(count, &command, TIME_OUT, &STOP)?;
        if let Some((rank, how)) = &ended.first {
            println!("rank {rank} failed first: {how}");
        }
        Ok(ended.code)
    };
    process::exit(done().unwrap_or_else(|error| {
        println!("not launched: {error}");
        1
    }))
}

fn run(ranks: &mut dyn Ranks, words: &[String]) -> Result<String, RanksError> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let second = ranks.rank() == 2;
    match words[..] {
        ["exchange"] => exchange(ranks),
        ["time", bytes] => time(ranks, bytes.parse().unwrap_or(0)),
        ["differ"] => {
            let settings = if second { "batch = 8" } else { "batch = 4" };
            agree(ranks, &[("data", "1a2b"), ("settings", settings)])?;
            Ok("all agree".to_owned())
        }
        ["killed"] => lose(ranks, || lose_this(Signal::Kill)),
        ["stopped"] => lose(ranks, || lose_this(Signal::Stop)),
        ["failed"] if second => {
            exchange_step(ranks, 0)?;
            let reason = "no space is left on the disk";
            ranks.fail(reason);
            Err(RanksError {
                rank: Some(2),
                what: "a checkpoint".to_owned(),
                reason: reason.to_owned(),
            })
        }
        ["failed"] => lose(ranks, || ()),
        ["gone"] if second => {
            exchange_step(ranks, 0)?;
            Ok("done".to_owned())
        }
        ["gone" | "endless"] => lose(ranks, || ()),
        _ => {
            ranks.fail("its command isn't known");
            Err(RanksError {
                rank: None,
                what: "a command".to_owned(),
                reason: "there's none of these words".to_owned(),
            })
        }
    }
}

/// Ends or stops this process.
fn lose_this(signal: Signal) {
    #[cfg(unix)]
    {
        let process = i32::try_from(process::id()).unwrap_or_default();
        let signal = match signal {
            Signal::Kill => libc::SIGKILL,
            Signal::Stop => libc::SIGSTOP,
        };
        // SAFETY: a signal to this process.
        unsafe { libc::kill(process, signal) };
    }
    #[cfg(not(unix))]
    match signal {
        Signal::Kill => process::abort(),
        Signal::Stop => std::thread::park(),
    }
}

enum Signal {
    Kill,
    Stop,
}

/// A few steps, then rank 2 is lost while the others go on.
fn lose(ranks: &mut dyn Ranks, how: impl Fn()) -> Result<String, RanksError> {
    for step in 0.. {
        if step == 3 && ranks.rank() == 2 {
            let since =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            println!("lost at {} s", since.as_secs_f64());
            how();
        }
        exchange_step(ranks, step)?;
    }
    Ok("it never ends".to_owned())
}

/// What all ranks do in a step. Once one has done the first, all have begun it: none is still connecting.
fn exchange_step(ranks: &mut dyn Ranks, step: u32) -> Result<(), RanksError> {
    let parts = vec![1; 1000 * ranks.count()];
    let ticket = ranks.begin_exchange(&format!("step{step}.wte"), 0..ranks.count(), parts)?;
    ranks.finish(ticket)?;
    Ok(())
}

/// Bytes that tell who sent them to whom, and when.
fn part(from: usize, to: usize, round: usize, length: usize) -> Vec<u8> {
    let first = from * 31 + to * 7 + round * 3;
    (0..length).map(|at| (first + at % 251) as u8).collect()
}

/// Exchanges and gathers; bytes that arrive otherwise than they were sent end the process.
fn exchange(ranks: &mut dyn Ranks) -> Result<String, RanksError> {
    let (rank, count) = (ranks.rank(), ranks.count());
    let sent = |to: usize, round: usize, length: usize| part(rank, to, round, length);
    let expected = |to: usize, round: usize, length: usize| {
        (0..count).flat_map(|from| part(from, to, round, length)).collect::<Vec<u8>>()
    };
    let mut bytes = 0;
    for (round, length) in [0, 1, 3, 7, 1023, 65_537, 1_000_003].into_iter().enumerate() {
        let parts = (0..count).flat_map(|to| sent(to, round, length)).collect();
        let ticket = ranks.begin_exchange("odd lengths", 0..ranks.count(), parts)?;
        check(ranks.finish(ticket)? == expected(rank, round, length), "an exchange of odd lengths");
        let ticket = ranks.begin_gather("odd lengths", sent(9, round, length))?;
        check(ranks.finish(ticket)? == expected(9, round, length), "a gather of odd lengths");
        bytes += 2 * length * count;
    }
    // Many at once, finished in an order that is each rank's own.
    let mut tickets = vec![];
    for round in 0..100 {
        let length = 1 + round * 331;
        let parts = (0..count).flat_map(|to| sent(to, round, length)).collect();
        tickets.push((
            round,
            length,
            ranks.begin_exchange(&format!("tensor {round}"), 0..ranks.count(), parts)?,
        ));
    }
    for at in 0..100 {
        // 100 has no factor in common with these.
        let (round, length, ticket) = tickets[(at * [1, 3, 7, 99][rank % 4] + rank) % 100];
        check(ranks.finish(ticket)? == expected(rank, round, length), "one of many");
        bytes += length * count;
    }
    // Longer than one message.
    let length = 100_000_000;
    let ticket = ranks.begin_gather("long", sent(9, 1, length))?;
    let received = ranks.finish(ticket)?;
    for (from, received) in received.chunks(length).enumerate() {
        check(received == part(from, 9, 1, length), "100 MB");
    }
    bytes += length * count;
    Ok(format!("{bytes} bytes of {count} ranks are right"))
}

fn check(right: bool, what: &str) {
    if !right {
        println!("wrong bytes in {what}");
        process::abort();
    }
}

/// The median of several exchanges of so many bytes to each rank.
fn time(ranks: &mut dyn Ranks, bytes: usize) -> Result<String, RanksError> {
    let mut times = vec![];
    for _ in 0..11 {
        let parts = vec![1; bytes * ranks.count()];
        let start = Instant::now();
        let ticket = ranks.begin_exchange("time", 0..ranks.count(), parts)?;
        ranks.finish(ticket)?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(format!("{bytes} bytes to each of {} ranks: {:?}", ranks.count(), times[times.len() / 2]))
}
