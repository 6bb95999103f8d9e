//! AdamW in one loop: memory is its limit, which a tape of some twenty instructions stays three times below.
//!
//! The formulas are those that the optimizer's map has; a map with any other runs as a tape. Numbers are equal to the tape's, bit
//! for bit.

use half::bf16;
use tightrope_core::expr::{Binary, Expr, Term, Unary, constant, input, join, split};
use tightrope_core::ops::Map;
use tightrope_core::{DType, Type};

use crate::arena::View;
use crate::fast::vmath::{Simd, Storage, dispatched};
use crate::isa::Isa;

/// Inputs that all parameters share: whether the step is taken, the factor of gradients, the learning rate, and both corrections.
const SHARED: usize = 5;

/// Whether the loop is built: a browser's module would grow by more than its page has room for, and most of its models train on
/// a GPU.
pub(super) const BUILT: bool = cfg!(not(target_family = "wasm"));

/// AdamW (Loshchilov and Hutter 2019) over parameters with state in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AdamW {
    /// Weights are in bf16, and what that leaves of them in i16.
    halves: bool,
    /// Gradients are set to zero.
    zeroes: bool,
    /// Weight decay, where there is any.
    decay: Option<f64>,
    /// Factors of the old moment and of the new gradient, and of the old and new square.
    first: [f64; 2],
    second: [f64; 2],
    eps: f64,
}

impl AdamW {
    /// The update that `map` over inputs of these types is, if it's one.
    pub(super) fn of(map: &Map, inputs: &[&Type]) -> Option<Self> {
        if !BUILT {
            return None;
        }
        let halves = map.dtypes.get(1) == Some(&DType::I16);
        let zeroes = map.formulas.len() == 4 + usize::from(halves);
        let mut numbers = vec![];
        constants(map.formulas.first()?, &mut numbers);
        let (decay, &[a, b, c, d, eps]) = match &numbers[..] {
            [_, decay, rest @ ..] if rest.len() == 5 => (Some(*decay), rest.as_array()?),
            rest => (None, rest.as_array()?),
        };
        let known = Self { halves, zeroes, decay, first: [a, b], second: [c, d], eps };
        let (over, formulas): (Vec<usize>, Vec<Expr>) = known.written().into_iter().unzip();
        let in_place = over.into_iter().enumerate();
        let is_known = map.shared == SHARED
            && map.formulas == formulas
            && map.in_place.iter().copied().eq(in_place)
            && known.takes(inputs);
        is_known.then_some(known)
    }

    /// Whether inputs have the types that the loop reads and writes.
    fn takes(&self, inputs: &[&Type]) -> bool {
        let Some((shared, own)) = inputs.split_at_checked(SHARED) else { return false };
        let weight = if self.halves { &[DType::BF16, DType::I16][..] } else { &[DType::F32] };
        let is_segment = |own: &[&Type]| {
            let dtypes: Vec<DType> = own.iter().map(|ty| ty.dtype).collect();
            let (before, after) = dtypes.split_at(weight.len());
            let gradient = [DType::F32, DType::BF16].contains(&after[0]);
            let equal = own.iter().all(|ty| ty.elements() == own[0].elements());
            equal && before == weight && gradient && after[1..] == [DType::F32; 2]
        };
        let is_scalar = |ty: &&Type| ty.dtype == DType::F32 && ty.elements() == 1;
        shared.iter().all(is_scalar)
            && own
                .chunks(weight.len() + 3)
                .all(|own| own.len() == weight.len() + 3 && is_segment(own))
    }

    /// Inputs of the weight, its gradient and both moments.
    fn inputs(&self) -> [usize; 4] {
        let gradient = SHARED + 1 + usize::from(self.halves);
        [SHARED, gradient, gradient + 1, gradient + 2]
    }

