//! Commands of a task: run, their output shown or kept, their tests and their processor time counted.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::iter;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use wait4::Wait4 as _;

use crate::counts::{Counts, failed_test};

/// What tests try of long lists of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// A part, drawn by the date or by what the environment says; of tests that take long, some of their files.
    Part,
    /// All files of tests, each of which draws its cases as for a part.
    Files,
    /// Everything.
    All,
}

impl Draw {
    /// Whether what takes long is done now: one day of `days`, or always. `which` tells apart what shouldn't fall on the same day.
    pub fn takes_a_day_of(self, days: u64, which: u64) -> bool {
        // A clock that is set before 1970 has no days to draw by.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self == Self::All || (since.as_secs() / (24 * 60 * 60) + which).is_multiple_of(days)
    }
}

/// Runs commands one after the other.
pub struct Shell {
    output: Box<dyn Write + Send>,
    /// What is told to tests that draw.
    pub draw: Draw,
    /// Tests that the commands reported.
    pub counts: Counts,
    /// Names of those that failed.
    pub failures: Vec<String>,
    /// Tests that aren't run, each with the reason: they count neither as passed nor as failed.
    pub not_run: Vec<String>,
    /// True if some are left for another day.
    pub is_part: bool,
    /// Processor time that the commands took, with the processes that they waited for.
    pub processor: Duration,
}

impl Shell {
    /// Shows what commands print as it comes.
    pub fn live() -> Self {
        Self {
            output: Box::new(io::stdout()),
            draw: Draw::Part,
            counts: Counts::default(),
            failures: vec![],
            not_run: vec![],
            is_part: false,
            processor: Duration::ZERO,
        }
    }

    /// Keeps what commands print in the file `log`.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub fn logged(log: &Path) -> io::Result<Self> {
        Ok(Self { output: Box::new(File::create(log)?), ..Self::live() })
    }

    /// Prints a line.
    pub fn say(&mut self, words: impl Display) {
        // Whoever reads the output may have gone; what is done still counts.
        let _ = writeln!(self.output, "{words}");
    }

    /// Runs a command that must end well.
    ///
    /// # Errors
    /// Where it can't be started, or fails.
    pub fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        self.read(command, |shell, line| {
            shell.counts += Counts::of_line(line);
            shell.failures.extend(failed_test(line).map(str::to_owned));
            shell.say(line);
        })
    }

    /// What a command that must end well prints. Shown only where it doesn't.
    ///
    /// # Errors
    /// Where it can't be started, or fails.
    pub fn output(&mut self, command: &mut Command) -> anyhow::Result<String> {
        let mut output = String::new();
        let done = self.read(command, |_, line| {
            output += line;
            output.push('\n');
        });
        if done.is_err() {
            self.say(&output);
        }
        done.map(|()| output)
    }

    /// Runs a command, line by line of what it prints.
    fn read(
        &mut self,
        command: &Command,
        mut line_by_line: impl FnMut(&mut Self, &str),
    ) -> anyhow::Result<()> {
        let shown = command_line(command);
        let mut command = copy(command);
        let (reader, writer) = io::pipe()?;
        if self.draw == Draw::All {
            command.env("TIGHTROPE_DRAW", "all");
        }
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn().with_context(|| format!("can't start {shown}"))?;
        // Its ends of the pipe, without which the last line never comes.
        drop(command);
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.with_context(|| format!("can't read what {shown} prints"))?;
            line_by_line(self, &String::from_utf8_lossy(&line));
        }
        let ended = child.wait4().with_context(|| format!("can't wait for {shown}"))?;
        self.processor += ended.rusage.utime + ended.rusage.stime;
        ensure!(ended.status.success(), "{shown} failed with {}", ended.status);
        Ok(())
    }
}

/// The words of a command, for messages: without its environment.
pub fn command_line(command: &Command) -> String {
    let words = iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// A copy of a command, with its arguments, folder and environment.
fn copy(of: &Command) -> Command {
    let mut copy = Command::new(of.get_program());
    copy.args(of.get_args());
    if let Some(folder) = of.get_current_dir() {
        copy.current_dir(folder);
    }
    for (key, value) in of.get_envs() {
        match value {
            Some(value) => copy.env(key, value),
            None => copy.env_remove(key),
        };
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_drawn_one_day_of_their_number() {
        let today = |draw: Draw| (0..3).filter(|&which| draw.takes_a_day_of(3, which)).count();
        assert_eq!([Draw::Part, Draw::Files, Draw::All].map(today), [1, 1, 3]);
    }
}
