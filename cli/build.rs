//! Tells the command which commit it is built from, where it's built in a clone of its own repository.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(|root| root.canonicalize().ok());
    let own = git(&["rev-parse", "--show-toplevel"])
        .is_some_and(|top| root == Path::new(&top).canonicalize().ok());
    let commit = git(&["rev-parse", "--short=10", "HEAD"]).filter(|_| own);
    // Every commit and checkout adds a line there. A file that isn't there would run this at each build.
    let log =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| own && Path::new(log).exists());
    if let Some(log) = log {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = commit.map_or("no commit".to_owned(), |commit| format!("commit {commit}"));
    println!("cargo::rustc-env=TIGHTROPE_COMMIT={commit}");
}

/// What `git` answers to these words, without the end of its line.
fn git(words: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim_end().to_owned())
}
