//! A formula as the list of its steps, each step once and after its parts: how it is written and read.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Binary, Expr, Noted, Term, Unary};

/// One step. Its parts are earlier steps, by position.
#[derive(Serialize, Deserialize)]
enum Step {
    /// By its bits: text has no infinity.
    Const(u64),
    Input(u32),
    Random(u32),
    Unary(Unary, usize),
    Binary(Binary, usize, usize),
    Select(usize, usize, usize),
}

impl Serialize for Expr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut steps = vec![];
        append(self, &mut steps, &mut HashMap::new());
        steps.serialize(serializer)
    }
}

/// Appends the steps of a formula that aren't there, and gives the position of its last.
fn append(
    formula: &Expr,
    steps: &mut Vec<Step>,
    known: &mut HashMap<*const Noted, usize>,
) -> usize {
    let shared = Arc::as_ptr(&formula.0);
    if let Some(&position) = known.get(&shared) {
        return position;
    }
    let mut part = |part: &Expr| append(part, steps, known);
    let step = match formula.term() {
        Term::Const(value) => Step::Const(value.to_bits()),
        &Term::Input(index) => Step::Input(index as u32),
        &Term::Random(stream) => Step::Random(stream),
        Term::Unary(function, a) => Step::Unary(*function, part(a)),
        Term::Binary(function, a, b) => Step::Binary(*function, part(a), part(b)),
        Term::Select(condition, yes, no) => Step::Select(part(condition), part(yes), part(no)),
    };
    steps.push(step);
    known.insert(shared, steps.len() - 1);
    steps.len() - 1
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut made: Vec<Self> = vec![];
        for step in Vec::<Step>::deserialize(deserializer)? {
            let part = |position: usize| {
                let part = made.get(position).cloned();
                part.ok_or_else(|| {
                    D::Error::custom("a step has a part that doesn't come before it")
                })
            };
            made.push(Self::new(match step {
                Step::Const(bits) => Term::Const(f64::from_bits(bits)),
                Step::Input(index) => Term::Input(index as usize),
                Step::Random(stream) => Term::Random(stream),
                Step::Unary(function, a) => Term::Unary(function, part(a)?),
                Step::Binary(function, a, b) => Term::Binary(function, part(a)?, part(b)?),
                Step::Select(condition, yes, no) => {
                    Term::Select(part(condition)?, part(yes)?, part(no)?)
                }
            }));
        }
        made.pop().ok_or_else(|| D::Error::custom("a formula has no step"))
    }
}
