//! Processes of a launch, found by a variable in their environment. A launcher puts ranks into sessions and groups of its own, so that
//! nothing else tells where they came from.

use std::fs;
use std::io::Read as _;
use std::process;
use std::time::SystemTime;

/// Name of the variable.
const NAME: &str = "TIGHTROPE_LAUNCH";
/// What a launch sets for ranks, and not for what starts them.
const RANK: &str = "TIGHTROPE_LAUNCH_RANK";

/// A launch.
#[derive(Clone, Debug)]
pub struct Mark(String);

impl Mark {
    /// A mark that no other launch has.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(format!("{}-{}", process::id(), since.as_nanos()))
    }

    /// Marks what this command starts, and all that this starts.
    pub fn on(&self, command: &mut process::Command) {
        command.env(NAME, &self.0);
    }

    /// Signals every process of the launch that still runs, or those alone that are ranks; how many there were. Where the system doesn't
    /// tell environments (only Linux does), there are none.
    pub fn signal(&self, signal: i32, ranks_alone: bool) -> usize {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let found: Vec<i32> = found.filter(|&process| self.has(process, ranks_alone)).collect();
        for &process in &found {
            // SAFETY: a signal to a process that has this launch's mark.
            unsafe { libc::kill(process, signal) };
        }
        found.len()
    }

    fn has(&self, process: i32, ranks_alone: bool) -> bool {
        let mut bytes = vec![];
        // A process that is gone, or of another user, isn't of this launch.
        let read = fs::File::open(format!("/proc/{process}/environ"))
            .and_then(|mut file| file.read_to_end(&mut bytes));
        let variables = || {
            bytes
                .split(|byte| *byte == 0)
                .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
        };
        let marked = variables().any(|(name, value)| name == NAME && value == self.0);
        let is_rank = || variables().any(|(name, _)| name == RANK);
        read.is_ok() && marked && (!ranks_alone || is_rank())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    use std::{iter, thread};

    use super::*;

    /// Begins a program that sleeps in a program that does too, and tells that both run.
    fn sleepers(mark: &Mark, rank: Option<&str>) -> process::Child {
        let mut command = Command::new("sh");
        command
            .args(["-c", "setsid sh -c 'sleep 60; true' & sleep 60; true"])
            .stdout(Stdio::null());
        command.envs(rank.map(|name| (name, "0")));
        mark.on(&mut command);
        command.spawn().unwrap()
    }

    fn until(is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < Duration::from_secs(30), "it never is");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn processes_of_a_launch_are_found_in_any_session_and_no_others() {
        let marks: Vec<Mark> = iter::repeat_with(Mark::new).take(2).collect();
        let mut children = [sleepers(&marks[0], None), sleepers(&marks[1], Some(RANK))];
        // Two shells that wait for two programs, each.
        for mark in &marks {
            until(|| mark.signal(0, false) == 4);
        }
        assert_eq!(marks[0].signal(0, true), 0);
        assert_eq!(marks[1].signal(0, true), 4);
        assert_eq!(marks[0].signal(libc::SIGKILL, false), 4);
        children[0].wait().unwrap();
        until(|| marks[0].signal(0, false) == 0);
        assert_eq!(marks[1].signal(libc::SIGKILL, true), 4);
        children[1].wait().unwrap();
        until(|| marks[1].signal(0, false) == 0);
    }
}
