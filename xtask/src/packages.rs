//! The packages of the workspace, and cargo for them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::cargo::cargo;
use crate::root;
use crate::shell::Shell;

/// The packages that are built together. Each run of cargo names them, since other sets give third-party crates other features,
/// and those are compiled again. One is apart: this one, whose tools are its own and which `cargo xtask` has built.
pub const PACKAGES: [&str; 4] = ["--workspace", "--exclude", "xtask", "--locked"];

/// Builds what the stages share: the libraries, Python's among them, the command and the tests.
pub const BUILD: [&str; 4] = ["build", "--lib", "--bins", "--tests"];

/// Cargo with these arguments, in the workspace.
pub fn words(words: &[&str]) -> Command {
    let mut command = cargo();
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
    built(shell, "tightrope", |artifact| artifact["executable"].as_str())
}

/// The chamber that runs are tortured in.
///
/// # Errors
/// Where it doesn't build.
pub fn torture(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    built(shell, "torture", |artifact| artifact["executable"].as_str())
}

/// Cases on a GPU, each named before it runs.
///
/// # Errors
/// Where it doesn't build.
pub fn gpu_cases(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    built(shell, "gpu-cases", |artifact| artifact["executable"].as_str())
}

/// The library of the package for Python, as the tests use it.
///
/// # Errors
/// Where it doesn't build.
pub fn python_library(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    built(shell, "_engine", |artifact| artifact["filenames"][0].as_str())
}

/// Names of the targets of tests that `cargo test` runs in [`PACKAGES`], each once.
///
/// # Errors
/// Where cargo fails.
pub fn test_targets(shell: &mut Shell) -> anyhow::Result<Vec<String>> {
    let metadata = ["metadata", "--no-deps", "--format-version", "1", "--locked"];
    let found: Value = serde_json::from_str(&shell.output(&mut words(&metadata))?)?;
    let packages = found["packages"].as_array().context("`cargo metadata` names no packages")?;
    let others = packages.iter().filter(|package| package["name"] != "xtask");
    let targets = others.filter_map(|package| package["targets"].as_array()).flatten();
    let tests = targets.filter(|target| target["kind"][0] == "test" && target["test"] == true);
    let mut names: Vec<String> =
        tests.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Prefix of the names of tests, such as `lora::`, for each file in this folder of the workspace.
///
/// # Errors
/// Where it can't be read.
pub fn test_files(folder: &str) -> anyhow::Result<Vec<String>> {
    let mut names = vec![];
    for file in fs::read_dir(root().join(folder))? {
        let file = file?.path();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        if stem != "main" {
            names.push(format!("{stem}::"));
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// A file of the target `name`: where cargo says that it is.
fn built(
    shell: &mut Shell,
    name: &str,
    file: impl Fn(&Value) -> Option<&str>,
) -> anyhow::Result<PathBuf> {
    // Fresh after the build, of which cargo names every part.
    let messages = shell.output(words(&BUILD).args(PACKAGES).args(["--message-format", "json"]))?;
    let found = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let of_tests = message["profile"]["test"].as_bool()?;
        let is_it = message["target"]["name"] == name && !of_tests;
        file(&message).filter(|_| is_it).map(PathBuf::from)
    });
    found.with_context(|| format!("cargo names no `{name}`"))
}
