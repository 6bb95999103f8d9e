//! What waits in host memory: rewrites that put transfers where tensors leave the device and where they are needed.
//!
//! | leaves | comes back |
//! |---|---|
//! | a gradient, as soon as it's made | never: the update is the host's |
//! | what a block begins with, before the block | where the backward pass first reads it |
//! | a block's weight: the host has it alone | before the ops that read it, in each pass |
//!
//! Lifetimes follow from the program, as for every other tensor: what is on its way takes room from the transfer on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::Result;
use crate::graph::{Class, Graph, Life, Node, Phase, Program, Role, Tensor, TensorInfo};
use crate::ops::{Map, Op, Rule, Transfer};
use crate::types::Type;

/// Smallest weight that is moved, bytes: below it there's less to save than a transfer costs.
const SMALLEST: usize = 1 << 16;

/// Bytes that are moved at once: the host holds no copy of a whole tensor besides.
pub const PIECE: u64 = 1 << 22;

/// A range in the pieces that are moved at once.
pub(crate) fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.clone().step_by(PIECE as usize).map(move |first| first..end.min(first + PIECE))
}

/// Sends each gradient of the current program to the host as soon as it's made. Gives the accumulators that they are
/// added to there, persistent tensors of the gradients' types with these names.
///
/// # Errors
/// As [`Graph::push`].
pub fn store_gradients(graph: &mut Graph, gradients: &[(Tensor, String)]) -> Result<Vec<Tensor>> {
    let mut program = graph.programs.pop().unwrap_or_default();
    graph.begin(Role::Add);
    // Gradients of one shape arrive in one place, one after the other.
    let mut landings: BTreeMap<Vec<usize>, Tensor> = BTreeMap::new();
    let mut accumulators = vec![];
    for (gradient, name) in gradients {
        let ty = graph.ty(*gradient).clone();
        let landing = *landings.entry(ty.shape.clone()).or_insert_with(|| {
            graph.persistent(&format!("arriving {ty}"), ty.clone(), Class::Gradient)
        });
        let sum = graph.persistent(name, ty, Class::Gradient);
        let add = Map { in_place: vec![(0, 0)], ..Map::add(graph.dtype(sum)) };
        graph.one(add, &[sum, landing], &format!("{name}.sum"))?;
        accumulators.push(sum);
    }
    let adds = graph.programs.pop().unwrap_or_default();
    let mut made = vec![None; graph.tensors.len()];
    for (position, node) in program.nodes.iter().enumerate() {
        node.outputs.iter().for_each(|tensor| made[tensor.index()] = Some(position));
    }
    let mut after: BTreeMap<usize, Vec<Node>> = BTreeMap::new();
    for ((gradient, _), &to) in gradients.iter().zip(&accumulators) {
        let Some(position) = made[gradient.index()] else { continue };
        let Node { phase, block, .. } = program.nodes[position];
        let place = Place { phase, block };
        let sent = place.node(graph, Transfer::Store { to }, &[*gradient]);
        after.entry(position).or_default().push(sent);
    }
    let nodes = std::mem::take(&mut program.nodes).into_iter().enumerate();
    program.nodes = nodes
        .flat_map(|(position, node)| {
            [node].into_iter().chain(after.remove(&position).unwrap_or_default())
        })
        .collect();
    graph.programs.extend([adds, program]);
    graph.set_phase(Phase::Backward);
    Ok(accumulators)
}

/// Lets what each repeated block begins with wait on the host from the forward to the backward pass of every program
/// that has both.
pub fn store_block_inputs(graph: &mut Graph) {
    for index in 0..graph.programs.len() {
        if graph.programs[index].nodes.iter().any(|node| node.phase == Phase::Backward) {
            let program = std::mem::take(&mut graph.programs[index]);
            graph.programs[index] = without_block_inputs(graph, program);
        }
    }
}

