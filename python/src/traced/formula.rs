//! Formulas over the elements of tensors, by NumPy's names.

use serde::Deserialize;
use tightrope::core::expr::{Unary, constant, input};
use tightrope::core::{Expr, Tensor};

/// A tensor that another op of the trace makes, by the index of that op.
pub type Index = usize;

/// A function of one element or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Formula {
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
    Maximum,
    Minimum,
    Less,
    LessEqual,
    Equal,
    NotEqual,
    /// The second where the first isn't 0, else the third.
    Where,
    Negative,
    Exp,
    Log,
    Sqrt,
    Tanh,
    Sigmoid,
    Abs,
}

/// An operand of a formula.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Operand {
    Tensor { tensor: Index },
    Number(f64),
    Unbounded { number: Unbounded },
}

/// A number that JSON lacks.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum Unbounded {
    #[serde(rename = "inf")]
    Infinity,
    #[serde(rename = "-inf")]
    NegativeInfinity,
}

impl Operand {
    /// The op that makes it, if it's a tensor.
    pub fn tensor(&self) -> Option<Index> {
        match self {
            Self::Tensor { tensor } => Some(*tensor),
            Self::Number(_) | Self::Unbounded { .. } => None,
        }
    }

    /// The operand in a formula over `tensors`, to which a tensor is added.
    pub fn term(&self, made: &[Tensor], tensors: &mut Vec<Tensor>) -> Expr {
        let tensor = match self {
            Self::Number(number) => return constant(*number),
            Self::Unbounded { number: Unbounded::Infinity } => return constant(f64::INFINITY),
            Self::Unbounded { number: Unbounded::NegativeInfinity } => {
                return constant(f64::NEG_INFINITY);
            }
            Self::Tensor { tensor } => made[*tensor],
        };
        let place = tensors.iter().position(|known| *known == tensor);
        input(place.unwrap_or_else(|| {
            tensors.push(tensor);
            tensors.len() - 1
        }))
    }
}

impl Formula {
    /// The number of its operands.
    pub fn arity(self) -> usize {
        match self {
            Self::Negative
            | Self::Exp
            | Self::Log
            | Self::Sqrt
            | Self::Tanh
            | Self::Sigmoid
            | Self::Abs => 1,
            Self::Where => 3,
            _ => 2,
        }
    }

    /// Formula of as many operands as [`Formula::arity`] says.
    pub fn of(self, operands: Vec<Expr>) -> Expr {
        let mut operands = operands.into_iter();
        let mut next = || operands.next().unwrap_or_else(|| constant(0.0));
        let a = next();
        match self {
            Self::Negative => -a,
            Self::Exp => a.exp(),
            Self::Log => a.ln(),
            Self::Sqrt => a.sqrt(),
            Self::Tanh => a.tanh(),
            Self::Sigmoid => a.sigmoid(),
            Self::Abs => a.unary(Unary::Abs),
            Self::Add => a + next(),
            Self::Subtract => a - next(),
            Self::Multiply => a * next(),
            Self::Divide => a / next(),
            Self::Power => power(a, next()),
            Self::Maximum => extreme(a, next(), true),
            Self::Minimum => extreme(a, next(), false),
            Self::Less => a.less(next()),
            Self::LessEqual => constant(1.0) - next().less(a),
            Self::Equal => constant(1.0) - differ(a, next()),
            Self::NotEqual => differ(a, next()),
            Self::Where => {
                let yes = next();
                a.select(yes, next())
            }
        }
    }
}

/// 1 where two numbers differ, else 0.
fn differ(a: Expr, b: Expr) -> Expr {
    a.clone().less(b.clone()).max(b.less(a))
}

/// The larger of two numbers, or the smaller; NaN if one of them is. Equal ones get half of the gradient each, as in PyTorch.
fn extreme(a: Expr, b: Expr, largest: bool) -> Expr {
    let (below, above) = if largest { (b.clone(), a.clone()) } else { (a.clone(), b.clone()) };
    let equal = constant(0.5) * a.clone() + constant(0.5) * b.clone();
    a.clone().less(b.clone()).select(below, b.less(a).select(above, equal))
}

/// The larger of a and b, or the smaller, and how many extremes are equal to it: inputs are a and b and, where they are extremes of
/// several (`counted`), the numbers of those. Equal ones share the gradient by these numbers.
pub fn extreme_of_counted(largest: bool, counted: bool) -> [Expr; 2] {
    let (a, b) = (input(0), input(1));
    let number = |index| if counted { input(index) } else { constant(1.0) };
    let (of_a, of_b) = (number(2), number(3));
    let share = of_b.clone() / (of_a.clone() + of_b.clone());
    // Infinities have no difference.
    let largest_finite = constant(f32::MAX.into());
    let is_infinite = largest_finite.less(a.clone().unary(Unary::Abs));
    let halves = constant(0.5) * a.clone() + constant(0.5) * b.clone();
    let equal = is_infinite.select(halves, a.clone() + (b.clone() - a.clone()) * share);
    let (below, above) = if largest { (b.clone(), a.clone()) } else { (a.clone(), b.clone()) };
    let (of_below, of_above) =
        if largest { (of_b.clone(), of_a.clone()) } else { (of_a.clone(), of_b.clone()) };
    let (less, more) = (a.clone().less(b.clone()), b.less(a));
    [
        less.clone().select(below, more.clone().select(above, equal)),
        less.select(of_below, more.select(of_above, of_a + of_b)),
    ]
}

/// a to the power b. Whole powers are products, which also take negative numbers on devices whose `pow` doesn't.
fn power(a: Expr, b: Expr) -> Expr {
    const LARGEST: f64 = 64.0;
    match b.as_const() {
        Some(whole) if whole.fract() == 0.0 && whole.abs() <= LARGEST => {
            let positive = whole_power(a, whole.abs() as u32);
            if whole < 0.0 { constant(1.0) / positive } else { positive }
        }
        Some(0.5) => a.sqrt(),
        _ => a.pow(b),
    }
}

/// a to a whole power, by squares.
fn whole_power(a: Expr, power: u32) -> Expr {
    if power == 0 {
        return constant(1.0);
    }
    let half = whole_power(a.clone(), power / 2);
    let even = half.clone() * half;
    if power % 2 == 1 { a * even } else { even }
}
