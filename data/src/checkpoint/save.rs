//! Writing a checkpoint so that it appears whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::fill::{Sink, fill, small};
use super::{
    Checkpoint, Contents, FOLDER, LOCK, Manifest, REPLACED, STEP, TEMPORARY, entries, list,
    parse_step,
};
use crate::files::{create_folder, has_no_locks, open, refuse_link, sync_folder};
use crate::safetensors::to_file;
use crate::{Error, Result};

/// A checkpoint that was written.
#[derive(Debug)]
pub struct Saved {
    /// Its folder.
    pub path: PathBuf,
    /// What should have been removed and couldn't be; the checkpoint is complete.
    pub left: Vec<Error>,
}

/// Writes `checkpoints/step-N` under the run folder `root`, N being `manifest.step`, then removes
/// all but the `keep` newest up to it (at least 1) and the one that [`Evaluations::kept`](super::Evaluations::kept) names. The manifest's format and
/// checksums are filled in here. Equal arguments give equal bytes.
///
/// A checkpoint of the same step is replaced. What earlier runs left unfinished is removed.
///
/// # Errors
/// A tensor or extra file that can't be written as named, a full disk, any failed write: the
/// unfinished folder is then removed, and earlier checkpoints are as they were.
pub fn save(
    root: impl AsRef<Path>,
    manifest: Manifest,
    contents: Contents<'_>,
    keep: usize,
) -> Result<Saved> {
    let root = root.as_ref();
    let step = manifest.step;
    let spared = manifest.evaluations.and_then(|it| it.kept());
    appear(
        root,
        step,
        |path| fill(&mut Folder, path, manifest, contents),
        |folder| prune(folder, root, step, (keep, spared)),
    )
}

/// Writes a copy of an opened checkpoint, byte for byte, as `checkpoints/step-N` under the run folder `root`.
///
/// # Errors
/// As [`save`].
pub fn unpack(checkpoint: &Checkpoint, root: impl AsRef<Path>) -> Result<Saved> {
    let copy = |path: &Path| {
        let mut files = checkpoint.file_names();
        files.try_for_each(|name| small(&mut Folder, path, name, &checkpoint.file(name)?))
    };
    appear(root.as_ref(), checkpoint.manifest.step, copy, |_| Vec::new())
}

/// Makes the folder of `step` appear with what `write` writes into it, then runs `after` on the folder of
/// all checkpoints, while no other process saves there.
fn appear(
    root: &Path,
    step: u64,
    write: impl FnOnce(&Path) -> Result<()>,
    after: impl FnOnce(&Path) -> Vec<Error>,
) -> Result<Saved> {
    let unfinished = Unfinished::new(root, step)?;
    write(unfinished.path())?;
    unfinished.publish(after)
}

/// The folder of a checkpoint that is being written, which is removed unless it's published. No other process saves there meanwhile.
pub(super) struct Unfinished {
    /// That of all checkpoints.
    folder: PathBuf,
    temporary: PathBuf,
    step: u64,
    /// What earlier processes left and couldn't be removed.
    left: Vec<Error>,
    published: bool,
    _lock: File,
}

impl Unfinished {
    pub fn new(root: &Path, step: u64) -> Result<Self> {
        let folder = root.join(FOLDER);
        refuse_link(&folder)?;
        create_folder(&folder)?;
        let lock = lock(&folder)?;
        let left = clean_up(&folder)?;
        let temporary = temporary(&folder, step);
        fs::create_dir(&temporary).map_err(Error::io("create", &temporary))?;
        Ok(Self { folder, temporary, step, left, published: false, _lock: lock })
    }

