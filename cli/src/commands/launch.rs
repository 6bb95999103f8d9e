//! `tightrope launch`: several ranks of a command on this machine.

use std::process::Command;
use std::time::Duration;

use tightrope::ranks;

use crate::args::Launch;
use crate::failure::Failure;
use crate::output;
use crate::signals::Interrupt;

/// What ranks have to end after a signal: a step and a checkpoint.
const GRACE: Duration = Duration::from_secs(60);
/// What makes a run go on that is started again.
const AUTO_RESUME: &str = "--auto-resume";

/// Runs the command as so many ranks, each with this program, and waits for them. Where one is lost, all are started again as often as
/// the arguments say.
///
/// # Errors
/// No `mpirun`, and ranks that fail, which have said why.
pub fn run(args: &Launch) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    let mut command = Command::new(program);
    command.args(&args.command);
    let interrupt = Interrupt::default();
    interrupt.listen()?;
    if args.restarts > 0 && !args.command.iter().any(|word| word == AUTO_RESUME) {
        command.arg(AUTO_RESUME);
    }
    let mut restarts = 0;
    loop {
        let ended = ranks::launch(args.ranks, &command, GRACE, interrupt.flag())?;
        let first = ended.first.map(|(rank, how)| format!("rank {rank} ended by {how}"));
        let code = match u8::try_from(ended.code) {
            Ok(0) => return Ok(()),
            code => code.unwrap_or(1),
        };
        if restarts == args.restarts || interrupt.requested() || !would_go_on(code) {
            return Err(Failure::Ranks { code, first });
        }
        let how = first.unwrap_or_else(|| format!("the launcher ended by exit code {code}"));
        restarts += 1;
        output::note(&format!("{how}: starting again, {restarts} of {} times", args.restarts));
    }
}

/// Whether a run that ended with this exit code may go on when it's started again: it failed or was killed. What it was asked for and what
/// fits the memory stay as they are.
fn would_go_on(code: u8) -> bool {
    code == 1 || (code > 128 && code != Failure::Interrupted.code())
}
