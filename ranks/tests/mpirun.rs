//! Ranks over real MPI libraries, that of MPICH 5 by the standard ABI and Open MPI 5 by its own. `cargo xtask mpi` installs both and runs
//! these; `MPICH` and `OPEN_MPI` name the folders.
#![cfg(target_os = "linux")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, process, thread};

const RANK: &str = env!("CARGO_BIN_EXE_tightrope-rank");
/// Within which every other rank has named one that is lost: its time-out of 10 s, and what it takes to be sure and to end.
const SOON: f64 = 15.0;
/// Marks the processes of a test.
const MARK: &str = "TIGHTROPE_TEST_RANKS";

#[derive(Clone, Copy)]
enum Mpi {
    Mpich,
    Open,
}

impl Mpi {
    fn home(self) -> PathBuf {
        let name = match self {
            Self::Mpich => "MPICH",
            Self::Open => "OPEN_MPI",
        };
        env::var_os(name).unwrap_or_else(|| panic!("{name} is set by cargo xtask mpi")).into()
    }

    /// `mpirun` with so many ranks, as a user starts it.
    fn mpirun(self, words: &[&str]) -> Command {
        let mut command = Command::new(self.home().join("bin/mpirun"));
        if let Self::Open = self {
            command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        }
        command.args(["-n", "4", RANK]).args(words);
        command
    }

    /// This project's own launch.
    fn launch(self, words: &[&str]) -> Command {
        let mut command = Command::new(RANK);
        command.args(["launch", "4"]).args(words).env("PATH", self.path());
        command
    }

    fn path(self) -> String {
        format!("{}/bin:/usr/bin:/bin", self.home().display())
    }
}

/// How a command ended.
struct Outcome {
    code: Option<i32>,
    lines: Vec<String>,
    /// How long it went on, in seconds, after a rank was lost.
    after: f64,
}

impl Outcome {
    /// Lines of ranks that have these words.
    fn saying(&self, words: &str) -> usize {
        self.lines.iter().filter(|line| line.contains(words)).count()
    }

    /// A rank was lost, and the others have ended soon after.
    #[track_caller]
    fn ended_soon(&self) {
        assert!(
            self.code != Some(0) && self.after > 0.0 && self.after < SOON,
            "{:?} {}",
            self.code,
            self.after
        );
    }

    #[track_caller]
    fn says(&self, times: usize, words: &str) {
        assert_eq!(self.saying(words), times, "{words}\n{}", self.lines.join("\n"));
    }
}

fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes with this mark.
fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter(|entry| {
        let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    });
    found
        .map(|entry| {
            fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " ")
        })
        .collect()
}

