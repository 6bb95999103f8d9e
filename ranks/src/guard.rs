//! A process beside that of a rank. MPICH's `mpirun` kills all ranks as soon as one is killed, and doesn't say which: so each is a
//! process of its own below the one that was launched, which says it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::thread::Builder;

use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGXCPU};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::launch::FOLDER;
use crate::launched::{Launched, Launcher};

/// Set for a process that has another one beside it.
pub const GUARDED: &str = "TIGHTROPE_GUARDED";

/// What is passed on.
const SIGNALS: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU];

/// Where MPICH's `mpirun` launched this process as one of several ranks, runs the program as another process, and gives its exit code. None
/// where this process is to go on itself.
pub fn stand_by() -> Option<u8> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    // `tightrope launch` hears how each of its ranks ends.
    if is_set(GUARDED) || is_set(FOLDER) {
        return None;
    }
    let launched = Launched::from_env().ok().flatten()?;
    if launched.launcher != Launcher::Hydra || launched.count == 1 {
        return None;
    }
    let status =
        run().map_err(|error| eprintln!("note: nobody is beside this rank: {error}")).ok()?;
    if let Some(signal) = status.signal() {
        eprintln!("{}", sentence(launched.rank, signal));
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Some(u8::try_from(code).unwrap_or(1))
}

/// What is said of a rank that a signal ended.
fn sentence(rank: usize, signal: i32) -> String {
    let name = signal_name(signal).unwrap_or("a signal");
    let why = match signal {
        SIGKILL => ": somebody killed it, or the system did because memory ran out",
        _ => "",
    };
    format!("error: rank {rank} was ended by {name} ({signal}){why}")
}

/// Runs this program with the same words, and passes signals on to it.
fn run() -> io::Result<ExitStatus> {
    let mut signals = Signals::new(SIGNALS)?;
    let mut child = begin(std::env::current_exe()?.as_os_str())?;
    let process = i32::try_from(child.id()).unwrap_or_default();
    let pass_on = move || {
        for signal in signals.forever() {
            // SAFETY: a signal to a child. Once that was waited for, this process ends.
            unsafe { libc::kill(process, signal) };
        }
    };
    if let Err(error) = Builder::new().spawn(pass_on) {
        child.kill()?;
        return Err(error);
    }
    child.wait()
}

/// Begins the program. It has a group of its own, so that a terminal's Ctrl+C reaches it once, through this process; and ends where this
/// process is killed.
fn begin(program: &OsStr) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(GUARDED, "1").process_group(0);
    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec it makes one system call, which asks for a signal when this thread is gone.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_was_killed_is_named_with_what_may_have_done_it() {
        let said = sentence(3, SIGKILL);
        assert!(said.starts_with("error: rank 3 was ended by SIGKILL (9): "), "{said}");
        assert!(said.contains("memory ran out"), "{said}");
        assert_eq!(sentence(0, SIGTERM), "error: rank 0 was ended by SIGTERM (15)");
    }
}
