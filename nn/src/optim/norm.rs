//! The norm of all gradients.
//!
//! Squares are summed in blocks of [`SquareSum::BLOCK`] elements, and the sums of blocks in the order of parameters: ranks that have some
//! blocks each have the bits of a process that has them all.

use std::collections::HashMap;

use tightrope_core::expr::{Expr, Unary, constant, input};
use tightrope_core::ops::{Map, Reduce, SquareSum};
use tightrope_core::{Class, DType, Graph, Node, Shards, Tensor, Type};

use super::LossScale;
use super::trained::Trained;
use crate::error::Result;
use crate::ranks::of_all_ranks;

/// The sums of squares of all gradients' blocks, in the order of parameters: those of all ranks where each has shards of them. Where
/// gradients are `consumed`, each is squared at a time of its own.
pub(super) fn squares(graph: &mut Graph, trained: &[Trained], consumed: bool) -> Result<Tensor> {
    let mut blocks = 0;
    let mut gradients = Vec::with_capacity(trained.len());
    for Trained { gradient, .. } in trained {
        gradients.push((blocks, *gradient));
        blocks += SquareSum::blocks(graph.ty(*gradient).elements());
    }
    if consumed {
        // Squares are summed in the order in which gradients are made, so that none waits for another.
        let made = made(graph.nodes(0..graph.node_count()));
        gradients.sort_by_key(|(_, gradient)| made.get(gradient).copied());
    }
    let slots = Type::new(DType::F32, [blocks]);
    let mut squares = graph.one(Map::fill(0.0, &slots), &[], "grad_squares")?;
    // All at once where they are there at once: neighbours are in the slots' order then.
    let together = if consumed { 1 } else { gradients.len() };
    for gradients in gradients.chunks(together) {
        let slot = gradients[0].0;
        let tensors = gradients.iter().map(|&(_, gradient)| gradient);
        let inputs: Vec<Tensor> = [squares].into_iter().chain(tensors).collect();
        squares = graph.one(SquareSum { slot }, &inputs, "grad_squares")?;
    }
    let sharded: Vec<&Shards> =
        trained.iter().filter_map(|t| Some(&t.sharded.as_ref()?.shards)).collect();
    of_all_ranks(graph, &sharded, squares)
}

/// The norm of all gradients of these squares, whether it and the loss are finite, and the factor on the gradients.
pub(super) fn norm(
    graph: &mut Graph,
    squares: Tensor,
    clip: Option<f64>,
    loss: Tensor,
    loss_scale: Option<&LossScale>,
) -> Result<[Tensor; 3]> {
    let sum = graph.one(Reduce::to_suffix(vec![1], DType::F32), &[squares], "grad_square")?;
    let mut inputs = vec![sum, loss];
    inputs.extend(loss_scale.map(|loss_scale| loss_scale.scale));
    let scale = if loss_scale.is_some() { input(2) } else { constant(1.0) };
    let norm = input(0).sqrt() / scale.clone();
    let finite = |value: Expr| value.unary(Unary::IsFinite);
    let ok = finite(norm.clone()) * finite(input(1));
    let clipped = match clip {
        None => constant(1.0),
        Some(clip) => (constant(clip) / (norm.clone() + constant(1e-6))).min(constant(1.0)),
    };
    let map = Map::several(vec![norm, ok, clipped / scale], vec![DType::F32; 3]);
    let outputs = graph.push(map, &inputs, "grad_norm")?;
    let outputs = [outputs[0], outputs[1], outputs[2]];
    for (&tensor, name) in outputs.iter().zip(["grad_norm", "update.ok", "update.factor"]) {
        let info = graph.info_mut(tensor);
        (info.name, info.class) = (name.into(), Class::Optimizer);
    }
    Ok(outputs)
}

/// Appends the sum of the squares of a tensor, f32 (1).
pub(super) fn square_sum(graph: &mut Graph, x: Tensor, name: &str) -> Result<Tensor> {
    let blocks = SquareSum::blocks(graph.ty(x).elements());
    let slots = Type::new(DType::F32, [blocks]);
    let zeros = graph.one(Map::fill(0.0, &slots), &[], name)?;
    graph.info_mut(zeros).class = Class::Optimizer;
    let sums = graph.one(SquareSum { slot: 0 }, &[zeros, x], name)?;
    if blocks == 1 {
        return Ok(sums);
    }
    let sum = graph.one(Reduce::to_suffix(vec![1], DType::F32), &[sums], name)?;
    graph.info_mut(sum).class = Class::Optimizer;
    Ok(sum)
}

/// The position of the node that makes each tensor.
fn made(nodes: &[Node]) -> HashMap<Tensor, usize> {
    let nodes = nodes.iter().enumerate();
    nodes.flat_map(|(at, node)| node.outputs.iter().map(move |&tensor| (tensor, at))).collect()
}
