//! `cargo xtask torture`: what can happen to runs, done to them. `tests/torture` does it; here it's built and started.

use std::path::Path;
use std::process::Command;

use crate::packages::{self, BUILD, PACKAGES, words};
use crate::root;
use crate::shell::Shell;

/// Two minutes of it, drawn by the day.
///
/// # Errors
/// Where something went wrong.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    let (chamber, binary) = (packages::torture(shell)?, packages::binary(shell)?);
    shell.run(&mut chambered(&chamber, &binary, &[]))
}

/// As long as is asked for, with what the tests are built with: it has checks that a release hasn't.
///
/// # Errors
/// Where it can't be built or started.
pub fn run(options: &[String]) -> anyhow::Result<bool> {
    let mut shell = Shell::live();
    shell.run(words(&BUILD).args(PACKAGES))?;
    let (chamber, binary) = (packages::torture(&mut shell)?, packages::binary(&mut shell)?);
    Ok(chambered(&chamber, &binary, options).status()?.success())
}

fn chambered(chamber: &Path, binary: &Path, options: &[String]) -> Command {
    let mut command = Command::new(chamber);
    command.arg("--binary").arg(binary).arg("--work").arg(root().join("target/torture"));
    command.args(options).current_dir(root());
    command
}
