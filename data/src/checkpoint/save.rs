//! Writing a checkpoint so that it appears whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::manifest::hex;
use super::{
    Contents, FOLDER, FORMAT, LOCK, MANIFEST, MODEL, Manifest, OPTIMIZER, REPLACED, STEP,
    TEMPORARY, entries, list, parse_step,
};
use crate::safetensors::{Tensor, is_file_name, write_file};
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
    mut manifest: Manifest,
    contents: Contents<'_>,
    keep: usize,
) -> Result<PathBuf> {
    let folder = root.as_ref().join(FOLDER);
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    sync_folder(root.as_ref())?;
    let _lock = lock(&folder)?;
    clean_up(&folder)?;
    let step = manifest.step;
    let temporary = temporary(&folder, step);
    let complete = folder.join(format!("{STEP}{step}"));
    manifest.format = FORMAT;
    let result = fill(&temporary, manifest, contents)
        .and_then(|()| publish(&folder, &temporary, &complete, step));
    if let Err(error) = result {
        // The first error is the one that matters; the next save tries again.
        let _ = fs::remove_dir_all(&temporary);
        return Err(error);
    }
    prune(&folder, root.as_ref(), step, keep)?;
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

/// Writes all files into a new folder and flushes them and it to disk.
fn fill(path: &Path, mut manifest: Manifest, contents: Contents<'_>) -> Result<()> {
    fs::create_dir(path).map_err(Error::io("create", path))?;
    let Contents { model, optimizer, extra } = contents;
    let mut checksums = BTreeMap::new();
    tensors(path, MODEL, model, &mut checksums)?;
    tensors(path, OPTIMIZER, optimizer, &mut checksums)?;
    for (name, bytes) in extra {
        let reserved = name == MANIFEST || checksums.contains_key(&name);
        if reserved || !is_file_name(&name) {
            let problem = if reserved { "is there already" } else { "is not a plain file name" };
            return Err(Error::Checkpoint {
                path: path.to_owned(),
                problem: format!("the extra file \"{name}\" {problem}; rename it"),
            });
        }
        write_synced(&path.join(&name), &bytes)?;
        checksums.insert(name, hex(xxh3_64(&bytes)));
    }
    manifest.checksums = checksums;
    let manifest_path = path.join(MANIFEST);
    write_synced(&manifest_path, manifest.to_text(&manifest_path)?.as_bytes())?;
    sync_folder(path)
}

fn tensors(
    path: &Path,
    file: &str,
    tensors: Vec<Tensor<'_>>,
    checksums: &mut BTreeMap<String, String>,
) -> Result<()> {
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let written = write_file(&path.join(file), tensors, &metadata)?;
    checksums.insert(file.to_owned(), hex(written.header));
    for (tensor, hash) in written.tensors {
        checksums.insert(format!("{file}/{tensor}"), hex(hash));
    }
    Ok(())
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(Error::io("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", path))
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
