//! Files of token ids: llm.c's shards, and nanoGPT's.

use crate::bytes::Bytes;
use crate::tokens::Ids;
use crate::{Error, Result};

/// Bytes before the ids of a shard: 256 little-endian i32.
pub(super) const SHARD_HEADER: usize = 1024;
/// First word of a shard of 16-bit ids, as llm.c's `dev/data/data_common.py` writes it.
pub(super) const MAGIC_16: i32 = 20240520;
/// First word of a shard of 32-bit ids, same source.
pub(super) const MAGIC_32: i32 = 20240801;

/// The ids of a `.bin` file, which are read where they are.
pub(super) fn read(name: &str, bytes: Bytes) -> Result<Ids> {
    match bytes.first_chunk().map(|word| i32::from_le_bytes(*word)) {
        Some(MAGIC_16) => shard(name, bytes, 2),
        Some(MAGIC_32) => shard(name, bytes, 4),
        _ => plain(name, bytes),
    }
}

/// 16-bit ids and nothing else, as nanoGPT's `data/*/prepare.py` writes them.
fn plain(name: &str, bytes: Bytes) -> Result<Ids> {
    let problem = if is_text(&bytes) {
        "it holds text; rename it to .txt".to_owned()
    } else if !bytes.len().is_multiple_of(2) {
        format!("it has {} bytes, and no header that says of what width its ids are", bytes.len())
    } else if bytes.iter().take(SHARD_HEADER).all(|&byte| byte == 0) {
        "it begins with zeros alone; fetch or write it again".to_owned()
    } else {
        return Ok(Ids::Shard16 { bytes, skip: 0 });
    };
    Err(broken(name, problem))
}

/// Whether bytes begin as a text does: 16-bit ids rarely are UTF-8 without control characters for long.
fn is_text(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(256)];
    let valid = match std::str::from_utf8(start) {
        Ok(text) => text,
        // A character may be cut at the end.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !valid.is_empty() && valid.chars().all(|c| !c.is_control() || c.is_whitespace())
}

fn broken(name: &str, problem: String) -> Error {
    Error::TokenIds { name: name.to_owned(), problem }
}

/// llm.c's token shard: magic, version 1 and token count in the header, then exactly that many ids.
fn shard(name: &str, bytes: Bytes, width: u64) -> Result<Ids> {
    let broken = |problem| broken(name, problem);
    let Some((header, body)) = bytes.split_at_checked(SHARD_HEADER) else {
        return Err(broken(format!(
            "it has {} bytes and the header alone takes {SHARD_HEADER}; fetch or write it again",
            bytes.len()
        )));
    };
    let (words, _) = header.as_chunks();
    let [version, count] = [1, 2].map(|index: usize| i32::from_le_bytes(words[index]));
    if version != 1 {
        return Err(broken(format!("its version is {version} and only 1 is known")));
    }
    let expected = u64::try_from(count).ok().map(|count| count * width);
    if expected != Some(body.len() as u64) {
        return Err(broken(format!(
            "its header counts {count} tokens of {width} bytes and {} bytes follow; fetch or write it again",
            body.len()
        )));
    }
    let skip = SHARD_HEADER;
    Ok(if width == 2 { Ids::Shard16 { bytes, skip } } else { Ids::Shard32 { bytes, skip } })
}
