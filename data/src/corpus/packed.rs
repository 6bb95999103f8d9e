//! Files that gzip or Zstandard has packed.

use crate::bytes::Bytes;
use crate::{Error, Result};

/// What a file holds: unpacked, if its first bytes say that it's packed.
pub(crate) fn unpacked(name: &str, bytes: Bytes) -> Result<Bytes> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTANDARD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
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
