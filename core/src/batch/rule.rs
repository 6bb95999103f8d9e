//! The rule of each family of ops: states of its outputs by those of its inputs.

use std::ops::Range;

use super::State;
use super::linear::affine;
use crate::ops::{Axes, Map, MatMul, Op};
use crate::types::Type;

/// An input of an op.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub(super) state: &'a State,
    pub(super) ty: &'a Type,
}

/// Along which axis samples are, as [`State::Each`] says it.
#[derive(Clone, PartialEq, Eq)]
struct Along {
    axis: usize,
    ticks: Range<usize>,
    unit: usize,
}

impl Along {
    fn at(self, axis: usize) -> State {
        State::Each { axis, ticks: self.ticks, unit: self.unit }
    }

    /// True if they are all samples of the batch.
    fn is_whole(&self, samples: usize) -> bool {
        self.ticks == (0..samples * self.unit)
    }

    /// True if they belong to one sample.
    fn is_of_one(&self) -> bool {
        self.ticks.start / self.unit == (self.ticks.end - 1) / self.unit
    }

    /// A sum over them, f32 (1).
    fn summed(self, samples: usize, output: &Type) -> Option<State> {
        match self.is_whole(samples) {
            true => Some(State::Part),
            // One number of a sample by itself.
            false => (self.is_of_one() && output.elements() == 1).then(|| self.at(0)),
        }
    }

    /// The same samples in a tensor of another number of them each.
    fn of_extent(self, samples: usize, extent: usize) -> Option<State> {
        match self.is_whole(samples) {
            true => extent.is_multiple_of(samples).then(|| {
                let unit = extent / samples;
                State::Each { axis: 0, ticks: 0..extent, unit }
            }),
            false => Some(self.at(0)),
        }
    }
}

impl Operand<'_> {
    fn is_shared(&self) -> bool {
        *self.state == State::Shared
    }

    fn along(&self) -> Option<Along> {
        match self.state {
            State::Each { axis, ticks, unit } => {
                Some(Along { axis: *axis, ticks: ticks.clone(), unit: *unit })
            }
            _ => None,
        }
    }

    /// Elements before and after an axis.
    fn around(&self, axis: usize) -> [usize; 2] {
        let shape = &self.ty.shape;
        [&shape[..axis], &shape[axis + 1..]].map(|extents| extents.iter().product())
    }
}

/// True if an op that doesn't depend on samples repeats a tensor for each of them along this axis.
pub(super) fn repeats(op: &Op, axis: usize) -> bool {
    match op {
        Op::Map(map) => map.arity() == 0,
        Op::Expand(expand) => expand.axis == axis,
        _ => false,
    }
}

/// States of an op's outputs in a batch of `samples` samples; `None` if the op mixes them, or isn't known not to.
pub(super) fn states(
    op: &Op,
    inputs: &[Operand<'_>],
    outputs: &[&Type],
    samples: usize,
) -> Option<Vec<State>> {
    if inputs.iter().all(Operand::is_shared) {
        return Some(vec![State::Shared; outputs.len()]);
    }
    let same = |state: State| Some(vec![state; outputs.len()]);
    let one = |state: Option<State>| state.map(|state| vec![state]);
    let [first, rest @ ..] = inputs else { return None };
    match op {
        Op::Map(map) => map_state(map, inputs, outputs[0]).and_then(same),
        Op::MatMul(op) => one(matmul(op, inputs)),
        // Each row of the last axis by itself.
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Softmax(_) => {
            let along = first.along().filter(|_| rest.iter().all(Operand::is_shared))?;
            let axis = along.axis;
            (axis + 1 < first.ty.shape.len()).then(|| along.at(axis)).and_then(same)
        }
        // Each sequence by itself, with its own documents or positions.
        Op::Attention(_) | Op::Rope(_) | Op::Unfold(_) => {
            let along = first.along().filter(|along| along.axis == 0)?;
            let of_same = |other: &Operand<'_>| {
                other.is_shared()
                    || other.along().is_some_and(|other| {
                        other.axis == 0
                            && other.ticks.len() * along.unit == along.ticks.len() * other.unit
                    })
            };
            rest.iter().all(of_same).then(|| along.at(0)).and_then(same)
        }
        Op::Embedding(_) => {
            let ids = rest.first()?.along().filter(|_| first.is_shared())?;
            let axis = ids.axis;
            one(Some(ids.at(axis)))
        }
        Op::CrossEntropy(_) => mean(&inputs[..2], &inputs[2..], outputs, samples),
        Op::LinearCrossEntropy(_) => mean(&[inputs[0], inputs[2]], &inputs[1..2], outputs, samples),
        Op::LinearDistillation(_) => {
            let rows = [inputs[0], inputs[2], inputs[3]];
            mean(&rows, &[inputs[1], inputs[4]], outputs, samples)
        }
        Op::LinearCrossEntropyRows(_) => {
            one(each_row([inputs[0], inputs[2]], &inputs[1..2], outputs[0], samples))
        }
        Op::CrossEntropyRows(_) => {
            one(each_row([inputs[0], inputs[1]], &inputs[2..], outputs[0], samples))
        }
        Op::Reduce(op) => one(reduce(&op.axes, first, outputs[0], samples)),
        Op::Permute(op) => one(match first.along() {
            Some(along) => {
                let axis = op.axes.iter().position(|&from| from == along.axis)?;
                Some(along.at(axis))
            }
            None => part(first),
        }),
        Op::Reshape(_) => one(match first.along() {
            Some(along) => reshaped(first, along, outputs[0], samples),
            None => part(first),
        }),
        Op::Expand(op) => one(match first.along() {
            Some(along) => {
                let axis = along.axis + usize::from(op.axis <= along.axis);
                Some(along.at(axis))
            }
            None => part(first),
        }),
        Op::Slice(op) => one(match first.along() {
            Some(along) if along.axis != op.axis => {
                let axis = along.axis;
                Some(along.at(axis))
            }
            Some(along) => {
                let ticks = op.start..op.start + op.len;
                let cut = Along { ticks, ..along.clone() };
                let whole = along.is_whole(samples) && (cut.is_of_one() || cut == along);
                whole.then(|| cut.at(op.axis))
            }
            None => part(first),
        }),
        Op::SliceGrad(op) => one(match first.along() {
            Some(along) => {
                let axis = along.axis;
                (axis != op.axis).then(|| along.at(axis))
            }
            None => part(first),
        }),
        Op::Concat(op) => one(concat(op.axis, inputs, samples)),
        Op::FusedMatMul(_)
        | Op::AttentionGrad(_)
        | Op::CachedAttention(_)
        | Op::LayerNormGrad(_)
        | Op::RmsNormGrad(_)
        | Op::LinearCrossEntropyGrad(_)
        | Op::LinearDistillationGrad(_)
        | Op::CrossEntropyGrad(_)
        | Op::EmbeddingGrad(_)
        | Op::SoftmaxGrad(_)
        | Op::SquareSum(_)
        | Op::Accumulate(_)
        | Op::UnfoldGrad(_)
        | Op::Quantize(_)
        | Op::Dequantize(_)
        | Op::DequantizeNf4(_)
        | Op::Transfer(_)
        | Op::Collective(_) => None,
    }
}

