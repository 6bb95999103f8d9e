//! Fusion: a short list of graph rewrites. Everything passes with fusion off.
//!
//! | rewrite | saves |
//! |---|---|
//! | loss and its gradient into one op | a second pass over the logits |
//! | sum into the op that makes its second term | a tensor and a pass over it |
//! | map into the map that reads it | a tensor and a pass over it |
//! | map into the matmul that it alone reads, where kernels [have epilogues](crate::plan::Target::epilogues) | a tensor and a pass over it |
//! | bias gradient into the matmul that makes its weight's, likewise | a pass over the output's gradient |
//! | sum into the norm gradient that makes its second term, likewise | a tensor and a pass over it |
//! | map into a matmul that others read too, likewise, once it's decided what is recomputed | a pass over the matmul |

mod epilogues;

pub use epilogues::activations_into_matmuls;

use std::collections::BTreeSet;

use crate::expr::{Expr, input};
use crate::graph::{Graph, Life, Node, Phase, Program, Tensor};
use crate::ops::{Map, Op};
use crate::target::Target;

/// Applies every rewrite that suits `target` to every program, in a fixed order.
pub fn fuse(graph: &mut Graph, target: &dyn Target) {
    for index in 0..graph.programs.len() {
        let mut program = std::mem::take(&mut graph.programs[index]);
        loss_with_gradient(&mut program);
        let (mut uses, mut gone) = (Uses::of(graph, &program), BTreeSet::new());
        sums_into_producers(graph, &mut program, &mut uses, &mut gone);
        if target.epilogues() {
            epilogues::sums_into_norms(graph, &mut program, &mut uses, &mut gone);
        }
        maps_into_readers(graph, &mut program, &mut uses, &mut gone, target.operands());
        if target.epilogues() {
            epilogues::maps_into_matmuls(graph, &mut program, &mut uses, &mut gone);
            epilogues::bias_gradients_into_matmuls(&mut program, &mut uses, &mut gone);
        }
        remove(&mut program, &gone);
        graph.programs[index] = program;
    }
}

/// Who makes and reads each tensor of a program, by position in it.
struct Uses {
    maker: Vec<Option<usize>>,
    /// One entry for each time that it's an input.
    readers: Vec<Vec<usize>>,
}

impl Uses {
    fn of(graph: &Graph, program: &Program) -> Self {
        let tensors = graph.tensors.len();
        let mut uses = Self { maker: vec![None; tensors], readers: vec![vec![]; tensors] };
        for (index, node) in program.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|t| uses.maker[t.index()] = Some(index));
            node.inputs.iter().for_each(|t| uses.readers[t.index()].push(index));
        }
        uses
    }

    /// Position of the only node that reads `tensor`, once.
    fn only_reader(&self, tensor: Tensor) -> Option<usize> {
        let [reader] = self.readers[tensor.index()][..] else { return None };
        Some(reader)
    }

    /// Notes that the node at `from` became part of the one at `to`, which is `node` now. Together they read `before`.
    fn merge(&mut self, from: usize, to: usize, before: &[Tensor], node: &Node) {
        for tensor in before {
            self.readers[tensor.index()].retain(|&reader| reader != from && reader != to);
        }
        node.inputs.iter().for_each(|tensor| self.readers[tensor.index()].push(to));
        node.outputs.iter().for_each(|tensor| self.maker[tensor.index()] = Some(to));
    }
}

/// What two nodes read.
fn inputs_of(nodes: [&Node; 2]) -> Vec<Tensor> {
    nodes.iter().flat_map(|node| &node.inputs).copied().collect()
}

/// Removes the nodes at these positions. Until they all are, positions stay what they were.
fn remove(program: &mut Program, gone: &BTreeSet<usize>) {
    let mut index = 0;
    program.nodes.retain(|_| {
        index += 1;
        !gone.contains(&(index - 1))
    });
}

