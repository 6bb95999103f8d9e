//! `cargo xtask torture`: what can happen to a run happens to it, again and again, and each time it ends in the same numbers, or says
//! why not.
//!
//! | module | does |
//! |---|---|
//! | [`scenarios`] | one each: kills, faults, lost power, flipped bits, … |
//! | [`chamber`], [`configurations`] | what they share: the runs that others are held against, and a folder for each case |
//! | [`command`], [`protocol`] | the command, with the shim that is loaded into it |
//! | [`power`] | a disk as it's found when the power went away |
//! | [`library`], [`device`] | runs in this process, on devices that are disturbed |
//! | [`results`], [`tally`] | what a run came to, and the table |
#![forbid(unsafe_code)]

mod chamber;
mod command;
mod configurations;
mod device;
mod draws;
mod library;
mod power;
#[allow(dead_code, reason = "the shim uses the other half")]
mod protocol;
mod results;
mod scenarios;
mod tally;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use chamber::{Chamber, emptied};
use command::Tightrope;

const USAGE: &str = "\
usage: torture --binary FILE --work FOLDER [--minutes N] [--seed S] [--only SCENARIO [--case N]] [--jobs N]

  --binary   the command
  --work     where runs are made, and those are kept that went wrong
  --minutes  time for all scenarios together (2)
  --seed     what everything is drawn by (the day)
  --only     the scenarios whose names begin so
  --case     one case of it
  --jobs     cases side by side (one for each core)
";

/// What was asked for.
struct Asked {
    binary: PathBuf,
    work: PathBuf,
    time: Duration,
    seed: u64,
    only: Option<String>,
    case: Option<u64>,
    jobs: usize,
}

impl Asked {
    fn of(words: &[String]) -> anyhow::Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (mut binary, mut work) = (None, None);
        let (mut minutes, mut seed) = (2.0, since.as_secs() / (24 * 60 * 60));
        let (mut only, mut case) = (None, None);
        let mut jobs = std::thread::available_parallelism().map_or(2, usize::from);
        for pair in words.chunks(2) {
            let [flag, value] = pair else { bail!("{} has no value\n{USAGE}", pair[0]) };
            let wrong = || format!("{flag} {value}");
            match flag.as_str() {
                "--binary" => binary = Some(PathBuf::from(value)),
                "--work" => work = Some(PathBuf::from(value)),
                "--minutes" => minutes = value.parse::<f64>().with_context(wrong)?,
                "--seed" => seed = value.parse().with_context(wrong)?,
                "--only" => only = Some(value.clone()),
                "--case" => case = Some(value.parse().with_context(wrong)?),
                "--jobs" => jobs = value.parse().with_context(wrong)?,
                _ => bail!("unknown option {flag}\n{USAGE}"),
            }
        }
        let time = Duration::try_from_secs_f64(minutes * 60.0).context("--minutes")?;
        let (binary, work) = (binary.context(USAGE)?, work.context(USAGE)?);
        Ok(Self { binary, work, time, seed, only, case, jobs })
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Asked::of(&words).and_then(|asked| torture(&asked)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Without the backtrace that RUST_BACKTRACE adds: of a log that is cut, the cause is to be left.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The library that is loaded into the command: where cargo puts it, beside this program.
fn shim() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let shim = own.with_file_name("libtorture_shim.so");
    ensure!(shim.is_file(), "{} isn't there: build the package `torture`", shim.display());
    Ok(shim)
}

/// Tries everything; `false` where something went wrong.
fn torture(asked: &Asked) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let work = emptied(&asked.work, "")?.canonicalize()?;
    let binary = asked.binary.canonicalize().with_context(|| asked.binary.display().to_string())?;
    let tightrope = Tightrope { binary, shim: shim()? };
    println!("seed {}: cargo xtask torture --seed {}", asked.seed, asked.seed);
    let chamber = Chamber::new(tightrope, work.clone(), asked.seed, asked.time)?;
    let rows = scenarios::tried(&chamber, asked.only.as_deref(), asked.case, asked.jobs);
    ensure!(!rows.is_empty(), "no scenario of this name: {}", names());
    println!("\nseed {}, {:.1} minutes\n", asked.seed, begun.elapsed().as_secs_f64() / 60.0);
    println!("{}", tally::table(&rows));
    print!("{}", tally::results(&rows));
    remove(&work.join("runs"));
    remove(&work.join("cases"));
    let well = |row: &tally::Row| row.tally.violations.is_empty() && row.tally.not_run.is_none();
    Ok(rows.iter().all(well))
}

/// What isn't needed any more. Where it can't be removed, the next time does.
fn remove(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}

fn names() -> String {
    scenarios::ALL.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ")
}
