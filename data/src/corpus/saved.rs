//! Folders that `save_to_disk` of the `datasets` library wrote: shards of Arrow that a `state.json` names, and a folder of them
//! for each split that a `dataset_dict.json` names.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::{Error, Result, files, limits};

const STATE: &str = "state.json";
const SPLITS: &str = "dataset_dict.json";

#[derive(Deserialize)]
struct State {
    #[serde(rename = "_data_files")]
    shards: Vec<Shard>,
    /// Rows by their places among those of the shards, as versions before 1.3 wrote them.
    #[serde(default, rename = "_indices_data_files")]
    indices: Option<Vec<Shard>>,
}

#[derive(Deserialize)]
struct Shard {
    filename: String,
}

#[derive(Deserialize)]
struct Splits {
    splits: Vec<String>,
}

/// The shards of such a folder, in the order of its splits; `None` of another folder.
///
/// # Errors
/// A shard or a split that is missing, and names outside of the folder.
pub(super) fn shards(folder: &Path) -> Result<Option<Vec<PathBuf>>> {
    let Some(Splits { splits }) = json(&folder.join(SPLITS)) else { return of_split(folder) };
    let mut all = Vec::new();
    for split in splits {
        let path = within(folder, SPLITS, &split)?;
        let shards = of_split(&path)?;
        all.extend(shards.ok_or_else(|| {
            refused(&path, "it is a split without a state.json; save the data set again")
        })?);
    }
    Ok(Some(all))
}

/// Returns `true` for such a folder.
pub(crate) fn is_saved(folder: &Path) -> bool {
    !matches!(shards(folder), Ok(None))
}

fn of_split(folder: &Path) -> Result<Option<Vec<PathBuf>>> {
    let Some(State { shards, indices }) = json(&folder.join(STATE)) else { return Ok(None) };
    if indices.is_some_and(|indices| !indices.is_empty()) {
        let problem =
            "an old version of `datasets` wrote it; load it with load_from_disk and save it again";
        return Err(refused(folder, problem));
    }
    let paths = shards.iter().map(|shard| within(folder, STATE, &shard.filename));
    paths.collect::<Result<Vec<PathBuf>>>().map(Some)
}

/// A file of JSON of this shape; `None` of another one, which may be data.
fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&files::read(path, limits::DESCRIPTION).ok()?).ok()
}

/// The path that the file `by` of a folder names.
fn within(folder: &Path, by: &str, name: &str) -> Result<PathBuf> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(folder.join(name)),
        _ => Err(refused(
            folder,
            &format!(
                "its {by} names {name:?}, which isn't a name within it; save the data set again"
            ),
        )),
    }
}

fn refused(folder: &Path, problem: &str) -> Error {
    Error::NoFiles { path: folder.to_owned(), problem: problem.to_owned() }
}
