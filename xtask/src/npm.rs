//! The package for npm: built around the engine's module that the page has, packed, and used in Chromium as its users do.

use std::process::Command;

use crate::packages::binary;
use crate::shell::Shell;
use crate::{root, web};

/// Builds the package and the examples, and runs them. The page's modules have to be there.
///
/// # Errors
/// Where Node.js is missing, something doesn't build, and where a test fails.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    let folder = root().join("web").join("npm");
    web::npm(shell, &folder, &["ci", "--no-audit", "--no-fund"])?;
    web::npm(shell, &folder, &["run", "build"])?;
    let command = binary(shell)?;
    let mut tests = Command::new("node");
    tests.arg("tests/run.mjs").current_dir(&folder);
    tests.arg("--work").arg(root().join("target").join("npm"));
    shell.run(tests.arg("--binary").arg(command))
}
