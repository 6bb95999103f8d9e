//! `grad`: appends the backward pass to a graph.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Phase, Tensor};
use crate::ops::{Map, Rule};

/// A tensor whose gradient is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The tensor.
    pub tensor: Tensor,
    /// A persistent tensor that the gradient is added to in place; without one, the gradient is new.
    pub into: Option<Tensor>,
}

impl From<Tensor> for Wanted {
    fn from(tensor: Tensor) -> Self {
        Self { tensor, into: None }
    }
}

/// Appends, to the current program, the ops that compute the gradient of scalar `loss` with respect to
/// each tensor of `wanted`, given the gradient `seed` of the loss itself. A tensor that the loss doesn't
/// depend on gets what it is added to, or `None`. What only the gradient of another tensor needs isn't computed, and
/// outputs that [`Rule::made_again`] speaks of are made again where the backward pass reads them. Contributions are added
/// in the reverse order of their readers, always the same.
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
    let again = nodes.iter().filter(|node| node.op.made_again()).filter_map(|node| {
        let &[output] = &node.outputs[..] else { return None };
        Some((output, node))
    });
    let again: HashMap<Tensor, &Node> = again.collect();
    graph.set_phase(Phase::Backward);
    let mut gradients: Vec<Option<Tensor>> = vec![None; graph.tensors.len()];
    let mut in_place = vec![false; graph.tensors.len()];
    for w in wanted {
        gradients[w.tensor.index()] = w.into;
        in_place[w.tensor.index()] = w.into.is_some();
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
            make_again(graph, &again, node, first)?;
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
            let sum = match gradients[input.index()] {
                None => contribution,
                Some(before) => {
                    let name = format!("grad.{}.sum", graph.info(*input).name);
                    let mut add = Map::add(graph.dtype(before));
                    if in_place[input.index()] {
                        add.in_place = vec![(0, 0)];
                    }
                    match node.block {
                        Some(index) => graph.in_block(index, |graph| {
                            graph.one(add, &[before, contribution], &name)
                        })?,
                        None => graph.one(add, &[before, contribution], &name)?,
                    }
                }
            };
            gradients[input.index()] = Some(sum);
        }
    }
    Ok(wanted.iter().map(|w| gradients[w.tensor.index()]).collect())
}

/// Puts, before the nodes from `first` on, copies of those of `again`, by what they make, that made what they read of
/// `node`'s inputs: what is made again in a backward pass.
fn make_again(
    graph: &mut Graph,
    again: &HashMap<Tensor, &Node>,
    node: &Node,
    first: usize,
) -> Result<()> {
    for &input in &node.inputs {
        let Some(producer) = again.get(&input) else { continue };
        let later = graph.nodes(first..graph.node_count());
        if !later.iter().any(|later| later.inputs.contains(&input)) {
            continue;
        }
        let name = format!("again.{}", graph.info(input).name);
        let again = graph.one(producer.op.clone(), &producer.inputs, &name)?;
        graph.info_mut(again).class = graph.info(input).class;
        let program = graph.programs.last_mut().expect("nodes were pushed");
        for later in &mut program.nodes[first..] {
            let read = later.inputs.iter_mut().filter(|read| **read == input);
            read.for_each(|read| *read = again);
        }
        // Pushed last, and read by those from `first` on.
        program.nodes[first..].rotate_right(1);
    }
    Ok(())
}