    /// Where its files go.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Gives it its name, then runs `after` on the folder of all checkpoints.
    pub fn publish(mut self, after: impl FnOnce(&Path) -> Vec<Error>) -> Result<Saved> {
        let complete = self.folder.join(format!("{STEP}{}", self.step));
        sync_folder(&self.temporary)?;
        let mut left = std::mem::take(&mut self.left);
        left.extend(publish(&self.folder, &self.temporary, &complete, self.step)?);
        self.published = true;
        left.extend(after(&self.folder));
        Ok(Saved { path: complete, left })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.published {
            // The first error is the one that matters; the next save tries again.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Removes what a process left unfinished under the run folder `root` when it died, unless one is saving there now. Gives what
/// couldn't be removed.
///
/// # Errors
/// A folder that can't be read.
pub fn tidy(root: impl AsRef<Path>) -> Result<Vec<Error>> {
    let folder = root.as_ref().join(FOLDER);
    refuse_link(&folder)?;
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let file = lock_file(&folder)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(Vec::new()),
        Err(TryLockError::Error(error)) if !has_no_locks(&error) => {
            Err(Error::io("lock", folder.join(LOCK))(error))
        }
        _ => clean_up(&folder),
    }
}

fn temporary(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{TEMPORARY}{step}"))
}

/// The file that a process locks while it saves here. The system unlocks it when the process dies, so
/// that whoever holds the lock knows every temporary folder to be abandoned.
fn lock_file(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    open(&path, OpenOptions::new().write(true).create(true)).map_err(Error::io("open", path))
}

/// Waits until no other process saves here.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let file = lock_file(folder)?;
    match file.lock() {
        // Two runs in one folder are a mistake where there are no locks.
        Err(error) if !has_no_locks(&error) => Err(Error::io("lock", folder.join(LOCK))(error)),
        _ => Ok(file),
    }
}

/// A folder on a disk.
pub(super) struct Folder;

impl Sink for Folder {
    fn file<T>(
        &mut self,
        path: &Path,
        _name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<T>,
    ) -> Result<T> {
        to_file(path, write)
    }
}

/// Gives the finished folder its name. A folder cannot be renamed over another that has files, so a
/// checkpoint of the same step steps aside first, under a name that [`list`] still finds. Gives what keeps that one from being
/// removed.
fn publish(folder: &Path, temporary: &Path, complete: &Path, step: u64) -> Result<Option<Error>> {
    let aside = folder.join(format!("{REPLACED}{step}"));
    let replaces = complete.exists();
    if replaces {
        fs::rename(complete, &aside).map_err(Error::io("rename", complete))?;
    }
    if let Err(source) = fs::rename(temporary, complete) {
        if replaces {
            // Where this fails too, the next save does it.
            let _ = fs::rename(&aside, complete);
        }
        return Err(Error::Io { action: "rename", path: temporary.to_owned(), source });
    }
    sync_folder(folder)?;
    Ok(if replaces { remove(&aside).err() } else { None })
}

/// Removes a folder with all that is in it.
fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).map_err(Error::io("remove", folder))
}

/// Removes the temporary folders of earlier processes, and finishes the replacements they began. Gives what it couldn't do.
fn clean_up(folder: &Path) -> Result<Vec<Error>> {
    let tidied = |(name, path): (String, PathBuf)| {
        if name.starts_with(TEMPORARY) {
            return remove(&path);
        }
        let Some(step) = parse_step(&name, REPLACED) else { return Ok(()) };
        let complete = folder.join(format!("{STEP}{step}"));
        if complete.exists() {
            return remove(&path);
        }
        fs::rename(&path, &complete).map_err(Error::io("rename", path))
    };
    Ok(entries(folder)?.into_iter().filter_map(|entry| tidied(entry).err()).collect())
}

/// Removes checkpoints older than the `keep` newest up to `step`, but for that of the step `spared`, and gives what it couldn't remove. Each
/// is renamed first, so that a kill half-way leaves a temporary folder and not a damaged checkpoint.
pub(super) fn prune(
    folder: &Path,
    root: &Path,
    step: u64,
    (keep, spared): (usize, Option<u64>),
) -> Vec<Error> {
    let all = match list(root) {
        Ok(all) => all,
        Err(error) => return vec![error],
    };
    let older = all.into_iter().rev().filter(|(other, _)| *other <= step).skip(keep.max(1));
    let older = older.filter(|(other, _)| Some(*other) != spared);
    let doom = |(other, path): (u64, PathBuf)| {
        let doomed = temporary(folder, other);
        fs::rename(&path, &doomed).map_err(Error::io("rename", path))?;
        remove(&doomed)
    };
    older.filter_map(|checkpoint| doom(checkpoint).err()).collect()
}
