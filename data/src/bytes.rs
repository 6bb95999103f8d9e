//! Read-only bytes: a mapped file, a buffer, part of either, or text embedded in the binary.

use std::borrow::Cow;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::str::Utf8Error;
use std::sync::Arc;

use memmap2::Mmap;

use crate::{Error, Result, files};

/// Bytes that are looked at together.
const BLOCK: usize = 1 << 20;

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
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Error::NotAFile { path: path.to_owned() });
        }
        let file = files::open_regular(path).map_err(Error::io("open", path))?;
        if file.metadata().map_err(Error::io("inspect", path))?.len() == 0 {
            return Ok(Self::Owned(Vec::new()));
        }
        // SAFETY: the map is only read as bytes, for which every value is valid; text is made of copies (`in_memory`, `text`). A file that another
        // process shortens raises SIGBUS on access, which `check_length` turns into an error in
        // all but the narrowest race; a file that is overwritten in place yields other bytes.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        Ok(Self::Map { map, file })
    }

    /// The same bytes in memory of this process, copied from a mapped file, which other processes may change.
    pub fn in_memory(self) -> Self {
        match &self {
            Self::Map { map, .. } => Self::Owned(map.to_vec()),
            Self::Part { whole, .. } if matches!(**whole, Self::Map { .. }) => {
                Self::Owned(self.to_vec())
            }
            Self::Owned(_) | Self::Static(_) | Self::Part { .. } => self,
        }
    }

    /// The text that these are, copied where other processes may change them.
    ///
    /// # Errors
    /// Bytes that aren't UTF-8, and a zip archive.
    pub fn text(&self, name: &str) -> Result<Cow<'_, str>> {
        refuse_zip(name, self)?;
        let refused = |error: Utf8Error| Error::NotUtf8 {
            name: name.to_owned(),
            offset: error.valid_up_to(),
        };
        if matches!(self, Self::Owned(_) | Self::Static(_)) {
            return std::str::from_utf8(self).map(Cow::Borrowed).map_err(refused);
        }
        String::from_utf8(self.to_vec())
            .map(Cow::Owned)
            .map_err(|error| refused(error.utf8_error()))
    }

    /// Checks that these are text, which stays where it is: a corpus may be larger than memory.
    ///
    /// # Errors
    /// As [`Bytes::text`].
    pub fn check_text(&self, name: &str) -> Result<()> {
        refuse_zip(name, self)?;
        let mut at = 0;
        while at < self.len() {
            let end = self.len().min(at + BLOCK);
            let Err(error) = String::from_utf8(self[at..end].to_vec()) else {
                at = end;
                continue;
            };
            let error = error.utf8_error();
            let offset = at + error.valid_up_to();
            // A character that the end of a block cuts begins the next one.
            if error.error_len().is_some() || end == self.len() || offset == at {
                return Err(Error::NotUtf8 { name: name.to_owned(), offset });
            }
            at = offset;
        }
        Ok(())
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

/// Refuses a zip archive, which no text begins as.
pub(crate) fn refuse_zip(name: &str, bytes: &[u8]) -> Result<()> {
    match bytes.starts_with(b"PK\x03\x04") {
        true => Err(Error::Format { name: name.to_owned(), kind: "a zip archive" }),
        false => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_mapped_file_is_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        std::fs::write(&file, "as it was").unwrap();
        let map = Bytes::open(&file).unwrap();
        let text = map.text("it").unwrap();
        std::fs::write(&file, b"\xff\xff it was").unwrap();
        assert_eq!(text, "as it was");
        assert!(matches!(text, Cow::Owned(_)));
        let part = Bytes::Part { whole: Arc::new(map), range: 3..9 };
        assert!(matches!(part.text("it").unwrap(), Cow::Owned(_)));
        assert!(matches!(part.in_memory(), Bytes::Owned(_)));
    }

    #[test]
    fn characters_that_blocks_cut_are_text_and_others_are_named_by_their_place() {
        // Two bytes each, from an odd place on.
        let mut text = b"a".to_vec();
        text.extend("é".repeat(BLOCK).bytes());
        let check = |bytes: &[u8]| Bytes::from(bytes.to_vec()).check_text("it");
        check(&text).unwrap();
        let cut = check(&text[..text.len() - 1]).unwrap_err();
        let last = text.len() - 2;
        assert!(matches!(cut, Error::NotUtf8 { offset, .. } if offset == last), "{cut}");
        text[BLOCK + 1] = 0xff;
        let wrong = check(&text).unwrap_err();
        assert!(
            matches!(wrong, Error::NotUtf8 { offset, .. } if offset == BLOCK - 1 || offset == BLOCK + 1),
            "{wrong}"
        );
        check(b"PK\x03\x04").unwrap_err();
    }
}
