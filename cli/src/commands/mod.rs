//! The commands, one file each.

mod completions;

use anyhow::anyhow;

use crate::args::{Bench, Command, Eval, Generate, Plan, Train};
use crate::error::Failure;

/// Runs one command.
///
/// # Errors
/// When the settings are wrong, or the command fails.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Completions(args) => return Ok(completions::run(args)?),
        Command::Train(Train { settings, .. })
        | Command::Plan(Plan { settings, .. })
        | Command::Generate(Generate { settings, .. })
        | Command::Eval(Eval { settings, .. })
        | Command::Bench(Bench { settings, .. }) => {
            settings.load(None)?;
        }
        Command::Verify(_) | Command::Doctor(_) => {}
    }
    Err(Failure::failed(
        anyhow!("this build of tightrope doesn't have this command"),
        "install a newer one",
    ))
}