/// One program of [`store_block_inputs`].
fn without_block_inputs(graph: &mut Graph, mut program: Program) -> Program {
    let mut made: BTreeMap<Tensor, Option<usize>> = BTreeMap::new();
    let mut read_later = BTreeSet::new();
    for node in &program.nodes {
        if node.phase == Phase::Forward {
            made.extend(node.outputs.iter().map(|&tensor| (tensor, node.block)));
        } else {
            read_later.extend(node.inputs.iter().copied());
        }
    }
    let mut sent: BTreeMap<(Tensor, usize), Sent> = BTreeMap::new();
    let mut nodes = Vec::with_capacity(program.nodes.len());
    for mut node in std::mem::take(&mut program.nodes) {
        let (phase, Some(block)) = (node.phase, node.block) else {
            nodes.push(node);
            continue;
        };
        let place = Place { phase, block: Some(block) };
        for input in &mut node.inputs {
            let x = *input;
            let begins = made.get(&x).is_some_and(|by| *by != Some(block));
            if !begins || !read_later.contains(&x) {
                continue;
            }
            let known = sent.entry((x, block)).or_insert_with(|| {
                let info = graph.info(x);
                let (name, ty) = (format!("{}.of.{block}", info.name), info.ty.clone());
                let to = graph.persistent(&name, ty, Class::Activation);
                let stored = place.node(graph, Transfer::Store { to }, &[x]);
                let kept = stored.outputs[0];
                nodes.push(stored);
                Sent { to, kept, loaded: None }
            });
            *input = match phase {
                Phase::Forward => known.kept,
                _ => *known.loaded.get_or_insert_with(|| {
                    let load = Transfer::Load { from: known.to, ty: graph.ty(x).clone() };
                    let load = place.node(graph, load, &[]);
                    let tensor = load.outputs[0];
                    nodes.push(load);
                    tensor
                }),
            };
        }
        nodes.push(node);
    }
    Program { nodes, ..program }
}

/// What a block begins with, on its way.
struct Sent {
    /// The host's tensor.
    to: Tensor,
    /// What the forward pass reads.
    kept: Tensor,
    /// What the backward pass reads.
    loaded: Option<Tensor>,
}

/// Leaves the weights of repeated blocks with the host: every program loads each before the ops that read it, in the
/// forward pass and once more in the backward pass.
pub fn load_block_weights(graph: &mut Graph) {
    for index in 0..graph.programs.len() {
        let mut program = std::mem::take(&mut graph.programs[index]);
        let mut loaded: BTreeMap<(Tensor, bool), Tensor> = BTreeMap::new();
        let mut nodes = Vec::with_capacity(program.nodes.len());
        for mut node in std::mem::take(&mut program.nodes) {
            let place = Place { phase: node.phase, block: node.block };
            for input in node.inputs.iter_mut().filter(|_| node.block.is_some()) {
                let TensorInfo { class, life, ty, .. } = graph.info(*input);
                let weight = matches!(class, Class::Weight | Class::Frozen);
                if !weight || *life != Life::Persistent || ty.bytes() < SMALLEST {
                    continue;
                }
                let (from, ty) = (*input, ty.clone());
                let forward = place.phase == Phase::Forward;
                *input = *loaded.entry((from, forward)).or_insert_with(|| {
                    let load = place.node(graph, Transfer::Load { from, ty }, &[]);
                    let tensor = load.outputs[0];
                    nodes.push(load);
                    tensor
                });
            }
            nodes.push(node);
        }
        graph.programs[index] = Program { nodes, ..program };
    }
}

/// Where in a step a transfer is.
#[derive(Clone, Copy)]
struct Place {
    phase: Phase,
    block: Option<usize>,
}

impl Place {
    /// A transfer, with its output.
    fn node(self, graph: &mut Graph, transfer: Transfer, inputs: &[Tensor]) -> Node {
        let host = graph.info(transfer.host());
        let (verb, class) = (transfer.name(), host.class);
        let of = inputs.first().map_or(host, |&input| graph.info(input));
        let (name, ty): (String, Type) = (format!("{verb}.{}", of.name), of.ty.clone());
        let info = TensorInfo { name, ty, class, life: Life::Transient, replaces: None };
        let outputs = vec![graph.add(info)];
        let Self { phase, block } = self;
        Node { op: Op::from(transfer), inputs: inputs.to_vec(), outputs, phase, block }
    }
}