/// State of a linear function of a sum over samples.
fn part(operand: &Operand<'_>) -> Option<State> {
    (*operand.state == State::Part).then_some(State::Part)
}

/// Elements meet those in the same place.
fn map_state(map: &Map, inputs: &[Operand<'_>], output: &Type) -> Option<State> {
    if map.segments != 1 || map.shared != 0 || !map.in_place.is_empty() {
        return None;
    }
    let parts: Vec<usize> =
        (0..inputs.len()).filter(|&at| *inputs[at].state == State::Part).collect();
    let each: Vec<&Operand<'_>> =
        inputs.iter().filter(|operand| operand.along().is_some()).collect();
    let Some(first) = each.first() else {
        let linear = map.formulas.iter().all(|formula| affine(formula, &parts).is_some());
        return (linear && !map.is_random()).then_some(State::Part);
    };
    if !parts.is_empty() {
        return None;
    }
    let along = first.along()?;
    let (extent, [_, inner]) = (first.ty.shape[along.axis], first.around(along.axis));
    for other in &each {
        let own = other.along()?;
        let alike = own.ticks == along.ticks
            && own.unit == along.unit
            && other.ty.shape[own.axis] == extent
            && other.around(own.axis)[1] == inner;
        if !alike {
            return None;
        }
    }
    // Shared inputs must be the same for each sample.
    let key = usize::from(map.is_random());
    let shared = inputs[..inputs.len() - key].iter().filter(|operand| operand.is_shared());
    let repeats = |operand: &Operand<'_>| {
        let elements = operand.ty.elements();
        elements == 1 || elements <= inner && inner.is_multiple_of(elements)
    };
    if !shared.into_iter().all(repeats) {
        return None;
    }
    let place = |&axis: &usize| {
        let after: usize = output.shape[axis + 1..].iter().product();
        output.shape[axis] == extent && after == inner
    };
    (0..output.shape.len()).find(place).map(|axis| along.at(axis))
}

