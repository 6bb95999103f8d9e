//! The directory of a run while it trains: locked, known again should it be moved, and written without following links.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use tightrope_data::{checkpoint, files};

use super::lock::Lock;
use super::record::Recorder;
use super::{Evaluation, Stepped, directory};
use crate::error::{Error, Help as _, Result};
use crate::settings::Settings;
use crate::weights::RUN_SETTINGS;

/// The directory of a run, for the one process that trains it.
pub(crate) struct Home {
    dir: PathBuf,
    identity: Option<Identity>,
    recorder: Option<Recorder>,
    /// Settings and plan, with which a directory can be resumed.
    described: Option<(Settings, Value)>,
    /// What there is to tell.
    notes: Vec<String>,
    /// True if the run has failed: where it made nothing, it leaves nothing.
    failed: bool,
    _lock: Lock,
}

/// What tells a directory from another one that takes its place: device and number of its inode.
type Identity = (u64, u64);

impl Home {
    /// Takes `dir`, in which no other process may train, and removes what one left unfinished that died.
    ///
    /// # Errors
    /// A directory that another process trains in, one that isn't there, and one with links in it.
    pub(crate) fn take(dir: &Path) -> Result<Self> {
        const NEXT: &str = "give --out a directory of your own";
        for folder in [directory::SAMPLES, directory::DATA] {
            files::refuse_link(&dir.join(folder)).help(NEXT)?;
        }
        let lock = Lock::take(dir)?;
        let left = checkpoint::tidy(dir).help(NEXT)?;
        Ok(Self {
            dir: dir.to_owned(),
            identity: identity(dir),
            recorder: None,
            described: None,
            notes: left.iter().map(|error| format!("warning: {error}")).collect(),
            failed: false,
            _lock: lock,
        })
    }

    /// As [`Home::take`], for a new run: what one left that ended before it had made anything is removed.
    ///
    /// # Errors
    /// A directory that holds a run, and one that can't be written.
    pub(crate) fn take_new(dir: &Path) -> Result<Self> {
        let mut home = Self::take(dir)?;
        // Another process may have trained there since it was asked for.
        directory::refuse_kept_run(dir)?;
        if directory::is_leftover(dir) {
            directory::remove_leftover(dir)
                .with_context(|| format!("can't remove what a run left in `{}`", dir.display()))
                .help("give --out a directory of your own")?;
        }
        // Until the run has begun.
        home.failed = true;
        Ok(home)
    }

    /// Notes whether the run has failed.
    pub(crate) fn set_failed(&mut self, failed: bool) {
        self.failed = failed;
    }

    /// Writes `run.toml` and `plan.json`.
    ///
    /// # Errors
    /// A directory that can't be written.
    pub(crate) fn describe(&mut self, settings: Settings, plan: Value) -> Result<()> {
        let mut settings = settings;
        // The file describes a run of its own too, by --config, in a directory of its own.
        settings.run.out = None;
        settings
            .write(&self.dir.join(RUN_SETTINGS))
            .help("free some space, or give --out a directory that can be written")?;
        directory::write(&directory::plan_file(&self.dir), format!("{plan:#}\n").as_bytes())?;
        self.described = Some((settings, plan));
        Ok(())
    }

    /// Records the run from here on, which has done `steps`.
    ///
    /// # Errors
    /// Files that can't be written, and metrics that were damaged.
    pub(super) fn record(&mut self, steps: u64) -> Result<()> {
        self.recorder = Some(Recorder::open(&self.dir, steps)?);
        Ok(())
    }

