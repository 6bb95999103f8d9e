//! A training program's backward pass as an integer program over all schedules in which the forward pass runs once and no
//! op more than once more (Jain et al. 2020, "Checkmate").
//!
//!   R[t,k]  op k of a block runs again just before step t of the backward pass
//!   S[t,v]  activation v, from the forward pass or made again, is there when step t begins
//!
//! An activation is there only where it was or is made again, ops and steps find what they read, and at no moment are
//! more bytes live than the budget. Where a moment's bytes depend on what the program can't express linearly, fewer are
//! counted; so no plan recomputes less than the solution. Whether one recomputes as little is tried: what the solution
//! drops is planned.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use tightrope_core::graph::{Life, Program};
use tightrope_core::plan::Target;
use tightrope_core::{Phase, Plan, Rule, Tensor};

use crate::integer::{Binary, Integer, Sum};
use crate::rate;

/// An activation of a block that may be dropped.
struct Activation {
    name: String,
    bytes: u64,
    /// The op that makes it.
    op: usize,
    /// First and last step of the forward pass that need it.
    forward: (usize, usize),
    /// Steps of the backward pass that read it, counted from its first.
    reads: Vec<usize>,
    /// The last step of the backward pass that may need it, directly or for what is made from it.
    last: Option<usize>,
}

/// An op of the forward pass that may run again.
struct Again {
    seconds: f64,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// Bytes that are live while it runs at least, whatever else is.
    own: u64,
}

/// Output bytes that are not live besides an input that dies with its step, since they take its place.
struct InPlace {
    bytes: u64,
    /// The activation that may die; none where an input does in any case.
    input: Option<usize>,
}

/// A program with a backward pass, as the integer program sees it.
pub struct Pass {
    activations: Vec<Activation>,
    ops: Vec<Again>,
    /// Steps of the forward pass.
    forward: usize,
    /// Live bytes of each step that no choice changes, and those before each step.
    fixed: Vec<u64>,
    before: Vec<u64>,
    in_place: Vec<Vec<InPlace>>,
}

impl Pass {
    /// Of a plan that recomputes nothing.
    pub fn new(plan: &Plan, program: usize, target: &dyn Target) -> Self {
        let graph = &plan.graph;
        let program = &graph.programs[program];
        let nodes = &program.nodes;
        let forward = nodes.iter().position(|node| node.phase != Phase::Forward);
        let forward = forward.expect("a backward pass");
        let align =
            |tensor: Tensor| (graph.ty(tensor).bytes() as u64).next_multiple_of(target.alignment());
        let (mut activations, mut ops) = (vec![], vec![]);
        let mut index: HashMap<Tensor, usize> = HashMap::new();
        for (step, node) in nodes[..forward].iter().enumerate() {
            let drops = node.block.is_some() && node.op.overwrites().is_empty();
            if !drops || node.outputs.iter().any(|t| program.results.contains(t)) {
                continue;
            }
            let mut outputs = vec![];
            for &tensor in &node.outputs {
                let reads = |range: Range<usize>| {
                    let nodes = nodes[range.clone()].iter().zip(range);
                    nodes.filter(|(node, _)| node.inputs.contains(&tensor)).map(|(_, step)| step)
                };
                let last = reads(step..forward).next_back().unwrap_or(step);
                outputs.push(activations.len());
                index.insert(tensor, activations.len());
                activations.push(Activation {
                    name: graph.info(tensor).name.clone(),
                    bytes: align(tensor),
                    op: ops.len(),
                    forward: (step, last),
                    reads: reads(forward..nodes.len()).map(|step| step - forward).collect(),
                    last: None,
                });
            }
            let inputs: Vec<usize> =
                node.inputs.iter().filter_map(|t| index.get(t).copied()).collect();
            let (from, to) = graph.types(node);
            let mut own =
                target.workspace(&node.op, &from, &to).next_multiple_of(target.alignment());
            own += node
                .inputs
                .iter()
                .filter(|t| index.contains_key(t))
                .map(|&t| align(t))
                .sum::<u64>();
            let overwrites = target.in_place(&node.op) && !node.op.may_overwrite().is_empty();
            if !overwrites || inputs.is_empty() {
                own += node.outputs.iter().map(|&t| align(t)).sum::<u64>();
            }
            ops.push(Again { seconds: rate(graph, node), inputs, outputs, own });
        }
        for op in ops.iter().rev() {
            let direct = |&v: &usize| activations[v].last.max(activations[v].reads.last().copied());
            let last = op.outputs.iter().filter_map(direct).max();
            for &v in op.outputs.iter().chain(&op.inputs) {
                let own = activations[v].reads.last().copied();
                activations[v].last = activations[v].last.max(own).max(last);
            }
        }
        let (fixed, before) = fixed(plan, program, &index, target);
        let in_place = (0..nodes.len()).map(|step| in_place(plan, program, step, &index, target));
        let in_place = in_place.collect();
        Self { activations, ops, forward, fixed, before, in_place }
    }

