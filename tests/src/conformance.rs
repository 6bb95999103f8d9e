//! Every case on a backend, family by family.

use std::collections::BTreeMap;
use std::fmt;

use tightrope_core::ops::Case;
use tightrope_core::{Backend, DType};

pub use tightrope_core::conformance::{Mode, Outcome, outputs, try_case};

use crate::tolerance::{self, Deviation};

/// What came of a family at one storage type.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Cases that passed.
    pub passed: usize,
    /// Their largest error.
    pub deviation: Option<Deviation>,
    /// Why cases are unsupported.
    pub unsupported: Vec<String>,
    /// What is wrong with the cases that failed.
    pub failed: Vec<String>,
}

/// What came of all cases, by family and storage type.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One line a family (a variant of [`tightrope_core::Op`]) and storage type.
    pub lines: BTreeMap<(&'static str, DType), Line>,
}

/// Runs `cases` on `backend`.
pub async fn run(backend: &mut dyn Backend, cases: &[Case], mode: Mode) -> Report {
    let mut report = Report::default();
    for case in cases {
        let outcome = try_case(backend, case, mode).await;
        report.add(case, outcome);
    }
    report
}

/// A case in words: its op with every attribute, and the types that it's of.
pub fn described(case: &Case) -> String {
    let types: Vec<String> = case.inputs.iter().map(|sample| sample.ty.to_string()).collect();
    format!("{:?} of {}", case.op, types.join(", "))
}

impl Report {
    fn add(&mut self, case: &Case, outcome: Outcome) {
        let line = self.lines.entry((case.op.family(), tolerance::storage(case))).or_default();
        match outcome {
            Outcome::Pass(deviation) => {
                line.passed += 1;
                let before = line.deviation.unwrap_or(Deviation::NONE);
                line.deviation = Some(before.max(deviation));
            }
            Outcome::Unsupported(reason) => line.unsupported.push(reason),
            Outcome::Fail(problem) | Outcome::Lost(problem) => {
                line.failed.push(format!("{}: {problem}", described(case)));
            }
        }
    }

    /// What differs from a backend's list of unsupported ops, a line `Family dtype` each; `#` begins a
    /// comment. Empty where every case passes or is listed, and nothing is listed that passes.
    pub fn problems(&self, unsupported: &str) -> Vec<String> {
        let listed: Vec<(usize, &str)> = unsupported
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line.split('#').next().unwrap_or("").trim()))
            .filter(|(_, entry)| !entry.is_empty())
            .collect();
        let entry = |(family, dtype): &(&str, DType)| format!("{family} {dtype}");
        let mut problems = vec![];
        for (key, line) in &self.lines {
            let name = entry(key);
            let expected = listed.iter().any(|&(_, entry)| entry == name);
            problems.extend(line.failed.iter().map(|problem| format!("{name}: {problem}")));
            if let (Some(reason), false) = (line.unsupported.first(), expected) {
                problems.push(format!("{name} is unsupported and not listed as such: {reason}"));
            }
            if line.unsupported.is_empty() && expected {
                problems.push(format!("{name} is listed as unsupported, yet runs: take it off"));
            }
        }
        for (number, name) in listed {
            if !self.lines.keys().any(|key| entry(key) == name) {
                problems
                    .push(format!("line {number}, `{name}`: no case has this family and dtype"));
            }
        }
        problems
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((family, dtype), line) in &self.lines {
            let state = match line {
                Line { failed, .. } if !failed.is_empty() => "FAIL",
                Line { unsupported, .. } if !unsupported.is_empty() => "UNSUPPORTED",
                _ => "PASS",
            };
            let cases = line.passed + line.unsupported.len() + line.failed.len();
            write!(f, "{state:11} {family:22} {dtype:4} {:3} of {cases:3}", line.passed)?;
            if let Some(Deviation { nmse, largest }) = line.deviation {
                write!(f, "  nmse {nmse:7.1e}  largest {largest:7.1e}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The checked-in list of what a backend doesn't support, `unsupported/<backend>.txt` in this crate, for
/// [`Report::problems`]. A backend without a file supports everything.
///
/// # Errors
/// Where the file is there and can't be read as text.
pub fn unsupported(backend: &str) -> std::io::Result<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/unsupported");
    match std::fs::read_to_string(format!("{folder}/{backend}.txt")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}
