//! `tightrope completions SHELL`.

use clap::CommandFactory as _;

use crate::args::{Cli, Completions};
use crate::failure::Failure;
use crate::output;

/// Prints the completion script on stdout.
///
/// # Errors
/// When stdout can't be written; a closed pipe is not an error.
pub fn run(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tightrope", &mut script);
    output::print_raw(&String::from_utf8_lossy(&script))
}
