//! Opening a checkpoint: every byte of it against the manifest.

use std::collections::BTreeSet;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::manifest::hex;
use super::{Checkpoint, MANIFEST, MODEL, Manifest, OPTIMIZER};
use crate::bytes::Bytes;
use crate::safetensors::{SafeTensors, is_file_name};
use crate::{Error, Result};

impl Checkpoint {
    /// Opens the checkpoint in a folder, reading all of it once to verify it.
    ///
    /// # Errors
    /// A missing, cut or altered file, naming the file and the tensor.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let manifest_path = path.join(MANIFEST);
        let manifest = Manifest::from_text(&manifest_path, &Bytes::open(&manifest_path)?)?;
        let mut unseen: BTreeSet<&str> = manifest.checksums.keys().map(String::as_str).collect();
        let model = verify_tensors(path, MODEL, &manifest, &mut unseen)?;
        let optimizer = verify_tensors(path, OPTIMIZER, &manifest, &mut unseen)?;
        for name in unseen {
            let file = path.join(name);
            if !is_file_name(name) {
                return Err(Error::Checkpoint {
                    path: manifest_path,
                    problem: format!("it lists \"{name}\", which is not in the checkpoint"),
                });
            }
            if hex(xxh3_64(&Bytes::open(&file)?)) != manifest.checksums[name] {
                return Err(altered(file));
            }
        }
        Ok(Self { path: path.to_owned(), manifest, model, optimizer })
    }

    /// The bytes of another file in it, such as `config.json`.
    ///
    /// # Errors
    /// A file that the manifest doesn't list, or that can't be read.
    pub fn extra(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.path.join(name);
        if !is_file_name(name) || !self.manifest.checksums.contains_key(name) {
            return Err(Error::Checkpoint {
                path: self.path.clone(),
                problem: format!("it has no file \"{name}\""),
            });
        }
        std::fs::read(&file).map_err(Error::io("read", file))
    }
}

/// Opens `file` of the checkpoint and strikes what it verifies off `unseen`.
fn verify_tensors(
    path: &Path,
    file: &str,
    manifest: &Manifest,
    unseen: &mut BTreeSet<&str>,
) -> Result<SafeTensors> {
    let tensors = SafeTensors::open(path.join(file))?;
    let mut matches = |key: &str, hash: u64| {
        unseen.remove(key) && manifest.checksums.get(key).is_some_and(|sum| *sum == hex(hash))
    };
    if !matches(file, xxh3_64(tensors.header())) {
        return Err(altered(path.join(file)));
    }
    for view in tensors.tensors() {
        if !matches(&format!("{file}/{}", view.name), xxh3_64(view.bytes)) {
            return Err(Error::Tensor {
                path: path.join(file),
                tensor: view.name.to_owned(),
                problem: "its bytes do not match the checksum in the manifest".to_owned(),
            });
        }
    }
    Ok(tensors)
}

fn altered(path: std::path::PathBuf) -> Error {
    Error::Checkpoint {
        path,
        problem: "its bytes do not match the checksum in the manifest".to_owned(),
    }
}
