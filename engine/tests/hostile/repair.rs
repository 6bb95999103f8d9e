//! Sums that formats check, made right after a mutation: a reader goes no further without them.

use crc32fast::hash;
use tightrope::data::content;

/// Leaves a file as it is.
pub fn nothing(_: &mut Vec<u8>) {}

/// The sums of a PNG's chunks.
pub fn png(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = number(bytes, at, u32::from_be_bytes) {
        let Some(end) = at.checked_add(8 + length as usize).filter(|end| end + 4 <= bytes.len())
        else {
            return;
        };
        let sum = hash(&bytes[at + 4..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_be_bytes());
        at = end + 4;
    }
}

/// The sums of a zip archive's uncompressed entries.
pub fn zip(bytes: &mut [u8]) {
    for at in 0..bytes.len().saturating_sub(46) {
        if !bytes[at..].starts_with(b"PK\x01\x02") {
            continue;
        }
        let of = |place| number(bytes, at + place, u32::from_le_bytes).unwrap_or(0) as usize;
        let (length, local) = (of(24), of(42));
        let short = |place: usize| {
            bytes.get(place).map_or(0, |&low| usize::from(low))
                + 256 * bytes.get(place + 1).map_or(0, |&high| usize::from(high))
        };
        let start = local + 30 + short(local + 26) + short(local + 28);
        if let Some(entry) = start.checked_add(length).and_then(|end| bytes.get(start..end)) {
            let sum = hash(entry);
            bytes[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// The sums of a tar archive's headers.
pub fn tar(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + 512).filter(|header| header[0] != 0) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = std::str::from_utf8(&header[124..135]).ok();
        let size =
            size.and_then(|size| usize::from_str_radix(size.trim_matches(['\0', ' ']), 8).ok());
        let Some(size) = size else { return };
        at = at.saturating_add(512).saturating_add(size.next_multiple_of(512));
    }
}

/// The sum at the end of a checkpoint's manifest.
pub fn manifest(bytes: &mut Vec<u8>) {
    const BEFORE: &[u8] = b",\n  \"checksum\": \"";
    let place = bytes.windows(BEFORE.len()).rposition(|window| window == BEFORE);
    let Some(place) = place else { return };
    bytes.truncate(place);
    let hash = content(bytes);
    let digits = hash.rsplit(':').next().unwrap_or_default().to_owned();
    bytes.extend([BEFORE, digits.as_bytes(), b"\"\n}\n"].concat());
}

fn number(bytes: &[u8], at: usize, read: fn([u8; 4]) -> u32) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| read(*word))
}
