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

/// Types of what is written in Rust, as the package holds them and as they are generated.
const STUBS: &str = "tightrope/_engine.pyi";

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
    check_stubs(shell)?;
    let command = binary(shell)?;
    // From elsewhere than `python/`, whose folder would be taken for the installed package.
    let mut tests = python();
    tests.args(["-P", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "python/tests"]);
    shell.run(tests.env("TIGHTROPE", command))
}

/// Executes the notebooks of the course in the environment that [`test()`] made, a part of them or all.
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

/// Holds that the types of what is written in Rust are those that the build says; `UPDATE_SNAPSHOTS=1` writes them.
fn check_stubs(shell: &mut Shell) -> anyhow::Result<()> {
    shell.run(python().args(["-m", "pip", "install", "--quiet", "maturin>=1.16,<2"]))?;
    let made = root().join("target").join("stubs");
    let mut generate = Command::new(folder().join("bin/maturin"));
    generate.args([
        "generate-stubs",
        "--quiet",
        "--locked",
        "--profile",
        "wheel",
        "--manifest-path",
    ]);
    shell.run(generate.current_dir(root()).arg("python/Cargo.toml").arg("--out").arg(&made))?;
    let (kept, made) = (root().join("python").join(STUBS), made.join(STUBS));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::copy(&made, &kept).context("can't write the types")?;
    }
    let texts = [&kept, &made].map(|path| fs::read_to_string(path).unwrap_or_default());
    ensure!(
        texts[0] == texts[1],
        "{} isn't what {} says: run `UPDATE_SNAPSHOTS=1 cargo xtask python`",
        kept.display(),
        made.display()
    );
    Ok(())
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
