//! A rank that is lost at any step: all end and name it, and the run goes on from its checkpoint to the bits of one that nothing befell.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use tightrope::ranks::GUARDED;

use super::{Folder, MPIS, processes, ranks, said, text, weights};

pub const STEPS: u64 = 30;
pub const SAVED_EVERY: u64 = 5;
/// Cases of a day, and all of them.
const DRAWN: u64 = 3;
const ALL: u64 = 100;
/// Runs of a case, the last of which must not end well.
const ATTEMPTS: usize = 10;

/// What befalls a rank.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL.
    Killed,
    /// SIGSTOP: it's there, and says nothing.
    Stopped,
    /// It may write no more bytes to any file, as on a disk that is full.
    Full,
}

impl Fault {
    /// Lets it befall a process, unless that has ended.
    fn befall(self, pid: u32) {
        let (program, words) = match self {
            Self::Killed => ("kill", ["-KILL".to_owned(), pid.to_string()]),
            Self::Stopped => ("kill", ["-STOP".to_owned(), pid.to_string()]),
            Self::Full => ("prlimit", [format!("--pid={pid}"), "--fsize=1000".to_owned()]),
        };
        let status = Command::new(program).args(&words).status().expect("a program");
        println!("{program} {words:?}: {status}");
    }
}

/// A number below `below` for what `words` and `draw` say.
pub fn drawn(words: &str, case: u64, draw: &str, below: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (words, case, draw).hash(&mut hasher);
    hasher.finish() % below
}

/// The days' words, and how many cases there are by them.
pub fn words() -> (String, u64) {
    match env::var("TIGHTROPE_DRAW") {
        Ok(words) if words == "all" => (words, ALL),
        Ok(words) => (words, DRAWN),
        Err(_) => {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let day = since.map_or(0, |since| since.as_secs() / (24 * 60 * 60));
            (format!("day {day}"), DRAWN)
        }
    }
}

/// A run that loses a rank isn't to wait long for it. Other runs have the minute of the default: the machine may be busy.
pub const IMPATIENT: [&str; 2] = ["--rank-timeout", "5"];

/// Settings of every run: one sample a pass, so that any number of ranks makes the same passes.
pub fn settings<'a>(shard: &'a str, out: &'a str, steps: &'a str, every: &'a str) -> Vec<&'a str> {
    let run = ["--micro-batch", "1", "--context", "32", "--log-every", "1"];
    let run = run.into_iter().chain(["--eval-every", "0", "--shard", shard]);
    run.chain(["--steps", steps, "--save-every", every, "--out", out]).collect()
}

/// The process that is rank `rank` of those with this word, and not the one that MPICH's `mpirun` knows, which is beside it.
fn process_of(word: &str, rank: u64) -> Option<u32> {
    let under_mpich = [format!("PMI_RANK={rank}"), format!("{GUARDED}=1")];
    let under_open_mpi = [format!("OMPI_COMM_WORLD_RANK={rank}")];
    processes(word).into_iter().find(|pid| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let variables: Vec<&[u8]> = variables.split(|byte| *byte == 0).collect();
        let are_set =
            |wanted: &[String]| wanted.iter().all(|wanted| variables.contains(&wanted.as_bytes()));
        are_set(&under_mpich) || are_set(&under_open_mpi)
    })
}

pub fn steps_made(run: &Path) -> u64 {
    fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines().count() as u64
}

#[test]
#[ignore = "needs MPI: cargo xtask mpi"]
fn a_rank_that_is_lost_anywhere_is_named_and_the_run_goes_on_to_the_same_bits() {
    let folder = Folder::new();
    let (words, cases) = words();
    println!("{cases} of {ALL} losses of ranks drawn by {words}: TIGHTROPE_DRAW={words}");
    let mut undisturbed: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    let (steps, every) = (STEPS.to_string(), SAVED_EVERY.to_string());
    for case in 0..cases {
        let draw = |what, below| drawn(&words, case, what, below);
        let mpi = MPIS[draw("mpi", 2) as usize];
        let (count, shard) = (2 + draw("ranks", 3), draw("shard", 4));
        let fault = [Fault::Killed, Fault::Stopped, Fault::Full][draw("fault", 3) as usize];
        // Without shards, files are the first rank's.
        let writes_alone = shard == 0 && matches!(fault, Fault::Full);
        let lost = if writes_alone { 0 } else { draw("rank", count) };
        let at = 1 + draw("step", STEPS - 6);
        let what = format!(
            "case {case}: {mpi}, {count} ranks, shard {shard}, rank {lost} {fault:?} at {at}"
        );
        println!("{what}");
        let stage = shard.to_string();

        // On a busy machine a run may end before anything befalls it: then another does.
        let befalls = |attempt: usize| {
            let (run, out) = folder.run(&format!("lost-{case}-{attempt}"));
            let mut own = settings(&stage, &out, &steps, &every);
            own.extend(IMPATIENT);
            let mut command = ranks(mpi, count as usize, &own);
            let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let started = started.expect("mpirun");
            let since = Instant::now();
            while steps_made(&run) < at {
                assert!(since.elapsed() < Duration::from_secs(120), "{what}: no steps");
                thread::sleep(Duration::from_millis(5));
            }
            if let Some(pid) = process_of(&out, lost) {
                fault.befall(pid);
            }
            let since = Instant::now();
            let output = started.wait_with_output().expect("a process");
            (!output.status.success()).then(|| (run, out, text(&output.stderr), since.elapsed()))
        };
        let found = (0..ATTEMPTS).find_map(befalls);
        let (run, out, errors, took) = found.unwrap_or_else(|| panic!("{what}: it ends well"));
        assert!(took < Duration::from_secs(15), "{what}: ended after {took:?}");
        // The others say it, or who launched them.
        let words = [format!("error: rank {lost}"), format!("process rank {lost} with PID")];
        assert!(words.iter().any(|words| errors.contains(words)), "{what}: {errors}");
        thread::sleep(Duration::from_millis(200));
        assert!(processes(&out).is_empty(), "{what}: processes are left");

        // Where gradients are summed pass by pass, any number of ranks makes the same steps.
        let others = if shard >= 2 { 2 + draw("others", 3) } else { count };
        let saved =
            run.join("checkpoints").read_dir().is_ok_and(|mut entries| entries.next().is_some());
        if saved {
            let words = ["--resume", &out, "--rank-timeout", "60"];
            said(ranks(MPIS[draw("other mpi", 2) as usize], others as usize, &words));
        } else {
            let (_, again) = folder.run(&format!("again-{case}"));
            said(ranks(mpi, count as usize, &settings(&stage, &again, &steps, &every)));
            fs::rename(
                folder.run(&format!("again-{case}")).0.join("checkpoints"),
                run.join("checkpoints"),
            )
            .expect("a folder");
        }
        let key = if shard >= 2 { (2, 0) } else { (0, count) };
        let expected = undisturbed.entry(key).or_insert_with(|| {
            let (run, out) = folder.run(&format!("undisturbed-{case}"));
            said(ranks(mpi, count as usize, &settings(&stage, &out, &steps, &every)));
            weights(&run, STEPS)
        });
        assert!(weights(&run, STEPS) == *expected, "{what}: other weights");
    }
}