    /// The last step of the backward pass that can need an op's outputs.
    fn last(&self, op: usize) -> Option<usize> {
        self.ops[op].outputs.iter().filter_map(|&v| self.activations[v].last).max()
    }
}

/// Live bytes during each step and before each, of everything but activations that may be dropped.
fn fixed(
    plan: &Plan,
    program: &Program,
    index: &HashMap<Tensor, usize>,
    target: &dyn Target,
) -> (Vec<u64>, Vec<u64>) {
    let (graph, steps) = (&plan.graph, program.nodes.len());
    let mut lives: HashMap<Tensor, (usize, usize)> = HashMap::new();
    for (step, node) in program.nodes.iter().enumerate() {
        for &tensor in node.inputs.iter().chain(&node.outputs) {
            let root = graph.storage(tensor);
            assert!(root == tensor || !index.contains_key(&root), "activations are written once");
            if graph.info(root).life == Life::Transient && !index.contains_key(&root) {
                lives.entry(root).or_insert((step, step)).1 = step;
            }
        }
    }
    for &result in &program.results {
        if let Some(life) = lives.get_mut(&graph.storage(result)) {
            life.1 = steps - 1;
        }
    }
    let (mut during, mut before) = (vec![0; steps], vec![0; steps]);
    for (tensor, (birth, death)) in lives {
        let bytes = (graph.ty(tensor).bytes() as u64).next_multiple_of(target.alignment());
        during[birth..=death].iter_mut().for_each(|live| *live += bytes);
        before[birth + 1..=death.max(birth)].iter_mut().for_each(|live| *live += bytes);
    }
    for (node, live) in program.nodes.iter().zip(&mut during) {
        let (inputs, outputs) = graph.types(node);
        let scratch = target.workspace(&node.op, &inputs, &outputs);
        *live += scratch.next_multiple_of(target.alignment());
    }
    (during, before)
}

/// What a step may write in place.
fn in_place(
    plan: &Plan,
    program: &Program,
    step: usize,
    index: &HashMap<Tensor, usize>,
    target: &dyn Target,
) -> Vec<InPlace> {
    let (graph, node) = (&plan.graph, &program.nodes[step]);
    if !(plan.options.in_place && target.in_place(&node.op)) {
        return vec![];
    }
    let read_later = |tensor: Tensor| {
        let later =
            program.nodes[step + 1..].iter().flat_map(|n| n.inputs.iter().chain(&n.outputs));
        later.chain(&program.results).any(|&t| graph.storage(t) == graph.storage(tensor))
    };
    let size = |tensor: Tensor| (graph.dtype(tensor), graph.ty(tensor).elements());
    let mut found = vec![];
    for (position, &output) in node.outputs.iter().enumerate() {
        let pairs = node.op.may_overwrite().into_iter().filter(|&(o, _)| o == position);
        let inputs: Vec<Tensor> = pairs.filter_map(|(_, i)| node.inputs.get(i).copied()).collect();
        let alike: Vec<Tensor> = inputs
            .into_iter()
            .filter(|&t| graph.info(graph.storage(t)).life == Life::Transient)
            .filter(|&t| size(t) == size(output) && graph.storage(output) == output)
            .collect();
        let dying = alike.iter().any(|t| !index.contains_key(t) && !read_later(*t));
        let droppable: Vec<usize> = alike.iter().filter_map(|t| index.get(t).copied()).collect();
        if !dying && droppable.is_empty() {
            continue;
        }
        let bytes = (graph.ty(output).bytes() as u64).next_multiple_of(target.alignment());
        let input = (!dying && droppable.len() == 1).then(|| droppable[0]);
        found.push(InPlace { bytes, input });
    }
    found
}

/// What the integer program came to.
pub struct Solved {
    /// Seconds of recomputation in a pass that was found.
    pub seconds: f64,
    /// No schedule takes fewer.
    pub bound_s: f64,
    /// Seconds that solving took.
    pub took: f64,
    /// Names of activations that aren't kept for the backward pass.
    pub dropped: Vec<String>,
}

