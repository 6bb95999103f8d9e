//! `Expr`: a scalar formula that is evaluated, differentiated and printed as WGSL or CUDA.
//!
//! One function that returns an `Expr` is all an activation, a loss term or an optimizer rule needs.

use serde::{Deserialize, Serialize};

mod flat;
mod numbers;

use std::collections::BTreeSet;
use std::ops;
use std::sync::Arc;

use half::bf16;

use numbers::erf;
pub use numbers::{join, round_stochastic, split};

/// Functions of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unary {
    /// −x
    Neg,
    /// eˣ
    Exp,
    /// Natural logarithm.
    Ln,
    /// √x
    Sqrt,
    /// Hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e⁻ˣ)
    Sigmoid,
    /// Error function.
    Erf,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// |x|
    Abs,
    /// −1, 0 or 1.
    Sign,
    /// Largest integer not above x.
    Floor,
    /// 1 where x is finite, else 0.
    IsFinite,
    /// The bf16 weight of an f32 master: rounded to nearest, ties away from zero, so that what is
    /// left over fits 16 signed bits.
    HighHalf,
    /// What [`Unary::HighHalf`] left over, as a signed 16-bit count of units in the last place.
    LowHalf,
}

/// Functions of two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Binary {
    /// a + b
    Add,
    /// a − b
    Sub,
    /// a · b
    Mul,
    /// a / b
    Div,
    /// Larger of both.
    Max,
    /// Smaller of both.
    Min,
    /// a to the power b.
    Pow,
    /// 1 where a < b, else 0.
    Less,
    /// The f32 master that [`Unary::HighHalf`] and [`Unary::LowHalf`] were taken from.
    JoinHalves,
    /// One of the two bf16 numbers that a lies between, the one farther from 0 with a probability of the part
    /// of their distance that a has come (Gupta et al. 2015): its mean is a. b, uniform in [0, 1), decides.
    StochasticHalf,
}

/// One step of a formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// A number known when the graph is built.
    Const(f64),
    /// Element of the map's input with this index.
    Input(usize),
    /// Uniform number in [0, 1), different for every element, step and stream.
    Random(u32),
    /// Function of one formula.
    Unary(Unary, Expr),
    /// Function of two formulas.
    Binary(Binary, Expr, Expr),
    /// `Select(c, a, b)`: a where c ≠ 0, else b; only the chosen side's value counts.
    Select(Expr, Expr, Expr),
}

impl Term {
    /// The formulas that it is a function of.
    fn parts(&self) -> [Option<&Expr>; 3] {
        match self {
            Self::Const(_) | Self::Input(_) | Self::Random(_) => [None; 3],
            Self::Unary(_, a) => [Some(a), None, None],
            Self::Binary(_, a, b) => [Some(a), Some(b), None],
            Self::Select(condition, yes, no) => [Some(condition), Some(yes), Some(no)],
        }
    }
}

/// A scalar formula over a map's inputs; cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr(Arc<Noted>);

/// A step, and what is asked of whole formulas often, so that no formula is walked for it.
#[derive(Debug, PartialEq)]
struct Noted {
    term: Term,
    steps: usize,
    arity: usize,
    random: bool,
}

/// Element `index` of the inputs.
pub fn input(index: usize) -> Expr {
    Expr::new(Term::Input(index))
}

/// A constant.
pub fn constant(value: f64) -> Expr {
    Expr::new(Term::Const(value))
}

/// A uniform number in [0, 1) from the given stream.
pub fn random(stream: u32) -> Expr {
    Expr::new(Term::Random(stream))
}

impl Expr {
    fn new(term: Term) -> Self {
        let steps = usize::from(!matches!(term, Term::Const(_) | Term::Input(_)));
        let arity = if let Term::Input(index) = term { index + 1 } else { 0 };
        let random = matches!(term, Term::Random(_));
        let parts = || term.parts().into_iter().flatten();
        let steps = parts().map(Self::steps).fold(steps, usize::saturating_add);
        let arity = parts().map(Self::arity).fold(arity, usize::max);
        let random = random || parts().any(Self::is_random);
        Self(Arc::new(Noted { term, steps, arity, random }))
    }

    /// The outermost step.
    pub fn term(&self) -> &Term {
        &self.0.term
    }

    /// Function of one argument, simplified.
    pub fn unary(self, function: Unary) -> Self {
        if let Term::Const(value) = self.term() {
            return constant(function.apply(*value));
        }
        Self::new(Term::Unary(function, self))
    }

