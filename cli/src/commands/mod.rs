//! The commands, one file each.

mod completions;
mod eval;
mod generate;
mod plan;
mod train;
mod verify;

use anyhow::anyhow;

use crate::args::{Bench, Command};
use crate::error::Failure;

/// Runs one command.
///
/// # Errors
/// When the settings are wrong, or the command fails.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Completions(args) => return Ok(completions::run(args)?),
        Command::Train(args) => return train::run(args),
        Command::Generate(args) => return generate::run(args),
        Command::Eval(args) => return eval::run(args),
        Command::Verify(args) => return verify::run(args),
        Command::Plan(args) => return plan::run(args),
        Command::Bench(Bench { settings, .. }) => {
            settings.load(None)?;
        }
        Command::Doctor(_) => {}
    }
    Err(Failure::failed(
        anyhow!("this build of tightrope doesn't have this command"),
        "install a newer one",
    ))
}
