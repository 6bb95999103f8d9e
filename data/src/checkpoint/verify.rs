//! Opening a checkpoint: every byte of it against the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::archive::Archive;
use super::manifest::hex;
use super::{Checkpoint, MANIFEST, Manifest, OPTIMIZER, text_file};
use crate::bytes::Bytes;
use crate::files::read;
use crate::safetensors::{SafeTensors, is_file_name};
use crate::{Error, Result, limits};

/// Where the files of a checkpoint are.
pub(super) enum Files {
    /// In a folder. Files without tensors are held open by their names: another process of the run may remove the folder meanwhile, and
    /// bytes that were verified are those that are used.
    Folder(BTreeMap<String, Arc<Bytes>>),
    /// In one file.
    Archive(Archive),
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder(_) => "Folder",
            Self::Archive(_) => "Archive",
        })
    }
}

impl Files {
    /// The files of the checkpoint in the folder or the archive at `path`.
    fn at(path: &Path) -> Result<Self> {
        Ok(match path.is_file() {
            true => Self::Archive(Archive::read(path, Bytes::open(path)?)?),
            false => Self::Folder(BTreeMap::new()),
        })
    }

    /// The bytes of the file `name` of the checkpoint at `path`.
    fn open(&self, path: &Path, name: &str) -> Result<Bytes> {
        match self {
            Self::Folder(held) => match held.get(name) {
                Some(bytes) => Ok(Bytes::Part { whole: Arc::clone(bytes), range: 0..bytes.len() }),
                None => Bytes::open(&path.join(name)),
            },
            Self::Archive(archive) => archive.get(name).ok_or_else(|| Error::Checkpoint {
                path: path.to_owned(),
                problem: format!("it lacks \"{name}\"; pack the checkpoint's whole folder"),
            }),
        }
    }

    /// Opens a file, and holds it where it lies in a folder.
    fn hold(&mut self, path: &Path, name: &str) -> Result<Bytes> {
        if let Self::Folder(held) = self {
            held.insert(name.to_owned(), Arc::new(Bytes::open(&path.join(name))?));
        }
        self.open(path, name)
    }
}

impl Checkpoint {
    /// Opens the checkpoint in a folder, or in an archive of one, reading all of it once to verify it.
    ///
    /// # Errors
    /// A missing, cut or altered file, naming the file and the tensor.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::verified(path, Files::at(path)?, true)
    }

    /// As [`Checkpoint::open`], of a checkpoint whose weights were changed on purpose: their bytes aren't compared with the manifest's
    /// checksums, and those of all other files are.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_edited(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::verified(path, Files::at(path)?, false)
    }

    /// Opens an archive in memory; `name` is for messages.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_archive(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Self> {
        let name = name.as_ref();
        Self::verified(name, Files::Archive(Archive::read(name, bytes.into())?), true)
    }

    /// `weights` is true if the bytes of the weights are to match their checksums.
    fn verified(path: &Path, mut files: Files, weights: bool) -> Result<Self> {
        let manifest_path = path.join(MANIFEST);
        let text = match &files {
            Files::Folder(_) => read(&manifest_path, limits::DESCRIPTION)
                .map_err(Error::io("read", &manifest_path))?
                .into(),
            Files::Archive(_) => files.open(path, MANIFEST)?.in_memory(),
        };
        let manifest = Manifest::from_text(&manifest_path, &text)?;
        let mut unseen: BTreeSet<&str> = manifest.checksums.keys().map(String::as_str).collect();
        let file = manifest.weights_file();
        let model = if weights {
            verify_tensors(path, &files, file, &manifest, &mut unseen)?
        } else {
            let is_of_file = |key: &str| key.split_once('/').map_or(key, |(file, _)| file) == file;
            unseen.retain(|key| !is_of_file(key));
            SafeTensors::parse(path.join(file), files.open(path, file)?)?
        };
        let optimizer = verify_tensors(path, &files, OPTIMIZER, &manifest, &mut unseen)?;
        for name in unseen {
            if !is_file_name(name) {
                return Err(Error::Checkpoint {
                    path: manifest_path,
                    problem: format!("it lists \"{name}\", which is not in the checkpoint"),
                });
            }
            if hex(xxh3_64(&files.hold(path, name)?)) != manifest.checksums[name] {
                return Err(Error::Altered { path: path.join(name), tensor: None });
            }
        }
        Ok(Self { path: path.to_owned(), manifest, model, optimizer, files })
    }

    /// The bytes of another file in it, such as `config.json`.
    ///
    /// # Errors
    /// A file that the manifest doesn't list, or that can't be read.
    pub fn extra(&self, name: &str) -> Result<Vec<u8>> {
        if !self.has(name) {
            return Err(Error::Checkpoint {
                path: self.path.clone(),
                problem: format!("it has no file \"{name}\""),
            });
        }
        Ok(self.file(name)?.to_vec())
    }

    /// Names and texts of its data, where the checkpoint holds them itself, else none; see [`text_file`].
    ///
    /// # Errors
    /// A file that can't be read.
    pub fn texts(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let files = &self.manifest.data.files;
        if !files.iter().all(|file| self.has(&text_file(&file.name))) {
            return Ok(Vec::new());
        }
        let text = |name: &String| Ok((name.clone(), self.extra(&text_file(name))?));
        files.iter().map(|file| text(&file.name)).collect()
    }

    /// Whether the manifest lists the file `name`.
    pub fn has(&self, name: &str) -> bool {
        is_file_name(name) && self.manifest.checksums.contains_key(name)
    }

    /// Whether it lies in a folder, and not in one file.
    pub fn is_folder(&self) -> bool {
        matches!(self.files, Files::Folder(_))
    }

    /// Names of all its files.
    pub(super) fn file_names(&self) -> impl Iterator<Item = &str> {
        let listed = self.manifest.checksums.keys().map(String::as_str);
        // The other keys are of tensors, whose file they name before a slash.
        listed.filter(|name| is_file_name(name)).chain([MANIFEST])
    }

    /// The bytes of one of [`Checkpoint::file_names`].
    pub(super) fn file(&self, name: &str) -> Result<Bytes> {
        self.files.open(&self.path, name)
    }
}

/// Opens `file` of the checkpoint and strikes what it verifies off `unseen`.
fn verify_tensors(
    path: &Path,
    files: &Files,
    file: &str,
    manifest: &Manifest,
    unseen: &mut BTreeSet<&str>,
) -> Result<SafeTensors> {
    let tensors = SafeTensors::parse(path.join(file), files.open(path, file)?)?;
    let mut matches = |key: &str, hash: u64| {
        unseen.remove(key) && manifest.checksums.get(key).is_some_and(|sum| *sum == hex(hash))
    };
    if !matches(file, xxh3_64(tensors.header())) {
        return Err(Error::Altered { path: path.join(file), tensor: None });
    }
    for view in tensors.tensors() {
        if !matches(&format!("{file}/{}", view.name), xxh3_64(view.bytes)) {
            let tensor = Some(view.name.to_owned());
            return Err(Error::Altered { path: path.join(file), tensor });
        }
    }
    Ok(tensors)
}