    /// Function of two arguments, simplified: constants are folded, neutral elements dropped.
    pub fn binary(self, function: Binary, other: Self) -> Self {
        use Binary::{Add, Div, Mul, Pow, Sub};
        let (left, right) = (self.as_const(), other.as_const());
        match (function, left, right) {
            (_, Some(a), Some(b)) => constant(function.apply(a, b)),
            (Add, Some(0.0), _) => other,
            (Mul, Some(1.0), _) => other,
            (Add | Sub, _, Some(0.0)) | (Mul | Div | Pow, _, Some(1.0)) => self,
            (Mul, Some(0.0), _) | (Mul | Pow, _, Some(0.0)) | (Div, Some(0.0), _) => {
                constant(if function == Pow { 1.0 } else { 0.0 })
            }
            (Sub, Some(0.0), _) => -other,
            (Mul, Some(-1.0), _) => -other,
            (Mul, _, Some(-1.0)) => -self,
            (Pow, _, Some(2.0)) => self.clone() * self,
            (Mul, _, None) => match (left, other.term()) {
                // Twice a number is exact, so what is left is rounded as before.
                (Some(a), Term::Binary(Mul, two, x)) if two.as_const() == Some(2.0) => {
                    constant(2.0 * a) * x.clone()
                }
                // The square is often needed besides.
                (None, Term::Binary(Mul, factor, same))
                    if factor.as_const().is_some() && *same == self =>
                {
                    factor.clone() * (self.clone() * self)
                }
                _ => Self::new(Term::Binary(Mul, self, other)),
            },
            _ => Self::new(Term::Binary(function, self, other)),
        }
    }

    /// eˣ
    pub fn exp(self) -> Self {
        self.unary(Unary::Exp)
    }
    /// Natural logarithm.
    pub fn ln(self) -> Self {
        self.unary(Unary::Ln)
    }
    /// √x
    pub fn sqrt(self) -> Self {
        self.unary(Unary::Sqrt)
    }
    /// Hyperbolic tangent.
    pub fn tanh(self) -> Self {
        self.unary(Unary::Tanh)
    }
    /// Logistic function.
    pub fn sigmoid(self) -> Self {
        self.unary(Unary::Sigmoid)
    }
    /// Error function.
    pub fn erf(self) -> Self {
        self.unary(Unary::Erf)
    }
    /// −1, 0 or 1.
    pub fn sign(self) -> Self {
        self.unary(Unary::Sign)
    }
    /// Larger of both.
    pub fn max(self, other: Self) -> Self {
        self.binary(Binary::Max, other)
    }
    /// Smaller of both.
    pub fn min(self, other: Self) -> Self {
        self.binary(Binary::Min, other)
    }
    /// This to the power `other`.
    pub fn pow(self, other: Self) -> Self {
        self.binary(Binary::Pow, other)
    }
    /// 1 where this is less than `other`, else 0.
    pub fn less(self, other: Self) -> Self {
        self.binary(Binary::Less, other)
    }
    /// `yes` where this is not 0, else `no`.
    pub fn select(self, yes: Self, no: Self) -> Self {
        match self.as_const() {
            Some(condition) => {
                if condition != 0.0 {
                    yes
                } else {
                    no
                }
            }
            None if yes == no => yes,
            None => Self::new(Term::Select(self, yes, no)),
        }
    }

    /// The value, where this is a constant.
    pub fn as_const(&self) -> Option<f64> {
        match self.term() {
            Term::Const(value) => Some(*value),
            _ => None,
        }
    }

    /// Value at `inputs`, with `random(stream)` giving the element's random numbers.
    ///
    /// # Panics
    /// Where an input is used that `inputs` lacks.
    pub fn eval(&self, inputs: &[f64], random: &dyn Fn(u32) -> f64) -> f64 {
        match self.term() {
            Term::Const(value) => *value,
            Term::Input(index) => inputs[*index],
            Term::Random(stream) => random(*stream),
            Term::Unary(function, a) => function.apply(a.eval(inputs, random)),
            Term::Binary(function, a, b) => {
                function.apply(a.eval(inputs, random), b.eval(inputs, random))
            }
            Term::Select(condition, yes, no) => {
                if condition.eval(inputs, random) != 0.0 {
                    yes.eval(inputs, random)
                } else {
                    no.eval(inputs, random)
                }
            }
        }
    }

