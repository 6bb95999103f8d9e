//! Hostile inputs: files that every reader takes, mutated, and read in a process of their own, which has little memory. A reader refuses
//! or reads; it doesn't panic, crash, hang or ask for memory that the file doesn't account for.

mod mutate;
mod readers;
mod samples;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::chamber::Case;
use crate::draws::Draws;
use crate::tally::{Tally, Violation, Well, Wrong};
use readers::READERS;

/// Inputs of a case, which have a process together.
const INPUTS: u64 = 100;
/// Bytes of memory that the process may take: readers unpack and index what they read.
const MEMORY: u64 = 2 << 30;
/// The most that one input may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// File with the input that is being read.
const CURRENT: &str = "current";
/// File with what was found, a line each.
const FOUND: &str = "found";

/// A hundred inputs of one reader.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let reader = &READERS[case.number as usize % READERS.len()];
    case.story.push(format!("inputs of `{}`", reader.name));
    samples::write(&case.dir, &case.chamber.configurations[0])?;
    let said = fs::File::create(case.dir.join("said"))?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--read")
        .args([reader.name, &case.chamber.seed.to_string(), &case.number.to_string()])
        .arg(&case.dir)
        .current_dir(&case.dir)
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .context("can't start itself")?;
    let (mut latest, mut since) = (String::new(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        let found = fs::read_to_string(case.dir.join(FOUND)).unwrap_or_default();
        if found != latest {
            (latest, since) = (found, Instant::now());
        } else if since.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let found = fs::read_to_string(case.dir.join(FOUND)).unwrap_or_default();
    let mut tally = Tally::default();
    for line in found.lines() {
        tally += Tally::of(match line.split_once(' ') {
            Some(("panic", what)) => Err(Violation::new(Wrong::Panic, what)),
            Some(("refused", _)) => Ok(Well::Refused),
            _ => Ok(Well::Identical),
        });
    }
    let said = fs::read_to_string(case.dir.join("said")).unwrap_or_default();
    let last = said.lines().last().unwrap_or_default();
    let number = tally.tries;
    match status {
        None => {
            let what = format!("input {number} of `{}` takes over 20 s", reader.name);
            tally += Tally::of(Err(Violation::new(Wrong::Hang, what)));
        }
        Some(status) if !status.success() => {
            let what = format!("input {number} of `{}`: {status}: {last}", reader.name);
            tally += Tally::of(Err(Violation::new(Wrong::Panic, what)));
        }
        Some(_) => {}
    }
    Ok(tally)
}

/// Reads inputs: the process that a case starts. `words` are those behind `--read`.
///
/// # Errors
/// Words that aren't a case's, and what the system refuses.
pub fn child(words: &[String]) -> anyhow::Result<()> {
    let [name, seed, number, dir] = words else { anyhow::bail!("--read READER SEED CASE FOLDER") };
    let reader = READERS.iter().find(|reader| reader.name == *name).context("no such reader")?;
    let dir = PathBuf::from(dir);
    let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    setrlimit(Resource::As, limit).context("can't limit memory")?;
    let mut draws = Draws::of(seed.parse()?, name, number.parse()?);
    let originals: Vec<(PathBuf, Vec<u8>)> = reader
        .samples
        .iter()
        .map(|sample| Ok((PathBuf::from(sample), fs::read(dir.join(sample))?)))
        .collect::<anyhow::Result<_>>()?;
    let mut found = String::new();
    for _ in 0..INPUTS {
        let (sample, original) = draws.one_of(&originals);
        let mut bytes = original.clone();
        let others: Vec<&[u8]> = originals.iter().map(|(_, bytes)| &bytes[..]).collect();
        mutate::mutate(&mut draws, &mut bytes, &others);
        fs::write(dir.join(CURRENT), &bytes)?;
        let path = dir.join(sample);
        fs::write(&path, &bytes)?;
        found += &read(reader.read, &path);
        found.push('\n');
        fs::write(dir.join(FOUND), &found)?;
        // Readers look at what lies beside it.
        fs::write(&path, original)?;
    }
    Ok(())
}

/// What comes of reading a file, as a line.
fn read(reader: fn(&Path) -> Result<(), String>, path: &Path) -> String {
    match catch_unwind(AssertUnwindSafe(|| reader(path))) {
        Ok(Ok(())) => "read".to_owned(),
        Ok(Err(why)) if why.trim().is_empty() => "panic a refusal without words".to_owned(),
        Ok(Err(why)) => format!("refused {}", why.replace('\n', " ")),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic {}", words.unwrap_or("of no words").replace('\n', " "))
        }
    }
}
