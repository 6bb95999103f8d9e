//! `grad`: appends the backward pass to a graph.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::expr::{Unary, input};
use crate::graph::{Graph, Life, Node, Phase, Tensor};
use crate::ops::{Map, Rule};
use crate::types::DType;

/// A tensor whose gradient is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The tensor.
    pub tensor: Tensor,
    /// A persistent tensor that the gradient is added to in place; without one, the gradient is new.
    pub into: Option<Tensor>,
    /// A persistent tensor of what the rounding of `into`, which is bf16, has left out so far: it's added with the next
    /// gradient (Kahan 1965, "Further remarks on reducing truncation errors").
    pub error: Option<Tensor>,
}

impl From<Tensor> for Wanted {
    fn from(tensor: Tensor) -> Self {
        Self { tensor, into: None, error: None }
    }
}

/// Appends, to the current program, the ops that compute the gradient of scalar `loss` with respect to
/// each tensor of `wanted`, given the gradient `seed` of the loss itself. A tensor that the loss doesn't
/// depend on gets what it is added to, or `None`. What only the gradient of another tensor needs isn't computed, and
/// outputs that [`Rule::made_again`] speaks of are made again where the backward pass reads them. Contributions are added
/// in the reverse order of their readers, always the same. With [`Graph::matrix_gradients`] set, each is rounded to it as
/// soon as it's made, if the op that made it stores another dtype.
///
/// # Errors
/// [`Error::NoGradient`] where the loss depends on a wanted tensor through an op without one.
pub fn grad(
    graph: &mut Graph,
    loss: Tensor,
    seed: Tensor,
    wanted: &[Wanted],
) -> Result<Vec<Option<Tensor>>> {
    let nodes = graph.nodes(0..graph.node_count()).to_vec();
    let mut needed = vec![false; graph.tensors.len()];
    wanted.iter().for_each(|w| needed[w.tensor.index()] = true);
    for node in &nodes {
        if node.inputs.iter().any(|t| needed[t.index()]) {
            let float = |t: &&Tensor| graph.dtype(**t).is_float();
            node.outputs.iter().filter(float).for_each(|t| needed[t.index()] = true);
        }
    }
    let made = nodes.iter().flat_map(|node| node.outputs.iter().map(move |&output| (output, node)));
    let makers: HashMap<Tensor, &Node> = made.collect();
    graph.set_phase(Phase::Backward);
    let mut gradients: Vec<Option<Tensor>> = vec![None; graph.tensors.len()];
    let mut in_place = vec![false; graph.tensors.len()];
    let mut errors: Vec<Option<Tensor>> = vec![None; graph.tensors.len()];
    for w in wanted {
        gradients[w.tensor.index()] = w.into;
        in_place[w.tensor.index()] = w.into.is_some();
        errors[w.tensor.index()] = w.error;
    }
    gradients[loss.index()] = Some(seed);
    for node in nodes.iter().rev() {
        let outputs: Vec<Option<Tensor>> =
            node.outputs.iter().map(|t| gradients[t.index()]).collect();
        let wants: Vec<bool> = node.inputs.iter().map(|t| needed[t.index()]).collect();
        if outputs.iter().all(Option::is_none) || !wants.contains(&true) {
            continue;
        }
        let run = |graph: &mut Graph| {
            let first = graph.node_count();
            let contributions = node.op.grad(graph, node, &outputs, &wants)?;
            make_again(graph, &makers, node, first)?;
            Ok(contributions)
        };
        let contributions = match node.block {
            Some(index) => graph.in_block(index, run)?,
            None => run(graph)?,
        };
        for (index, (input, contribution)) in node.inputs.iter().zip(contributions).enumerate() {
            let Some(contribution) = contribution.filter(|_| needed[input.index()]) else {
                continue;
            };
            if graph.ty(contribution).shape != graph.ty(*input).shape {
                let name = graph.info(node.outputs[0]).name.clone();
                return Err(Error::NoGradient { op: node.op.name(), name, input: index });
            }
            let name = format!("grad.{}", graph.info(*input).name);
            let push = |graph: &mut Graph, map: Map, read: &[Tensor], name: String| {
                let run = |graph: &mut Graph| graph.push(map, read, &name);
                match node.block {
                    Some(index) => graph.in_block(index, run),
                    None => run(graph),
                }
            };
            let sum = match (gradients[input.index()], errors[input.index()]) {
                (None, _) => match rounded(graph, *input, contribution) {
                    Some(cast) => push(graph, cast, &[contribution], format!("{name}.rounded"))?[0],
                    None => contribution,
                },
                (Some(before), Some(error)) => {
                    let read = [before, error, contribution];
                    let made = push(graph, compensated_add(), &read, format!("{name}.sum"))?;
                    errors[input.index()] = Some(made[1]);
                    made[0]
                }
                (Some(before), None) => {
                    let add = match in_place[input.index()] {
                        true => add_in_place(graph.dtype(before)),
                        false => Map::add(graph.dtype(before)),
                    };
                    push(graph, add, &[before, contribution], format!("{name}.sum"))?[0]
                }
            };
            gradients[input.index()] = Some(sum);
        }
    }
    Ok(wanted.iter().map(|w| gradients[w.tensor.index()]).collect())
}

