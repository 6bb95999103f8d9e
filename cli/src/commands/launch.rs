//! `tightrope launch`: several ranks of a command on this machine.

use std::process::Command;
use std::time::Duration;

use tightrope::ranks;

use crate::args::Launch;
use crate::failure::Failure;
use crate::signals::Interrupt;

/// What ranks have to end after a signal: a step and a checkpoint.
const GRACE: Duration = Duration::from_secs(60);

/// Runs the command as so many ranks, each with this program, and waits for them.
///
/// # Errors
/// No `mpirun`, and ranks that fail, which have said why.
pub fn run(args: &Launch) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    let mut command = Command::new(program);
    command.args(&args.command);
    let interrupt = Interrupt::default();
    interrupt.listen()?;
    let ended = ranks::launch(args.ranks, &command, GRACE, interrupt.flag())?;
    match u8::try_from(ended.code) {
        Ok(0) => Ok(()),
        code => Err(Failure::Ranks {
            code: code.unwrap_or(1),
            first: ended.first.map(|(rank, how)| format!("rank {rank} {how}")),
        }),
    }
}
