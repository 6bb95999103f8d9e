//! The run directory: `run.toml`, `plan.json`, `metrics.jsonl`, `checkpoints/`, `samples/`,
//! TensorBoard's events, and `run.lock` with the process that trains.

#[cfg(not(target_family = "wasm"))]
mod leftover;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use tightrope_data::{checkpoint, files};

use crate::error::{Error, Help as _, Result};
use crate::weights::{RUN_SETTINGS, is_run};

#[cfg(not(target_family = "wasm"))]
pub(super) use leftover::{is_leftover, remove_directory, remove_leftover};

/// Where in its directory a run keeps the text that a checkpoint brought along.
pub const DATA: &str = "data";
/// Where in its directory a run keeps samples.
pub const SAMPLES: &str = "samples";

/// The plan of the run in `dir`.
pub fn plan_file(dir: &Path) -> PathBuf {
    dir.join("plan.json")
}

/// Parent of the directories of runs that name none.
const RUNS: &str = "runs";

/// Makes the directory of a new run: `out`, or the first free number under `runs/`.
///
/// # Errors
/// One that holds a run already, or can't be made.
pub fn create(out: Option<&Path>) -> Result<PathBuf> {
    let cannot = |path: &Path| format!("can't make the run directory `{}`", path.display());
    const NEXT: &str = "give --out a directory that can be written";
    if let Some(out) = out {
        refuse_run(out)?;
        files::create_folder(out).with_context(|| cannot(out)).help(NEXT)?;
        return Ok(out.to_owned());
    }
    files::create_folder(Path::new(RUNS)).with_context(|| cannot(Path::new(RUNS))).help(NEXT)?;
    free(Path::new(RUNS), |number| number.to_string())
        .with_context(|| cannot(Path::new(RUNS)))
        .help(NEXT)
}

/// The folder in which the runs beside a new one are, of which `out` is the directory.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn beside(out: Option<&Path>) -> PathBuf {
    match out.map(|out| out.parent().unwrap_or(out)) {
        None => PathBuf::from(RUNS),
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
    }
}

/// Makes a directory of this name in `parent`, with a number behind it where it's taken.
///
/// # Errors
/// What the system refuses.
#[cfg(not(target_family = "wasm"))]
pub(super) fn create_free(parent: &Path, name: &str) -> io::Result<PathBuf> {
    free(parent, |number| match number {
        1 => name.to_owned(),
        _ => format!("{name}-{number}"),
    })
}

/// Makes the first directory of those that `name` gives for 1, 2, 3 and so on that isn't there yet.
fn free(parent: &Path, name: impl Fn(u64) -> String) -> io::Result<PathBuf> {
    for number in 1.. {
        let path = parent.join(name(number));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                return made
                    .and_then(|()| files::sync_folder(parent).map_err(io::Error::other))
                    .map(|()| path);
            }
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Refuses a directory that another process trains in.
///
/// # Errors
/// Where one does.
pub fn refuse_taken(dir: &Path) -> Result<()> {
    #[cfg(not(target_family = "wasm"))]
    super::lock::refuse_taken(dir)?;
    let _ = dir;
    Ok(())
}

/// Refuses a directory that holds a run already. One that ended before it had made anything leaves its place to another.
///
/// # Errors
/// Where it does, and where a process trains there.
pub fn refuse_run(out: &Path) -> Result<()> {
    #[cfg(not(target_family = "wasm"))]
    if is_leftover(out) {
        return refuse_taken(out);
    }
    refuse_kept_run(out)
}

/// Refuses a directory with a run that has made something.
pub(super) fn refuse_kept_run(out: &Path) -> Result<()> {
    #[cfg(not(target_family = "wasm"))]
    if is_leftover(out) {
        return Ok(());
    }
    if !is_run(out) {
        return Ok(());
    }
    let shown = out.display();
    Err(Error::usage(
        anyhow!("`{shown}` already holds a run"),
        format!("continue it with `tightrope train --resume {shown}`, or give another --out"),
    ))
}

/// Makes a directory, which may be there and empty.
///
/// # Errors
/// One that holds something, and one that can't be made.
pub fn create_empty(out: &Path) -> Result<()> {
    let shown = out.display();
    if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::usage(anyhow!("`{shown}` isn't empty"), "name a new directory"));
    }
    fs::create_dir_all(out)
        .with_context(|| format!("can't make `{shown}`"))
        .help("name a directory that can be written")
}

