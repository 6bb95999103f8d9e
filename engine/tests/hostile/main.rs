//! Hostile files: what every reader takes, mutated, and files that were hostile to one once. A reader reads or refuses. It doesn't panic, overflow
//! the stack or hang, takes at most [`MOST_BYTES`] of memory and [`MOST_SECONDS`] of processor time, and leaves the file as it was.
//!
//! All files of the [corpus](corpus) are read unchanged, and mutations of some, drawn by the day. `TIGHTROPE_HOSTILE=N` mutates N for each reader,
//! by another seed each time; `TIGHTROPE_DRAW=2026-11-22` draws those of a day again. A file that went wrong is left in
//! `target/hostile`: mended, it belongs in the corpus.
#![cfg(target_os = "linux")]

mod allocator;
#[path = "../../../tests/torture/src/draws.rs"]
mod draws;
mod mutate;
mod pipes;
mod readers;
mod repair;

use std::env;
use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use draws::Draws;
use readers::{READERS, Reader};

/// Bytes that reading a file takes at most, besides those that there were before.
const MOST_BYTES: usize = 256 << 20;
/// Seconds of processor time that reading a file takes at most.
const MOST_SECONDS: f64 = 2.0;
/// Mutated files for each reader, of a day.
const DRAWN: u64 = 20;
/// Time without a file read after which a process hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says what the test that is started as a process of its own is to read: a seed and the number of mutated files, or nothing.
const WORK: &str = "TIGHTROPE_HOSTILE_WORK";
const FOLDER: &str = "TIGHTROPE_HOSTILE_FOLDER";
/// Mutated files for each reader.
const COUNT: &str = "TIGHTROPE_HOSTILE";
/// By what the files of the suite are drawn.
const DRAW: &str = "TIGHTROPE_DRAW";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/corpus")
}

/// Files of the corpus that a reader takes, by name.
fn files_of(reader: &Reader) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(corpus().join(reader.name));
    let entries = entries.unwrap_or_else(|error| panic!("corpus/{}: {error}", reader.name));
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.expect("a readable corpus"))
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a readable corpus"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_reader_has_files_and_all_are_small() {
    let mut all = 0;
    for reader in READERS {
        let files = files_of(reader);
        assert!(!files.is_empty(), "{} has no file", reader.name);
        all += files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    }
    assert!(all < 2 << 20, "{all} bytes");
    let known = |name: &str| READERS.iter().any(|reader| reader.name == name);
    let folders = fs::read_dir(corpus()).unwrap();
    let unknown: Vec<String> = folders
        .map(|folder| folder.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !known(name))
        .collect();
    assert_eq!(unknown, [] as [String; 0], "nothing reads these");
}

/// Regressions: each file took a reader down once, or is one that it reads.
#[test]
fn files_of_the_corpus_are_read_or_refused_within_bounds() {
    held("replay", "");
}

#[test]
fn mutated_files_are_read_or_refused_within_bounds() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let day = since.as_secs() / (24 * 60 * 60);
    let (seed, count) = match (env::var(COUNT).ok(), env::var(DRAW).ok()) {
        (Some(count), _) => (since.as_nanos().to_string(), count.parse().expect(COUNT)),
        (None, Some(words)) => (words, DRAWN),
        (None, None) => (format!("day {day}"), DRAWN),
    };
    println!("{count} files for each reader drawn by {seed:?}");
    held("mutated", &format!("{count} {seed}"));
}

