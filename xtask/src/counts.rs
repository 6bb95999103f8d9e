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

    /// Of a runner's last line, `test result: ok. 3 passed; 0 failed; 1 ignored; …` or pytest's `1 failed, 3 passed in 4.56s`; of
    /// any other, none.
    pub fn of_line(line: &str) -> Self {
        let line = line.trim_matches(|c: char| c.is_whitespace() || c == '=');
        let of_pytest = || {
            let (counted, time) = line.rsplit_once(" in ")?;
            let seconds = time.split(['s', ' ']).next()?.parse::<f64>().ok();
            seconds.filter(|_| counted.starts_with(|c: char| c.is_ascii_digit())).map(|_| counted)
        };
        let Some(rest) = line.strip_prefix("test result: ").or_else(of_pytest) else {
            return Self::default();
        };
        let mut counts = Self { runners: 1, ..Self::default() };
        for part in rest.split(['.', ';', ',']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse() else { continue };
            match what {
                "passed" => counts.passed = number,
                "failed" => counts.failed += number,
                // A fixture that fails.
                "error" | "errors" => counts.failed += number,
                "ignored" | "skipped" => counts.ignored = number,
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

/// The test that a runner's line says has failed: `test graphs::residuals ... FAILED`, or pytest's `FAILED test_plan.py::test_budget - …`.
pub fn failed_test(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")) {
        return rest.split(" - ").next().filter(|name| name.contains(".py"));
    }
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
        let pytests = "FAILED python/tests/test_plan.py::test_budget - AssertionError: 1 - 2";
        assert_eq!(failed_test(pytests), Some("python/tests/test_plan.py::test_budget"));
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
    fn pytests_results_are_counted() {
        let found = Counts::of_line("2 failed, 28 passed, 1 skipped, 1 error in 80.18s (0:01:20)");
        assert_eq!(found, Counts { runners: 1, passed: 28, failed: 3, ignored: 1 });
        let found = Counts::of_line("======= 30 passed in 20.41s =======");
        assert_eq!(found, Counts { runners: 1, passed: 30, ..Counts::default() });
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in [
            "    Finished `dev` profile in 2.5s",
            "",
            "test result",
            "test a::passed ... ok",
            "error: test failed, 3 failed",
        ] {
            assert_eq!(Counts::of_line(line), Counts::default(), "{line}");
        }
    }
}
