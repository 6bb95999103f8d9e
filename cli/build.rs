//! Packs the project's own sources and documentation into the program: the text that `tightrope train`
//! trains on where no data is named.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What counts as text of the project.
const EXTENSIONS: [&str; 8] = ["cu", "cuh", "md", "py", "rs", "toml", "ts", "wgsl"];
/// Folders of build outputs, runs and tools.
const SKIPPED: [&str; 6] = ["dist", "node_modules", "pkg", "runs", "target", "wasm"];

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root =
        manifest.parent().ok_or_else(|| io::Error::other("the crate has no parent folder"))?;
    let mut files = Vec::new();
    collect(root, &mut files)?;
    // Cargo looks at everything below a watched folder, so the root itself can't be one: build outputs
    // may lie in it.
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !is_skipped(&entry.path()) {
            println!("cargo::rerun-if-changed={}", entry.path().display());
        }
    }
    let mut named: Vec<(String, PathBuf)> =
        files.into_iter().filter_map(|file| Some((name_in(root, &file)?, file))).collect();
    named.sort();
    let mut list = "static BUILT_IN: &[(&str, &str)] = &[\n".to_owned();
    for (name, file) in &named {
        let text = fs::read_to_string(file)?;
        if text.is_empty() {
            continue;
        }
        writeln!(list, "    ({name:?}, {text:?}),").map_err(io::Error::other)?;
        println!("cargo::rerun-if-changed={}", file.display());
    }
    list += "];\n";
    fs::write(PathBuf::from(variable("OUT_DIR")?).join("built_in.rs"), list)
}

fn variable(name: &str) -> io::Result<String> {
    std::env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// Adds the text files under `folder`.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if is_skipped(&path) {
            continue;
        }
        if kind.is_dir() {
            collect(&path, files)?;
        } else if kind.is_file() && is_text(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// Hidden files and folders, and those of [`SKIPPED`].
fn is_skipped(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_none_or(|name| name.starts_with('.') || SKIPPED.contains(&name))
}

fn is_text(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

/// The path below `root` with forward slashes, the same on every system.
fn name_in(root: &Path, file: &Path) -> Option<String> {
    let parts = file.strip_prefix(root).ok()?.iter().map(|part| part.to_str());
    Some(parts.collect::<Option<Vec<_>>>()?.join("/"))
}
