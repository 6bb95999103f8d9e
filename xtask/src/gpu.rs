//! `cargo xtask gpu`: what `bench/gpu.sh` does on a machine with an NVIDIA GPU, rehearsed on an emulated one, with faults in every
//! stage and without. `bench/gpu/rehearsal.py` does it; here it's started.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::shell::Shell;
use crate::{packages, root};

/// Walks all stages with the binaries that the tests were built with.
///
/// # Errors
/// Where python3 is missing, and where a report isn't what it should be.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    let (command, cases) = (packages::binary(shell)?, packages::gpu_cases(shell)?);
    let folder = command.parent().context("a binary is in a folder")?;
    ensure!(cases.parent() == Some(folder), "{} is elsewhere", cases.display());
    let mut rehearsal = Command::new("python3");
    rehearsal.args(["bench/gpu", "--dry-run", "--binaries"]).arg(folder).current_dir(root());
    shell.run(&mut rehearsal)
}
