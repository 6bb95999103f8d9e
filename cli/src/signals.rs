//! Ctrl+C and SIGTERM: end after the running step, with a checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit code of a process ended by SIGINT, as shells report it.
const INTERRUPTED: i32 = 130;

/// Whether the user, or the system, asked the program to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over SIGINT and SIGTERM: the first of either is remembered. A SIGINT after that
    /// exits at once with code 130; another SIGTERM changes nothing, for cluster managers send
    /// several.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn install() -> anyhow::Result<Self> {
        let requested = Arc::new(AtomicBool::new(false));
        // Handlers run in the order of registration: the exit must see the flag of an earlier
        // signal, not of its own.
        flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&requested))
            .and_then(|_| flag::register(SIGINT, Arc::clone(&requested)))
            .and_then(|_| flag::register(SIGTERM, Arc::clone(&requested)))
            .context("can't handle SIGINT and SIGTERM")?;
        Ok(Self(requested))
    }

    /// Whether a signal has come.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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
        let interrupt = Interrupt::install().unwrap();
        assert!(!interrupt.requested());
        for signal in signals.split(',') {
            raise(signal.parse().unwrap()).unwrap();
            assert!(interrupt.requested());
        }
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
        assert_eq!(ends(&[SIGTERM]), Some(0));
        assert_eq!(ends(&[SIGTERM, SIGTERM]), Some(0));
        assert_eq!(ends(&[SIGINT, SIGINT]), Some(130));
        assert_eq!(ends(&[SIGTERM, SIGINT]), Some(130));
    }
}
