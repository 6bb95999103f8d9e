//! What came of the stages, as the last lines of the checks.

use std::fmt::Write as _;
use std::time::Duration;

use crate::counts::Counts;

/// What came of one stage.
pub struct Outcome {
    pub name: &'static str,
    pub wall: Duration,
    pub processor: Duration,
    pub counts: Counts,
    /// Tests that failed, or why the stage did.
    pub failures: Vec<String>,
    /// Tests that weren't run, each with the reason.
    pub not_run: Vec<String>,
    /// True if some of them were left for another day.
    pub is_part: bool,
}

/// A line a stage and one for all, which stages were `left_out` and on which day they passed, tests that weren't run, what failed, and how many tests passed;
/// `wall` is the time that all took together.
pub fn table(outcomes: &[Outcome], left_out: &[(&str, &str)], wall: Duration) -> String {
    let width = outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$}  {:>7}  {:>11}  {:>6}  {:>6}\n",
        "stage", "seconds", "processor", "passed", "failed"
    );
    let mut line = |name: &str, wall: Duration, processor: Duration, counts: Counts| {
        let (wall, processor) = (wall.as_secs_f64(), processor.as_secs_f64());
        let Counts { passed, failed, .. } = counts;
        // Writing to a String can't fail.
        let _ =
            writeln!(text, "{name:width$}  {wall:7.0}  {processor:11.0}  {passed:6}  {failed:6}");
    };
    let (mut processor, mut counts) = (Duration::ZERO, Counts::default());
    for outcome in outcomes {
        line(outcome.name, outcome.wall, outcome.processor, outcome.counts);
        processor += outcome.processor;
        counts += outcome.counts;
    }
    line("all", wall, processor, counts);
    if counts.ignored > 0 {
        let _ = writeln!(text, "{} ignored", counts.ignored);
    }
    for (name, day) in left_out {
        let _ = writeln!(
            text,
            "not run: {name}, whose files are as they passed on {day} (--all runs it)"
        );
    }
    for not_run in outcomes.iter().flat_map(|outcome| &outcome.not_run) {
        let _ = writeln!(text, "not run: {not_run}");
    }
    for outcome in outcomes {
        for failure in &outcome.failures {
            let _ = writeln!(text, "failed in {}: {failure}", outcome.name);
        }
    }
    let _ = writeln!(text, "{counts}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_all_tests() {
        let outcome = |name, seconds, passed, failed| Outcome {
            name,
            wall: Duration::from_secs(seconds),
            processor: Duration::from_secs(2 * seconds),
            counts: Counts { runners: 1, passed, failed, ignored: 1 },
            failures: (0..failed).map(|_| "losses_fall".to_owned()).collect(),
            not_run: (0..failed).map(|_| "tests by avx512, which it lacks".to_owned()).collect(),
            is_part: false,
        };
        let text = table(
            &[outcome("tests", 60, 12, 1), outcome("page", 9, 3, 0)],
            &[("speed", "2026-11-02")],
            Duration::from_secs(61),
        );
        assert_eq!(
            text,
            "stage  seconds    processor  passed  failed\n\
             tests       60          120      12       1\n\
             page         9           18       3       0\n\
             all         61          138      15       1\n\
             2 ignored\n\
             not run: speed, whose files are as they passed on 2026-11-02 (--all runs it)\n\
             not run: tests by avx512, which it lacks\n\
             failed in tests: losses_fall\n\
             15 passed, 1 failed\n"
        );
    }
}