    /// Each formula with the input that its output is written over.
    fn written(&self) -> Vec<(usize, Expr)> {
        let [weight, gradient, m, v] = self.inputs();
        let before = match self.halves {
            true => input(weight).binary(Binary::JoinHalves, input(weight + 1)),
            false => input(weight),
        };
        let mix = |before: usize, [old, new]: [f64; 2], value: Expr| {
            constant(old) * input(before) + constant(new) * value
        };
        let scaled = input(gradient) * input(1);
        let new_m = mix(m, self.first, scaled.clone());
        let new_v = mix(v, self.second, scaled.clone() * scaled);
        let root = new_v.clone().sqrt() * input(4) + constant(self.eps);
        let kept = match self.decay {
            Some(decay) => before * (constant(1.0) - input(2) * constant(decay)),
            None => before,
        };
        let after = kept - input(2) * input(3) * new_m.clone() / root;
        let mut new = match self.halves {
            true => vec![
                (weight, after.clone().unary(Unary::HighHalf)),
                (weight + 1, after.unary(Unary::LowHalf)),
            ],
            false => vec![(weight, after)],
        };
        new.extend([(m, new_m), (v, new_v)]);
        let chosen = new.into_iter().map(|(over, new)| (over, input(0).select(new, input(over))));
        let zeroes = self.zeroes.then_some((gradient, constant(0.0)));
        chosen.chain(zeroes).collect()
    }

    /// Updates the elements from `start` on, up to `most`, given the inputs of the map.
    ///
    /// # Safety
    /// The inputs have the types that this was made for, and nothing else uses these elements meanwhile.
    pub(super) unsafe fn run(&self, isa: Isa, inputs: &[View<'_>], start: usize, most: usize) {
        let [weight, gradient, m, v] = self.inputs();
        let count = inputs[weight].ty().elements().saturating_sub(start).min(most);
        let scalar = |index: usize| {
            // SAFETY: one f32, which this map writes nowhere.
            unsafe { inputs[index].ptr().cast::<f32>().read() }
        };
        let [ok, factor, lr, correction1, correction2] = [0, 1, 2, 3, 4].map(scalar);
        let numbers = Numbers {
            factor,
            first: self.first.map(|number| number as f32),
            second: self.second.map(|number| number as f32),
            kept: self.decay.map_or(1.0, |decay| 1.0 - lr * decay as f32),
            rate: lr * correction1,
            correction: correction2,
            eps: self.eps as f32,
        };
        // SAFETY: the elements are inside tensors that the map's types describe, and the caller's promise.
        unsafe {
            let (m, v) =
                (elements::<f32>(&inputs[m], start, count), elements(&inputs[v], start, count));
            let weights = match self.halves {
                true => Weights::Halves(
                    elements(&inputs[weight], start, count),
                    elements(&inputs[weight + 1], start, count),
                ),
                false => Weights::F32(elements(&inputs[weight], start, count)),
            };
            let taken = (ok != 0.0).then_some((weights, m, v));
            let gradient = &inputs[gradient];
            match gradient.ty().dtype {
                DType::BF16 => {
                    self.step::<bf16>(isa, &numbers, taken, elements(gradient, start, count))
                }
                _ => self.step::<f32>(isa, &numbers, taken, elements(gradient, start, count)),
            }
        }
    }

    fn step<G: Storage>(
        &self,
        isa: Isa,
        numbers: &Numbers,
        taken: Option<(Weights<'_>, &mut [f32], &mut [f32])>,
        gradients: &mut [G],
    ) {
        match taken {
            Some((Weights::F32(weights), m, v)) => {
                update(isa, numbers, weights, m, v, gradients);
            }
            Some((Weights::Halves(high, low), m, v)) => {
                update_halves(isa, numbers, high, low, m, v, gradients);
            }
            None => {}
        }
        if self.zeroes {
            gradients.fill(G::from_f32(0.0));
        }
    }
}

/// The numbers of a formula, from left to right.
fn constants(formula: &Expr, found: &mut Vec<f64>) {
    match formula.term() {
        Term::Const(value) => found.push(*value),
        Term::Input(_) | Term::Random(_) => {}
        Term::Unary(_, a) => constants(a, found),
        Term::Binary(_, a, b) => [a, b].iter().for_each(|part| constants(part, found)),
        Term::Select(a, b, c) => [a, b, c].iter().for_each(|part| constants(part, found)),
    }
}

/// What is the same for all elements.
struct Numbers {
    factor: f32,
    first: [f32; 2],
    second: [f32; 2],
    kept: f32,
    rate: f32,
    correction: f32,
    eps: f32,
}

/// Weights as they are stored.
enum Weights<'a> {
    F32(&'a mut [f32]),
    Halves(&'a mut [bf16], &'a mut [i16]),
}

/// # Safety
/// The tensor has these elements, of this type, which nothing else uses meanwhile.
unsafe fn elements<'a, T>(view: &View<'_>, start: usize, count: usize) -> &'a mut [T] {
    debug_assert_eq!(view.ty().dtype.size(), size_of::<T>(), "the elements are of this type");
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(view.ptr().cast::<T>().add(start), count) }
}

