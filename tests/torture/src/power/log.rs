//! The shim's log, read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::protocol::ENTRY;

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number among the calls of its kind; see [`crate::protocol::call`].
    pub what: u32,
    /// What it gave.
    pub result: i64,
    /// Descriptors, flags, offsets and lengths, by the call.
    pub numbers: [i64; 2],
    /// Its number among all calls.
    pub call: u64,
    /// The paths it names.
    pub paths: [PathBuf; 2],
    /// What was written, or said.
    pub data: Vec<u8>,
}

/// The entries of a log; none where there is no file.
///
/// # Errors
/// A file that can't be read, or that ends in the middle of an entry.
pub fn read(log: &Path) -> anyhow::Result<Vec<Entry>> {
    if !log.exists() {
        return Ok(vec![]);
    }
    let bytes = fs::read(log).with_context(|| format!("can't read {}", log.display()))?;
    let mut rest = &bytes[..];
    let mut take = |length: usize| -> anyhow::Result<&[u8]> {
        ensure!(length <= rest.len(), "{} ends in the middle of an entry", log.display());
        let (taken, left) = rest.split_at(length);
        rest = left;
        Ok(taken)
    };
    let mut entries = vec![];
    while let Ok(head) = take(ENTRY * size_of::<i64>()) {
        let mut numbers = [0; ENTRY];
        for (number, bytes) in numbers.iter_mut().zip(head.chunks_exact(size_of::<i64>())) {
            *number = i64::from_ne_bytes(bytes.try_into()?);
        }
        let [what, result, a, b, call, first, second, data] = numbers;
        let path = |bytes: &[u8]| PathBuf::from(String::from_utf8_lossy(bytes).into_owned());
        let paths = [path(take(first.try_into()?)?), path(take(second.try_into()?)?)];
        let data = take(data.try_into()?)?.to_vec();
        let (what, call) = (what.try_into()?, call.try_into()?);
        entries.push(Entry { what, result, numbers: [a, b], call, paths, data });
    }
    Ok(entries)
}
