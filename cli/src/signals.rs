//! Ctrl+C, and signals that ask a program to end: what it computes stops, and it ends with a checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context as _;
#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGXCPU, SIGXFSZ};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{exit, register};
use tightrope::core::Cancel;
use tightrope::data::files;

/// Signals that ask a program to end: Ctrl+C and SIGTERM, that of a closed terminal, and those of batch systems before time is up.
#[cfg(unix)]
const ASKING: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU];
#[cfg(not(unix))]
const ASKING: [i32; 2] = [SIGINT, SIGTERM];

/// Exit code of a process ended by SIGINT, as shells report it.
const INTERRUPTED: i32 = 130;

/// Milliseconds in which signals are one request: cluster managers and launchers of ranks send several at once.
const ONE_REQUEST_MS: u64 = 1000;

/// Whether the user, or the system, asked the program to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    /// Milliseconds from the beginning to the first signal.
    first_ms: Arc<AtomicU64>,
}

impl Interrupt {
    /// From now on takes over SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU: the first of them is remembered. A later one exits at once with
    /// code 130: any SIGINT, and of the others one that comes a second or more after the first. A signal that was ignored at the
    /// start stays ignored, as SIGHUP is under `nohup`, and SIGINT in a job that a script runs in the background. A file that grows
    /// beyond the process's limit ends nothing by itself: the write fails, as on a full disk.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn listen(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        for signal in ASKING.into_iter().filter(|&signal| !is_ignored(signal)) {
            let Self { requested, first_ms } = self.clone();
            let heed = move || {
                let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                if !requested.swap(true, Ordering::SeqCst) {
                    first_ms.store(now, Ordering::SeqCst);
                    return;
                }
                let since = now.saturating_sub(first_ms.load(Ordering::SeqCst));
                if signal == SIGINT || since >= ONE_REQUEST_MS {
                    exit(INTERRUPTED);
                }
            };
            // SAFETY: it reads a clock and atomic variables, and may end the process by `_exit`: a signal handler may do each.
            unsafe { register(signal, heed) }
                .with_context(|| format!("can't handle signal {signal}"))?;
        }
        #[cfg(unix)]
        flag::register(SIGXFSZ, Arc::default()).context("can't handle SIGXFSZ")?;
        Ok(())
    }

    /// Set once a signal has come.
    #[cfg(unix)]
    pub fn flag(&self) -> &AtomicBool {
        &self.requested
    }

    /// Whether a signal has come.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// The token that stops computing once a signal has come.
    pub fn cancel(&self) -> Cancel {
        Cancel::on(Arc::clone(&self.requested))
    }
}

/// Whether the process ignores a signal. Linux says so, in a line of bits; elsewhere no signal is taken to be ignored.
fn is_ignored(signal: i32) -> bool {
    let status = files::read_system("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    (bits >> (signal - 1)) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread::sleep;
    use std::time::Duration;

    use signal_hook::low_level::raise;

    use super::*;

    /// Signals of the child process in `ends`, from the environment; 0 is a pause.
    const SIGNALS: &str = "TIGHTROPE_TEST_SIGNALS";

    /// Raises the signals that the environment names; does nothing in an ordinary run.
    #[test]
    fn child() {
        let Ok(signals) = std::env::var(SIGNALS) else { return };
        let interrupt = Interrupt::default();
        interrupt.listen().unwrap();
        assert!(!interrupt.requested());
        for signal in signals.split(',') {
            match signal.parse().unwrap() {
                0 => sleep(Duration::from_millis(ONE_REQUEST_MS + 100)),
                signal => raise(signal).unwrap(),
            }
            assert!(interrupt.requested() && interrupt.cancel().is_requested());
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

    /// A test of this program as a process of its own, with an option of GNU's `env` on the signals that it ignores.
    #[cfg(target_os = "linux")]
    fn test(option: &str, name: &str, signals: &str) -> std::process::Output {
        let mut process = Command::new("env");
        process.arg(option).arg(std::env::current_exe().unwrap());
        process.args(["--exact", &format!("signals::tests::{name}"), "--nocapture"]);
        process.env(SIGNALS, signals).output().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_ignored_at_the_start_stays_ignored() {
        // As `nohup` does, and a script with what it runs in the background.
        for signal in [SIGHUP, SIGINT] {
            let ignores = format!("--ignore-signal={signal}");
            let child = test(&ignores, "child_that_ignores", &signal.to_string());
            assert!(child.status.success(), "{child:?}");
            assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{child:?}");
        }
    }

    /// Exit code of a process that gets these signals one after the other, though this one may ignore some.
    #[cfg(target_os = "linux")]
    fn ends(signals: &[i32]) -> Option<i32> {
        let [asking, signals] = [&ASKING[..], signals]
            .map(|list| list.iter().map(i32::to_string).collect::<Vec<_>>().join(","));
        test(&format!("--default-signal={asking}"), "child", &signals).status.code()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_first_signal_asks_and_a_later_one_exits() {
        for signal in ASKING {
            assert_eq!(ends(&[signal]), Some(0), "{signal}");
        }
        assert_eq!(ends(&[SIGTERM, SIGTERM]), Some(0), "one request");
        assert_eq!(ends(&[SIGTERM, 0, SIGTERM]), Some(130));
        assert_eq!(ends(&[SIGINT, SIGHUP]), Some(0));
        assert_eq!(ends(&[SIGINT, SIGINT]), Some(130));
        assert_eq!(ends(&[SIGTERM, SIGINT]), Some(130));
    }
}
