//! `grad`: appends the backward pass to a graph.

use crate::error::{Error, Result};
use crate::graph::{Graph, Phase, Tensor};
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
/// depend on gets what it is added to, or `None`. Contributions are added in the reverse order of their
/// readers, always the same.
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
        let run = |graph: &mut Graph| node.op.grad(graph, node, &outputs, &wants);
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
