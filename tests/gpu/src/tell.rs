//! Lines for whoever watches, each out before what it tells of begins.

use std::io::Write as _;
use std::time::Instant;

use conformance::conformance::Outcome;
use serde_json::{Value, json};

/// Prints a line, and has it leave this process.
fn line(value: &Value) {
    let mut stdout = std::io::stdout().lock();
    // Whoever watched is gone; then nobody starts the next cases either.
    let _ = writeln!(stdout, "{value}").and_then(|()| stdout.flush());
}

/// How many cases there are.
pub fn cases(count: usize) {
    line(&json!({ "cases": count }));
}

/// Something that began.
pub struct Begun {
    index: Option<usize>,
    start: Instant,
}

/// A case begins, or what comes before cases.
pub fn begins(index: Option<usize>, case: &str, kernels: &[String]) -> Begun {
    line(&json!({ "begins": index, "case": case, "kernels": kernels }));
    Begun { index, start: Instant::now() }
}

/// How far what began is.
pub fn at(place: &str) {
    line(&json!({ "at": place }));
}

/// What began compiles kernels.
pub fn compiles() {
    line(&json!({ "at": "its kernels compile", "compiles": true }));
}

/// What is left out, and why.
pub fn left_out(cases: usize, why: &str) {
    line(&json!({ "left_out": cases, "why": why }));
}

/// It was all.
pub fn done() {
    line(&json!({ "done": true }));
}

impl Begun {
    /// What came of it; whether the device is still there.
    pub fn ended(self, outcome: &Outcome) -> bool {
        let (word, says) = match outcome {
            Outcome::Pass(off) => {
                ("passed", format!("nmse {:.1e}, largest {:.1e}", off.nmse, off.largest))
            }
            Outcome::Unsupported(words) | Outcome::Fail(words) => ("failed", words.clone()),
            Outcome::Lost(words) => ("lost", words.clone()),
        };
        self.told(word, &says)
    }

    /// It went well, in these words.
    pub fn passed(self, says: &str) {
        self.told("passed", says);
    }

    fn told(self, word: &str, says: &str) -> bool {
        let seconds = self.start.elapsed().as_secs_f64();
        line(&json!({ "ended": self.index, "outcome": word, "says": says, "seconds": seconds }));
        word != "lost"
    }
}