/// Appends the sum of a gradient that's made and what [`Wanted::into`] and [`Wanted::error`] name, in their place; gives its handle.
/// Without them, it's the gradient itself.
///
/// # Errors
/// As [`Graph::push`].
pub fn add_gradient(graph: &mut Graph, wanted: &Wanted, gradient: Tensor) -> Result<Tensor> {
    let Some(into) = wanted.into else { return Ok(gradient) };
    let name = format!("grad.{}.sum", graph.info(wanted.tensor).name);
    let made = match wanted.error {
        Some(error) => graph.push(compensated_add(), &[into, error, gradient], &name)?,
        None => graph.push(add_in_place(graph.dtype(into)), &[into, gradient], &name)?,
    };
    Ok(made[0])
}

fn add_in_place(dtype: DType) -> Map {
    Map { in_place: vec![(0, 0)], ..Map::add(dtype) }
}

/// The cast of a contribution to the gradient of `input` to what that is stored in, where
/// [`Graph::matrix_gradients`] says so and an op has stored another dtype.
fn rounded(graph: &Graph, input: Tensor, contribution: Tensor) -> Option<Map> {
    let dtype = graph.grad_dtype(input);
    let persistent = graph.info(input).life == Life::Persistent;
    let stored_so = graph.dtype(contribution) == dtype;
    (graph.matrix_gradients.is_some() && persistent && !stored_so).then(|| Map::cast(dtype))
}

/// A sum in bf16 (input 0), what its rounding has left out (input 1) and what is added (input 2): the new sum and the new
/// error, in place.
fn compensated_add() -> Map {
    let exact = input(0) + input(1) + input(2);
    let sum = exact.clone().unary(Unary::HighHalf);
    Map {
        in_place: vec![(0, 0), (1, 1)],
        ..Map::several(vec![sum.clone(), exact - sum], vec![DType::BF16; 2])
    }
}

/// Puts, before the nodes from `first` on, copies of what made those of `node`'s inputs that they read and that are made again in a
/// backward pass. `makers` are the nodes of the forward pass, by what they make.
fn make_again(
    graph: &mut Graph,
    makers: &HashMap<Tensor, &Node>,
    node: &Node,
    first: usize,
) -> Result<()> {
    let is_made_again =
        |input: &&Tensor| makers.get(*input).is_some_and(|maker| maker.op.made_again());
    for &input in node.inputs.iter().filter(is_made_again) {
        let end = graph.node_count();
        let later = graph.nodes(first..end);
        if !later.iter().any(|later| later.inputs.contains(&input)) {
            continue;
        }
        let copy = copied(graph, makers, input)?;
        let pushed = graph.node_count() - end;
        let program = graph.programs.last_mut().expect("nodes were pushed");
        for later in &mut program.nodes[first..end] {
            let read = later.inputs.iter_mut().filter(|read| **read == input);
            read.for_each(|read| *read = copy);
        }
        // Pushed last, and read by those from `first` on.
        program.nodes[first..].rotate_right(pushed);
    }
    Ok(())
}

/// Appends a copy of the node that makes `tensor`, after copies of those that make what it reads: `tensor` itself where it's persistent.
fn copied(graph: &mut Graph, makers: &HashMap<Tensor, &Node>, tensor: Tensor) -> Result<Tensor> {
    let Some(maker) = makers.get(&tensor) else { return Ok(tensor) };
    let inputs = maker.inputs.iter().map(|&input| copied(graph, makers, input));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let name = format!("again.{}", graph.info(tensor).name);
    let copy = graph.one(maker.op.clone(), &inputs, &name)?;
    graph.info_mut(copy).class = graph.info(tensor).class;
    Ok(copy)
}
