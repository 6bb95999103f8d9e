//! GELU in its tanh form, and its gradient, in one loop: most of a tape's time goes into what its instructions leave in memory for each other.
//!
//! Numbers are equal to the tape's, bit for bit, the sign of NaN apart.

use std::cell::Cell;

use half::bf16;
use tightrope_core::activation::gelu_tanh;
use tightrope_core::expr::{Expr, Term, input};
use tightrope_core::ops::Map;
use tightrope_core::{DType, Type};

use super::adamw::BUILT;
use crate::arena::View;
use crate::fast::vmath::{self, Simd, Storage, dispatched};
use crate::isa::Isa;

/// Elements that are read before any of them is written: an output may have the place of an input.
const PART: usize = 64;

/// How far ahead inputs are asked for.
const AHEAD: usize = 8 * PART;

/// The activation of an MLP, or its gradient, over tensors of one dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gelu {
    /// The gradient, of x and the gradient of what was made of it.
    gradient: bool,
    dtype: DType,
    /// Factors of x and x³ in what the logistic function takes.
    factors: [f64; 2],
}

impl Gelu {
    /// What `map` over inputs of these types is, if it's one of the two.
    pub(super) fn of(map: &Map, inputs: &[&Type]) -> Option<Self> {
        if !BUILT || map.segments != 1 {
            return None;
        }
        let activated = gelu_tanh(input(0));
        let ([formula], &[dtype]) = (&map.formulas[..], &map.dtypes[..]) else { return None };
        let gradient = match inputs.len() {
            1 if *formula == activated => false,
            2 if *formula == activated.derivative(0) * input(1) => true,
            _ => return None,
        };
        let is_own = |ty: &&Type| ty.dtype == dtype && ty.elements() == inputs[0].elements();
        let taken = [DType::F32, DType::BF16].contains(&dtype) && inputs.iter().all(is_own);
        let factors = *constants(&activated).as_array()?;
        taken.then_some(Self { gradient, dtype, factors })
    }

    /// Writes the elements from `start` on, up to `most`.
    ///
    /// # Safety
    /// The tensors have the types that this was made for, and nothing else uses these elements meanwhile.
    pub(super) unsafe fn run(
        &self,
        isa: Isa,
        inputs: &[View<'_>],
        output: &View<'_>,
        start: usize,
        most: usize,
    ) {
        let count = output.ty().elements().saturating_sub(start).min(most);
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::BF16 => self.over::<bf16>(isa, inputs, output, start, count),
                _ => self.over::<f32>(isa, inputs, output, start, count),
            }
        }
    }

    /// # Safety
    /// As [`Gelu::run`], with tensors of `T` that have these elements.
    unsafe fn over<T: Storage>(
        &self,
        isa: Isa,
        inputs: &[View<'_>],
        output: &View<'_>,
        start: usize,
        count: usize,
    ) {
        // SAFETY: the caller's promise. Cells, as an output may have the place of an input.
        let cells = |view: &View<'_>| unsafe {
            std::slice::from_raw_parts(view.ptr().cast::<Cell<T>>().add(start), count)
        };
        let factors = self.factors.map(|factor| factor as f32);
        let (x, y) = (cells(&inputs[0]), cells(output));
        match self.gradient {
            true => differentiate(isa, factors, x, cells(&inputs[1]), y),
            false => activate(isa, factors, x, y),
        }
    }
}

/// The numbers of a formula, from left to right.
fn constants(formula: &Expr) -> Vec<f64> {
    match formula.term() {
        Term::Const(value) => vec![*value],
        Term::Input(_) | Term::Random(_) => vec![],
        Term::Unary(_, a) => constants(a),
        Term::Binary(_, a, b) => [constants(a), constants(b)].concat(),
        Term::Select(a, b, c) => [constants(a), constants(b), constants(c)].concat(),
    }
}

