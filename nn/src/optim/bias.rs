//! AdamW's bias corrections and Adafactor's decay, which depend on the number of updates so far.
//!
//! The device counts updates, and a step that is skipped isn't one (torch.amp.GradScaler leaves such a step to no optimizer). So an
//! update never waits for the host to hear whether those before it were made.

use tightrope_core::expr::{Expr, Unary, constant, input};
use tightrope_core::ops::Map;
use tightrope_core::{Class, DType, Graph, Tensor};

use super::{Optimizer, adafactor};
use crate::error::Result;

/// Binary digits of a count that f32 holds exactly: past 2²⁴ updates it stands still.
const DIGITS: u32 = 24;
/// Smallest βᵗ that 1 − βᵗ shows in f32.
const SMALLEST: f64 = 1.0 / (1_u64 << 25) as f64;

impl Optimizer {
    /// AdamW's bias corrections 1/(1 − β₁ᵗ) and 1/√(1 − β₂ᵗ) of update `t`, counted from 1, and Adafactor's β₂ and 1 − β₂ there; `None`
    /// if the rule has none.
    fn corrections(&self, t: Expr) -> Option<[Expr; 2]> {
        if *self == Self::Adafactor {
            return Some(adafactor::decays(t));
        }
        let Self::AdamW { beta1, beta2, .. } = self.elementwise() else { return None };
        let [first, second] = [beta1, beta2].map(|beta| bias(beta, &t));
        Some([constant(1.0) / first, constant(1.0) / second.sqrt()])
    }

    /// True if its updates depend on the number of updates before.
    pub(super) fn counts(&self) -> bool {
        self.corrections(input(0)).is_some()
    }

    /// Appends the corrections of an update, f32 (1) each, and adds `ok` to the number of `updates`, f32 (1).
    pub(super) fn append_corrections(
        &self,
        graph: &mut Graph,
        updates: Tensor,
        ok: Tensor,
    ) -> Result<Option<[Tensor; 2]>> {
        let before = input(1).unary(Unary::Floor).max(constant(0.0));
        let Some([first, second]) = self.corrections(before.clone() + constant(1.0)) else {
            return Ok(None);
        };
        let map = Map {
            in_place: vec![(0, 1)],
            ..Map::several(vec![before + input(0), first, second], vec![DType::F32; 3])
        };
        let outputs = graph.push(map, &[ok, updates], "optim.updates.next")?;
        let corrections = [outputs[1], outputs[2]];
        for (tensor, name) in corrections.into_iter().zip(["correction1", "correction2"]) {
            let info = graph.info_mut(tensor);
            (info.name, info.class) = (format!("optim.{name}"), Class::Optimizer);
        }
        Ok(Some(corrections))
    }
}

/// 1 − βᵗ of a whole `t` from 1 to 2²⁴, by the binary digits of t: 1 − βᵃ⁺ᵇ = (1 − βᵃ)·βᵇ + (1 − βᵇ). Nothing cancels, so that f32
/// has all but the last bits of it; it would have four digits of 1 − 0.999¹ by a power.
fn bias(beta: f64, t: &Expr) -> Expr {
    let mut bias = constant(0.0);
    for digit in 0..DIGITS {
        let unit = f64::from(1_u32 << digit);
        let power = beta.powf(unit);
        if power < SMALLEST {
            return t.clone().less(constant(unit)).select(bias, constant(1.0));
        }
        let whole = |unit: f64| (t.clone() * constant(1.0 / unit)).unary(Unary::Floor);
        let is_set = whole(unit) - constant(2.0) * whole(2.0 * unit);
        let rest = -(unit * beta.ln()).exp_m1();
        bias = bias * is_set.clone().select(constant(power), constant(1.0))
            + is_set.select(constant(rest), constant(0.0));
    }
    bias
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a formula of `t` that rounds each step to f32.
    fn rounded(formula: &Expr, t: f32) -> f32 {
        use tightrope_core::expr::Term;
        let of = |part: &Expr| rounded(part, t);
        match formula.term() {
            Term::Const(value) => *value as f32,
            Term::Input(_) => t,
            Term::Random(_) => unreachable!("nothing here is random"),
            Term::Unary(function, a) => function.apply(of(a).into()) as f32,
            Term::Binary(function, a, b) => function.apply(of(a).into(), of(b).into()) as f32,
            Term::Select(condition, yes, no) if of(condition) == 0.0 => {
                let _ = yes;
                of(no)
            }
            Term::Select(_, yes, _) => of(yes),
        }
    }

    #[test]
    fn corrections_have_the_digits_of_f32() {
        let counts = (1..40).chain((0..24).flat_map(|digit| {
            let power = 1_u32 << digit;
            [power.max(2) - 1, power, power + 1, power / 3 * 2 + 5]
        }));
        for (beta1, beta2) in [(0.9, 0.999), (0.9, 0.95), (0.0, 0.99), (0.8, 0.999_999)] {
            let optimizer = Optimizer::AdamW { beta1, beta2, eps: 1e-8 };
            let formulas = optimizer.corrections(input(0)).unwrap();
            for t in counts.clone().filter(|&t| t <= 1 << DIGITS) {
                let rest = |beta: f64| {
                    if beta == 0.0 { 1.0 } else { -(f64::from(t) * beta.ln()).exp_m1() }
                };
                let expected = [1.0 / rest(beta1), 1.0 / rest(beta2).sqrt()];
                for (formula, expected) in formulas.iter().zip(expected) {
                    let found = f64::from(rounded(formula, t as f32));
                    let error = (found / expected - 1.0).abs();
                    assert!(error < 1e-6, "update {t} of β {beta1}, {beta2}: {found} {expected}");
                }
            }
        }
        for t in counts {
            let [decay, rest] = Optimizer::Adafactor.corrections(input(0)).unwrap();
            let expected = f64::from(t).powf(-0.8);
            let [decay, rest] = [decay, rest].map(|formula| f64::from(rounded(&formula, t as f32)));
            assert!((rest / expected - 1.0).abs() < 1e-6, "{t}: {rest} {expected}");
            assert!((decay - (1.0 - expected)).abs() < 1e-6, "{t}: {decay}");
        }
        assert!(!Optimizer::Sgd { momentum: 0.9 }.counts());
        assert!(!Optimizer::Lion { beta1: 0.9, beta2: 0.99 }.counts());
    }
}
