//! Tables of Arrow: streams of messages in its IPC format, as `save_to_disk` of the `datasets` library writes them, and files
//! around a stream.
//!
//! | file | holds |
//! |---|---|
//! | [`messages`] | the messages of a stream, each within its bounds |
//! | [`batches`] | batches of rows |
//! | [`cells`] | values of a row |

#[cfg(not(target_family = "wasm"))]
mod batches;
#[cfg(not(target_family = "wasm"))]
mod cells;
#[cfg(not(target_family = "wasm"))]
mod messages;

#[cfg(not(target_family = "wasm"))]
pub(crate) use batches::{column, rows};
#[cfg(not(target_family = "wasm"))]
pub(crate) use messages::metadata;

/// First bytes of a file around a stream.
const MAGIC: &[u8] = b"ARROW1\0\0";

/// Returns `true` if bytes are a file around a stream. A bare stream is known by its name alone.
pub(crate) fn is_file(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// A reader of Arrow would add to the page's download.
#[cfg(target_family = "wasm")]
pub(crate) fn column(
    name: &str,
    _: &[u8],
    _: &str,
    _: &mut dyn FnMut(&str) -> crate::Result<()>,
) -> crate::Result<()> {
    Err(crate::Error::Format { name: name.to_owned(), kind: "an Arrow file" })
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests;