/// A loss whose gradient is taken with a known seed is computed where its gradient is: one op, in the
/// forward pass.
fn loss_with_gradient(program: &mut Program) {
    let mut pairs: Vec<(usize, usize)> = program
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(forward, node)| {
            if !matches!(node.op, Op::LinearCrossEntropy(_) | Op::LinearDistillation(_)) {
                return None;
            }
            let count = node.inputs.len();
            let same = |other: &Node| match (&node.op, &other.op) {
                (Op::LinearCrossEntropy(_), Op::LinearCrossEntropyGrad(_))
                | (Op::LinearDistillation(_), Op::LinearDistillationGrad(_)) => {
                    other.inputs[..count] == node.inputs
                }
                _ => false,
            };
            let backward = program.nodes.iter().position(same)?;
            let seed = program.nodes[backward].inputs[count];
            let late = &program.nodes[forward..];
            let known = !late.iter().any(|node| node.outputs.contains(&seed));
            known.then_some((forward, backward))
        })
        .collect();
    // From the last gradient on, so that removing one moves none that is still to come.
    pairs.sort_unstable_by_key(|&(_, backward)| std::cmp::Reverse(backward));
    for (forward, backward) in pairs {
        let mut node = program.nodes[backward].clone();
        node.phase = program.nodes[forward].phase;
        let figures = &program.nodes[forward].outputs;
        node.outputs[..figures.len()].copy_from_slice(figures);
        program.nodes[forward] = node;
        program.nodes.remove(backward);
    }
}

/// `add(before, new)` where a matmul or scatter made `new` for this sum alone, and nothing reads
/// `before` later: the op adds to `before` in place.
fn sums_into_producers(
    graph: &mut Graph,
    program: &mut Program,
    uses: &mut Uses,
    gone: &mut BTreeSet<usize>,
) {
    let trains = program.nodes.iter().any(|node| node.phase == Phase::Backward);
    for index in 0..program.nodes.len() {
        // What a backward pass may need made again isn't made in place.
        if trains && program.nodes[index].phase == Phase::Forward {
            continue;
        }
        let Some(made) = summed_producer(graph, program, uses, index) else { continue };
        let before = inputs_of([&program.nodes[index], &program.nodes[made]]);
        let (first, sum) = (program.nodes[index].inputs[0], program.nodes[index].outputs[0]);
        let node = &mut program.nodes[made];
        match &mut node.op {
            Op::MatMul(op) => op.accumulate = true,
            Op::EmbeddingGrad(op) => op.accumulate = true,
            Op::LinearCrossEntropyGrad(op) => op.accumulate = true,
            Op::LinearDistillationGrad(op) => op.accumulate = true,
            _ => unreachable!("only ops that can accumulate are chosen"),
        }
        node.inputs.push(first);
        *node.outputs.last_mut().expect("an output") = sum;
        uses.merge(index, made, &before, node);
        gone.insert(index);
        let life = graph.info(first).life;
        let after = graph.info_mut(sum);
        (after.life, after.replaces) = (life, Some(first));
        // What is only there to be added to is of the sum's class.
        graph.info_mut(first).class = graph.info(sum).class;
    }
}

fn is_sum(op: &Op) -> bool {
    let Op::Map(map) = op else { return false };
    map.formulas == Map::add(map.dtypes[0]).formulas && map.shared == 0 && map.segments == 1
}

/// The node that makes the second term of the sum at `index`, where the sum can move into it.
fn summed_producer(graph: &Graph, program: &Program, uses: &Uses, index: usize) -> Option<usize> {
    let sum = program.nodes.get(index).filter(|node| is_sum(&node.op))?;
    let (before, new) = (sum.inputs[0], sum.inputs[1]);
    let made = uses.maker[new.index()]?;
    let node = &program.nodes[made];
    let can = match &node.op {
        Op::MatMul(op) => !op.accumulate,
        Op::EmbeddingGrad(op) => !op.accumulate,
        Op::LinearCrossEntropyGrad(op) => op.weight && !op.accumulate && node.outputs[2] == new,
        Op::LinearDistillationGrad(op) => op.weight && !op.accumulate && node.outputs[3] == new,
        _ => false,
    };
    // An update's sum of what a backward pass has made whole keeps its order.
    let together = (sum.phase == Phase::Update) == (node.phase == Phase::Update);
    let alike = graph.ty(before) == graph.ty(new) && graph.ty(new) == graph.ty(sum.outputs[0]);
    // What outlives the program is overwritten only where the sum itself does so.
    let may_write = graph.info(before).life == Life::Transient
        || graph.info(sum.outputs[0]).replaces == Some(before);
    let kept = |tensor: Tensor| program.results.contains(&tensor);
    let only_reader = uses.only_reader(new).is_some() && !kept(new);
    // `before` must exist where the producer runs, and hold its value for nobody else from there on.
    let exists = uses.maker[before.index()].is_none_or(|at| at < made);
    let readers = &uses.readers[before.index()];
    let unread = readers.iter().all(|&at| at < made || at == index) && !kept(before);
    (can && together && alike && may_write && only_reader && exists && unread).then_some(made)
}