/// The run to resume: `named`, else `out`, else the newest under `runs/`.
///
/// # Errors
/// A directory that holds no run.
pub fn existing(named: Option<&Path>, out: Option<&Path>) -> Result<PathBuf> {
    let path = match named.or(out) {
        Some(path) => path.to_owned(),
        None => newest()?,
    };
    if path.join(RUN_SETTINGS).is_file() {
        return Ok(path);
    }
    Err(Error::usage(
        anyhow!("`{}` holds no run to resume: it has no {RUN_SETTINGS}", path.display()),
        "name the directory of a run, or start one without --resume",
    ))
}

/// The checkpoint with the lowest held-out loss of the run in `dir`, which keeps it.
///
/// # Errors
/// A directory that isn't a run's or has no complete checkpoint, and a run that keeps none for its loss.
pub fn best(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    if !is_run(dir) {
        return Err(Error::usage(
            anyhow!("`{shown}` is no run, of whose checkpoints one is the best"),
            "name the directory of a run that was trained with --keep-best",
        ));
    }
    let help = "name another run, or train it further first";
    let (newest, _) = checkpoint::latest_complete(dir).help(help)?;
    let Some(step) = newest.manifest.evaluations.and_then(|it| it.kept()) else {
        return Err(Error::usage(
            anyhow!("`{shown}` keeps no checkpoint for its held-out loss"),
            "train with --keep-best, or name one of its checkpoints: checkpoints/step-N",
        ));
    };
    let listed = checkpoint::list(dir).help(help)?;
    let found = listed.into_iter().find(|(other, _)| *other == step);
    found.map(|(_, path)| path).ok_or_else(|| {
        Error::failed(
            anyhow!("the best checkpoint of `{shown}`, that of step {step}, isn't there any more"),
            "name one of its checkpoints: checkpoints/step-N",
        )
    })
}

/// The run under `runs/` that was started last.
///
/// # Errors
/// Where there is none.
pub fn newest() -> Result<PathBuf> {
    let started = |path: &Path| -> Option<SystemTime> {
        fs::metadata(path.join(RUN_SETTINGS)).ok()?.modified().ok()
    };
    let runs = fs::read_dir(RUNS).into_iter().flatten().flatten();
    let newest = runs.filter_map(|entry| Some((started(&entry.path())?, entry.path()))).max();
    newest.map(|(_, path)| path).ok_or_else(|| {
        Error::usage(
            anyhow!("there is no run under `{RUNS}/`"),
            "name a run or model directory, or train one with `tightrope train`",
        )
    })
}

/// Writes a small file of the run, complete or not at all.
///
/// # Errors
/// When it can't be written.
pub fn write(path: &Path, text: &[u8]) -> Result<()> {
    let parent = path.parent().map_or(Ok(()), files::create_folder);
    parent
        .and_then(|()| files::replace(path, text))
        .with_context(|| format!("can't write `{}`", path.display()))
        .help("free some space, or give --out a directory on another disk")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_directory_with_a_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(create(Some(dir.path())).is_ok());
        assert_eq!(existing(None, Some(dir.path())).unwrap_err().kind(), Kind::Usage);
        fs::write(dir.path().join(RUN_SETTINGS), "").unwrap();
        assert!(create(Some(dir.path())).is_ok(), "a run that made nothing");
        fs::write(dir.path().join("metrics.jsonl"), "{}\n").unwrap();
        assert_eq!(create(Some(dir.path())).unwrap_err().kind(), Kind::Usage);
        assert_eq!(existing(Some(dir.path()), None).unwrap(), dir.path());
    }
}
