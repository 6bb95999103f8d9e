//! The log: an entry for each call that changes a disk, as it was made.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering::Relaxed;

use crate::LOG;
use crate::protocol::ENTRY;

/// A call that was made.
pub struct Entry<'a> {
    /// Number of the call.
    pub what: u32,
    /// What it gave.
    pub result: i64,
    /// Descriptors, flags, offsets and lengths, by the call.
    pub numbers: [i64; 2],
    /// Its number among all calls.
    pub number: u64,
    /// The paths it names.
    pub paths: [&'a CStr; 2],
    /// What was written.
    pub data: &'a [u8],
}

/// Adds an entry where a log is kept: in one call of the system, so that threads don't mix.
pub fn log(entry: &Entry<'_>) {
    let file = LOG.load(Relaxed);
    if file < 0 {
        return;
    }
    let [first, second] = entry.paths.map(CStr::to_bytes);
    let ([a, b], number) = (entry.numbers, entry.number as i64);
    let lengths = [first.len(), second.len(), entry.data.len()].map(|length| length as i64);
    let head: [i64; ENTRY] =
        [entry.what.into(), entry.result, a, b, number, lengths[0], lengths[1], lengths[2]];
    let part = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let parts = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: size_of_val(&head) },
        part(first),
        part(second),
        part(entry.data),
    ];
    // SAFETY: the parts are slices that live, and are only read.
    unsafe { system!(SYS_writev, file, parts.as_ptr(), parts.len()) };
}

/// A path of a caller.
///
/// # Safety
/// It's null, or ends with a zero and lives as long as the call that it came with.
pub unsafe fn path<'a>(path: *const c_char) -> &'a CStr {
    if path.is_null() {
        return c"";
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(path) }
}

/// Bytes of a caller that were written.
///
/// # Safety
/// There are `length` bytes at `data`, which live as long as the call that they came with.
pub unsafe fn bytes<'a>(data: *const c_void, length: i64) -> &'a [u8] {
    match usize::try_from(length) {
        // SAFETY: as the caller says.
        Ok(length) if !data.is_null() => unsafe { std::slice::from_raw_parts(data.cast(), length) },
        _ => &[],
    }
}
