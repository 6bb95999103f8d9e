//! The commands, one file each.

pub mod bench;
mod completions;
pub mod doctor;
mod eval;
mod generate;
pub mod plan;
mod train;
mod verify;

use crate::args::Command;
use crate::error::Failure;

/// Runs one command.
///
/// # Errors
/// When the settings are wrong, or the command fails.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Completions(args) => Ok(completions::run(args)?),
        Command::Train(args) => train::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
    }
}
