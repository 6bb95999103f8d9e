//! What came of attempts, counted; and the table of it.

use std::fmt::Write as _;
use std::ops::AddAssign;

/// Causes that a failed scenario's line is followed by.
const SHOWN: usize = 3;

/// What an attempt did that a run must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// What was saved, or could have gone on, is gone.
    Lost,
    /// Another result without a word.
    Silent,
    /// A panic, or a crash.
    Panic,
    /// It didn't end in time.
    Hang,
    /// An exit code that isn't one of the command's, or a refusal without a cause.
    Words,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What kind it is.
    pub wrong: Wrong,
    /// What happened.
    pub what: String,
}

impl Violation {
    /// One of this kind.
    pub fn new(wrong: Wrong, what: impl Into<String>) -> Self {
        Self { wrong, what: what.into() }
    }
}

/// What an attempt came to that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Well {
    /// Its numbers are those of the undisturbed run.
    Identical,
    /// It was refused, with the cause.
    Refused,
}

/// What came of an attempt.
pub type Verdict = Result<Well, Violation>;

/// Attempts, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there were.
    pub tries: u64,
    /// With a cause.
    pub refused: u64,
    /// To the same numbers.
    pub identical: u64,
    /// What went wrong.
    pub violations: Vec<Violation>,
    /// Why nothing was tried, or not all.
    pub not_run: Option<String>,
}

impl Tally {
    /// Of one attempt.
    pub fn of(verdict: Verdict) -> Self {
        let mut tally = Self { tries: 1, ..Self::default() };
        match verdict {
            Ok(Well::Identical) => tally.identical = 1,
            Ok(Well::Refused) => tally.refused = 1,
            Err(violation) => tally.violations.push(violation),
        }
        tally
    }

    fn count(&self, wrong: Wrong) -> usize {
        self.violations.iter().filter(|violation| violation.wrong == wrong).count()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.tries += other.tries;
        self.refused += other.refused;
        self.identical += other.identical;
        self.violations.extend(other.violations);
        self.not_run = self.not_run.take().or(other.not_run);
    }
}

/// A scenario that was tried, for the table.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What came of it.
    pub tally: Tally,
    /// Seconds it took.
    pub seconds: f64,
}

/// The table, as Markdown that is aligned.
pub fn table(rows: &[Row]) -> String {
    let heads = [
        "scenario",
        "tries",
        "identical",
        "refused",
        "lost",
        "silent",
        "panics",
        "hangs",
        "words",
        "tries/min",
    ];
    let mut cells = vec![heads.map(str::to_owned)];
    for Row { name, tally, seconds } in rows {
        let count = |wrong| tally.count(wrong).to_string();
        let name = match &tally.not_run {
            Some(why) => format!("{name} (not run: {why})"),
            None => (*name).to_owned(),
        };
        cells.push([
            name,
            tally.tries.to_string(),
            tally.identical.to_string(),
            tally.refused.to_string(),
            count(Wrong::Lost),
            count(Wrong::Silent),
            count(Wrong::Panic),
            count(Wrong::Hang),
            count(Wrong::Words),
            format!("{:.0}", tally.tries as f64 * 60.0 / seconds.max(1e-3)),
        ]);
    }
    let width =
        |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for (number, row) in cells.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            // Writing to a String can't fail.
            let _ = match column {
                0 => write!(text, "| {cell:<width$} "),
                _ => write!(text, "| {cell:>width$} "),
            };
        }
        text += "|\n";
        if number == 0 {
            for (column, width) in widths.iter().enumerate() {
                let _ = match column {
                    0 => write!(text, "|{}", "-".repeat(width + 2)),
                    _ => write!(text, "|{}:", "-".repeat(width + 1)),
                };
            }
            text += "|\n";
        }
    }
    text
}

/// Lines as of a test runner: a scenario is a test.
pub fn results(rows: &[Row]) -> String {
    let failed = |row: &Row| !row.tally.violations.is_empty() || row.tally.not_run.is_some();
    let mut text = String::new();
    for row in rows {
        let result = if failed(row) { "FAILED" } else { "ok" };
        let _ = writeln!(text, "test {} ... {result}", row.name);
        for Violation { wrong, what } in row.tally.violations.iter().take(SHOWN) {
            let _ = writeln!(text, "    {wrong:?}: {}", what.lines().next().unwrap_or_default());
        }
    }
    let failures = rows.iter().filter(|row| failed(row)).count();
    let all = if failures == 0 { "ok" } else { "FAILED" };
    let passed = rows.len() - failures;
    let _ = writeln!(text, "test result: {all}. {passed} passed; {failures} failed; 0 ignored");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_and_what_went_wrong_fails() {
        let mut tally = Tally::of(Ok(Well::Identical));
        tally += Tally::of(Ok(Well::Refused));
        let mut rows = vec![Row { name: "flips", tally, seconds: 60.0 }];
        let shown = table(&rows);
        assert!(shown.contains("| flips    |     2 |         1 |       1 |    0 |"), "{shown}");
        assert!(results(&rows).ends_with("test result: ok. 1 passed; 0 failed; 0 ignored\n"));
        rows[0].tally += Tally::of(Err(Violation::new(Wrong::Lost, "step 2")));
        let nowhere = Tally { not_run: Some("no driver".to_owned()), ..Tally::default() };
        rows.push(Row { name: "lost devices", tally: nowhere, seconds: 0.0 });
        assert!(table(&rows).contains("| lost devices (not run: no driver) |"));
        let expected = "test flips ... FAILED\n    Lost: step 2\ntest lost devices ... FAILED\n\
            test result: FAILED. 0 passed; 2 failed; 0 ignored\n";
        assert_eq!(results(&rows), expected);
    }
}
