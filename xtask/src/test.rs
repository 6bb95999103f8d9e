//! `cargo xtask test`: every stage of the checks, then one line that counts all tests.
//!
//! Rust and Node.js are needed; a browser and a Vulkan driver are installed where they're missing. A stage
//! that fails doesn't keep the next from running, so that one run shows everything that is wrong.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;

use crate::{cargo, highs, mesa, nvidia, root, web};

/// One command of the checks.
struct Stage {
    name: &'static str,
    /// Arguments of cargo.
    words: &'static [&'static str],
    /// Flags of rustdoc.
    rustdoc: &'static str,
    /// Whether it must report tests.
    tests: bool,
}

impl Stage {
    const fn check(name: &'static str, words: &'static [&'static str]) -> Self {
        Self { name, words, rustdoc: "", tests: false }
    }

    const fn tests(name: &'static str, words: &'static [&'static str]) -> Self {
        Self { name, words, rustdoc: "", tests: true }
    }
}

const STAGES: [Stage; 5] = [
    Stage::check("format", &["fmt", "--all", "--", "--check"]),
    Stage::check(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    ),
    Stage {
        rustdoc: "-D warnings",
        ..Stage::check("documentation", &["doc", "--workspace", "--no-deps", "--locked"])
    },
    // Unit tests, the conformance cases, and the tests of the command line, which run the binary.
    Stage::tests("tests", &["test", "--workspace", "--all-targets", "--locked", "--no-fail-fast"]),
    Stage::tests("examples in the documentation", &["test", "--workspace", "--doc", "--locked"]),
];

/// Runs all stages; `false` where one failed. A stage that fails without a failing test, or that runs no
/// test where it should, counts as one failure.
///
/// # Errors
/// When cargo can't be started.
pub fn run() -> anyhow::Result<bool> {
    let mut total = Counts::default();
    // What can't be installed shows as tests that fail.
    if let Err(error) = web::prepare() {
        println!("{error:#}");
    }
    for stage in &STAGES {
        total.add(timed(stage.name, stage.tests, || run_stage(stage))?);
    }
    for stage in [COOPERATIVE, KERNELS, ORACLE] {
        total.add(timed(stage.name, true, || stage.run())?);
    }
    total.add(timed("tests in a browser", true, browser)?);
    if total.ignored > 0 {
        println!("{} ignored", total.ignored);
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(total.failed == 0)
}

/// Runs one stage under a headline. It fails where it says so, or `tests` and reports none.
fn timed(
    name: &str,
    tests: bool,
    stage: impl FnOnce() -> anyhow::Result<(bool, Counts)>,
) -> anyhow::Result<Counts> {
    let start = Instant::now();
    println!("\n== {name} ==");
    let (passed, mut counts) = stage()?;
    let silent = tests && counts.runners == 0;
    if counts.failed == 0 && (silent || !passed) {
        println!("stage `{name}` {}", if passed { "ran no test" } else { "failed" });
        counts.failed = 1;
    }
    println!("== {name}: {:.0} s ==", start.elapsed().as_secs_f64());
    Ok(counts)
}

/// Tests that run with what is fetched for them alone.
#[derive(Clone, Copy)]
pub struct Fetched {
    name: &'static str,
    tests: fn() -> anyhow::Result<Command>,
}

/// On a driver of its own.
pub const COOPERATIVE: Fetched =
    Fetched { name: "products by cooperative matrices", tests: mesa::tests };
/// By NVIDIA's compilers.
pub const KERNELS: Fetched = Fetched { name: "CUDA kernels compiled", tests: nvidia::tests };
/// By a solver of integer programs.
pub const ORACLE: Fetched = Fetched { name: "plans against the optimum", tests: highs::tests };

impl Fetched {
    fn run(self) -> anyhow::Result<(bool, Counts)> {
        match (self.tests)() {
            Ok(command) => counted(command),
            Err(error) => {
                println!("{error:#}");
                Ok((false, Counts::default()))
            }
        }
    }
}

/// Only one stage; `false` where one of its tests failed.
///
/// # Errors
/// When a command can't be started.
pub fn run_alone(stage: Fetched) -> anyhow::Result<bool> {
    let total = timed(stage.name, true, || stage.run())?;
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(total.failed == 0)
}

/// Only the tests in a browser; `false` where one failed.
///
/// # Errors
/// When a command can't be started.
pub fn run_in_browser() -> anyhow::Result<bool> {
    web::prepare()?;
    let total = timed("tests in a browser", true, browser)?;
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(total.failed == 0)
}

/// Builds the modules and runs their tests and the page's in Chromium.
fn browser() -> anyhow::Result<(bool, Counts)> {
    let commands = match web::tests() {
        Ok(commands) => commands,
        Err(error) => {
            println!("{error:#}");
            return Ok((false, Counts::default()));
        }
    };
    let (mut passed, mut counts) = (true, Counts::default());
    for command in commands {
        let (ended_well, reported) = counted(command)?;
        passed &= ended_well && reported.runners > 0;
        counts.add(reported);
    }
    Ok((passed, counts))
}

fn run_stage(stage: &Stage) -> anyhow::Result<(bool, Counts)> {
    let mut command = Command::new(cargo());
    command.args(stage.words).current_dir(root());
    if !stage.rustdoc.is_empty() {
        command.env("RUSTDOCFLAGS", stage.rustdoc);
    }
    counted(command)
}

/// Runs a command, its output shown as it comes, and counts the tests it reports.
fn counted(mut command: Command) -> anyhow::Result<(bool, Counts)> {
    let shown = command.get_program().to_owned();
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("can't start {}", shown.display()))?;
    let mut counts = Counts::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.context("can't read what cargo prints")?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            counts.add(Counts::of_line(&line));
        }
    }
    let status = child.wait().context("can't wait for a command")?;
    Ok((status.success(), counts))
}

/// Tests that runners reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    runners: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    /// Of a runner's last line, `test result: ok. 3 passed; 0 failed; 1 ignored; …`; of any other, none.
    fn of_line(line: &str) -> Self {
        let Some(rest) = line.trim_start().strip_prefix("test result: ") else {
            return Self::default();
        };
        let mut counts = Self { runners: 1, ..Self::default() };
        for part in rest.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse() else { continue };
            match what {
                "passed" => counts.passed = number,
                "failed" => counts.failed = number,
                "ignored" => counts.ignored = number,
                _ => {}
            }
        }
        counts
    }

    fn add(&mut self, other: Self) {
        self.runners += other.runners;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let output = "running 2 tests\ntest a ... ok\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s\n";
        let mut total = Counts::default();
        output.lines().for_each(|line| total.add(Counts::of_line(line)));
        assert_eq!(total, Counts { runners: 2, passed: 16, failed: 2, ignored: 1 });
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["", "test result", "test a::passed ... ok", "error: test failed, 3 failed"] {
            assert_eq!(Counts::of_line(line), Counts::default(), "{line}");
        }
    }

    #[test]
    fn the_checks_are_complete() {
        for word in ["fmt", "clippy", "doc", "test"] {
            assert!(STAGES.iter().any(|stage| stage.words[0] == word), "{word}");
        }
        assert!(STAGES.iter().any(|stage| stage.tests));
    }
}
