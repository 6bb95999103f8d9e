//! Writing a checkpoint so that it appears whole.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::fill::{Sink, fill, small};
use super::{
    Checkpoint, Contents, FOLDER, LOCK, Manifest, REPLACED, STEP, TEMPORARY, entries, list,
    parse_step,
};
use crate::safetensors::to_file;
use crate::{Error, Result};

/// Writes `checkpoints/step-N` under the run folder `root`, N being `manifest.step`, then removes
/// all but the `keep` newest up to it (at least 1). Returns its path. The manifest's format and
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
) -> Result<PathBuf> {
    let root = root.as_ref();
    let step = manifest.step;
    appear(
        root,
        step,
        |path| fill(&mut Folder, path, manifest, contents),
        |folder| prune(folder, root, step, keep),
    )
}

/// Writes a copy of an opened checkpoint, byte for byte, as `checkpoints/step-N` under the run folder `root`.
/// Returns its path.
///
/// # Errors
/// As [`save`].
pub fn unpack(checkpoint: &Checkpoint, root: impl AsRef<Path>) -> Result<PathBuf> {
    let copy = |path: &Path| {
        let mut files = checkpoint.file_names();
        files.try_for_each(|name| small(&mut Folder, path, name, &checkpoint.file(name)?))
    };
    appear(root.as_ref(), checkpoint.manifest.step, copy, |_| Ok(()))
}

/// Makes the folder of `step` appear with what `write` writes into it, then runs `after` on the folder of
/// all checkpoints, while no other process saves there.
fn appear(
    root: &Path,
    step: u64,
    write: impl FnOnce(&Path) -> Result<()>,
    after: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    sync_folder(root)?;
    let _lock = lock(&folder)?;
    clean_up(&folder)?;
    let temporary = temporary(&folder, step);
    let complete = folder.join(format!("{STEP}{step}"));
    let result = fs::create_dir(&temporary)
        .map_err(Error::io("create", &temporary))
        .and_then(|()| write(&temporary))
        .and_then(|()| sync_folder(&temporary))
        .and_then(|()| publish(&folder, &temporary, &complete, step));
    if let Err(error) = result {
        // The first error is the one that matters; the next save tries again.
        let _ = fs::remove_dir_all(&temporary);
        return Err(error);
    }
    after(&folder)?;
    Ok(complete)
}

fn temporary(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{TEMPORARY}{step}"))
}

/// Waits until no other process saves here. The system unlocks the file when a process dies, so
/// that whoever holds the lock knows every temporary folder to be abandoned.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    match file.lock() {
        // Some network file systems have no locks; two runs in one folder are a mistake there.
        Err(e) if e.kind() != ErrorKind::Unsupported => Err(Error::io("lock", path)(e)),
        _ => Ok(file),
    }
}

/// A folder on a disk.
struct Folder;

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
/// checkpoint of the same step steps aside first, under a name that [`list`] still finds.
fn publish(folder: &Path, temporary: &Path, complete: &Path, step: u64) -> Result<()> {
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
    if replaces {
        fs::remove_dir_all(&aside).map_err(Error::io("remove", aside))?;
    }
    Ok(())
}

/// Removes the temporary folders of earlier processes, and finishes the replacements they began.
fn clean_up(folder: &Path) -> Result<()> {
    for (name, path) in entries(folder)? {
        if name.starts_with(TEMPORARY) {
            fs::remove_dir_all(&path).map_err(Error::io("remove", path))?;
        } else if let Some(step) = parse_step(&name, REPLACED) {
            let complete = folder.join(format!("{STEP}{step}"));
            if complete.exists() {
                fs::remove_dir_all(&path).map_err(Error::io("remove", path))?;
            } else {
                fs::rename(&path, &complete).map_err(Error::io("rename", path))?;
            }
        }
    }
    Ok(())
}

/// Removes checkpoints older than the `keep` newest up to `step`. Each is renamed first, so that a
/// kill half-way leaves a temporary folder and not a damaged checkpoint.
fn prune(folder: &Path, root: &Path, step: u64, keep: usize) -> Result<()> {
    let older = list(root)?.into_iter().rev().filter(|(other, _)| *other <= step);
    for (other, path) in older.skip(keep.max(1)) {
        let doomed = temporary(folder, other);
        fs::rename(&path, &doomed).map_err(Error::io("rename", path))?;
        fs::remove_dir_all(&doomed).map_err(Error::io("remove", doomed))?;
    }
    Ok(())
}

/// Makes the names in a folder durable. Only Unix has a call for it.
fn sync_folder(path: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io("flush", path))?;
    }
    Ok(())
}
