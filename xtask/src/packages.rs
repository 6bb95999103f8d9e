//! The packages of the workspace, and cargo for them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::shell::Shell;
use crate::{cargo, root};

/// The packages that are built together. Each run of cargo names them, since other sets give third-party crates other features,
/// and those are compiled again. Two are apart: this one, whose tools are its own and which `cargo xtask` has built, and the
/// package for Python, which pip builds.
pub const PACKAGES: [&str; 6] =
    ["--workspace", "--exclude", "xtask", "--exclude", "tightrope-python", "--locked"];

/// Cargo with these arguments, in the workspace.
pub fn words(words: &[&str]) -> Command {
    let mut command = Command::new(cargo());
    command.args(words).current_dir(root());
    // A clone that is built once has no later build, for which cargo would keep what it has done.
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// The `tightrope` that the tests were built with.
///
/// # Errors
/// Where it doesn't build.
pub fn binary(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    let mut build = words(&["test", "--tests", "--no-run", "--message-format", "json"]);
    // Fresh after the build, of which cargo names every part.
    let messages = shell.output(build.args(PACKAGES))?;
    let binary = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let of_tests = message["profile"]["test"].as_bool()?;
        let is_it = message["target"]["name"] == "tightrope" && !of_tests;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    binary.context("cargo names no binary `tightrope`")
}