    /// Whether the run recorded before, and no evaluation after `step`.
    pub(super) fn lacks_evaluation(&self, step: u64) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.lacks_evaluation(step))
    }

    /// Where it is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the directory is where it was, and not another one.
    pub(super) fn is_there(&self) -> bool {
        match self.identity {
            Some(_) => identity(&self.dir) == self.identity,
            None => self.dir.is_dir(),
        }
    }

    /// A new directory like this one, which has been moved or removed: beside it or, where nothing can be written there, under
    /// the folder of temporary files.
    ///
    /// # Errors
    /// Where neither can be written.
    pub(super) fn again(&self, steps: u64) -> Result<Self> {
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let beside = self.dir.parent().map(Path::to_owned).unwrap_or_default();
        let dir = directory::create_free(&beside, &format!("{name}-rescued"))
            .or_else(|_| directory::create_free(&env::temp_dir(), &format!("{name}-rescued")))
            .context("can't make another run directory")
            .help("free some space")?;
        let mut home = Self::take(&dir)?;
        if let Some((settings, plan)) = &self.described {
            home.describe(settings.clone(), plan.clone())?;
        }
        home.record(steps)?;
        Ok(home)
    }

    /// Records a step.
    pub(super) fn log(&mut self, stepped: &Stepped) {
        self.recorder.iter_mut().for_each(|recorder| recorder.log(stepped));
    }

    /// Records an evaluation after `step`, unless it repeats the last one.
    pub(super) fn evaluated(&mut self, step: u64, evaluation: &Evaluation) {
        self.recorder.iter_mut().for_each(|recorder| recorder.evaluated(step, evaluation));
    }

    /// Records a sample after `step`.
    pub(super) fn sampled(&mut self, step: u64, text: &str) {
        self.recorder.iter_mut().for_each(|recorder| recorder.sampled(step, text));
    }

    /// Puts what was recorded on the disk, before a checkpoint that comes after it.
    pub(super) fn flush(&mut self) {
        self.recorder.iter_mut().for_each(Recorder::flush);
    }

    /// The file of metrics, for another thread to flush.
    pub(super) fn metrics_file(&self) -> Option<Arc<File>> {
        self.recorder.as_ref()?.metrics_file()
    }

    /// What couldn't be written or removed since the last time.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.recorder.iter_mut().flat_map(Recorder::take_notes));
        notes
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let failed = self.failed || std::thread::panicking();
        if failed && self.is_there() && directory::is_leftover(&self.dir) {
            // If files stay, the next run there takes the directory.
            let _ = directory::remove_directory(&self.dir);
        }
    }
}

#[cfg(unix)]
fn identity(dir: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(dir).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}

/// The failure of a run whose directory is gone from `lost`, with its weights of `step` in `found`.
pub(super) fn moved(lost: &Path, step: u64, found: Result<PathBuf>) -> Error {
    let lost = lost.display();
    let moved = format!("the run directory `{lost}` was moved or removed while the run trained");
    match found {
        Ok(dir) => Error::failed(
            anyhow!("{moved}; the weights of step {step} are saved in `{}`", dir.display()),
            format!("continue with `tightrope train --resume {}`", dir.display()),
        ),
        Err(error) => Error::failed(
            anyhow!("{moved}, and the weights of step {step} couldn't be saved elsewhere: {error}"),
            "resume the directory where it is now, from its last checkpoint",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    /// A new run in `dir`, before its first step.
    fn begun(dir: &Path) -> Home {
        assert_eq!(directory::create(Some(dir)).unwrap(), dir);
        let mut home = Home::take_new(dir).unwrap();
        home.describe(Settings::default(), Value::Null).unwrap();
        home.record(0).unwrap();
        home
    }

    #[test]
    fn a_run_that_made_nothing_gives_its_directory_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("run");
        // Killed: what it wrote is still there.
        let mut home = begun(&dir);
        home.set_failed(false);
        drop(home);
        assert!(dir.join(RUN_SETTINGS).is_file());
        // Failed: it leaves nothing.
        drop(begun(&dir));
        assert!(!dir.exists());
        // With a step that was logged it's kept.
        let mut home = begun(&dir);
        home.log(&Stepped { step: 1, step_s: 1.0, ..Stepped::default() });
        drop(home);
        assert!(dir.join("metrics.jsonl").is_file());
        assert_eq!(directory::create(Some(&dir)).unwrap_err().kind(), Kind::Usage);
        assert_eq!(Home::take_new(&dir).err().map(|error| error.kind()), Some(Kind::Usage));
    }
}
