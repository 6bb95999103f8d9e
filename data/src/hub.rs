//! Models and data sets of the Hugging Face hub in its cache on this machine, as `huggingface_hub` lays it out:
//!
//! ```text
//! models--OWNER--NAME/refs/main                a commit
//! models--OWNER--NAME/snapshots/COMMIT/…       the files of that commit
//! datasets--OWNER--NAME/…                      the same of a data set
//! ```

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::files;

/// Default revision.
const MAIN: &str = "main";
/// Beginning of the name of a data set of the hub, in place of a path.
const DATASET: &str = "hf:";

/// Fetches what a name stands for into the cache, and gives its files; or says why it can't.
pub type Fetch = dyn Fn(&Name<'_>) -> Result<PathBuf, String> + Send + Sync;

static FETCH: OnceLock<Box<Fetch>> = OnceLock::new();

/// Sets the function that fetches a model or data set missing from the cache. Later calls change nothing.
pub fn fetch_by(fetch: Box<Fetch>) {
    // The first one stays.
    let _ = FETCH.set(fetch);
}

/// Kinds of what the hub has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A model.
    Model,
    /// A data set.
    Dataset,
}

/// A name on the hub, `OWNER/NAME` or an old one without an owner, and a revision: a branch, tag or commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Model or data set.
    pub kind: Kind,
    /// The name.
    pub name: &'a str,
    /// The revision, `main` unless one is named behind `@`.
    pub revision: &'a str,
}

impl<'a> Name<'a> {
    /// The model that `path` names, where there's no such path and it may be a name.
    pub fn of_model(path: &'a Path) -> Option<Self> {
        if path.exists() { None } else { Self::read(Kind::Model, path.to_str()?) }
    }

    /// The data set that `path` names as `hf:OWNER/NAME`, where there's no such path.
    pub fn of_dataset(path: &'a Path) -> Option<Self> {
        let name = path.to_str()?.strip_prefix(DATASET)?;
        if path.exists() { None } else { Self::read(Kind::Dataset, name) }
    }

    fn read(kind: Kind, text: &'a str) -> Option<Self> {
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
        let is_name = parts.len() <= 2 && parts.into_iter().all(is_part);
        let is_revision = revision.split('/').all(is_part);
        (is_name && is_revision).then_some(Self { kind, name, revision })
    }

    /// Its folder in the cache.
    pub fn folder(&self) -> Option<PathBuf> {
        let kind = match self.kind {
            Kind::Model => "models",
            Kind::Dataset => "datasets",
        };
        Some(cache()?.join(format!("{kind}--{}", self.name.replace('/', "--"))))
    }

    /// The files of the revision in the cache, where they are.
    pub fn snapshot(&self) -> Option<PathBuf> {
        snapshot(&self.folder()?, self.revision)
    }

    /// The files of the revision: in the cache, or fetched into it where a program [has that done](fetch_by). A name without an owner isn't fetched.
    ///
    /// # Errors
    /// A message with the reason, and with what to do.
    pub fn located(&self) -> Result<PathBuf, String> {
        if let Some(found) = self.snapshot() {
            return Ok(found);
        }
        let Self { kind, name, .. } = *self;
        let what = if kind == Kind::Dataset { "data set" } else { "model" };
        let why = match FETCH.get().filter(|_| name.contains('/')) {
            Some(fetch) => match fetch(self) {
                Ok(found) => return Ok(found),
                Err(why) => format!(", and can't be fetched ({why})"),
            },
            None => String::new(),
        };
        let cache = cache().map_or("no cache".to_owned(), |cache| format!("`{}`", cache.display()));
        let page = if kind == Kind::Dataset { "datasets/" } else { "" };
        let download = self.download();
        Err(format!(
            "a {what} `{name}` of the Hugging Face hub isn't in {cache} either{why}: fetch it with `{download}` (of Python's huggingface_hub), or save the \
             files of https://huggingface.co/{page}{name} in a directory and name that"
        ))
    }

    /// The command of Python's `huggingface_hub` that fetches it.
    pub fn download(&self) -> String {
        let kind = if self.kind == Kind::Dataset { " --repo-type dataset" } else { "" };
        let revision = match self.revision {
            MAIN => String::new(),
            other => format!(" --revision {other}"),
        };
        format!("hf download {}{kind}{revision}", self.name)
    }
}

/// The hub's cache, as `huggingface_hub` finds it.
pub fn cache() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE")).or_else(|| {
        let home = folder("HF_HOME").or_else(|| {
            let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
            Some(cache?.join("huggingface"))
        });
        Some(home?.join("hub"))
    })
}

/// The files of a revision in the folder of a model or a data set in the cache.
fn snapshot(folder: &Path, revision: &str) -> Option<PathBuf> {
    let snapshots = folder.join("snapshots");
    let of = |commit: &str| {
        let named = commit.len() <= 64 && commit.chars().all(|c| c.is_ascii_alphanumeric());
        (named && !commit.is_empty()).then(|| snapshots.join(commit)).filter(|dir| dir.is_dir())
    };
    let reference = folder.join("refs").join(revision);
    // A commit's name and a line break.
    let commit = files::read_text(&reference, 128).ok();
    commit.and_then(|commit| of(commit.trim())).or_else(|| of(revision))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_revision_is_found_by_its_name_and_by_its_commit() {
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
            let name = Name::of_model(Path::new(path))?;
            let folder = format!("models--{}", name.name.replace('/', "--"));
            snapshot(&cache.path().join(folder), name.revision)
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

    #[test]
    fn data_sets_are_named_with_a_prefix() {
        let of = |path: &'static str| Name::of_dataset(Path::new(path));
        let name = of("hf:stanfordnlp/imdb@refs/convert/parquet").unwrap();
        assert_eq!(
            (name.name, name.revision, name.kind),
            ("stanfordnlp/imdb", "refs/convert/parquet", Kind::Dataset)
        );
        assert_eq!(
            name.download(),
            "hf download stanfordnlp/imdb --repo-type dataset --revision refs/convert/parquet"
        );
        assert_eq!(of("hf:imdb").unwrap().download(), "hf download imdb --repo-type dataset");
        for path in ["imdb", "hf:", "hf:../a", "hf:a/b/c", "hf:a@"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
