//! The package for Python: its wheel is built as `pip install ./python` builds it, installed into an environment of its own under
//! `target/`, and tested; then the course's notebooks are executed there.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::packages::binary;
use crate::shell::Shell;
use crate::{root, system};

/// Bytes that the wheel may take.
const LARGEST: u64 = 12_000_000;

/// Holds that the build wrote down the types of what is written in Rust.
const STUBS: &str = "import pathlib, tightrope; stubs = pathlib.Path(tightrope.__file__).with_name('_engine.pyi'); \
                     assert 'class Trainer' in stubs.read_text()";

/// Builds the wheel, installs it and runs its tests.
///
/// # Errors
/// Where Python or pip is missing, the wheel doesn't build or is too large, and where a test fails.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    environment(shell)?;
    let wheel = wheel(shell, python())?;
    let mut install = python();
    install.args(["-m", "pip", "install", "--quiet", "--force-reinstall"]);
    shell.run(install.arg(format!("{}[test]", wheel.display())))?;
    let mut stubs = python();
    shell.run(stubs.args(["-P", "-c", STUBS]))?;
    let command = binary(shell)?;
    // From elsewhere than `python/`, whose folder would be taken for the installed package.
    let mut tests = python();
    tests.args(["-P", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "python/tests"]);
    shell.run(tests.env("TIGHTROPE", command))
}

/// Executes the notebooks of the course in the environment that [`test`] made, a part of them or all.
///
/// # Errors
/// Where the environment or what notebooks need is missing, and where one fails.
pub fn notebooks(shell: &mut Shell) -> anyhow::Result<()> {
    let mut install = python();
    shell.run(install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "-r",
        "notebooks/requirements.txt",
    ]))?;
    let mut tests = python();
    shell.run(tests.args([
        "-P",
        "-m",
        "pytest",
        "--quiet",
        "-p",
        "no:cacheprovider",
        "notebooks/tests",
    ]))
}

/// The folder of the environment.
fn folder() -> PathBuf {
    root().join("target").join("python")
}

/// The environment's interpreter, in the repository.
pub fn python() -> Command {
    let mut command = Command::new(folder().join("bin/python"));
    command.current_dir(root()).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command
}

/// Makes a new environment of Python.
fn environment(shell: &mut Shell) -> anyhow::Result<()> {
    let folder = folder();
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    if shell.run(&mut make).is_err() {
        // Debian has it in a package of its own.
        system::install(shell, &["python3-venv"])?;
        shell.run(&mut make)?;
    }
    Ok(())
}

/// The wheel, built by `python`.
fn wheel(shell: &mut Shell, mut python: Command) -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join("wheels");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("can't remove an earlier wheel")?;
    }
    python.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "./python", "--wheel-dir"]);
    shell.run(python.arg(&folder))?;
    let entry = fs::read_dir(&folder)?.next().context("pip made no wheel")??;
    let bytes = entry.metadata()?.len();
    shell.say(format_args!("{}: {bytes} bytes", entry.path().display()));
    ensure!(bytes <= LARGEST, "the wheel has {bytes} bytes, more than {LARGEST}");
    Ok(entry.path())
}
