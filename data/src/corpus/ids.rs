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
    } else if let Some((bits, words)) = wider(&bytes) {
        format!(
            "it looks like ids of {bits} bits, as {words} of 16 bits are below 16; write ids of 16 bits with .astype('uint16'), or a shard with a header"
        )
    } else {
        return Ok(Ids::Shard16 { bytes, skip: 0 });
    };
    Err(broken(name, problem))
}

/// The width of ids that are wider than 16 bits, which leave words of 16 bits small at equal distances, and those words.
fn wider(bytes: &[u8]) -> Option<(u32, &'static str)> {
    /// Words that are looked at, and those that tell.
    const LOOKED: usize = 1 << 14;
    const LEAST: usize = 64;
    let (words, _) = bytes.as_chunks::<2>();
    let words: Vec<u16> = words.iter().take(LOOKED).map(|word| u16::from_le_bytes(*word)).collect();
    if words.len() < LEAST {
        return None;
    }
    let small =
        |each: usize, place: usize| words.iter().skip(place).step_by(each).all(|&word| word < 16);
    if !small(2, 1) || small(2, 0) {
        return None;
    }
    let wide = bytes.len().is_multiple_of(8) && small(4, 2) && !small(4, 0);
    Some(if wide { (64, "three of four words") } else { (32, "every second word") })
}

/// Whether bytes begin as a text does: 16-bit ids rarely are UTF-8 without control characters for long.
fn is_text(bytes: &[u8]) -> bool {
    // A copy, since the file may change meanwhile.
    let start = bytes[..bytes.len().min(256)].to_vec();
    let valid = match std::str::from_utf8(&start) {
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