#[track_caller]
fn none_is_left(mark: &str) {
    let since = Instant::now();
    while !marked(mark).is_empty() {
        assert!(since.elapsed() < Duration::from_secs(5), "left behind: {:?}", marked(mark));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command, one at a time since cores are few, and sees that nothing of it is left.
#[track_caller]
fn run(mut command: Command) -> Outcome {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mark = unique();
    let output = env::temp_dir().join(format!("tightrope-ranks-{mark}"));
    // A file: a pipe would be held open by what is left behind.
    let file = fs::File::create(&output).unwrap();
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let status = command.status().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    none_is_left(&mark);
    let text = fs::read_to_string(&output).unwrap();
    fs::remove_file(&output).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let lost = lines.iter().find_map(|line| line.strip_prefix("lost at ")?.strip_suffix(" s"));
    let after = lost.map_or(0.0, |lost| now - lost.parse::<f64>().unwrap());
    Outcome { code: status.code(), lines, after }
}

fn bytes_arrive_as_they_were_sent(mpi: Mpi) {
    let outcome = run(mpi.mpirun(&["exchange"]));
    outcome.says(4, "bytes of 4 ranks are right");
    assert_eq!(outcome.code, Some(0));
}

fn what_differs_is_named_by_all(mpi: Mpi) {
    let outcome = run(mpi.mpirun(&["differ"]));
    outcome.says(4, "rank 2: it has settings \"batch = 8\", where rank 0 has \"batch = 4\"");
    assert_ne!(outcome.code, Some(0));
}

fn a_rank_that_fails_is_named_with_its_reason(mpi: Mpi) {
    let outcome = run(mpi.mpirun(&["failed"]));
    outcome.says(4, "ends: rank 2: no space is left on the disk; this rank waited for");
    assert_ne!(outcome.code, Some(0));
}

fn a_rank_that_ends_early_is_named(mpi: Mpi) {
    let outcome = run(mpi.mpirun(&["gone"]));
    outcome.says(3, "ends: rank 2: it has ended; this rank waited for step");
    assert_ne!(outcome.code, Some(0));
}

fn a_stopped_rank_is_named_by_all_others(mpi: Mpi) {
    for command in [mpi.mpirun(&["stopped"]), mpi.launch(&["stopped"])] {
        let outcome = run(command);
        outcome.says(3, "ends: rank 2: no answer within 10 s; this rank waited for step3.wte");
        outcome.ended_soon();
    }
}

fn a_killed_rank_is_named_by_all_others(mpi: Mpi) {
    let outcome = run(mpi.launch(&["killed"]));
    outcome
        .says(3, "ends: rank 2: its process has ended by signal 9; this rank waited for step3.wte");
    outcome.says(1, "rank 2 failed first: signal 9");
    outcome.ended_soon();
    assert_eq!(outcome.code, Some(137));
}

fn a_launcher_ends_all_when_a_rank_is_killed(mpi: Mpi) {
    let outcome = run(mpi.mpirun(&["killed"]));
    outcome.ended_soon();
}

fn ranks_are_launched(mpi: Mpi) {
    let outcome = run(mpi.launch(&["time", "1000"]));
    outcome.says(4, "1000 bytes to each of 4 ranks");
    assert_eq!(outcome.code, Some(0), "{:?}", outcome.lines);
}

/// A launch whose ranks all run, of ranks that never end by themselves.
fn launched(mpi: Mpi, mark: &str) -> Child {
    let mut command = mpi.launch(&["endless"]);
    command.env(MARK, mark).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let since = Instant::now();
    // The launch, mpirun, and at least a shell and a rank for each of four.
    while marked(mark).len() < 10 {
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", marked(mark));
        thread::sleep(Duration::from_millis(20));
    }
    child
}

fn nothing_is_left_of_a_launch_that_is_killed(mpi: Mpi) {
    for signal in ["KILL", "TERM"] {
        let mark = unique();
        let mut child = launched(mpi, &mark);
        let process = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
        child.wait().unwrap();
        none_is_left(&mark);
    }
}

fn ranks_are_asked_to_end(mpi: Mpi) {
    let mark = unique();
    let mut child = launched(mpi, &mark);
    let start = Instant::now();
    child.stdin.take().unwrap().write_all(b"stop\n").unwrap();
    // By SIGTERM, which ends a rank that doesn't handle it.
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    none_is_left(&mark);
}

macro_rules! tests {
    ($($name:ident)*) => {
        mod mpich {
            $(
                #[test]
                #[ignore = "needs MPICH: `cargo xtask mpi` installs it"]
                fn $name() {
                    super::$name(super::Mpi::Mpich);
                }
            )*
        }

        mod open_mpi {
            $(
                #[test]
                #[ignore = "needs Open MPI: `cargo xtask mpi` installs it"]
                fn $name() {
                    super::$name(super::Mpi::Open);
                }
            )*
        }
    };
}

tests! {
    bytes_arrive_as_they_were_sent
    what_differs_is_named_by_all
    a_rank_that_fails_is_named_with_its_reason
    a_rank_that_ends_early_is_named
    a_stopped_rank_is_named_by_all_others
    a_killed_rank_is_named_by_all_others
    a_launcher_ends_all_when_a_rank_is_killed
    ranks_are_launched
    nothing_is_left_of_a_launch_that_is_killed
    ranks_are_asked_to_end
}

#[test]
fn without_a_launcher_a_process_is_alone() {
    let mut command = Command::new(RANK);
    command.env_clear();
    let outcome = run(command);
    outcome.says(1, "alone");
    assert_eq!(outcome.code, Some(0));
}

#[test]
fn a_rank_whose_launcher_is_not_there_is_refused() {
    let mut command = Command::new(RANK);
    command.env_clear().envs([
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ]);
    let outcome = run(command);
    // There's no MPI, or one that sees a single rank.
    outcome.says(1, "not connected: ");
    assert_eq!(outcome.code, Some(1));
}

#[test]
fn a_launch_without_mpirun_says_what_to_install() {
    let mut command = Command::new(RANK);
    command.args(["launch", "2", "time", "1"]).env("PATH", "/nowhere");
    let outcome = run(command);
    outcome.says(1, "not launched: no mpirun was found on PATH. Install Open MPI or MPICH 5");
    assert_eq!(outcome.code, Some(1));
}
