//! Leftovers of a run that ended before its first step: settings and a plan, without a step, a sample or a checkpoint.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{SAMPLES, plan_file};
use crate::profile;
use crate::run::{lock, metrics};
use crate::weights::{RUN_SETTINGS, is_run};

/// Folder of checkpoints in a run directory.
const CHECKPOINTS: &str = "checkpoints";

/// Bytes of TensorBoard's events without a curve, at most.
const EVENTS_BYTES: u64 = 128;

/// True if `dir` holds a run that has logged no step and has neither a checkpoint nor a sample. What isn't a run's own is not looked at.
pub(crate) fn is_leftover(dir: &Path) -> bool {
    let logged = fs::metadata(dir.join(metrics::FILE_NAME)).is_ok_and(|file| file.len() > 0);
    let hidden = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    let saved = entries(&dir.join(CHECKPOINTS)).iter().any(|path| !hidden(path));
    is_run(dir) && !logged && !saved && entries(&dir.join(SAMPLES)).is_empty()
}

/// Removes the files of a run that [`is_leftover`] and that no process trains in, and nothing else.
///
/// # Errors
/// Files that can't be removed.
pub(crate) fn remove_leftover(dir: &Path) -> io::Result<()> {
    let checkpoints = dir.join(CHECKPOINTS);
    for unfinished in entries(&checkpoints) {
        match unfinished.is_dir() {
            true => fs::remove_dir_all(&unfinished)?,
            false => fs::remove_file(&unfinished)?,
        }
    }
    for folder in [checkpoints, dir.join(SAMPLES)] {
        unless_missing(fs::remove_dir(folder))?;
    }
    for file in [metrics::FILE_NAME, profile::FILE] {
        unless_missing(fs::remove_file(dir.join(file)))?;
    }
    unless_missing(fs::remove_file(plan_file(dir)))?;
    for file in entries(dir).into_iter().filter(|path| is_events(path)) {
        fs::remove_file(file)?;
    }
    // The file that marks it as a run goes last.
    unless_missing(fs::remove_file(dir.join(RUN_SETTINGS)))
}

/// As [`remove_leftover`], with the directory where nothing else is in it.
///
/// # Errors
/// Files that can't be removed.
pub(crate) fn remove_directory(dir: &Path) -> io::Result<()> {
    remove_leftover(dir)?;
    unless_missing(fs::remove_file(dir.join(lock::FILE_NAME)))?;
    match entries(dir).is_empty() {
        true => unless_missing(fs::remove_dir(dir)),
        false => Ok(()),
    }
}

/// TensorBoard's events of a run, without a curve.
fn is_events(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_own = name.starts_with("events.out.tfevents.") && name.contains(".tightrope");
    is_own && fs::metadata(path).is_ok_and(|file| file.len() <= EVENTS_BYTES)
}

/// Entries of a folder; none if the folder doesn't exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn unless_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files that a run writes before its first step, and one of somebody else's.
    fn begun() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        fs::create_dir_all(path.join("checkpoints/.tmp-step-1")).unwrap();
        for (file, text) in [
            ("run.toml", "[run]"),
            ("plan.json", "{}"),
            ("metrics.jsonl", ""),
            ("run.lock", ""),
            ("checkpoints/.lock", ""),
            ("checkpoints/.tmp-step-1/model.safetensors", "half"),
            ("events.out.tfevents.1.tightrope", "header"),
            ("notes.txt", "mine"),
        ] {
            fs::write(path.join(file), text).unwrap();
        }
        dir
    }

    #[test]
    fn a_run_that_made_nothing_leaves_what_is_not_its_own() {
        let dir = begun();
        assert!(is_leftover(dir.path()));
        remove_directory(dir.path()).unwrap();
        let left = entries(dir.path());
        assert_eq!(left, [dir.path().join("notes.txt")]);
        fs::remove_file(&left[0]).unwrap();
        assert!(!is_leftover(dir.path()), "no run is there");
        fs::write(dir.path().join("run.toml"), "").unwrap();
        remove_directory(dir.path()).unwrap();
        assert!(!dir.path().exists());
    }

    #[test]
    fn a_run_with_a_step_a_sample_or_a_checkpoint_is_kept() {
        for made in ["metrics.jsonl", "samples/step-1.txt", "checkpoints/step-0/manifest.json"] {
            let dir = begun();
            let file = dir.path().join(made);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "{}\n").unwrap();
            assert!(!is_leftover(dir.path()), "{made}");
        }
    }
}
