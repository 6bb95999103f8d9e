//! Writing a safetensors file, in one pass and with the same bytes every time.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;
use serde::ser::SerializeMap;
use tightrope_core::Type;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{MAX_HEADER, METADATA, PREFIX, dtype_name};
use crate::{Error, Result, files};

/// Bytes collected before a write.
const BUFFER: usize = 1 << 20;

/// A tensor to be written.
pub struct Tensor<'a> {
    /// Its name in the file.
    pub name: String,
    /// Dtype and shape.
    pub ty: Type,
    /// Its elements.
    pub payload: Payload<'a>,
}

impl<'a> Tensor<'a> {
    /// A tensor whose bytes are at hand.
    pub fn new(name: impl Into<String>, ty: Type, bytes: &'a [u8]) -> Self {
        Self { name: name.into(), ty, payload: Payload::Bytes(bytes) }
    }

    /// A tensor whose bytes are made while the file is written, e.g. read back from a device.
    pub fn streamed(
        name: impl Into<String>,
        ty: Type,
        stream: impl FnOnce(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        Self { name: name.into(), ty, payload: Payload::Stream(Box::new(stream)) }
    }
}

/// Writes a tensor's bytes, in as many pieces as it likes.
pub type Stream<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + 'a>;

/// Little-endian elements, row-major, of exactly the length the tensor's type says.
pub enum Payload<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// Made by a function while the file is written.
    Stream(Stream<'a>),
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name)
            .field("ty", &self.ty)
            .finish_non_exhaustive()
    }
}

/// Writes tensors in the order given, then flushes the file to disk. The header is padded to 8
/// bytes with spaces; the same arguments give the same bytes.
///
/// # Errors
/// A name that repeats or is reserved, a payload of another length than its type says, a header
/// over 100 MB, and a failed write; the file at `path` is then incomplete.
pub fn write<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = Tensor<'a>>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let (path, tensors) = (path.as_ref(), tensors.into_iter().collect());
    to_file(path, |out| write_to(out, path, tensors, metadata)).map(drop)
}

/// The bytes [`write()`] would write, for where there are no files.
///
/// # Errors
/// As [`write()`].
pub fn to_bytes<'a>(
    tensors: impl IntoIterator<Item = Tensor<'a>>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, Path::new("memory"), tensors.into_iter().collect(), metadata)?;
    Ok(bytes)
}

/// Hashes of what was written.
pub(crate) struct Written {
    /// Of everything in front of the data.
    pub header: u64,
    /// Of each tensor's bytes.
    pub tensors: Vec<(String, u64)>,
}

/// Makes a file of what `fill` writes, and flushes it to disk.
pub(crate) fn to_file<T>(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let failed = |source| Error::Io { action: "write", path: path.to_owned(), source };
    let file = files::create(path).map_err(failed)?;
    let mut file = BufWriter::with_capacity(BUFFER, file);
    let result = fill(&mut file)?;
    let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok(result)
}

/// Writes a whole file to `out`; `path` is for messages.
pub(crate) fn write_to(
    out: &mut dyn Write,
    path: &Path,
    tensors: Vec<Tensor<'_>>,
    metadata: &BTreeMap<String, String>,
) -> Result<Written> {
    let failed = |source| Error::Io { action: "write", path: path.to_owned(), source };
    let header = header(path, tensors.iter().map(|tensor| (&*tensor.name, &tensor.ty)), metadata)?;
    out.write_all(&header).map_err(failed)?;
    let mut written =
        Written { header: xxh3_64(&header), tensors: Vec::with_capacity(tensors.len()) };
    for Tensor { name, ty, payload } in tensors {
        let expected = ty.bytes() as u64;
        let mut counted =
            Counted { inner: &mut *out, hash: Xxh3::new(), left: expected, excess: false };
        let result = match payload {
            Payload::Bytes(bytes) => counted.write_all(bytes),
            Payload::Stream(stream) => stream(&mut counted),
        };
        let Counted { hash, left, excess, .. } = counted;
        if excess || (result.is_ok() && left > 0) {
            let held = if excess { "more".to_owned() } else { (expected - left).to_string() };
            return Err(Error::Tensor {
                path: path.to_owned(),
                tensor: name,
                problem: format!(
                    "its type {ty} takes {expected} bytes, and its payload has {held}"
                ),
            });
        }
        result.map_err(failed)?;
        written.tensors.push((name, hash.digest()));
    }
    Ok(written)
}

/// Lets through as many bytes as a tensor has, and hashes them.
struct Counted<'a> {
    inner: &'a mut dyn Write,
    hash: Xxh3,
    left: u64,
    excess: bool,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            self.excess = true;
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "more bytes than the tensor has",
            ));
        }
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.left -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Serialize)]
struct HeaderEntry<'a> {
    dtype: &'static str,
    shape: &'a [usize],
    data_offsets: [usize; 2],
}

/// Serialises in the order given; a map type would sort.
struct Header<'a> {
    tensors: Vec<(&'a str, HeaderEntry<'a>)>,
    metadata: &'a BTreeMap<String, String>,
}

impl Serialize for Header<'_> {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA, self.metadata)?;
        }
        for (name, entry) in &self.tensors {
            map.serialize_entry(name, entry)?;
        }
        map.end()
    }
}

/// Length, JSON and padding of a file of tensors with these names and types; `path` is for messages.
pub(crate) fn header<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (&'a str, &'a Type)>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let refuse = |tensor: &str, problem: &str| Error::Tensor {
        path: path.to_owned(),
        tensor: tensor.to_owned(),
        problem: problem.to_owned(),
    };
    let mut names = HashSet::new();
    let mut entries = Vec::new();
    let mut start = 0usize;
    for (name, ty) in tensors {
        if name == METADATA {
            return Err(refuse(name, "the format reserves this name; choose another"));
        }
        if !names.insert(name) {
            return Err(refuse(name, "two tensors have this name; rename one"));
        }
        let end = ty
            .shape
            .iter()
            .try_fold(ty.dtype.size(), |product, &extent| product.checked_mul(extent))
            .and_then(|bytes| start.checked_add(bytes))
            .ok_or_else(|| refuse(name, "its size overflows; check its shape"))?;
        let entry = HeaderEntry {
            dtype: dtype_name(ty.dtype),
            shape: &ty.shape,
            data_offsets: [start, end],
        };
        entries.push((name, entry));
        start = end;
    }
    let mut bytes = vec![0; PREFIX];
    serde_json::to_writer(&mut bytes, &Header { tensors: entries, metadata })
        .map_err(|e| Error::Io { action: "write", path: path.to_owned(), source: e.into() })?;
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    let len = (bytes.len() - PREFIX) as u64;
    if len > MAX_HEADER {
        return Err(Error::SafeTensors {
            path: path.to_owned(),
            problem: format!(
                "its header would take {len} bytes, over {MAX_HEADER}; write fewer tensors"
            ),
        });
    }
    bytes[..PREFIX].copy_from_slice(&len.to_le_bytes());
    Ok(bytes)
}