    /// Symbolic partial derivative with respect to input `index`. Steps (sign, floor, comparisons,
    /// roundings) have derivative 0.
    pub fn derivative(&self, index: usize) -> Self {
        let zero = || constant(0.0);
        match self.term() {
            Term::Const(_) | Term::Random(_) => zero(),
            Term::Input(i) => constant(if *i == index { 1.0 } else { 0.0 }),
            Term::Unary(function, a) => {
                let da = a.derivative(index);
                if da.as_const() == Some(0.0) {
                    return zero();
                }
                let (x, y) = (a.clone(), self.clone());
                let slope = match function {
                    Unary::Neg => constant(-1.0),
                    Unary::Exp => y,
                    Unary::Ln => constant(1.0) / x,
                    Unary::Sqrt => constant(0.5) / y,
                    Unary::Tanh => constant(1.0) - y.clone() * y,
                    Unary::Sigmoid => y.clone() * (constant(1.0) - y),
                    Unary::Erf => {
                        constant(std::f64::consts::FRAC_2_SQRT_PI) * (-(x.clone() * x)).exp()
                    }
                    Unary::Sin => x.unary(Unary::Cos),
                    Unary::Cos => -x.unary(Unary::Sin),
                    Unary::Abs => x.sign(),
                    Unary::Sign | Unary::Floor | Unary::IsFinite => zero(),
                    Unary::HighHalf | Unary::LowHalf => zero(),
                };
                slope * da
            }
            Term::Binary(function, a, b) => {
                let (da, db) = (a.derivative(index), b.derivative(index));
                let (x, y) = (a.clone(), b.clone());
                match function {
                    Binary::Add => da + db,
                    Binary::Sub => da - db,
                    Binary::Mul if a == b => constant(2.0) * x * da,
                    Binary::Mul => da * y + x * db,
                    Binary::Div => da / y.clone() - self.clone() * db / y,
                    Binary::Max => y.less(x).select(da, db),
                    Binary::Min => x.less(y).select(da, db),
                    Binary::Pow => {
                        // The power 0 of 0 is constant, as powers of 0 are from 0 on: limits would be 0 · ∞.
                        let by_base = y.clone() * x.clone().pow(y.clone() - constant(1.0)) * da;
                        let by_base = differ(&y, &zero()).select(by_base, zero());
                        if db.as_const() == Some(0.0) {
                            by_base
                        } else {
                            let moves = differ(&x, &zero()).max(y.less(zero()));
                            by_base + moves.select(self.clone() * x.ln() * db, zero())
                        }
                    }
                    Binary::Less | Binary::JoinHalves | Binary::StochasticHalf => zero(),
                }
            }
            Term::Select(condition, yes, no) => {
                condition.clone().select(yes.derivative(index), no.derivative(index))
            }
        }
    }

    /// Indices of the inputs that the formula reads.
    pub fn inputs(&self) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        self.visit(&mut |term| {
            if let Term::Input(index) = term {
                found.insert(*index);
            }
        });
        found
    }

    /// One more than the highest index of an input that the formula reads; 0 where it reads none.
    pub fn arity(&self) -> usize {
        self.0.arity
    }

    /// Whether the formula draws random numbers.
    pub fn is_random(&self) -> bool {
        self.0.random
    }

    /// Arithmetic steps per element, a transcendental function counted as one.
    pub fn steps(&self) -> usize {
        self.0.steps
    }

    /// True if a constant of it is negative infinity, as of a mask.
    pub(crate) fn masks(&self) -> bool {
        let mut masks = false;
        self.visit(&mut |term| masks |= matches!(term, Term::Const(f64::NEG_INFINITY)));
        masks
    }

    fn visit(&self, found: &mut dyn FnMut(&Term)) {
        found(self.term());
        self.term().parts().into_iter().flatten().for_each(|part| part.visit(found));
    }

    /// The formula with every `Input(i)` replaced by `with(i)`.
    pub fn substitute(&self, with: &dyn Fn(usize) -> Self) -> Self {
        match self.term() {
            Term::Const(_) | Term::Random(_) => self.clone(),
            Term::Input(index) => with(*index),
            Term::Unary(function, a) => a.substitute(with).unary(*function),
            Term::Binary(function, a, b) => {
                a.substitute(with).binary(*function, b.substitute(with))
            }
            Term::Select(c, a, b) => {
                c.substitute(with).select(a.substitute(with), b.substitute(with))
            }
        }
    }
}

impl Unary {
    /// Value at `x`.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Self::Neg => -x,
            Self::Exp => x.exp(),
            Self::Ln => x.ln(),
            Self::Sqrt => x.sqrt(),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Erf => erf(x),
            Self::Sin => x.sin(),
            Self::Cos => x.cos(),
            Self::Abs => x.abs(),
            Self::Sign => {
                if x == 0.0 {
                    0.0
                } else {
                    x.signum()
                }
            }
            Self::Floor => x.floor(),
            Self::IsFinite => f64::from(u8::from(x.is_finite())),
            Self::HighHalf => split(x as f32).0.into(),
            Self::LowHalf => split(x as f32).1.into(),
        }
    }
}

