//! The manifest's text: JSON whose last field is the checksum of all that precedes it.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::{FORMAT, Manifest};
use crate::{Error, Result};

const BEFORE: &str = ",\n  \"checksum\": \"";
const AFTER: &str = "\"\n}\n";
const DIGITS: usize = 16;

pub(super) fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

impl Manifest {
    /// The bytes of `manifest.json`; the same for equal manifests.
    pub(super) fn to_text(&self, path: &Path) -> Result<String> {
        let mut text = serde_json::to_string_pretty(self).map_err(|e| Error::Io {
            action: "write",
            path: path.to_owned(),
            source: e.into(),
        })?;
        // An object of many fields, printed over lines.
        text.truncate(text.len() - "\n}".len());
        let checksum = hex(xxh3_64(text.as_bytes()));
        Ok(text + BEFORE + &checksum + AFTER)
    }

    /// Reads `manifest.json`; any change to its bytes since it was written is an error.
    pub(super) fn from_text(path: &Path, bytes: &[u8]) -> Result<Self> {
        let broken = |problem: String| Error::Checkpoint { path: path.to_owned(), problem };
        let (body, recorded) = bytes
            .strip_suffix(AFTER.as_bytes())
            .and_then(|rest| rest.split_last_chunk::<DIGITS>())
            .and_then(|(rest, digits)| Some((rest.strip_suffix(BEFORE.as_bytes())?, digits)))
            .ok_or_else(|| broken("it is cut off or does not end in its checksum".to_owned()))?;
        if hex(xxh3_64(body)).as_bytes() != recorded {
            return Err(broken("its bytes do not match its checksum".to_owned()));
        }
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|e| broken(format!("it cannot be read ({e})")))?;
        if manifest.format != FORMAT {
            return Err(broken(format!(
                "its format is {} and this version reads {FORMAT}; use the version that wrote it",
                manifest.format
            )));
        }
        Ok(manifest)
    }
}
