//! Rematerialisation: activations that are dropped after the forward pass and computed again when the
//! backward pass first needs them (Griewank and Walther 2000; Chen et al. 2016).
//!
//! A recomputed op is the same op on the same inputs, random streams included, so that no number changes. The exception
//! is a library that fuses an activation into a matmul: it applies the activation to sums that are not rounded yet, and a
//! recomputed one reads the rounded matmul.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::graph::{Graph, Life, Node, Phase, Program, Tensor, TensorInfo, nearest};
use crate::ops::Rule;

/// Which activations are recomputed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Checkpoint {
    /// None: everything is kept.
    #[default]
    None,
    /// Everything inside each repeated block; block inputs are kept.
    Block,
    /// Everything inside each run of N blocks.
    Every(usize),
    /// [`Checkpoint::Every`] ⌈√blocks⌉.
    Sqrt,
    /// The tensors of these names. What only the forward pass reads is made again where they need it.
    Tensors(Vec<String>),
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Block => f.write_str("block"),
            Self::Every(n) => write!(f, "every:{n}"),
            Self::Sqrt => f.write_str("sqrt"),
            Self::Tensors(names) => f.write_str(&summary(names)),
        }
    }
}

/// Names without the number of their block, each with how many blocks have it. Of an op with several outputs, whose
/// names end in their numbers, the first stands for all.
fn summary(names: &[String]) -> String {
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let mut kinds: Vec<(String, usize)> = vec![];
    for name in names {
        let words: Vec<&str> = name.split('.').collect();
        if words.last().is_some_and(|word| is_number(word) && *word != "0") {
            continue;
        }
        let kind = words.into_iter().filter(|word| !is_number(word)).collect::<Vec<_>>().join(".");
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let parts: Vec<String> =
        kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    parts.join(", ")
}

impl FromStr for Checkpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "block" => Ok(Self::Block),
            "sqrt" => Ok(Self::Sqrt),
            _ => text
                .strip_prefix("every:")
                .and_then(|n| n.parse().ok())
                .filter(|&n| n > 0)
                .map(Self::Every)
                .ok_or_else(|| {
                    Error::Setting(format!(
                        "checkpoint \"{text}\" is not one of none, block, every:N (N ≥ 1), sqrt"
                    ))
                }),
        }
    }
}

/// Tensors of `program` that `checkpoint` recomputes. With `keep_last`, the last segment is kept: the
/// backward pass begins with it, while it's live anyway.
///
/// # Errors
/// [`Error::Unknown`] for a name that isn't a forward activation.
pub fn chosen(
    graph: &Graph,
    program: &Program,
    checkpoint: &Checkpoint,
    keep_last: bool,
) -> Result<Vec<bool>> {
    let mut recompute = vec![false; graph.tensors.len()];
    // Running an op that works in place once more would do its work twice.
    let again = |node: &&Node| node.phase == Phase::Forward && node.op.overwrites().is_empty();
    let forward = || program.nodes.iter().filter(again);
    let blocks = forward().filter_map(|node| node.block).max().map_or(0, |last| last + 1);
    let length = match checkpoint {
        Checkpoint::None => return Ok(recompute),
        Checkpoint::Block => 1,
        Checkpoint::Every(n) => *n,
        Checkpoint::Sqrt => (1..).find(|n| n * n >= blocks).unwrap_or(1),
        Checkpoint::Tensors(names) => {
            let made: HashMap<&str, Tensor> = forward()
                .flat_map(|node| &node.outputs)
                .map(|&tensor| (graph.info(tensor).name.as_str(), tensor))
                .collect();
            for name in names {
                let tensor = made.get(name.as_str()).ok_or_else(|| Error::Unknown {
                    kind: "activation",
                    name: name.clone(),
                    nearest: nearest(name, made.keys().copied()),
                })?;
                recompute[tensor.index()] = !program.results.contains(tensor);
            }
            drop_between(program, &mut recompute);
            return Ok(recompute);
        }
    };
    let last = blocks.saturating_sub(1) / length;
    let segment = |node: &Node| node.block.map(|block| block / length);
    for node in forward() {
        let dropped = segment(node).is_some_and(|segment| !(keep_last && segment == last));
        node.outputs.iter().for_each(|tensor| recompute[tensor.index()] = dropped);
    }
    // What a segment makes for another, or for after the program, stays.
    program.results.iter().for_each(|tensor| recompute[tensor.index()] = false);
    let mut made = vec![None; graph.tensors.len()];
    for node in forward() {
        node.outputs.iter().for_each(|tensor| made[tensor.index()] = Some(segment(node)));
    }
    for reader in program.nodes.iter().filter(|node| node.phase == Phase::Forward) {
        let leaves = |t: &&Tensor| made[t.index()].is_some_and(|by| by != segment(reader));
        reader.inputs.iter().filter(leaves).for_each(|t| recompute[t.index()] = false);
    }
    Ok(recompute)
}