impl Binary {
    /// Value at `a`, `b`.
    pub fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            Self::Div => a / b,
            Self::Max => a.max(b),
            Self::Min => a.min(b),
            Self::Pow => a.powf(b),
            Self::Less => f64::from(u8::from(a < b)),
            Self::JoinHalves => join(bf16::from_f64(a), b as i16).into(),
            Self::StochasticHalf => round_stochastic(a as f32, b as f32).into(),
        }
    }
}

/// 1 where two numbers differ, else 0.
fn differ(a: &Expr, b: &Expr) -> Expr {
    a.clone().less(b.clone()).max(b.clone().less(a.clone()))
}

macro_rules! operator {
    ($trait:ident, $method:ident, $function:expr) => {
        impl ops::$trait for Expr {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                self.binary($function, other)
            }
        }
    };
}
operator!(Add, add, Binary::Add);
operator!(Sub, sub, Binary::Sub);
operator!(Mul, mul, Binary::Mul);
operator!(Div, div, Binary::Div);

impl ops::Neg for Expr {
    type Output = Self;
    fn neg(self) -> Self {
        match self.term() {
            Term::Unary(Unary::Neg, inner) => inner.clone(),
            _ => self.unary(Unary::Neg),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PyTorch's slopes, where limits are 0 · ∞.
    #[test]
    fn powers_of_0_and_to_0_have_slopes() {
        let power = input(0).pow(input(1));
        for (x, y, by_base, by_exponent) in [
            (0.0, 2.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, 0.0),
            (0.0, 1.0, 1.0, 0.0),
            (3.0, 0.0, 0.0, 3f64.ln()),
            (2.0, 3.0, 12.0, 8.0 * 2f64.ln()),
        ] {
            let slope = |index: usize| power.derivative(index).eval(&[x, y], &no_random);
            assert_eq!([slope(0), slope(1)], [by_base, by_exponent], "{x} to the power {y}");
        }
        assert!(power.derivative(1).eval(&[-2.0, 2.0], &no_random).is_nan());
    }

    fn no_random(_: u32) -> f64 {
        unreachable!("the formula is not random")
    }

    fn check_derivative(formula: &Expr, at: &[f64]) {
        for index in 0..at.len() {
            let h = 1e-6;
            let shifted = |by: f64| {
                let mut x = at.to_vec();
                x[index] += by;
                formula.eval(&x, &no_random)
            };
            let numeric = (shifted(h) - shifted(-h)) / (2.0 * h);
            let symbolic = formula.derivative(index).eval(at, &no_random);
            let scale = numeric.abs().max(1.0);
            assert!(
                (numeric - symbolic).abs() / scale < 1e-7,
                "{formula:?} at {at:?}: {symbolic} vs {numeric}"
            );
        }
    }

    #[test]
    fn derivatives_match_central_differences() {
        let (x, y) = (input(0), input(1));
        let formulas = [
            x.clone() * y.clone() + x.clone() / y.clone() - y.clone(),
            x.clone().exp() * y.clone().ln(),
            (x.clone() * x.clone() + y.clone()).sqrt().tanh(),
            x.clone().sigmoid() * y.clone().erf(),
            x.clone().unary(Unary::Sin) * y.clone().unary(Unary::Cos) + x.clone().unary(Unary::Abs),
            x.clone().max(y.clone()) * x.clone().min(y.clone()),
            y.clone().pow(x.clone()) + x.clone().pow(constant(3.0)),
            x.clone().less(y.clone()).select(x.clone() * x.clone(), -y.clone()),
        ];
        for formula in &formulas {
            for at in [[0.3, 1.7], [1.9, 0.4], [-0.8, 0.6]] {
                check_derivative(formula, &at);
            }
        }
    }

    /// c₀ + 3c₁x², of x · (c₀ + c₁x²).
    #[test]
    fn the_derivative_of_a_square_shares_it() {
        let square = || input(0) * input(0);
        let formula = input(0) * (constant(5.0) + constant(7.0) * square());
        let slope = constant(5.0) + constant(7.0) * square() + constant(14.0) * square();
        assert_eq!(formula.derivative(0), slope);
    }

    #[test]
    fn neutral_elements_vanish() {
        let x = input(0);
        assert_eq!(x.clone() * constant(1.0) + constant(0.0), x);
        assert_eq!(x.clone() * constant(0.0), constant(0.0));
        assert_eq!(-(-x.clone()), x);
        assert_eq!(constant(2.0) * constant(4.0), constant(8.0));
        assert_eq!((x.clone() + input(1)).derivative(1), constant(1.0));
    }
}
