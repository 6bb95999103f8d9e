//! Names of models on the Hugging Face hub, found in its cache on this machine or fetched into it.

use std::path::{Path, PathBuf};

use tightrope_data::hub::Name;

/// The directory that `path` names: itself where there is one, else the snapshot of a model of the hub with this name, which may end in
/// `@` and a branch, tag or commit.
pub(crate) fn located(path: &Path) -> PathBuf {
    // A browser's tab has no cache of the hub.
    if cfg!(target_family = "wasm") {
        return path.to_owned();
    }
    let found = Name::of_model(path).and_then(|name| name.located().ok());
    found.unwrap_or_else(|| path.to_owned())
}

/// Advice for a missing `path` that may be a name on the hub.
pub(crate) fn advice(path: &Path) -> Option<String> {
    let name = Name::of_model(path).filter(|name| name.name.contains('/'))?;
    name.located().err()
}