dispatched!(fn activate<T>(factors: [f32; 2], x: &[Cell<T>], y: &[Cell<T>]) = run_activate);

#[inline(always)]
fn run_activate<S: Simd, T: Storage>(factors: [f32; 2], x: &[Cell<T>], y: &[Cell<T>]) {
    each::<S, T, 1>(Activation(factors), [x], y);
}

dispatched!(fn differentiate<T>(factors: [f32; 2], x: &[Cell<T>], dy: &[Cell<T>], dx: &[Cell<T>]) = run_differentiate);

#[inline(always)]
fn run_differentiate<S: Simd, T: Storage>(
    factors: [f32; 2],
    x: &[Cell<T>],
    dy: &[Cell<T>],
    dx: &[Cell<T>],
) {
    each::<S, T, 2>(Gradient(factors), [x, dy], dx);
}

/// One element of an output from those of the inputs. Not a closure: all of it must be inlined where the instruction set is chosen.
trait Formula<const N: usize>: Copy {
    fn at<S: Simd>(self, inputs: [f32; N]) -> f32;
}

#[derive(Clone, Copy)]
struct Activation([f32; 2]);

#[derive(Clone, Copy)]
struct Gradient([f32; 2]);

impl Formula<1> for Activation {
    #[inline(always)]
    fn at<S: Simd>(self, [x]: [f32; 1]) -> f32 {
        let Self(factors) = self;
        let slope = S::mul_add(factors[1], x * x, factors[0]);
        x * vmath::sigmoid::<S>(x * slope)
    }
}

impl Formula<2> for Gradient {
    #[inline(always)]
    fn at<S: Simd>(self, [x, dy]: [f32; 2]) -> f32 {
        let Self(factors) = self;
        let square = x * x;
        let slope = S::mul_add(factors[1], square, factors[0]);
        let gate = vmath::sigmoid::<S>(x * slope);
        let of_product = S::mul_add(2.0 * factors[1], square, slope);
        S::mul_add(x, gate * (1.0 - gate) * of_product, gate) * dy
    }
}

#[inline(always)]
fn each<S: Simd, T: Storage, const N: usize>(
    formula: impl Formula<N>,
    inputs: [&[Cell<T>]; N],
    y: &[Cell<T>],
) {
    let whole = y.len() / PART * PART;
    for at in (0..whole).step_by(PART) {
        part::<S, T, N>(formula, inputs, y, at, PART);
    }
    part::<S, T, N>(formula, inputs, y, whole, y.len() - whole);
}

/// Elements `at .. at + count`, at most [`PART`].
#[inline(always)]
fn part<S: Simd, T: Storage, const N: usize>(
    formula: impl Formula<N>,
    inputs: [&[Cell<T>]; N],
    y: &[Cell<T>],
    at: usize,
    count: usize,
) {
    let mut read = [[0.0; PART]; N];
    for (read, input) in read.iter_mut().zip(inputs) {
        let input = &input[at..][..count];
        vmath::prefetch(input.as_ptr().wrapping_add(AHEAD), count);
        for (to, from) in read.iter_mut().zip(input) {
            *to = from.get().to_f32();
        }
    }
    let mut made = [0.0; PART];
    for (i, to) in made.iter_mut().enumerate() {
        let mut elements = [0.0; N];
        for (element, read) in elements.iter_mut().zip(&read) {
            *element = read[i];
        }
        *to = formula.at::<S>(elements);
    }
    for (to, from) in y[at..][..count].iter().zip(made) {
        to.set(T::from_f32(from));
    }
}

#[cfg(test)]
mod tests {
    use tightrope_core::activation::silu;
    use tightrope_core::ops::fill_uniform;

    use super::super::{Known, TASK, Tape};
    use super::*;
    use crate::arena::Arena;

