//! `tightrope man DIR`.

use std::fs;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::{Cli, Man};
use crate::failure::Failure;

/// Writes `tightrope.1`, and a page for each command, such as `tightrope-train.1`.
///
/// # Errors
/// A folder that can't be written.
pub fn run(args: &Man) -> Result<(), Failure> {
    let dir = &args.dir;
    fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
        .with_context(|| format!("can't write manual pages to `{}`", dir.display()))?;
    Ok(())
}
