//! Rematerialisation: activations that are dropped after the forward pass and computed again when the
//! backward pass first needs them (Griewank and Walther 2000; Chen et al. 2016).
//!
//! A recomputed op is the same op on the same inputs, random streams included, so that no number changes.

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
    let made: HashMap<Tensor, Option<usize>> = forward()
        .flat_map(|node| node.outputs.iter().map(move |&tensor| (tensor, segment(node))))
        .collect();
    for reader in program.nodes.iter().filter(|node| node.phase == Phase::Forward) {
        let leaves = |t: &&Tensor| made.get(t).is_some_and(|by| *by != segment(reader));
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

/// The program with the chosen tensors dropped after the forward pass: before the first later op that
/// reads one, its producer runs again.
pub fn rewrite(graph: &mut Graph, program: &Program, recompute: &[bool]) -> Program {
    let mut producer = HashMap::new();
    for (index, node) in program.nodes.iter().enumerate() {
        if node.phase == Phase::Forward {
            node.outputs.iter().for_each(|&t| {
                producer.insert(t, index);
            });
        }
    }
    let mut copies = Copies { recompute, producer, made: HashMap::new(), nodes: vec![] };
    for node in &program.nodes {
        let mut node = node.clone();
        if node.phase != Phase::Forward {
            for input in &mut node.inputs {
                *input = copies.of(graph, program, *input);
            }
        }
        copies.nodes.push(node);
    }
    let Program { name, results, .. } = program;
    Program { name: name.clone(), nodes: copies.nodes, results: results.clone() }
}

struct Copies<'a> {
    recompute: &'a [bool],
    producer: HashMap<Tensor, usize>,
    made: HashMap<Tensor, Tensor>,
    nodes: Vec<Node>,
}

impl Copies<'_> {
    /// The tensor that stands for `tensor` in the backward pass; made here where it was dropped. Walks
    /// with a stack of its own, as a long segment is a deep chain.
    fn of(&mut self, graph: &mut Graph, program: &Program, tensor: Tensor) -> Tensor {
        let dropped = |t: Tensor| self.recompute.get(t.index()).copied().unwrap_or(false);
        if !dropped(tensor) {
            return tensor;
        }
        let mut waiting = vec![tensor];
        while let Some(&next) = waiting.last() {
            if self.made.contains_key(&next) {
                waiting.pop();
                continue;
            }
            let node = &program.nodes[self.producer[&next]];
            let missing = |t: &Tensor| {
                self.recompute.get(t.index()).copied().unwrap_or(false)
                    && !self.made.contains_key(t)
            };
            let before: Vec<Tensor> = node.inputs.iter().copied().filter(missing).collect();
            if !before.is_empty() {
                waiting.extend(before);
                continue;
            }
            waiting.pop();
            let inputs =
                node.inputs.iter().map(|t| self.made.get(t).copied().unwrap_or(*t)).collect();
            let outputs: Vec<Tensor> = node.outputs.iter().map(|&t| copy_of(graph, t)).collect();
            for (&old, &new) in node.outputs.iter().zip(&outputs) {
                self.made.insert(old, new);
            }
            self.nodes.push(Node { inputs, outputs, phase: Phase::Recompute, ..node.clone() });
        }
        self.made[&tensor]
    }
}

fn copy_of(graph: &mut Graph, tensor: Tensor) -> Tensor {
    let info = graph.info(tensor);
    let copy = TensorInfo {
        name: format!("recompute.{}", info.name),
        life: Life::Transient,
        replaces: None,
        ..info.clone()
    };
    graph.add(copy)
}
