//! A table that is checked in: a header, then rows of words between tabs, of which the last is a hash of what the row was made
//! from and the first two are its key.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// A table as it is stored.
pub struct Stored {
    path: PathBuf,
    header: String,
    text: String,
}

impl Stored {
    /// The table `name` of backend-cuda, which is to begin with `header`. Empty where there is none yet and it may be written.
    pub fn open(name: &str, header: String) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-cuda").join(name);
        let text = match std::fs::read_to_string(&path) {
            Err(_) if is_updated() => String::new(),
            read => read.expect("the table"),
        };
        Self { path, header, text }
    }

    /// The row with this key, where it was made from what has this hash.
    pub fn row(&self, key: &str, hash: &str) -> Option<&str> {
        self.text.lines().find(|line| {
            let rest = line.strip_prefix(key).and_then(|rest| rest.strip_prefix('\t'));
            rest.is_some_and(|rest| rest.rsplit('\t').next() == Some(hash))
        })
    }

    /// Holds that the table has these rows and no others, or writes them where that is asked for.
    ///
    /// # Panics
    /// Where they differ.
    pub fn compare(&self, mut rows: Vec<String>) {
        rows.sort();
        let table = format!("{}\n{}\n", self.header, rows.join("\n"));
        if is_updated() {
            std::fs::write(&self.path, &table).expect("the table");
            return;
        }
        let stored: HashSet<&str> = self.text.lines().collect();
        let news: Vec<&str> = table.lines().filter(|line| !stored.contains(line)).collect();
        assert!(news.is_empty(), "{self} hasn't\n{}", news.join("\n"));
        assert_eq!(table.lines().count(), stored.len(), "{self} has kernels that are no more");
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.file_name().expect("a file").display().fmt(f)
    }
}

fn is_updated() -> bool {
    std::env::var_os("UPDATE_SNAPSHOTS").is_some()
}

/// A hash of texts in their order, the same on every machine.
pub fn hash<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let mut hasher = Xxh3::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    format!("{:016x}", hasher.digest())
}
