//! Names of models on the Hugging Face hub, found in its cache on this machine. Nothing is fetched.

use std::env;
use std::path::{Path, PathBuf};

use tightrope_data::files;

/// A revision that isn't named.
const MAIN: &str = "main";

/// The directory that `path` names: itself where there is one, else the snapshot in the cache of a model of the hub with this name, which may end in
/// `@` and a branch, tag or commit.
pub(crate) fn located(path: &Path) -> PathBuf {
    if path.exists() {
        return path.to_owned();
    }
    name_of(path)
        .and_then(|(name, revision)| snapshot(&cache()?, name, revision))
        .unwrap_or_else(|| path.to_owned())
}

/// Advice for a missing `path` that may be a name on the hub.
pub(crate) fn advice(path: &Path) -> Option<String> {
    let (name, _) = name_of(path).filter(|(name, _)| name.contains('/') && !path.exists())?;
    let cache = cache().map_or("no cache".to_owned(), |cache| format!("`{}`", cache.display()));
    Some(format!(
        "a model `{name}` of the Hugging Face hub isn't in {cache} either: fetch it with `hf download {name}` (of Python's huggingface_hub), or \
         save the files of https://huggingface.co/{name} in a directory and name that"
    ))
}

/// A name on the hub, `OWNER/NAME` or an old one without an owner, and a revision.
fn name_of(path: &Path) -> Option<(&str, &str)> {
    let text = path.to_str()?;
    let (name, revision) = text.split_once('@').unwrap_or((text, MAIN));
    let is_part = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
            && part.len() <= 96
            && part.chars().all(known)
    };
    let parts: Vec<&str> = name.split('/').collect();
    let is_revision = revision.split('/').all(is_part);
    (parts.len() <= 2 && parts.into_iter().all(is_part) && is_revision).then_some((name, revision))
}

/// The hub's cache, as `huggingface_hub` finds it.
fn cache() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE")).or_else(|| {
        let home = folder("HF_HOME").or_else(|| {
            let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
            Some(cache?.join("huggingface"))
        });
        Some(home?.join("hub"))
    })
}

/// The files of a revision of a model in the cache.
fn snapshot(cache: &Path, name: &str, revision: &str) -> Option<PathBuf> {
    let model = cache.join(format!("models--{}", name.replace('/', "--")));
    let snapshots = model.join("snapshots");
    let of = |commit: &str| {
        let named = commit.len() <= 64 && commit.chars().all(|c| c.is_ascii_alphanumeric());
        (named && !commit.is_empty()).then(|| snapshots.join(commit)).filter(|dir| dir.is_dir())
    };
    let reference = model.join("refs").join(revision);
    // A commit's name and a line break.
    let commit = files::read_text(&reference, 128).ok();
    commit.and_then(|commit| of(commit.trim())).or_else(|| of(revision))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_name_of_the_hub_is_found_in_its_cache() {
        let cache = tempfile::tempdir().unwrap();
        let model = cache.path().join("models--Qwen--Qwen2.5-0.5B");
        let (old, new) = (model.join("snapshots/0a1b"), model.join("snapshots/2c3d"));
        for dir in [&old, &new] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::create_dir_all(model.join("refs/pr")).unwrap();
        fs::write(model.join("refs/main"), "2c3d").unwrap();
        fs::write(model.join("refs/pr/1"), "0a1b\n").unwrap();
        let find = |path: &str| {
            let (name, revision) = name_of(Path::new(path))?;
            snapshot(cache.path(), name, revision)
        };
        assert_eq!(find("Qwen/Qwen2.5-0.5B"), Some(new));
        assert_eq!(find("Qwen/Qwen2.5-0.5B@pr/1"), Some(old.clone()));
        assert_eq!(find("Qwen/Qwen2.5-0.5B@0a1b"), Some(old));
        for path in ["Qwen/Qwen2.5-0.5B@v9", "Qwen/other", "gpt2", "../a", "a/b/c", "/a", "a/.."] {
            assert_eq!(find(path), None, "{path}");
        }
        fs::write(model.join("refs/main"), "../../../etc").unwrap();
        assert_eq!(find("Qwen/Qwen2.5-0.5B"), None);
    }
}
