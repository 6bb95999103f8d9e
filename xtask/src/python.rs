//! The package for Python, installed into an environment of its own under `target/`, and tested; then the course's notebooks are
//! executed there. Its wheel compiles the engine once more, in release, so most days the library that the other tests share takes
//! its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::packages::{binary, python_library};
use crate::shell::Shell;
use crate::{root, system};

/// Bytes that the wheel may take.
const LARGEST: u64 = 12_000_000;

/// Days of which one builds the wheel.
const DAYS: u64 = 7;

/// Name of the package, of its folder too.
const PACKAGE: &str = "tightrope";

/// Types of what is written in Rust, as the package holds them and as they are generated.
const STUBS: &str = "tightrope/_engine.pyi";

/// Installs the package and runs its tests: as the wheel that `pip install ./python` builds, where that is drawn, else with the
/// library that has been built for the tests.
///
/// # Errors
/// Where Python or pip is missing, the package doesn't build, the wheel is too large, and where a test fails.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    environment(shell)?;
    install(shell, &["-r", "python/tests/requirements.txt"])?;
    if shell.draw.takes_a_day_of(DAYS, 0) {
        let wheel = wheel(shell, python())?;
        install(shell, &["--force-reinstall", &wheel.to_string_lossy()])?;
        check_stubs(shell)?;
    } else {
        shell.say(format_args!(
            "without the wheel, which is built one day of {DAYS}, and with --all"
        ));
        place(shell)?;
    }
    let command = binary(shell)?;
    pytest(shell, python().env("TIGHTROPE", command), "python/tests")
}

/// Executes the notebooks of the course in the environment that [`test()`] made, a part of them or all.
///
/// # Errors
/// Where the environment or what notebooks need is missing, and where one fails.
pub fn notebooks(shell: &mut Shell) -> anyhow::Result<()> {
    install(shell, &["-r", "notebooks/requirements.txt"])?;
    pytest(shell, &mut python(), "notebooks/tests")
}

/// Installs what the words name into the environment.
///
/// # Errors
/// Where pip can't.
pub fn install(shell: &mut Shell, words: &[&str]) -> anyhow::Result<()> {
    shell.run(python().args(["-m", "pip", "install", "--quiet"]).args(words))
}

/// Runs the tests in a folder, from elsewhere than `python/`, whose folder would be taken for the installed package.
fn pytest(shell: &mut Shell, python: &mut Command, tests: &str) -> anyhow::Result<()> {
    let words = ["-P", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", tests];
    shell.run(python.args(words))
}

/// Puts the package where the environment looks for it, with the library that has been built.
fn place(shell: &mut Shell) -> anyhow::Result<()> {
    let library = python_library(shell)?;
    let purelib = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = shell.output(python().args(["-c", purelib]))?;
    let package = Path::new(packages.trim()).join(PACKAGE);
    copy(&root().join("python").join(PACKAGE), &package).context("can't place the package")?;
    fs::copy(library, package.join("_engine.abi3.so")).context("can't place the library")?;
    Ok(())
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Holds that the types of what is written in Rust are those that the build says; `UPDATE_SNAPSHOTS=1` writes them.
fn check_stubs(shell: &mut Shell) -> anyhow::Result<()> {
    install(shell, &["maturin>=1.16,<2"])?;
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
    let text = with_items(&fs::read_to_string(&made).context("no types were generated")?);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&kept, &text).context("can't write the types")?;
    }
    ensure!(
        fs::read_to_string(&kept).unwrap_or_default() == text,
        "{} isn't what {} says: run `UPDATE_SNAPSHOTS=1 cargo xtask python --all`",
        kept.display(),
        made.display()
    );
    Ok(())
}

/// Types in which dicts have text for keys, as all of this package do: `mypy --strict` refuses a bare `dict`.
fn with_items(types: &str) -> String {
    const BARE: [(&str, &str); 2] = [(" dict", " dict[str, Any]"), ("[dict", "[dict[str, Any]")];
    let typed = |line: &str| match line.trim_start().starts_with("def ") {
        true => BARE.iter().fold(line.to_owned(), |line, (bare, typed)| line.replace(bare, typed)),
        false => line.to_owned(),
    };
    types.split('\n').map(typed).collect::<Vec<_>>().join("\n")
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
