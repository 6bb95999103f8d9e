//! Formulas as sums of what is linear in some of their inputs, and of the rest.

use crate::expr::{Binary, Expr, Term, Unary, constant};

/// Splits `formula` into a sum of terms that are linear in the inputs `parts` and terms that don't depend on them. `None` if it isn't such a
/// sum.
pub(super) fn affine(formula: &Expr, parts: &[usize]) -> Option<(Option<Expr>, Option<Expr>)> {
    if formula.inputs().iter().all(|input| !parts.contains(input)) {
        let nothing = formula.as_const() == Some(0.0);
        return Some((None, Some(formula.clone()).filter(|_| !nothing)));
    }
    match formula.term() {
        Term::Input(_) => Some((Some(formula.clone()), None)),
        Term::Unary(Unary::Neg, x) => {
            let (sums, rest) = affine(x, parts)?;
            Some((sums.map(|x| -x), rest.map(|x| -x)))
        }
        Term::Binary(Binary::Add, a, b) => {
            let ((a, of_a), (b, of_b)) = (affine(a, parts)?, affine(b, parts)?);
            let add = |a: Option<Expr>, b: Option<Expr>| match (a, b) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            Some((add(a, b), add(of_a, of_b)))
        }
        Term::Binary(Binary::Sub, a, b) => {
            let ((a, of_a), (b, of_b)) = (affine(a, parts)?, affine(b, parts)?);
            let subtract = |a: Option<Expr>, b: Option<Expr>| match (a, b) {
                (Some(a), Some(b)) => Some(a - b),
                (None, Some(b)) => Some(-b),
                (a, None) => a,
            };
            Some((subtract(a, b), subtract(of_a, of_b)))
        }
        Term::Binary(Binary::Mul, a, b) => {
            let fixed = |x: &Expr| x.inputs().iter().all(|input| !parts.contains(input));
            let (x, by) = if fixed(b) { (a, b) } else { (b, a) };
            if !fixed(by) {
                return None;
            }
            let (sums, rest) = affine(x, parts)?;
            Some((sums.map(|x| x * by.clone()), rest.map(|x| x * by.clone())))
        }
        Term::Binary(Binary::Div, x, by) => {
            if by.inputs().iter().any(|input| parts.contains(input)) {
                return None;
            }
            let (sums, rest) = affine(x, parts)?;
            Some((sums.map(|x| x / by.clone()), rest.map(|x| x / by.clone())))
        }
        Term::Select(condition, yes, no) => {
            if condition.inputs().iter().any(|input| parts.contains(input)) {
                return None;
            }
            let ((yes, of_yes), (no, of_no)) = (affine(yes, parts)?, affine(no, parts)?);
            let zero = || constant(0.0);
            let choose = |yes: Option<Expr>, no: Option<Expr>| {
                (yes.is_some() || no.is_some()).then(|| {
                    condition.clone().select(yes.unwrap_or_else(zero), no.unwrap_or_else(zero))
                })
            };
            Some((choose(yes, no), choose(of_yes, of_no)))
        }
        _ => None,
    }
}

/// The constant that `formula` is a multiple by, and what it's a multiple of.
pub(super) fn multiple(formula: &Expr) -> (f64, Expr) {
    match formula.term() {
        Term::Unary(Unary::Neg, x) => {
            let (factor, x) = multiple(x);
            (-factor, x)
        }
        Term::Binary(Binary::Mul, a, b) => match (a.as_const(), b.as_const()) {
            (Some(by), _) => {
                let (factor, x) = multiple(b);
                (factor * by, x)
            }
            (_, Some(by)) => {
                let (factor, x) = multiple(a);
                (factor * by, x)
            }
            _ => (1.0, formula.clone()),
        },
        Term::Binary(Binary::Div, a, b) => match b.as_const() {
            Some(by) => {
                let (factor, x) = multiple(a);
                (factor / by, x)
            }
            None => (1.0, formula.clone()),
        },
        _ => (1.0, formula.clone()),
    }
}