/// Runs the work in a process of its own, and asserts that all went well.
fn held(name: &str, work: &str) {
    let folder = tempfile::tempdir().unwrap();
    let said = fs::File::create(folder.path().join("said")).unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "reads", "--ignored", "--nocapture"])
        .env(WORK, work)
        .env(FOLDER, folder.path())
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .unwrap();
    let log = folder.path().join("log");
    let (mut latest, mut since) = (0, Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let length = log.metadata().map_or(0, |found| found.len());
        if length != latest {
            (latest, since) = (length, Instant::now());
        } else if since.elapsed() > PATIENCE {
            child.kill().unwrap();
            break child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let log = fs::read_to_string(&log).unwrap_or_default();
    let mut wrong: Vec<String> =
        log.lines().filter_map(|line| line.strip_prefix("wrong ")).map(str::to_owned).collect();
    if !status.success() {
        let said = fs::read_to_string(folder.path().join("said")).unwrap_or_default();
        let began = log.lines().rev().find_map(|line| line.strip_prefix("begins "));
        let last: Vec<&str> = said.lines().rev().take(4).collect();
        wrong.push(format!("{}: {status}: {last:?}", began.unwrap_or("no file")));
        keep(&folder.path().join("current"), began.unwrap_or(name));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let read = log.lines().filter(|line| line.starts_with("well ")).count();
    assert!(read >= READERS.len(), "{read} files were read");
}

/// Keeps a file that went wrong.
fn keep(file: &Path, name: &str) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/hostile");
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    // The message names a file that can't be kept.
    let _ = fs::create_dir_all(&kept).and_then(|()| fs::copy(file, kept.join(name)));
}

/// The process that reads.
#[test]
#[ignore = "other tests start it as a process"]
fn reads() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let work = env::var(WORK).unwrap_or_default();
    let mut log = fs::File::create(folder.join("log")).unwrap();
    for reader in READERS {
        let files = files_of(reader);
        let Some((count, seed)) = work.split_once(' ') else {
            for (name, bytes) in &files {
                one(reader, &folder, name, bytes, &mut log);
            }
            continue;
        };
        let others: Vec<&[u8]> = files.iter().map(|(_, bytes)| &bytes[..]).collect();
        for number in 0..count.parse().unwrap() {
            let mut draws = Draws::of(number_of(seed), reader.name, number);
            let (name, bytes) = draws.one_of(&files);
            let mut bytes = bytes.clone();
            mutate::mutate(&mut draws, &mut bytes, &others);
            // Readers that check sums go no further without right ones.
            if !draws.one_in(4) {
                (reader.repair)(&mut bytes);
            }
            one(reader, &folder, &format!("{name}, mutation {number} by {seed}"), &bytes, &mut log);
        }
    }
}

/// The number of a seed, which may be a date.
fn number_of(seed: &str) -> u64 {
    seed.bytes().fold(0, |number, byte| number.wrapping_mul(257).wrapping_add(byte.into()))
}

/// Reads one file and logs what came of it.
fn one(reader: &Reader, folder: &Path, name: &str, bytes: &[u8], log: &mut fs::File) {
    let name = format!("{} {name}", reader.name);
    let folder = folder.join(reader.name);
    fs::write(folder.with_file_name("current"), bytes).unwrap();
    writeln!(log, "begins {name}").unwrap();
    let path = folder.join(reader.file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for (place, source) in reader.beside {
        fs::copy(corpus().join(source), folder.join(place)).unwrap();
    }
    fs::write(&path, bytes).unwrap();
    let before = processor_seconds();
    allocator::begin(MOST_BYTES);
    let read = catch_unwind(AssertUnwindSafe(|| (reader.read)(&path)));
    let peak = allocator::end();
    let seconds = processor_seconds() - before;
    let outcome = match read {
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", words.unwrap_or("without words")))
        }
        Ok(Err(why)) if why.trim().is_empty() => Err("was refused without words".to_owned()),
        _ if seconds > MOST_SECONDS => Err(format!("took {seconds:.1} s")),
        _ if fs::read(&path).ok().as_deref() != Some(bytes) => Err("was changed".to_owned()),
        Ok(Err(_)) => Ok("refused"),
        Ok(Ok(())) => Ok("read"),
    };
    match outcome {
        Ok(how) => writeln!(log, "well {how}, {} KiB, {seconds:.2} s: {name}", peak >> 10).unwrap(),
        Err(how) => {
            keep(&path, &name);
            writeln!(log, "wrong {name}: it {}", how.replace('\n', " ")).unwrap();
        }
    }
}

/// Seconds that all threads of this process took of the processors.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name before may have blanks; the 14th and 15th fields are in hundredths.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}
