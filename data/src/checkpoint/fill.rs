//! What a checkpoint consists of, wherever it's written to.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::manifest::hex;
use super::{Contents, FORMAT, MANIFEST, Manifest, OPTIMIZER};
use crate::safetensors::{Tensor, is_file_name, write_to};
use crate::{Error, Result};

/// Takes the files of a checkpoint, one after the other.
pub(super) trait Sink {
    /// Makes the file `name` of what `write` writes; `path` is its full name, for messages.
    fn file<T>(
        &mut self,
        path: &Path,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<T>,
    ) -> Result<T>;
}

/// Writes all files into `sink`, the manifest last, with its format and checksums filled in. `path` is that
/// of the folder, for messages.
pub(super) fn fill(
    sink: &mut impl Sink,
    path: &Path,
    manifest: Manifest,
    contents: Contents<'_>,
) -> Result<()> {
    let Contents { model, optimizer, extra } = contents;
    let mut checksums = BTreeMap::new();
    tensors(sink, path, manifest.weights_file(), model, &mut checksums)?;
    tensors(sink, path, OPTIMIZER, optimizer, &mut checksums)?;
    describe(sink, path, manifest, checksums, extra)
}

/// Writes the other files beside tensors that have these checksums, the manifest last.
pub(super) fn describe(
    sink: &mut impl Sink,
    path: &Path,
    mut manifest: Manifest,
    mut checksums: BTreeMap<String, String>,
    extra: Vec<(String, Vec<u8>)>,
) -> Result<()> {
    for (name, bytes) in extra {
        let reserved = name == MANIFEST || checksums.contains_key(&name);
        if reserved || !is_file_name(&name) {
            let problem = if reserved { "is there already" } else { "is not a plain file name" };
            return Err(Error::Checkpoint {
                path: path.to_owned(),
                problem: format!("the extra file \"{name}\" {problem}; rename it"),
            });
        }
        small(sink, path, &name, &bytes)?;
        checksums.insert(name, hex(xxh3_64(&bytes)));
    }
    manifest.format = FORMAT;
    manifest.checksums = checksums;
    let text = manifest.to_text(&path.join(MANIFEST))?;
    small(sink, path, MANIFEST, text.as_bytes())
}

/// A file whose bytes are at hand.
pub(super) fn small(sink: &mut impl Sink, path: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = path.join(name);
    sink.file(&path, name, |out| out.write_all(bytes).map_err(Error::io("write", &path)))
}

fn tensors(
    sink: &mut impl Sink,
    path: &Path,
    file: &str,
    tensors: Vec<Tensor<'_>>,
    checksums: &mut BTreeMap<String, String>,
) -> Result<()> {
    let metadata = metadata();
    let path = path.join(file);
    let written = sink.file(&path, file, |out| write_to(out, &path, tensors, &metadata))?;
    let hashes = written.tensors.iter().map(|(tensor, hash)| (tensor.as_str(), *hash));
    checksums.extend(sums(file, written.header, hashes));
    Ok(())
}

/// The checksums of a file of tensors: of its header, and of each tensor's bytes.
pub(super) fn sums<'a>(
    file: &str,
    header: u64,
    tensors: impl Iterator<Item = (&'a str, u64)>,
) -> impl Iterator<Item = (String, String)> {
    let tensors = tensors.map(move |(tensor, hash)| (format!("{file}/{tensor}"), hex(hash)));
    tensors.chain([(file.to_owned(), hex(header))])
}

/// What a header says besides tensors, as PyTorch's own files do.
pub(super) fn metadata() -> BTreeMap<String, String> {
    BTreeMap::from([("format".to_owned(), "pt".to_owned())])
}