impl Numbers {
    /// The new weight; moments are replaced.
    #[inline(always)]
    fn step<S: Simd>(&self, weight: f32, m: &mut f32, v: &mut f32, gradient: f32) -> f32 {
        let gradient = gradient * self.factor;
        *m = S::mul_add(self.first[0], *m, self.first[1] * gradient);
        *v = S::mul_add(self.second[0], *v, self.second[1] * (gradient * gradient));
        let root = S::mul_add(v.sqrt(), self.correction, self.eps);
        weight * self.kept - self.rate * *m / root
    }
}

dispatched!(fn update<G>(numbers: &Numbers, weights: &mut [f32], m: &mut [f32], v: &mut [f32], gradients: &[G]) = run_update);

#[inline(always)]
fn run_update<S: Simd, G: Storage>(
    numbers: &Numbers,
    weights: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    gradients: &[G],
) {
    let state = m.iter_mut().zip(v);
    for ((weight, gradient), (m, v)) in weights.iter_mut().zip(gradients).zip(state) {
        *weight = numbers.step::<S>(*weight, m, v, gradient.to_f32());
    }
}

dispatched!(fn update_halves<G>(numbers: &Numbers, high: &mut [bf16], low: &mut [i16], m: &mut [f32], v: &mut [f32], gradients: &[G]) = run_update_halves);

#[inline(always)]
fn run_update_halves<S: Simd, G: Storage>(
    numbers: &Numbers,
    high: &mut [bf16],
    low: &mut [i16],
    m: &mut [f32],
    v: &mut [f32],
    gradients: &[G],
) {
    let (weights, state) = (high.iter_mut().zip(low), m.iter_mut().zip(v));
    for (((high, low), gradient), (m, v)) in weights.zip(gradients).zip(state) {
        let weight = numbers.step::<S>(join(*high, *low), m, v, gradient.to_f32());
        (*high, *low) = split(weight);
    }
}

#[cfg(test)]
mod tests {
    use tightrope_core::ops::fill_uniform;

    use super::super::{Known, TASK, Tape};
    use super::*;
    use crate::arena::Arena;

    fn map_of(known: &AdamW, types: &[Type]) -> Map {
        let (over, formulas): (Vec<usize>, Vec<Expr>) = known.written().into_iter().unzip();
        let dtypes = over.iter().map(|&at| types[at].dtype).collect();
        let in_place = over.into_iter().enumerate().collect();
        Map { shared: SHARED, in_place, ..Map::several(formulas, dtypes) }
    }