/// Drops, in blocks where something is dropped, what the backward pass doesn't read: it costs nothing, and kept
/// it would take the place of what is made from it.
pub fn drop_between(program: &Program, recompute: &mut [bool]) {
    let forward = || program.nodes.iter().filter(|node| node.phase == Phase::Forward);
    let touched: HashSet<usize> = forward()
        .filter(|node| node.outputs.iter().any(|tensor| recompute[tensor.index()]))
        .filter_map(|node| node.block)
        .collect();
    // What is read after the forward pass, or in it by another block than the one that made it.
    let mut stays = vec![false; recompute.len()];
    program.results.iter().for_each(|tensor| stays[tensor.index()] = true);
    let mut block = vec![None; recompute.len()];
    for node in &program.nodes {
        for tensor in &node.inputs {
            let elsewhere = node.phase != Phase::Forward || block[tensor.index()] != node.block;
            stays[tensor.index()] |= elsewhere;
        }
        node.outputs.iter().for_each(|tensor| block[tensor.index()] = node.block);
    }
    for node in forward().filter(|node| node.op.overwrites().is_empty()) {
        let within = node.block.is_some_and(|block| touched.contains(&block));
        if within && !node.outputs.iter().any(|tensor| stays[tensor.index()]) {
            node.outputs.iter().for_each(|tensor| recompute[tensor.index()] = true);
        }
    }
}

/// What recomputation has to know of a node.
pub trait Links {
    /// Whether it's of the forward pass.
    fn is_forward(&self) -> bool;
    /// Tensors read.
    fn inputs(&self) -> &[Tensor];
    /// Tensors written.
    fn outputs(&self) -> &[Tensor];
    /// Tensors read where it runs once more.
    fn inputs_again(&self) -> &[Tensor];
}

impl Links for Node {
    fn is_forward(&self) -> bool {
        self.phase == Phase::Forward
    }

    fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    fn inputs_again(&self) -> &[Tensor] {
        // What the host has a copy of comes from there.
        if self.op.transfer().is_some() { &[] } else { &self.inputs }
    }
}

/// A step of a program with recomputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Position of the node that runs.
    pub node: usize,
    /// Whether it runs once more, for what was dropped.
    pub again: bool,
}

/// In which order nodes run where the chosen tensors are dropped after the forward pass: before the first later op that
/// reads one, its producer runs again.
pub fn turns<N: Links>(nodes: &[N], recompute: &[bool]) -> Vec<Turn> {
    let dropped = |tensor: Tensor| recompute[tensor.index()];
    let mut producer = vec![0; recompute.len()];
    let mut made = vec![false; recompute.len()];
    let mut turns = Vec::with_capacity(nodes.len());
    // A stack of its own, as a long segment is a deep chain.
    let mut waiting = vec![];
    for (index, node) in nodes.iter().enumerate() {
        if node.is_forward() {
            node.outputs().iter().for_each(|tensor| producer[tensor.index()] = index);
        } else {
            waiting.extend(node.inputs().iter().rev().copied().filter(|&tensor| dropped(tensor)));
        }
        while let Some(&next) = waiting.last() {
            if made[next.index()] {
                waiting.pop();
                continue;
            }
            let again = &nodes[producer[next.index()]];
            let before = waiting.len();
            let missing = |tensor: &Tensor| dropped(*tensor) && !made[tensor.index()];
            waiting.extend(again.inputs_again().iter().copied().filter(missing));
            if waiting.len() == before {
                waiting.pop();
                again.outputs().iter().for_each(|tensor| made[tensor.index()] = true);
                turns.push(Turn { node: producer[next.index()], again: true });
            }
        }
        turns.push(Turn { node: index, again: false });
    }
    turns
}

/// The program with these tensors dropped and made again, as [`turns`] has it.
pub fn rewrite(graph: &mut Graph, program: Program, recompute: &[bool]) -> Program {
    let turns = turns(&program.nodes, recompute);
    let mut copies: Vec<Option<Tensor>> = vec![None; recompute.len()];
    let copy_of = |copies: &[Option<Tensor>], tensor: Tensor| {
        let copy = copies.get(tensor.index()).copied().flatten();
        copy.filter(|_| recompute[tensor.index()]).unwrap_or(tensor)
    };
    let mut nodes: Vec<Node> = Vec::with_capacity(turns.len());
    let mut own = program.nodes.into_iter();
    // Where each node of the program is.
    let mut places: Vec<usize> = vec![];
    for turn in turns {
        if turn.again {
            let mut node = nodes[places[turn.node]].clone();
            node.phase = Phase::Recompute;
            if let Some(transfer) = node.op.transfer() {
                node.op = transfer.again(graph.ty(node.outputs[0])).into();
                node.inputs.clear();
            }
            node.inputs.iter_mut().for_each(|input| *input = copy_of(&copies, *input));
            for output in &mut node.outputs {
                let copy = add_copy(graph, *output);
                copies[output.index()] = Some(copy);
                *output = copy;
            }
            nodes.push(node);
        } else if let Some(mut node) = own.next() {
            if node.phase != Phase::Forward {
                node.inputs.iter_mut().for_each(|input| *input = copy_of(&copies, *input));
            }
            places.push(nodes.len());
            nodes.push(node);
        }
    }
    Program { nodes, ..program }
}

fn add_copy(graph: &mut Graph, tensor: Tensor) -> Tensor {
    let info = graph.info(tensor);
    let copy = TensorInfo {
        name: format!("recompute.{}", info.name),
        life: Life::Transient,
        replaces: None,
        ..info.clone()
    };
    graph.add(copy)
}
