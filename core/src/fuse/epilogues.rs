//! Rewrites for devices whose kernels of matmuls and norms do in their own pass what is done with each element after.
//!
//! Each puts an op into the node that makes what it reads, at that node's place. A matmul is rounded as it would be
//! stored before a formula sees it, so that maps in matmuls change no bit.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Uses, inputs_of, is_sum, remove, simple_map};
use crate::expr::input;
use crate::graph::{Graph, Node, Program, Tensor};
use crate::ops::{Axes, FusedMatMul, Op, Reduce};

/// `add(before, new)` where the gradient of a norm made `new` for this sum alone: the norm adds `before`, which is the
/// gradient that came past it along the residual.
pub fn sums_into_norms(
    graph: &Graph,
    program: &mut Program,
    uses: &mut Uses,
    gone: &mut BTreeSet<usize>,
) {
    for index in 0..program.nodes.len() {
        let sum = &program.nodes[index];
        if gone.contains(&index) || !is_sum(&sum.op) || simple_map(sum).is_none() {
            continue;
        }
        let (before, new, result) = (sum.inputs[0], sum.inputs[1], sum.outputs[0]);
        let made = alone(program, uses, new).and(uses.maker[new.index()]);
        let Some(made) = made else { continue };
        let node = &program.nodes[made];
        let takes = match &node.op {
            Op::LayerNormGrad(op) => !op.residual,
            Op::RmsNormGrad(op) => !op.residual,
            _ => false,
        };
        let alike = graph.ty(before) == graph.ty(new) && graph.ty(new) == graph.ty(result);
        if !takes || !alike || node.outputs[0] != new || !exists(uses, before, made) {
            continue;
        }
        merge(program, uses, gone, index, made, |norm, _| {
            match &mut norm.op {
                Op::LayerNormGrad(op) => op.residual = true,
                Op::RmsNormGrad(op) => op.residual = true,
                _ => unreachable!("only gradients of norms are chosen"),
            }
            norm.inputs.push(before);
            norm.outputs[0] = result;
        });
    }
}

/// A map of one formula that alone reads a matmul, with nothing or one operand of its type.
pub fn maps_into_matmuls(
    graph: &Graph,
    program: &mut Program,
    uses: &mut Uses,
    gone: &mut BTreeSet<usize>,
) {
    for made in 0..program.nodes.len() {
        let Some(out) = open_matmul(program, gone, made) else { continue };
        let Some(index) = alone(program, uses, out) else { continue };
        let Some(read) = operand(graph, program, uses, made, index) else { continue };
        merge(program, uses, gone, index, made, |matmul, map| take_map(matmul, map, read, false));
    }
}

/// A map of a matmul that others read too, where `fits` says that the map's output may be alive during these steps
/// already, together with the matmul.
pub fn activations_into_matmuls(
    graph: &mut Graph,
    index: usize,
    fits: impl Fn(Tensor, Range<usize>) -> bool,
) {
    let mut program = std::mem::take(&mut graph.programs[index]);
    let (mut uses, mut gone) = (Uses::of(graph, &program), BTreeSet::new());
    for made in 0..program.nodes.len() {
        let Some(out) = open_matmul(&program, &gone, made) else { continue };
        let keeps = alone(&program, &uses, out).is_none();
        let found = uses.readers[out.index()].iter().find_map(|&at| {
            let read = operand(graph, &program, &uses, made, at)?;
            let mapped = program.nodes[at].outputs[0];
            (!keeps || fits(mapped, made..at)).then_some((at, read))
        });
        let Some((at, read)) = found else { continue };
        merge(&mut program, &mut uses, &mut gone, at, made, |matmul, map| {
            take_map(matmul, map, read, keeps);
        });
    }
    remove(&mut program, &gone);
    graph.programs[index] = program;
}

/// The output of the node at `made`, where it's a matmul that no map became part of.
fn open_matmul(program: &Program, gone: &BTreeSet<usize>, made: usize) -> Option<Tensor> {
    let node = program.nodes.get(made).filter(|_| !gone.contains(&made))?;
    matches!(&node.op, Op::MatMul(op) if !op.accumulate).then_some(node.outputs[0])
}

