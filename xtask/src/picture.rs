//! `cargo xtask picture`: the documentation's picture of one step on more and more GPUs, drawn anew as the planner predicts it.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::packages::{PACKAGES, words};
use crate::{executable, root};

/// Writes `docs/scale.svg`.
///
/// # Errors
/// Where the example that draws it doesn't build, or fails.
pub fn run() -> anyhow::Result<bool> {
    let example = executable(words(&["build", "--example", "scale"]).args(PACKAGES))?;
    let drawn = Command::new(&example)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't start {}", example.display()))?;
    ensure!(drawn.status.success(), "{} failed with {}", example.display(), drawn.status);
    let file = root().join("docs").join("scale.svg");
    fs::write(&file, drawn.stdout).with_context(|| format!("can't write {}", file.display()))?;
    println!("{}", file.display());
    Ok(true)
}