/// Rows of the left operand, or matrices of a stack, are by themselves.
fn matmul(op: &MatMul, inputs: &[Operand<'_>]) -> Option<State> {
    let [lhs, rhs, rest @ ..] = inputs else { return None };
    if op.accumulate || !rest.iter().all(Operand::is_shared) {
        return None;
    }
    let axes = lhs.ty.shape.len();
    match (lhs.along(), rhs.along()) {
        (Some(along), None) if !op.batch && rhs.is_shared() => {
            let axis = along.axis;
            (!op.transpose_lhs && axis + 1 < axes).then(|| along.at(axis))
        }
        (Some(along), Some(other)) if op.batch => {
            let axis = along.axis;
            (along == other && axis + 2 < axes).then(|| along.at(axis))
        }
        (None, None) if rest.is_empty() => {
            let linear = lhs.is_shared() || rhs.is_shared();
            linear.then_some(State::Part)
        }
        _ => None,
    }
}

/// A mean over rows whose label isn't negative.
fn mean(
    rows: &[Operand<'_>],
    shared: &[Operand<'_>],
    outputs: &[&Type],
    samples: usize,
) -> Option<Vec<State>> {
    let along = of_rows(rows, shared, samples)?;
    if along.is_whole(samples) {
        return Some(vec![State::Part; outputs.len()]);
    }
    along.is_of_one().then(|| vec![along.at(0); outputs.len()])
}

/// A number of each row of all samples, along the last axis.
fn each_row(
    rows: [Operand<'_>; 2],
    shared: &[Operand<'_>],
    output: &Type,
    samples: usize,
) -> Option<State> {
    let axis = output.shape.len().checked_sub(1)?;
    let extent = output.shape[axis];
    let is_whole = of_rows(&rows, shared, samples)?.is_whole(samples);
    (is_whole && extent.is_multiple_of(samples)).then(|| State::Each {
        axis,
        ticks: 0..extent,
        unit: extent / samples,
    })
}

/// Samples along the rows of these operands, the second of which are labels.
fn of_rows(rows: &[Operand<'_>], shared: &[Operand<'_>], samples: usize) -> Option<Along> {
    if !shared.iter().all(Operand::is_shared) {
        return None;
    }
    let mut found: Option<(Along, usize)> = None;
    for (index, operand) in rows.iter().enumerate() {
        let along = operand.along()?;
        let is_labels = index == 1;
        let before = operand.around(along.axis)[0];
        let last = along.axis + 1 == operand.ty.shape.len();
        if before != 1 || last && !is_labels {
            return None;
        }
        // Rows of the same samples, as many of each.
        let count = if is_labels { operand.ty.elements() } else { operand.ty.rows() };
        let alike = found.as_ref().is_none_or(|(first, rows)| {
            let whole = first.is_whole(samples) && along.is_whole(samples);
            let same = first.ticks == along.ticks && first.unit == along.unit;
            *rows == count && (whole || same)
        });
        if !alike {
            return None;
        }
        found.get_or_insert((along, count));
    }
    found.map(|(along, _)| along)
}

fn reduce(axes: &Axes, x: &Operand<'_>, output: &Type, samples: usize) -> Option<State> {
    let Some(along) = x.along() else { return part(x) };
    let (axis, all) = (along.axis, x.ty.shape.len());
    match axes {
        Axes::Last if axis + 1 == all => along.summed(samples, output),
        Axes::Last => Some(along.at(axis)),
        Axes::Axis(summed) if *summed == axis => along.summed(samples, output),
        Axes::Axis(summed) => Some(along.at(axis - usize::from(*summed < axis))),
        Axes::ToSuffix(suffix) => {
            // A suffix of one element may stand for none.
            let kept = if x.ty.shape.ends_with(suffix) { suffix.len() } else { 0 };
            match axis < all - kept {
                true => along.summed(samples, output),
                false => Some(along.at(axis - (all - kept))),
            }
        }
    }
}

/// State of the same elements in another shape.
fn reshaped(x: &Operand<'_>, along: Along, output: &Type, samples: usize) -> Option<State> {
    if !along.is_whole(samples) {
        return (along.is_of_one() && x.around(along.axis)[0] == 1).then(|| along.at(0));
    }
    let [before, _] = x.around(along.axis);
    let block: usize = x.ty.shape[along.axis..].iter().product();
    let mut outer = 1;
    for (axis, &extent) in output.shape.iter().enumerate() {
        let inner: usize = output.shape[axis..].iter().product();
        if outer == before && inner == block && extent > 1 {
            return match along.of_extent(samples, extent)? {
                State::Each { ticks, unit, .. } => Some(State::Each { axis, ticks, unit }),
                other => Some(other),
            };
        }
        outer *= extent;
    }
    None
}

fn concat(axis: usize, inputs: &[Operand<'_>], samples: usize) -> Option<State> {
    if inputs.iter().all(|operand| *operand.state == State::Part) {
        return Some(State::Part);
    }
    let all: Vec<Along> = inputs.iter().map(Operand::along).collect::<Option<_>>()?;
    let first = all.first()?;
    if all.iter().all(|along| along == first) && first.axis != axis {
        return Some(first.clone().at(first.axis));
    }
    // Samples one after the other.
    let extent = inputs[0].ty.shape[axis];
    let mut end = 0;
    for (along, operand) in all.iter().zip(inputs) {
        let next = along.axis == axis
            && along.ticks.start == end
            && along.ticks.len() == first.ticks.len()
            && along.unit == first.unit
            && operand.ty.shape[axis] == extent
            && operand.around(axis)[0] == 1;
        if !next {
            return None;
        }
        end = along.ticks.end;
    }
    let total = extent * inputs.len();
    (axis == 0 && end == samples * first.unit && total.is_multiple_of(samples))
        .then(|| State::Each { axis, ticks: 0..total, unit: total / samples })
}
