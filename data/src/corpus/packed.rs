//! Files that gzip or Zstandard has packed.

use crate::bytes::Bytes;
use crate::{Error, Result};

/// Packers whose files aren't read: the name, the offset and bytes of a file's signature, and the command that unpacks it.
const OTHERS: [(&str, usize, &[u8], &str); 5] = [
    // The first block of bzip2 begins with the digits of pi.
    ("bzip2", 4, b"1AY&SY", "bunzip2"),
    ("xz", 0, b"\xfd7zXZ\0", "unxz"),
    ("lz4", 0, b"\x04\x22\x4d\x18", "unlz4"),
    ("7-Zip", 0, b"7z\xbc\xaf\x27\x1c", "7z x"),
    ("zip", 0, b"PK\x03\x04", "unzip"),
];

/// What a file holds: unpacked, if its first bytes say that it's packed.
///
/// # Errors
/// What is broken, and files of packers that aren't read.
pub(crate) fn unpacked(name: &str, bytes: Bytes) -> Result<Bytes> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTANDARD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    let begins =
        |at: usize, start: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(start));
    if let Some(&(by, _, _, with)) = OTHERS.iter().find(|(_, at, start, _)| begins(*at, start)) {
        return Err(Error::PackedBy { name: name.to_owned(), by, with });
    }
    let unpacked = if bytes.starts_with(GZIP) {
        decoders::gzip(&bytes)
    } else if bytes.starts_with(ZSTANDARD) {
        decoders::zstandard(&bytes)
    } else {
        return Ok(bytes);
    };
    let broken = |problem| Error::Packed { name: name.to_owned(), problem };
    unpacked.map(Bytes::from).map_err(broken)
}

#[cfg(not(target_family = "wasm"))]
mod decoders {
    use std::io::Read;

    use crate::limits::Made;

    /// All members of a gzip file.
    pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
        whole(flate2::read::MultiGzDecoder::new(bytes), bytes.len())
    }

    /// All frames of a Zstandard file.
    pub fn zstandard(bytes: &[u8]) -> Result<Vec<u8>, String> {
        whole(zstd::Decoder::with_buffer(bytes).map_err(|error| error.to_string())?, bytes.len())
    }

    fn whole(from: impl Read, size: usize) -> Result<Vec<u8>, String> {
        let made = Made::of(size);
        let mut all = Vec::new();
        let mut from = from.take(made.most().saturating_add(1));
        from.read_to_end(&mut all).map_err(|error| error.to_string())?;
        if all.len() as u64 > made.most() { Err(made.refusal()) } else { Ok(all) }
    }
}

/// A browser has decoders of its own, and the page gives text.
#[cfg(target_family = "wasm")]
mod decoders {
    const ELSEWHERE: &str = "a browser unpacks files before they come here";

    pub fn gzip(_: &[u8]) -> Result<Vec<u8>, String> {
        Err(ELSEWHERE.to_owned())
    }

    pub fn zstandard(_: &[u8]) -> Result<Vec<u8>, String> {
        Err(ELSEWHERE.to_owned())
    }
}