/// A map with one output that only one other map of the same shape reads becomes part of that one.
fn maps_into_readers(
    graph: &mut Graph,
    program: &mut Program,
    uses: &mut Uses,
    gone: &mut BTreeSet<usize>,
    operands: usize,
) {
    for index in 0..program.nodes.len() {
        if gone.contains(&index) {
            continue;
        }
        let reader = only_map_reader(graph, program, uses, gone, index);
        let few = |&reader: &usize| fused_operands(program, index, reader) <= operands;
        let Some(reader) = reader.filter(few) else { continue };
        let before = inputs_of([&program.nodes[index], &program.nodes[reader]]);
        let [inner, outer] =
            program.nodes.get_disjoint_mut([index, reader]).expect("no map reads itself");
        compose(inner, outer);
        uses.merge(index, reader, &before, outer);
        gone.insert(index);
    }
}

/// Most tensors that the map at `reader` reads and writes once the one at `index` is part of it.
fn fused_operands(program: &Program, index: usize, reader: usize) -> usize {
    let (inner, outer) = (&program.nodes[index], &program.nodes[reader]);
    let read: BTreeSet<Tensor> = inner.inputs.iter().chain(&outer.inputs).copied().collect();
    read.len() - 1 + outer.outputs.len()
}

fn simple_map(node: &Node) -> Option<&Map> {
    let Op::Map(map) = &node.op else { return None };
    let simple = map.segments == 1 && map.in_place.is_empty() && !map.is_random();
    simple.then_some(map)
}

/// The one map that reads the output of the map at `index`, where both can be one.
fn only_map_reader(
    graph: &Graph,
    program: &Program,
    uses: &Uses,
    gone: &BTreeSet<usize>,
    index: usize,
) -> Option<usize> {
    let node = &program.nodes[index];
    let map = simple_map(node).filter(|map| map.formulas.len() == 1)?;
    let out = node.outputs[0];
    let reader = uses.only_reader(out).filter(|_| !program.results.contains(&out))?;
    let other = &program.nodes[reader];
    simple_map(other)?;
    // A rounding that the first map's storage makes is part of its meaning; keep it.
    let exact = map.dtypes[0] == crate::DType::F32 || map.dtypes[0] == crate::DType::F64;
    let same_shape = graph.ty(out).shape == graph.ty(other.outputs[0]).shape;
    let same_part = node.phase == other.phase && node.block == other.block;
    let transient = graph.info(out).life == Life::Transient;
    if !(exact && same_shape && same_part && transient) {
        return None;
    }
    // Inputs must still hold what they held where the first map ran.
    let overwritten = (index + 1..=reader).filter(|at| !gone.contains(at)).any(|at| {
        program.nodes[at].outputs.iter().any(|t| {
            graph
                .info(*t)
                .replaces
                .is_some_and(|r| node.inputs.iter().any(|i| graph.storage(*i) == graph.storage(r)))
        })
    });
    (!overwritten).then_some(reader)
}

/// Substitutes the formula of `inner` into `outer`, which reads its output.
fn compose(inner: &Node, outer: &mut Node) {
    let (Op::Map(first), Op::Map(second)) = (&inner.op, &mut outer.op) else {
        unreachable!("both are maps");
    };
    let mut inputs: Vec<Tensor> =
        outer.inputs.iter().copied().filter(|&t| t != inner.outputs[0]).collect();
    inputs.extend(inner.inputs.iter().filter(|t| !outer.inputs.contains(t)));
    let mut unique = vec![];
    for tensor in inputs {
        if !unique.contains(&tensor) {
            unique.push(tensor);
        }
    }
    let at = |tensor: Tensor| {
        let position = unique.iter().position(|&t| t == tensor).expect("inputs were collected");
        input(position)
    };
    let value = first.formulas[0].substitute(&|i| at(inner.inputs[i]));
    let replace = |i: usize| {
        if outer.inputs[i] == inner.outputs[0] { value.clone() } else { at(outer.inputs[i]) }
    };
    let formulas: Vec<Expr> =
        second.formulas.iter().map(|formula| formula.substitute(&replace)).collect();
    // Simplification may have dropped an input.
    let used: BTreeSet<usize> = formulas.iter().flat_map(Expr::inputs).collect();
    let renumber = |i: usize| input(used.range(..i).count());
    let formulas = formulas.iter().map(|formula| formula.substitute(&renumber)).collect();
    let shape = second.shape.clone().or_else(|| first.shape.clone());
    *second = Map { shape, ..Map::several(formulas, second.dtypes.clone()) };
    outer.inputs = used.iter().map(|&i| unique[i]).collect();
}
