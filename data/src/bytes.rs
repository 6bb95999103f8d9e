//! Read-only bytes: a mapped file, a buffer, part of either, or text embedded in the binary.

use std::borrow::Cow;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::{Error, Result};

/// Bytes that live as long as their owner, without a copy where they come from a file.
pub(crate) enum Bytes {
    /// A file, and the handle that tells whether it still has its length.
    Map { map: Mmap, file: File },
    /// Read or made in memory.
    Owned(Vec<u8>),
    /// Part of the program.
    Static(&'static [u8]),
    /// A file inside an archive; the range is within the whole.
    Part { whole: Arc<Self>, range: Range<usize> },
}

impl Bytes {
    /// Maps a regular file.
    pub fn open(path: &Path) -> Result<Self> {
        // Opening a pipe would wait for a writer, so what the path is comes first.
        let metadata = path.metadata().map_err(Error::io("open", path))?;
        if !metadata.is_file() {
            return Err(Error::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(Error::io("open", path))?;
        if metadata.len() == 0 {
            return Ok(Self::Owned(Vec::new()));
        }
        // SAFETY: the map is only read as bytes, for which every value is valid. A file that another
        // process shortens raises SIGBUS on access, which `check_length` turns into an error in
        // all but the narrowest race; a file that is overwritten in place yields other bytes.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        Ok(Self::Map { map, file })
    }

    /// Errors where the mapped file is now shorter than its map. One system call.
    pub fn check_length(&self, name: &str) -> Result<()> {
        if let Self::Part { whole, .. } = self {
            return whole.check_length(name);
        }
        if let Self::Map { map, file } = self {
            let found = file.metadata().map_err(Error::io("inspect", name))?.len();
            let expected = map.len() as u64;
            if found < expected {
                return Err(Error::Shrank { name: name.to_owned(), expected, found });
            }
        }
        Ok(())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Map { map, .. } => map,
            Self::Owned(bytes) => bytes,
            Self::Static(bytes) => bytes,
            Self::Part { whole, range } => &whole[range.clone()],
        }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl From<Cow<'static, [u8]>> for Bytes {
    fn from(bytes: Cow<'static, [u8]>) -> Self {
        match bytes {
            Cow::Owned(bytes) => Self::Owned(bytes),
            Cow::Borrowed(bytes) => Self::Static(bytes),
        }
    }
}
