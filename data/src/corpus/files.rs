//! Which files a corpus is of: those that are named, those of folders, and those that globs match.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use super::saved;
use super::splits::{self, HeldOutSplit, Split};
use crate::card;
use crate::hub::Name;
use crate::{Error, Result};

/// Extensions by which files of a folder are taken.
const TEXTS: [&str; 11] =
    ["arrow", "bin", "csv", "json", "jsonl", "md", "ndjson", "parquet", "text", "tsv", "txt"];

/// A file to read.
pub(crate) struct InputFile {
    pub path: PathBuf,
    /// The name that it has in checkpoints: its own, or its path within the folder that was named.
    pub source: String,
}

/// All files, in the order in which they are read.
pub(crate) fn named<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<InputFile>> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let path = &*of_hub(path.as_ref())?;
        if path.is_dir() {
            let before = files.len();
            let mut found = rows_of(path)?;
            if splits::are_split(found.iter().map(|file| &*file.source)) {
                found.retain(|file| splits::of(&file.source) == Some(Split::Train));
            }
            files.append(&mut found);
            if files.len() == before {
                return Err(none(
                    path,
                    "it has no .txt, .md, .jsonl, .json, .csv, .tsv, .parquet, .arrow or .bin files; name others by a glob",
                ));
            }
        } else if !path.exists() && path.to_string_lossy().contains(['*', '?', '[']) {
            of_glob(path, &mut files)?;
        } else {
            files.push(alone(path.to_owned()));
        }
    }
    Ok(files)
}

/// The files that are for evaluation of a single folder that has splits: those for validation, else those for testing.
///
/// # Errors
/// A folder that can't be read.
pub fn held_out_split<P: AsRef<Path>>(paths: &[P]) -> Result<Option<HeldOutSplit>> {
    let [folder] = paths else { return Ok(None) };
    let folder = &*of_hub(folder.as_ref())?;
    if !folder.is_dir() {
        return Ok(None);
    }
    let files = rows_of(folder)?;
    if !splits::are_split(files.iter().map(|file| &*file.source)) {
        return Ok(None);
    }
    let of_split = |split, name| {
        let files = files.iter().filter(|file| splits::of(&file.source) == Some(split));
        let files: Vec<PathBuf> = files.map(|file| file.path.clone()).collect();
        (!files.is_empty()).then_some(HeldOutSplit { name, files })
    };
    Ok(of_split(Split::Validation, "validation").or_else(|| of_split(Split::Test, "test")))
}

/// The folder of a data set that is named as `hf:OWNER/NAME`, in the cache of the Hugging Face hub; any other path itself.
///
/// # Errors
/// A data set that isn't in the cache.
fn of_hub(path: &Path) -> Result<Cow<'_, Path>> {
    let Some(name) = Name::of_dataset(path) else { return Ok(Cow::Borrowed(path)) };
    name.located().map(Cow::Owned).map_err(|why| none(path, &why))
}

/// What a file holds, by its name without what says that it's packed; in lower case.
pub(crate) fn extension(path: &Path) -> String {
    let of =
        |path: &Path| path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    match of(path).as_str() {
        "bz2" | "gz" | "lz4" | "xz" | "zst" => of(&path.with_extension("")),
        other => other.to_owned(),
    }
}

/// Returns `true` for what the `datasets` library keeps beside tables in its cache: a description, and what functions made of them.
fn is_of_cache(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "dataset_info.json" || (name.starts_with("cache-") && name.ends_with(".arrow"))
}

/// Leaves out the `README.md` of a folder that holds rows: a data set's card, which describes them.
fn without_card(found: &mut Vec<InputFile>) {
    const ROWS: [&str; 7] = ["arrow", "csv", "json", "jsonl", "ndjson", "parquet", "tsv"];
    if found.iter().any(|file| ROWS.contains(&extension(&file.path).as_str())) {
        found.retain(|file| !file.source.eq_ignore_ascii_case(card::FILE));
    }
}

fn alone(path: PathBuf) -> InputFile {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let source = name.to_string_lossy().into_owned();
    InputFile { path, source }
}

/// The files of rows or texts of a folder that is named, of one configuration.
fn rows_of(folder: &Path) -> Result<Vec<InputFile>> {
    let mut found = Vec::new();
    of_folder(folder, folder, &mut found)?;
    // There are no folders in a browser.
    #[cfg(not(target_family = "wasm"))]
    {
        let sources: Vec<&str> = found.iter().map(|file| &*file.source).collect();
        if let Some(chosen) = super::configurations::chosen(folder, &sources)? {
            let mut indices = 0..;
            found.retain(|_| indices.next().is_some_and(|index| chosen.contains(&index)));
        }
    }
    without_card(&mut found);
    Ok(found)
}

/// The texts in `folder` and in its folders, by name; hidden ones are passed over. A folder that `save_to_disk` wrote gives
/// the shards that it names.
fn of_folder(root: &Path, folder: &Path, files: &mut Vec<InputFile>) -> Result<()> {
    let source = |path: &Path| {
        let within = path.strip_prefix(root).unwrap_or(path);
        let names: Vec<_> = within.iter().map(|name| name.to_string_lossy()).collect();
        names.join("/")
    };
    if let Some(shards) = saved::shards(folder)? {
        files.extend(shards.into_iter().map(|path| InputFile { source: source(&path), path }));
        return Ok(());
    }
    let refused = Error::io("read", folder);
    let entries = fs::read_dir(folder).and_then(|entries| {
        entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<std::io::Result<Vec<_>>>()
    });
    let mut entries = entries.map_err(refused)?;
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    let tables = entries.iter().any(|(path, _)| extension(path) == "arrow");
    for (path, kind) in entries {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden || (tables && is_of_cache(&path)) {
            continue;
        }
        // A link to a folder could lead back here.
        if kind.is_dir() {
            of_folder(root, &path, files)?;
        } else if path.is_file() && TEXTS.contains(&extension(&path).as_str()) {
            files.push(InputFile { source: source(&path), path });
        }
    }
    Ok(())
}

/// The files that a pattern matches, by name.
#[cfg(not(target_family = "wasm"))]
fn of_glob(pattern: &Path, files: &mut Vec<InputFile>) -> Result<()> {
    let before = files.len();
    let paths = glob::glob(&pattern.to_string_lossy())
        .map_err(|error| none(pattern, &format!("it isn't a glob: {error}")))?;
    for path in paths {
        let path = path.map_err(|error| {
            let folder = error.path().to_owned();
            Error::io("read", folder)(error.into())
        })?;
        if path.is_file() {
            files.push(alone(path));
        }
    }
    if files.len() == before {
        return Err(none(pattern, "no file matches it"));
    }
    Ok(())
}

/// There are no folders in a browser.
#[cfg(target_family = "wasm")]
fn of_glob(pattern: &Path, _: &mut Vec<InputFile>) -> Result<()> {
    Err(none(pattern, "no file matches it"))
}

fn none(path: &Path, problem: &str) -> Error {
    Error::NoFiles { path: path.to_owned(), problem: problem.to_owned() }
}
