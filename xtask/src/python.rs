//! The package for Python: its wheel is built as `pip install ./python` builds it, installed into an environment of its own under
//! `target/`, and tested.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::packages::binary;
use crate::shell::Shell;
use crate::{root, system};

/// Bytes that the wheel may take.
const LARGEST: u64 = 12_000_000;

/// Builds the wheel, installs it and runs its tests.
///
/// # Errors
/// Where Python or pip is missing, the wheel doesn't build or is too large, and where a test fails.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    let environment = environment(shell)?;
    let python = || {
        let mut command = Command::new(environment.join("bin/python"));
        command.current_dir(root()).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command
    };
    let wheel = wheel(shell, python())?;
    let mut install = python();
    install.args(["-m", "pip", "install", "--quiet", "--force-reinstall"]);
    shell.run(install.arg(format!("{}[test]", wheel.display())))?;
    let command = binary(shell)?;
    // From elsewhere than `python/`, whose folder would be taken for the installed package.
    let mut tests = python();
    tests.args(["-P", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "python/tests"]);
    shell.run(tests.env("TIGHTROPE", command))
}

/// A new environment of Python.
fn environment(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join("python");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    if shell.run(&mut make).is_err() {
        // Debian has it in a package of its own.
        system::install(shell, &["python3-venv"])?;
        shell.run(&mut make)?;
    }
    Ok(folder)
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