    /// What a tape writes over its last input, as bits; any NaN as one, as a sum of two has the sign of either.
    fn made(isa: Isa, tape: &Tape, types: &[Type]) -> Vec<u64> {
        let bytes = types[0].bytes().next_multiple_of(256) as u64;
        let arena = Arena::new(bytes * types.len() as u64).expect("memory");
        let views: Vec<View<'_>> =
            types.iter().enumerate().map(|(i, ty)| arena.view(bytes * i as u64, ty)).collect();
        for (stream, ty) in types.iter().enumerate() {
            let mut values = vec![0.0; ty.elements()];
            fill_uniform([1, 2, 3, 4], stream as u32, 0, &mut values);
            values.iter_mut().for_each(|value| *value = *value * 24.0 - 12.0);
            let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0, 0.0, 3e-39];
            values[..special.len()].copy_from_slice(&special);
            // SAFETY: nothing else uses the arena.
            let data = unsafe { arena.scratch(bytes * stream as u64, ty.bytes() as u64) };
            for (value, to) in values.iter().zip(data.chunks_mut(ty.dtype.size())) {
                ty.dtype.write(to, (*value).into());
            }
        }
        let output = *views.last().expect("an input");
        // SAFETY: as above; the map is element by element, so that its output may be written over an input.
        unsafe { tape.run(isa, &views, &[output]) };
        // SAFETY: as above.
        let bytes =
            unsafe { arena.scratch(bytes * (types.len() as u64 - 1), types[0].bytes() as u64) };
        let values = bytes.chunks(types[0].dtype.size()).map(|value| types[0].dtype.read(value));
        values
            .map(|value| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
            .collect()
    }

    fn formulas() -> [(Expr, usize); 2] {
        let activated = gelu_tanh(input(0));
        let gradient = activated.derivative(0) * input(1);
        [(activated, 1), (gradient, 2)]
    }

    #[test]
    fn the_loop_has_the_bits_of_the_tape() {
        for dtype in [DType::F32, DType::BF16] {
            for (formula, inputs) in formulas() {
                let types = vec![Type::new(dtype, [TASK + 131]); inputs];
                let map = Map::new(formula, dtype);
                let tape =
                    Tape::compile(&map, &types.iter().collect::<Vec<_>>()).expect("registers");
                assert!(matches!(tape.known, Some(Known::Gelu(_))), "{dtype:?} of {inputs}");
                let plain = Tape { known: None, ..tape.clone() };
                for isa in Isa::available() {
                    let (own, plain) = (made(isa, &tape, &types), made(isa, &plain, &types));
                    let other = own.iter().zip(&plain).position(|(own, plain)| own != plain);
                    let values = other.map(|at| [own[at], plain[at]].map(f64::from_bits));
                    let what = format!("{dtype:?} of {inputs} on {}", isa.name());
                    assert_eq!(values, None, "{what}, element {other:?}");
                }
            }
        }
    }

    #[test]
    fn other_maps_are_none() {
        let [(activated, _), (gradient, _)] = formulas();
        let (wide, narrow) = (Type::new(DType::F32, [64]), Type::new(DType::BF16, [64]));
        let is_known = |formula: &Expr, dtype, inputs: &[&Type]| {
            Gelu::of(&Map::new(formula.clone(), dtype), inputs).is_some()
        };
        assert!(is_known(&activated, DType::F32, &[&wide]));
        assert!(!is_known(&silu(input(0)), DType::F32, &[&wide]));
        assert!(!is_known(&activated, DType::BF16, &[&wide]), "the result is rounded");
        assert!(is_known(&gradient, DType::BF16, &[&narrow, &narrow]));
        assert!(!is_known(&gradient, DType::BF16, &[&narrow, &wide]));
        let row = Type::new(DType::BF16, [8]);
        assert!(!is_known(&gradient, DType::BF16, &[&narrow, &row]), "rows are repeated");
        let half = Type::new(DType::F16, [64]);
        assert!(!is_known(&activated, DType::F16, &[&half]));
    }
}