    /// The bytes of all tensors after an update.
    fn updated(isa: Isa, tape: &Tape, known: &AdamW, types: &[Type], ok: f32) -> Vec<u8> {
        let starts: Vec<u64> = types
            .iter()
            .scan(0, |end, ty| {
                Some(std::mem::replace(end, *end + ty.bytes().next_multiple_of(256) as u64))
            })
            .collect();
        let bytes =
            256 + *starts.last().expect("tensors") + types.last().expect("tensors").bytes() as u64;
        let arena = Arena::new(bytes).expect("memory");
        let views: Vec<View<'_>> =
            types.iter().zip(&starts).map(|(ty, &at)| arena.view(at, ty)).collect();
        for (stream, view) in views.iter().enumerate() {
            let mut values = vec![0.0; view.ty().elements()];
            fill_uniform([1, 2, 3, 4], stream as u32, 0, &mut values);
            // SAFETY: nothing else uses the arena.
            let data = unsafe { arena.scratch(starts[stream], view.ty().bytes() as u64) };
            let dtype = view.ty().dtype;
            for (value, to) in values.iter().zip(data.chunks_mut(dtype.size())) {
                let value = if dtype == DType::I16 { value * 60_000.0 - 30_000.0 } else { *value };
                dtype.write(to, value.into());
            }
        }
        // SAFETY: as above.
        unsafe { arena.scratch(0, 4) }.copy_from_slice(&ok.to_ne_bytes());
        let outputs: Vec<View<'_>> = known.written().iter().map(|&(at, _)| views[at]).collect();
        // SAFETY: as above; the outputs are those that the map writes in place.
        unsafe { tape.run(isa, &views, &outputs) };
        // SAFETY: as above.
        unsafe { arena.scratch(0, bytes) }.to_vec()
    }

    #[test]
    fn the_loop_has_the_bits_of_the_tape() {
        let elements = TASK + 131;
        for (halves, zeroes, decay, gradient) in [
            (false, false, Some(0.1), DType::F32),
            (false, true, None, DType::BF16),
            (true, false, None, DType::F32),
            (true, true, Some(0.01), DType::BF16),
        ] {
            let (first, second) = ([0.9, 0.1], [0.95, 0.05]);
            let known = AdamW { halves, zeroes, decay, first, second, eps: 1e-8 };
            let weight: &[DType] = if halves { &[DType::BF16, DType::I16] } else { &[DType::F32] };
            let own = weight.iter().copied().chain([gradient, DType::F32, DType::F32]);
            let shared = std::iter::repeat_n(Type::new(DType::F32, [1]), SHARED);
            let types: Vec<Type> =
                shared.chain(own.map(|dtype| Type::new(dtype, [elements]))).collect();
            let map = map_of(&known, &types);
            let tape = Tape::compile(&map, &types.iter().collect::<Vec<_>>()).expect("registers");
            assert_eq!(tape.known, Some(Known::AdamW(known)));
            let plain = Tape { known: None, ..tape.clone() };
            for (isa, ok) in Isa::available().flat_map(|isa| [(isa, 1.0), (isa, 0.0)]) {
                let own = updated(isa, &tape, &known, &types, ok);
                assert!(
                    own == updated(isa, &plain, &known, &types, ok),
                    "{known:?}, {gradient:?}, {ok} on {}",
                    isa.name()
                );
            }
        }
    }

    #[test]
    fn another_formula_is_no_update() {
        let known = AdamW {
            halves: false,
            zeroes: false,
            decay: None,
            first: [0.9, 0.1],
            second: [0.9, 0.1],
            eps: 1e-8,
        };
        let types = vec![Type::new(DType::F32, [1]); SHARED + 4];
        let types: Vec<&Type> = types.iter().collect();
        let map = map_of(&known, &types.iter().map(|&ty| ty.clone()).collect::<Vec<_>>());
        assert_eq!(AdamW::of(&map, &types), Some(known));
        let mut other = map.clone();
        other.formulas[1] = other.formulas[1].clone() + input(2);
        assert_eq!(AdamW::of(&other, &types), None);
        let half = Type::new(DType::F16, [1]);
        let narrow = [&types[..SHARED + 3], &[&half]].concat();
        assert_eq!(AdamW::of(&map, &narrow), None, "state in 16 bits isn't read by the loop");
    }
}