impl Pass {
    /// Recomputation at most `gap` seconds above the least with at most so many live bytes, by the command `highs`.
    pub fn least(&self, bytes: u64, gap: f64, highs: &Path, folder: &Path) -> Solved {
        let start = Instant::now();
        let mut program = Integer::default();
        let mut table = |last: Option<usize>| -> Vec<Binary> {
            (0..last.map_or(0, |last| last + 1)).map(|_| program.binary()).collect()
        };
        let there: Vec<Vec<Binary>> = self.activations.iter().map(|v| table(v.last)).collect();
        let again: Vec<Vec<Binary>> = (0..self.ops.len()).map(|k| table(self.last(k))).collect();
        let there_at = |v: usize, t: usize| there[v].get(t).copied();
        let again_at = |k: usize, t: usize| again[k].get(t).copied();
        // Minus one where an activation can be read at a step: it is there, or made again for it.
        let unready = |sum: Sum, v: usize, t: usize| {
            sum.plus(-1.0, there_at(v, t)).plus(-1.0, again_at(self.activations[v].op, t))
        };
        for list in &again {
            let times = list.iter().fold(Sum::of(-1.0), |sum, &v| sum.plus(1.0, Some(v)));
            program.not_above_zero(&times);
        }
        let stages = self.fixed.len() - self.forward;
        for t in 0..stages {
            for (v, activation) in self.activations.iter().enumerate() {
                if there[v].len() > t + 1 {
                    let later = Sum::default().plus(1.0, there_at(v, t + 1));
                    program.not_above_zero(&unready(later, v, t));
                }
                if activation.reads.contains(&t) {
                    program.not_above_zero(&unready(Sum::of(1.0), v, t));
                }
            }
            for (k, op) in self.ops.iter().enumerate().filter(|&(k, _)| again[k].len() > t) {
                for &v in &op.inputs {
                    let run = Sum::default().plus(1.0, again_at(k, t));
                    program.not_above_zero(&unready(run, v, t));
                }
            }
        }
        // In gigabytes, so that numbers are near 1.
        let scale = |bytes: u64| bytes as f64 / 1e9;
        let over = |fixed: u64| Sum::of(scale(fixed) - scale(bytes));
        for t in 0..stages {
            for (k, op) in self.ops.iter().enumerate().filter(|&(k, _)| again[k].len() > t) {
                let mut live = over(self.before[self.forward + t]);
                live = live.plus(scale(op.own), again_at(k, t));
                for (v, activation) in self.activations.iter().enumerate() {
                    if op.inputs.contains(&v) || op.outputs.contains(&v) {
                        continue;
                    }
                    // In whichever order ops run again, what was there before and is read after is there meanwhile.
                    let bytes = scale(activation.bytes);
                    live = match activation.reads.contains(&t) {
                        true => live.plus(bytes, there_at(v, t)),
                        false => live
                            .plus(bytes, there_at(v, t + 1))
                            .plus(-bytes, again_at(activation.op, t)),
                    };
                }
                program.not_above_zero(&live);
            }
        }
        for (step, &fixed) in self.fixed.iter().enumerate() {
            let mut live = over(fixed);
            // Whether an activation is there after this step.
            let after = |v: usize| match step.checked_sub(self.forward) {
                Some(t) => there_at(v, t + 1),
                None => there_at(v, 0),
            };
            for (v, activation) in self.activations.iter().enumerate() {
                let needed = match step.checked_sub(self.forward) {
                    Some(t) => activation.reads.contains(&t),
                    None => (activation.forward.0..=activation.forward.1).contains(&step),
                };
                if needed {
                    live = live.plus_number(scale(activation.bytes));
                } else if step > activation.forward.0 {
                    live = live.plus(scale(activation.bytes), after(v));
                }
            }
            for InPlace { bytes, input } in &self.in_place[step] {
                live = live.plus_number(-scale(*bytes));
                if let Some(v) = *input {
                    live = live.plus(scale(*bytes), after(v));
                }
            }
            program.not_above_zero(&live);
        }
        let pass: f64 = self.ops.iter().map(|op| op.seconds).sum();
        let mut seconds = Sum::default();
        for (op, list) in self.ops.iter().zip(&again) {
            seconds = list.iter().fold(seconds, |sum, &v| sum.plus(op.seconds / pass, Some(v)));
        }
        let solution = program.least(&seconds, gap / pass, highs, folder);
        let runs = |list: &Vec<Binary>| list.iter().filter(|&&v| solution.is_set(v)).count();
        let seconds = self.ops.iter().zip(&again).map(|(op, list)| op.seconds * runs(list) as f64);
        let gone = |list: &Vec<Binary>| list.first().is_some_and(|&first| !solution.is_set(first));
        let dropped = self.activations.iter().zip(&there).filter(|(_, list)| gone(list));
        Solved {
            seconds: seconds.sum(),
            bound_s: pass * solution.bound,
            took: start.elapsed().as_secs_f64(),
            dropped: dropped.map(|(activation, _)| activation.name.clone()).collect(),
        }
    }
}
