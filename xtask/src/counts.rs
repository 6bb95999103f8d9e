//! Tests that runners reported.

use std::fmt;
use std::ops::AddAssign;

/// How many there were, and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runners that reported, whatever they ran.
    pub runners: u64,
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
}

impl Counts {
    /// What failed before it could report.
    pub const FAILED: Self = Self { runners: 0, passed: 0, failed: 1, ignored: 0 };

    /// Of a runner's last line, `test result: ok. 3 passed; 0 failed; 1 ignored; …`; of any other, none.
    pub fn of_line(line: &str) -> Self {
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
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runners += other.runners;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The test that a runner's line says has failed: `test graphs::residuals ... FAILED`.
pub fn failed_test(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failed_test("test graphs::residuals ... FAILED"), Some("graphs::residuals"));
        assert_eq!(failed_test("test graphs::residuals ... ok"), None);
        assert_eq!(failed_test("test result: FAILED. 1 passed; 1 failed"), None);
    }

    #[test]
    fn results_are_summed() {
        let output = "running 2 tests\ntest a ... ok\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s\n";
        let mut total = Counts::default();
        output.lines().for_each(|line| total += Counts::of_line(line));
        assert_eq!(total, Counts { runners: 2, passed: 16, failed: 2, ignored: 1 });
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["", "test result", "test a::passed ... ok", "error: test failed, 3 failed"] {
            assert_eq!(Counts::of_line(line), Counts::default(), "{line}");
        }
    }
}
