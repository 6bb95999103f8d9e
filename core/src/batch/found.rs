//! States of the tensors of the whole batch.

use super::pair::Pairs;
use super::rule::{Operand, repeats, states};
use super::{Recorded, State};
use crate::graph::{Node, Tensor};
use crate::ops::Op;
use crate::types::Type;

/// States of the tensors of the whole.
pub(super) struct Found {
    pub(super) states: Vec<State>,
    /// True for tensors that depend on inputs alone.
    pub(super) given: Vec<bool>,
    /// True for tensors that the host works out: figures of the inputs over several samples.
    pub(super) known: Vec<bool>,
}

impl Found {
    pub(super) fn new(small: &Recorded, whole: &Recorded, pairs: &Pairs) -> Self {
        let count = whole.graph.tensors.len();
        let mut found = Self {
            states: vec![State::Shared; count],
            given: vec![false; count],
            known: vec![false; count],
        };
        for &tensor in &whole.batched {
            let extent = whole.graph.ty(tensor).shape[0];
            let unit = extent / whole.samples.max(1);
            found.states[tensor.index()] = State::Each { axis: 0, ticks: 0..extent, unit };
        }
        for &tensor in whole.batched.iter().chain(&whole.shared) {
            found.given[tensor.index()] = true;
        }
        let nodes = &whole.graph.programs[0].nodes;
        for (index, node) in nodes.iter().enumerate() {
            let (input_types, output_types) = whole.graph.types(node);
            let operands: Vec<Operand<'_>> = node
                .inputs
                .iter()
                .zip(&input_types)
                .map(|(tensor, ty)| Operand { state: &found.states[tensor.index()], ty })
                .collect();
            let met = operands.iter().find_map(|operand| match operand.state {
                State::Met(by) => Some(*by),
                _ => None,
            });
            let made = match met {
                Some(by) => vec![State::Met(by); node.outputs.len()],
                None => states(&node.op, &operands, &output_types, whole.samples)
                    .filter(|_| alike(whole, pairs, &found.states, node))
                    .unwrap_or_else(|| vec![State::Met(index); node.outputs.len()]),
            };
            let random = matches!(&node.op, Op::Map(map) if map.is_random());
            let given = !random && node.inputs.iter().all(|input| found.given[input.index()]);
            for (state, &output) in made.into_iter().zip(&node.outputs) {
                let grown = pairs.small[output.index()].map(|twin| {
                    grown(
                        small.graph.ty(twin),
                        whole.graph.ty(output),
                        [small.samples, whole.samples],
                    )
                });
                let state = match (state, grown) {
                    (state, None | Some(Grown::Not)) => match state {
                        State::Each { ref ticks, unit, .. }
                            if grown.is_some() && *ticks == (0..whole.samples * unit) =>
                        {
                            State::Met(index)
                        }
                        state => state,
                    },
                    // Of constants, as many as there are samples.
                    (State::Shared, Some(Grown::Along(axis))) if repeats(&node.op, axis) => {
                        let extent = whole.graph.ty(output).shape[axis];
                        State::Each { axis, ticks: 0..extent, unit: extent / whole.samples }
                    }
                    (State::Each { axis, .. }, Some(Grown::Along(along))) if axis == along => {
                        let extent = whole.graph.ty(output).shape[axis];
                        State::Each { axis, ticks: 0..extent, unit: extent / whole.samples }
                    }
                    (State::Met(by), _) => State::Met(by),
                    _ => State::Met(index),
                };
                let fixed = grown == Some(Grown::Not);
                let known = given && fixed && matches!(state, State::Part | State::Met(_));
                found.given[output.index()] = given;
                found.known[output.index()] = known;
                // The host writes the same for all passes.
                found.states[output.index()] = if known { State::Shared } else { state };
            }
        }
        found
    }
}

/// False if a node joins tensors of single samples that were made in different ways.
fn alike(whole: &Recorded, pairs: &Pairs, states: &[State], node: &Node) -> bool {
    let [first, rest @ ..] = &node.inputs[..] else { return true };
    let is_of_one = |tensor: Tensor| match states[tensor.index()] {
        State::Each { ref ticks, unit, .. } => *ticks != (0..whole.samples * unit),
        _ => false,
    };
    let one_by_one = matches!(node.op, Op::Concat(_)) && is_of_one(*first);
    !one_by_one
        || rest.iter().all(|other| same_of_other((whole, pairs), &is_of_one, [*first, *other]))
}

/// True if the same ops make `a` of one sample and `b` of another.
fn same_of_other(
    (whole, pairs): (&Recorded, &Pairs),
    is_of_one: &dyn Fn(Tensor) -> bool,
    [a, b]: [Tensor; 2],
) -> bool {
    if a == b || !is_of_one(a) || !is_of_one(b) {
        return a == b;
    }
    let maker = |tensor: Tensor| Some(&whole.graph.programs[0].nodes[pairs.maker(tensor)?]);
    let (Some(of_a), Some(of_b)) = (maker(a), maker(b)) else { return false };
    let place = |node: &Node, tensor| node.outputs.iter().position(|&output| output == tensor);
    let same_op = match (&of_a.op, &of_b.op) {
        (Op::Slice(of_a), Op::Slice(of_b)) => of_a.axis == of_b.axis && of_a.len == of_b.len,
        (of_a, of_b) => of_a == of_b,
    };
    same_op
        && place(of_a, a) == place(of_b, b)
        && of_a.inputs.len() == of_b.inputs.len()
        && of_a
            .inputs
            .iter()
            .zip(&of_b.inputs)
            .all(|(&a, &b)| same_of_other((whole, pairs), is_of_one, [a, b]))
}

/// Dependence of a tensor's shape on the number of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grown {
    Not,
    Along(usize),
    Otherwise,
}

fn grown(small: &Type, whole: &Type, [few, all]: [usize; 2]) -> Grown {
    if small.shape == whole.shape {
        return Grown::Not;
    }
    if small.shape.len() != whole.shape.len() {
        return Grown::Otherwise;
    }
    let mut differing =
        (0..small.shape.len()).filter(|&axis| small.shape[axis] != whole.shape[axis]);
    match (differing.next(), differing.next()) {
        (Some(axis), None) if small.shape[axis] * all == whole.shape[axis] * few => {
            Grown::Along(axis)
        }
        _ => Grown::Otherwise,
    }
}