/// Position of the one node that reads `tensor`, once, where it's no result.
fn alone(program: &Program, uses: &Uses, tensor: Tensor) -> Option<usize> {
    uses.only_reader(tensor).filter(|_| !program.results.contains(&tensor))
}

/// What the node at `index` reads with the matmul at `made`, where that matmul's kernel can do what it does: a tensor
/// or nothing. `None` where it can't.
fn operand(
    graph: &Graph,
    program: &Program,
    uses: &Uses,
    made: usize,
    index: usize,
) -> Option<Option<Tensor>> {
    let (matmul, map) = (&program.nodes[made], &program.nodes[index]);
    simple_map(map).filter(|of| of.formulas.len() == 1 && of.shared == 0)?;
    let out = matmul.outputs[0];
    let others: Vec<Tensor> = map.inputs.iter().copied().filter(|&input| input != out).collect();
    let together = (map.phase, map.block) == (matmul.phase, matmul.block);
    let alike = [map.outputs[0]].iter().chain(&others).all(|&t| graph.ty(t) == graph.ty(out));
    let there = others.iter().all(|&other| exists(uses, other, made));
    let takes = together && alike && there && others.len() <= 1;
    takes.then(|| others.first().copied())
}

/// Makes a matmul one whose epilogue is `map`, which reads `read` with it; others read the matmul itself where it
/// `keeps` it.
fn take_map(matmul: &mut Node, map: &Node, read: Option<Tensor>, keeps: bool) {
    let (Op::MatMul(op), Op::Map(of)) = (&matmul.op, &map.op) else {
        unreachable!("a matmul and a map are chosen");
    };
    let out = matmul.outputs[0];
    let place = |index: usize| input(usize::from(map.inputs[index] != out));
    let formula = Some(of.formulas[0].substitute(&place));
    matmul.op =
        FusedMatMul { formula, keeps_matmul: keeps, ..FusedMatMul::from(op.clone()) }.into();
    matmul.inputs.extend(read);
    matmul.outputs = [vec![map.outputs[0]], matmul.outputs.split_off(usize::from(!keeps))].concat();
}

/// The sum over rows of an output's gradient, which is the gradient of a bias, and the matmul that makes that of the
/// weight from it.
pub fn bias_gradients_into_matmuls(
    program: &mut Program,
    uses: &mut Uses,
    gone: &mut BTreeSet<usize>,
) {
    for index in 0..program.nodes.len() {
        let node = &program.nodes[index];
        let Op::Reduce(Reduce { axes: Axes::ToSuffix(suffix), scale, dtype }) = &node.op else {
            continue;
        };
        let (summed, dtype) = (node.inputs[0], *dtype);
        if gone.contains(&index) || *scale != 1.0 || suffix.len() != 1 {
            continue;
        }
        let of_weight = |&&at: &&usize| {
            let Op::MatMul(op) = &program.nodes[at].op else { return false };
            let together =
                (program.nodes[at].phase, program.nodes[at].block) == (node.phase, node.block);
            let columns = program.nodes[at].inputs[0] == summed && op.transpose_lhs && !op.batch;
            columns && together && at < index
        };
        let Some(&made) = uses.readers[summed.index()].iter().find(of_weight) else { continue };
        merge(program, uses, gone, index, made, |matmul, sum| {
            let Op::MatMul(op) = &matmul.op else { unreachable!("a matmul was chosen") };
            matmul.op =
                FusedMatMul { lhs_sums: Some(dtype), ..FusedMatMul::from(op.clone()) }.into();
            matmul.outputs.push(sum.outputs[0]);
        });
    }
}

/// Whether `tensor` is there where the node at `made` runs.
fn exists(uses: &Uses, tensor: Tensor, made: usize) -> bool {
    uses.maker[tensor.index()].is_none_or(|at| at < made)
}

/// Puts the node at `from` into the one at `to`, as `join` says.
fn merge(
    program: &mut Program,
    uses: &mut Uses,
    gone: &mut BTreeSet<usize>,
    from: usize,
    to: usize,
    join: impl FnOnce(&mut Node, &Node),
) {
    let before = inputs_of([&program.nodes[from], &program.nodes[to]]);
    let [part, whole] = program.nodes.get_disjoint_mut([from, to]).expect("no node reads itself");
    join(whole, part);
    uses.merge(from, to, &before, whole);
    gone.insert(from);
}
