//! `tightrope completions SHELL`.

use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::{Cli, Completions};

/// Prints the completion script on stdout.
///
/// # Errors
/// When stdout can't be written; a closed pipe is not an error.
pub fn run(args: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tightrope", &mut script);
    match std::io::stdout().lock().write_all(&script) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("can't print the completions")
        }
        _ => Ok(()),
    }
}
