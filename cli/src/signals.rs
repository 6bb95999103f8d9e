//! Ctrl+C, and signals that ask a program to end: it ends after the running step, with a checkpoint.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGXCPU, SIGXFSZ};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// What asks a program to end: besides SIGTERM, a terminal that was closed, and what batch systems send before time is up.
#[cfg(unix)]
const ASKING: [i32; 4] = [SIGTERM, SIGHUP, SIGUSR1, SIGXCPU];
#[cfg(not(unix))]
const ASKING: [i32; 1] = [SIGTERM];

/// Exit code of a process ended by SIGINT, as shells report it.
const INTERRUPTED: i32 = 130;

/// Whether the user, or the system, asked the program to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on takes over SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU: the first of them is remembered. A SIGINT after that exits at
    /// once with code 130; another of the others changes nothing, for cluster managers send several. One that was ignored at
    /// the start, as SIGHUP is under `nohup`, stays ignored. A file that grows beyond the process's limit ends nothing by itself: the
    /// write fails, as on a full disk.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn listen(&self) -> anyhow::Result<()> {
        let requested = &self.0;
        // Handlers run in the order of registration: the exit must see the flag of an earlier
        // signal, not of its own.
        flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(requested))
            .and_then(|_| flag::register(SIGINT, Arc::clone(requested)))
            .context("can't handle SIGINT")?;
        for signal in ASKING.into_iter().filter(|&signal| !is_ignored(signal)) {
            flag::register(signal, Arc::clone(requested))
                .with_context(|| format!("can't handle signal {signal}"))?;
        }
        #[cfg(unix)]
        flag::register(SIGXFSZ, Arc::default()).context("can't handle SIGXFSZ")?;
        Ok(())
    }

    /// Set once a signal has come.
    #[cfg(unix)]
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Whether a signal has come.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether the process ignores a signal. Linux says so, in a line of bits; elsewhere no signal is taken to be ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    (bits >> (signal - 1)) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use signal_hook::low_level::raise;

    use super::*;

    /// Signals of the child process in `ends`, from the environment.
    const SIGNALS: &str = "TIGHTROPE_TEST_SIGNALS";

    /// Raises the signals that the environment names; does nothing in an ordinary run.
    #[test]
    fn child() {
        let Ok(signals) = std::env::var(SIGNALS) else { return };
        let interrupt = Interrupt::default();
        interrupt.listen().unwrap();
        assert!(!interrupt.requested());
        for signal in signals.split(',') {
            raise(signal.parse().unwrap()).unwrap();
            assert!(interrupt.requested());
        }
    }

    /// Raises a signal that is ignored; does nothing in an ordinary run.
    #[test]
    fn child_that_ignores() {
        let Ok(signal) = std::env::var(SIGNALS) else { return };
        let interrupt = Interrupt::default();
        interrupt.listen().unwrap();
        raise(signal.parse().unwrap()).unwrap();
        assert!(!interrupt.requested());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_closed_terminal_is_nothing_to_a_run_under_nohup() {
        let child = Command::new("nohup")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "signals::tests::child_that_ignores", "--nocapture"])
            .env(SIGNALS, SIGHUP.to_string())
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{child:?}");
    }

    /// Exit code of a process that gets these signals one after the other.
    fn ends(signals: &[i32]) -> Option<i32> {
        let signals: Vec<_> = signals.iter().map(i32::to_string).collect();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signals::tests::child", "--nocapture"])
            .env(SIGNALS, signals.join(","))
            .output()
            .unwrap();
        child.status.code()
    }

    #[test]
    fn the_first_signal_asks_and_a_second_ctrl_c_exits() {
        assert_eq!(ends(&[SIGINT]), Some(0));
        // Under `nohup`, these tests and their children ignore one.
        for signal in ASKING.into_iter().filter(|&signal| !is_ignored(signal)) {
            assert_eq!(ends(&[signal]), Some(0));
        }
        assert_eq!(ends(&[SIGTERM, SIGTERM]), Some(0));
        assert_eq!(ends(&[SIGINT, SIGINT]), Some(130));
        assert_eq!(ends(&[SIGTERM, SIGINT]), Some(130));
    }
}
