//! Integer programs over binary variables, written as a file of the LP format and solved by HiGHS as a command.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Seconds after which the solver ends with the bound that it has.
const LIMIT_S: u32 = 60;

/// A variable that is 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binary(usize);

/// A sum of multiples of variables and a number.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    terms: Vec<(Binary, f64)>,
    number: f64,
}

impl Sum {
    /// The number alone.
    pub fn of(number: f64) -> Self {
        Self { terms: vec![], number }
    }

    /// With so much of a variable besides; a variable that isn't there is 0.
    pub fn plus(mut self, times: f64, variable: Option<Binary>) -> Self {
        self.terms.extend(variable.map(|variable| (variable, times)));
        self
    }

    /// With so much besides.
    pub fn plus_number(mut self, number: f64) -> Self {
        self.number += number;
        self
    }

    fn text(&self, text: &mut String) {
        for (Binary(index), times) in &self.terms {
            let _ = writeln!(text, " {times:+} x{index}");
        }
    }
}

/// Constraints on variables, and what is to be least.
#[derive(Default)]
pub struct Integer {
    variables: usize,
    rows: String,
    constraints: usize,
}

/// What the solver found.
pub struct Solution {
    values: Vec<bool>,
    /// No choice comes to less.
    pub bound: f64,
}

impl Solution {
    /// Whether a variable is 1.
    pub fn is_set(&self, Binary(index): Binary) -> bool {
        self.values[index]
    }
}

impl Integer {
    /// A new variable.
    pub fn binary(&mut self) -> Binary {
        self.variables += 1;
        Binary(self.variables - 1)
    }

    /// Holds that `sum` is 0 or less.
    pub fn not_above_zero(&mut self, sum: &Sum) {
        if sum.terms.is_empty() {
            assert!(sum.number <= 0.0, "no choice holds a constraint");
            return;
        }
        self.constraints += 1;
        let _ = write!(self.rows, "c{}:", self.constraints);
        sum.text(&mut self.rows);
        let _ = writeln!(self.rows, "<= {}", -sum.number);
    }

    /// Values at which `sum` is at most `gap` above the least, by the command `highs`, whose files lie in `folder`.
    pub fn least(&self, sum: &Sum, gap: f64, highs: &Path, folder: &Path) -> Solution {
        let [model, options, solution] =
            ["model.lp", "options", "solution"].map(|name| folder.join(name));
        let mut text = String::from("Minimize\nobj:");
        sum.text(&mut text);
        let _ = write!(text, "Subject To\n{}Binary\n", self.rows);
        (0..self.variables).for_each(|index| {
            let _ = writeln!(text, "x{index}");
        });
        text.push_str("End\n");
        fs::write(&model, text).expect("a folder to write to");
        let lines =
            format!("threads = 1\ntime_limit = {LIMIT_S}\nmip_rel_gap = 0\nmip_abs_gap = {gap}\n");
        fs::write(&options, lines).expect("a folder to write to");
        let output = Command::new(highs)
            .arg(&model)
            .arg("--options_file")
            .arg(&options)
            .arg("--solution_file")
            .arg(&solution)
            // It leaves a log where it runs.
            .current_dir(folder)
            .output()
            .expect("HiGHS starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let text = fs::read_to_string(&solution).unwrap_or_else(|_| panic!("no solution: {said}"));
        assert!(text.contains("# Columns"), "no solution: {said}");
        let mut values = vec![false; self.variables];
        let columns = text.lines().skip_while(|line| !line.starts_with("# Columns")).skip(1);
        for line in columns.take_while(|line| !line.starts_with('#')) {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            let index: usize = name[1..].parse().expect("a variable's number");
            values[index] = value.parse::<f64>().expect("a number") > 0.5;
        }
        let bound = said.lines().find_map(|line| line.trim().strip_prefix("Dual bound"));
        let bound = bound.and_then(|number| number.trim().parse().ok());
        Solution { values, bound: bound.expect("a bound") }
    }
}
