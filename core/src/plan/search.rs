//! The fastest plan within a budget: which activations to recompute, op by op.
//!
//! Blocks that look alike are solved once. Every subset of the activations that a block keeps for its backward
//! pass is tried on that block alone: the bytes it holds from forward to backward, the most that are live in its
//! backward pass, and the seconds of recomputation. The lower convex hull of those points is a ladder; climbing
//! it step by step, most bytes a second first, and within a step block by block from the first on, gives a list
//! of plans, each smaller and slower than the one before. (Choosing one rung a block is the multiple-choice
//! knapsack, whose linear relaxation has a fractional rung in at most one of them: the list is within one block's
//! step of the optimum.) What a plan needs is then found by the liveness of the whole program, never by
//! the sum of what is saved. Below the last rung, where block inputs alone are kept, whole segments are recomputed.

use std::collections::{HashMap, HashSet};

use super::{Checkpoint, Options, Plan, Target, most_live, parameter_bytes, remat};
use crate::error::Result;
use crate::fuse::fuse;
use crate::graph::{Graph, Life, Node, Phase, Program, Tensor};
use crate::ops::Rule;

/// Seconds that a node takes on the device that the plan is for.
pub type Seconds<'a> = &'a dyn Fn(&Graph, &Node) -> f64;

/// What a plan of the list needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// Bytes that it needs at least, and all but always exactly: offsets can leave gaps.
    pub bytes: u64,
    /// Seconds of recomputation in one replay of its training program.
    pub recompute_s: f64,
}

/// A plan of the list.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it needs.
    pub needs: Needs,
    state: State,
}

/// Most activations of a block that are chosen one by one; smaller ones go with the last rung alone.
const CHOSEN: usize = 10;

/// What is dropped of one block, and what that comes to.
#[derive(Clone, Debug)]
struct Rung {
    dropped: Vec<Tensor>,
    /// Bytes held from the forward to the backward pass.
    held: u64,
    /// Most bytes live in the backward pass.
    peak: u64,
    /// Recomputation.
    seconds: f64,
}

/// One block climbs one rung.
#[derive(Clone, Debug)]
struct Move {
    block: usize,
    /// What the block drops from here on.
    dropped: Vec<Tensor>,
    /// Bytes that are held no longer.
    bytes: u64,
    seconds: f64,
}

impl Move {
    fn price(&self) -> f64 {
        self.seconds / self.bytes.max(1) as f64
    }
}

/// The plans of one graph, from the fastest to the smallest.
pub struct Search<'a> {
    graph: Graph,
    options: Options,
    target: &'a dyn Target,
    seconds: Seconds<'a>,
    /// The program with a backward pass.
    program: usize,
    moves: Vec<Move>,
    /// Numbers of moves after which every block has climbed a rung.
    levels: Vec<usize>,
    /// Bytes of everything that no choice changes: persistent tensors, and the largest other program.
    persistent: u64,
    others: u64,
    /// Plans that were looked at.
    known: HashMap<State, Needs>,
}

/// One plan of the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// So many moves are made.
    Moves(usize),
    /// Segments of so many whole blocks.
    Segments(usize),
}

impl<'a> Search<'a> {
    /// Readies the search over `graph`, whose ops take `seconds`. Of `options`, the checkpoint is what is searched.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn new(
        mut graph: Graph,
        options: &Options,
        target: &'a dyn Target,
        seconds: Seconds<'a>,
    ) -> Result<Self> {
        graph.check_in_place()?;
        if options.fusion {
            fuse(&mut graph, target.operands());
            graph.check_in_place()?;
        }
        let backward = |program: &Program| program.nodes.iter().any(|n| n.phase == Phase::Backward);
        let program = graph.programs.iter().position(backward).unwrap_or(0);
        let mut search = Self {
            options: options.clone(),
            target,
            seconds,
            program,
            moves: vec![],
            levels: vec![0],
            persistent: 0,
            others: 0,
            known: HashMap::new(),
            graph,
        };
        let align = |bytes: usize| (bytes as u64).next_multiple_of(target.alignment());
        let kept = |info: &&crate::graph::TensorInfo| {
            info.life == Life::Persistent && info.replaces.is_none()
        };
        search.persistent =
            search.graph.tensors.iter().filter(kept).map(|info| align(info.ty.bytes())).sum();
        let others = (0..search.graph.programs.len()).filter(|&index| index != program);
        search.others =
            others.map(|index| most_live(&search.graph, index, options, target)).max().unwrap_or(0);
        search.climb();
        Ok(search)
    }

    /// Seconds of a program without recomputation; 0 where there's none of this name.
    pub fn seconds(&self, program: &str) -> f64 {
        let named = self.graph.programs.iter().filter(|known| known.name == program);
        named.flat_map(|program| &program.nodes).map(|node| (self.seconds)(&self.graph, node)).sum()
    }

    /// Makes the list of moves.
    fn climb(&mut self) {
        let program = self.graph.programs[self.program].clone();
        let blocks = program.nodes.iter().filter_map(|node| node.block).max().map_or(0, |b| b + 1);
        let mut kinds: Vec<(Vec<String>, Vec<usize>)> = vec![];
        for block in 0..blocks {
            let look = self.look(&program, block);
            match kinds.iter_mut().find(|(known, _)| *known == look) {
                Some((_, alike)) => alike.push(block),
                None => kinds.push((look, vec![block])),
            }
        }
        let mut steps: Vec<Vec<Move>> = vec![];
        for (_, alike) in kinds {
            let rungs = self.hull(&program, alike[0], alike.len() as u64);
            let nodes = |block: usize| -> Vec<&Node> {
                program.nodes.iter().filter(|node| node.block == Some(block)).collect()
            };
            let first = nodes(alike[0]);
            // A tensor of the first block → the same of another, by its place among the outputs.
            let outputs = |nodes: &[&Node]| -> Vec<Tensor> {
                nodes.iter().flat_map(|node| node.outputs.clone()).collect()
            };
            let from = outputs(&first);
            for pair in rungs.windows(2) {
                let step = alike.iter().map(|&block| {
                    let to = outputs(&nodes(block));
                    let same = |t: &Tensor| from.iter().position(|o| o == t).map(|at| to[at]);
                    Move {
                        block,
                        dropped: pair[1].dropped.iter().filter_map(same).collect(),
                        bytes: pair[0].held - pair[1].held,
                        seconds: pair[1].seconds - pair[0].seconds,
                    }
                });
                steps.push(step.collect());
            }
        }
        steps.sort_by(|a, b| a[0].price().total_cmp(&b[0].price()));
        // The last block's backward pass comes first, while all it needs is live anyway: it drops last.
        let is_last = |step: &&Move| step.block + 1 == blocks;
        for step in &steps {
            self.moves.extend(step.iter().filter(|step| !is_last(step)).cloned());
            self.levels.push(self.moves.len());
        }
        for step in &steps {
            self.moves.extend(step.iter().filter(is_last).cloned());
            self.levels.push(self.moves.len());
        }
        self.levels.dedup();
    }

    /// A block's nodes without what names it: blocks with the same look have the same rungs.
    fn look(&self, program: &Program, block: usize) -> Vec<String> {
        let nodes = program.nodes.iter().filter(|node| node.block == Some(block));
        nodes
            .map(|node| {
                let (inputs, outputs) = self.graph.types(node);
                format!("{:?} {} {inputs:?} {outputs:?}", node.phase, node.op.name())
            })
            .collect()
    }

    /// The rungs of a block that occurs `alike` times, from keeping everything to keeping its input alone.
    fn hull(&mut self, program: &Program, block: usize, alike: u64) -> Vec<Rung> {
        let own: Vec<Node> =
            program.nodes.iter().filter(|node| node.block == Some(block)).cloned().collect();
        let leaves = |tensor: Tensor| {
            program.results.contains(&tensor)
                || program.nodes.iter().any(|node| {
                    node.phase == Phase::Forward
                        && node.block != Some(block)
                        && node.inputs.contains(&tensor)
                })
        };
        let read_again = |node: &Node| {
            let later = own.iter().filter(|node| node.phase != Phase::Forward);
            later.flat_map(|node| &node.inputs).any(|input| node.outputs.contains(input))
        };
        let (mut chosen, mut rest) = (vec![], vec![]);
        for node in own.iter().filter(|node| node.phase == Phase::Forward) {
            if !node.op.overwrites().is_empty() || node.outputs.iter().any(|&t| leaves(t)) {
                continue;
            }
            // What is only read in the forward pass is made again where a dropped activation needs it.
            if read_again(node) {
                chosen.push(node.outputs.clone())
            } else {
                rest.extend(node.outputs.clone())
            }
        }
        let bytes = |tensors: &Vec<Tensor>| -> usize {
            tensors.iter().map(|&tensor| self.graph.ty(tensor).bytes()).sum()
        };
        chosen.sort_by_key(|tensors| std::cmp::Reverse(bytes(tensors)));
        let small = chosen.split_off(chosen.len().min(CHOSEN));
        let own = Program { nodes: own, name: program.name.clone(), results: vec![] };
        let mut rungs = vec![];
        let subsets = 1usize << chosen.len();
        for subset in 0..subsets {
            let mut dropped = vec![];
            let picked = chosen.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
            picked.for_each(|(_, tensors)| dropped.extend(tensors));
            if subset + 1 == subsets {
                small.iter().for_each(|tensors| dropped.extend(tensors));
            }
            rungs.push(self.rung(&own, dropped, &rest));
        }
        let total = |rung: &Rung| (alike - 1) * rung.held + rung.peak;
        lower_hull(rungs, total)
    }

    /// What dropping these tensors of a block comes to, and with them `rest`, which only the forward pass reads.
    fn rung(&mut self, own: &Program, dropped: Vec<Tensor>, rest: &[Tensor]) -> Rung {
        let tensors = self.graph.tensors.len();
        let mut flags = vec![false; tensors];
        if !dropped.is_empty() {
            dropped.iter().chain(rest).for_each(|tensor| flags[tensor.index()] = true);
        }
        let rewritten = remat::rewrite(&mut self.graph, own, &flags);
        let again = rewritten.nodes.iter().filter(|node| node.phase == Phase::Recompute);
        let seconds = again.map(|node| (self.seconds)(&self.graph, node)).sum();
        let (held, peak) = footprint(&self.graph, &rewritten.nodes);
        self.graph.tensors.truncate(tensors);
        Rung { dropped, held, peak, seconds }
    }

    /// What a plan of the list recomputes.
    fn checkpoint(&self, state: &State) -> Checkpoint {
        match *state {
            State::Moves(0) => Checkpoint::None,
            State::Moves(count) => {
                let dropped: HashSet<Tensor> =
                    self.moves[..count].iter().flat_map(|step| step.dropped.clone()).collect();
                let made = self.graph.programs[self.program].nodes.iter();
                let made = made.filter(|node| node.phase == Phase::Forward);
                let named = made.flat_map(|node| &node.outputs).filter(|t| dropped.contains(t));
                Checkpoint::Tensors(named.map(|&t| self.graph.info(t).name.clone()).collect())
            }
            State::Segments(1) => Checkpoint::Block,
            State::Segments(length) => Checkpoint::Every(length),
        }
    }

    /// What a plan of the list needs.
    fn needs(&mut self, state: &State) -> Result<Needs> {
        if let Some(known) = self.known.get(state) {
            return Ok(*known);
        }
        let mut needs = self.needs_with(state, false)?;
        if let State::Segments(_) = state {
            let kept = self.needs_with(state, true)?;
            if kept.bytes <= needs.bytes {
                needs = kept;
            }
        }
        self.known.insert(state.clone(), needs);
        Ok(needs)
    }

    fn needs_with(&mut self, state: &State, keep_last: bool) -> Result<Needs> {
        let flags = self.flags(state, keep_last)?;
        // The program is put back and its copies are taken off: cloning a graph takes longer than all the rest.
        let tensors = self.graph.tensors.len();
        let program = std::mem::take(&mut self.graph.programs[self.program]);
        let rewritten = remat::rewrite(&mut self.graph, &program, &flags);
        let again = rewritten.nodes.iter().filter(|node| node.phase == Phase::Recompute);
        let recompute_s = again.map(|node| (self.seconds)(&self.graph, node)).sum();
        self.graph.programs[self.program] = rewritten;
        let live = most_live(&self.graph, self.program, &self.options, self.target);
        let fixed = self.target.staging() + parameter_bytes(&self.graph, self.target);
        self.graph.programs[self.program] = program;
        self.graph.tensors.truncate(tensors);
        Ok(Needs { bytes: self.persistent + live.max(self.others) + fixed, recompute_s })
    }

    /// The tensors that a plan of the list recomputes.
    fn flags(&self, state: &State, keep_last: bool) -> Result<Vec<bool>> {
        let program = &self.graph.programs[self.program];
        let State::Moves(count) = *state else {
            return remat::chosen(&self.graph, program, &self.checkpoint(state), keep_last);
        };
        let mut flags = vec![false; self.graph.tensors.len()];
        for &tensor in self.moves[..count].iter().flat_map(|step| &step.dropped) {
            flags[tensor.index()] = !program.results.contains(&tensor);
        }
        if count > 0 {
            remat::drop_between(program, &mut flags);
        }
        Ok(flags)
    }

    /// Whether a plan of the list can need as few as `bytes`: what it drops is all that it can save.
    fn may_fit(&mut self, state: &State, bytes: u64) -> Result<bool> {
        let whole = self.needs(&State::Moves(0))?.bytes;
        let flags = self.flags(state, false)?;
        let dropped = self.graph.tensors.iter().zip(&flags).filter(|(_, dropped)| **dropped);
        let align = |bytes: usize| (bytes as u64).next_multiple_of(self.target.alignment());
        let saved: u64 = dropped.map(|(info, _)| align(info.ty.bytes())).sum();
        Ok(whole.saturating_sub(saved) <= bytes)
    }

    /// Least seconds of recomputation that save `bytes`, where a block may climb a part of a rung.
    fn bound(&self, bytes: u64) -> f64 {
        let (mut left, mut seconds) = (bytes as f64, 0.0);
        let mut moves: Vec<&Move> = self.moves.iter().collect();
        moves.sort_by(|a, b| a.price().total_cmp(&b.price()));
        for step in moves {
            let part = (left / step.bytes.max(1) as f64).clamp(0.0, 1.0);
            seconds += part * step.seconds;
            left -= part * step.bytes as f64;
        }
        seconds
    }

    /// Seconds of recomputation that no choice of activations of whole blocks within `budget` bytes takes less than, by
    /// the ladder's relaxation.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn bound_s(&mut self, budget: u64) -> Result<f64> {
        let whole = self.needs(&State::Moves(0))?.bytes;
        Ok(self.bound(whole.saturating_sub(budget)))
    }

    /// The fastest plan of the list that needs at most `bytes` by liveness, if one does.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn fastest(&mut self, bytes: u64) -> Result<Option<Found>> {
        let mut over = 0;
        for level in self.levels.clone() {
            let state = State::Moves(level);
            if self.may_fit(&state, bytes)? && self.needs(&state)?.bytes <= bytes {
                return self.between(bytes, over, level).map(Some);
            }
            over = level;
        }
        for state in self.segments() {
            if self.may_fit(&state, bytes)? && self.needs(&state)?.bytes <= bytes {
                return self.found(state).map(Some);
            }
        }
        Ok(None)
    }

    /// The plan of the list that needs the fewest bytes by liveness, the fastest of equals.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn smallest(&mut self) -> Result<Found> {
        let mut smallest = self.found(State::Moves(0))?;
        let levels = self.levels.clone().into_iter().map(State::Moves);
        for state in levels.chain(self.segments()) {
            let found = self.found(state)?;
            if found.needs.bytes < smallest.needs.bytes {
                smallest = found;
            }
        }
        Ok(smallest)
    }

    /// The first plan of the list that leaves at most `bytes` live, where `over` moves leave more and `under` don't.
    fn between(&mut self, bytes: u64, mut over: usize, mut under: usize) -> Result<Found> {
        while under > over + 1 {
            let middle = usize::midpoint(over, under);
            let fits = self.needs(&State::Moves(middle))?.bytes <= bytes;
            if fits { under = middle } else { over = middle }
        }
        self.found(State::Moves(under))
    }

    fn found(&mut self, state: State) -> Result<Found> {
        Ok(Found { needs: self.needs(&state)?, state })
    }

    /// Gives every buffer of a plan its offset.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn place(&self, found: &Found) -> Result<Plan> {
        let options = Options { checkpoint: self.checkpoint(&found.state), ..self.options.clone() };
        Plan::of_fused(self.graph.clone(), &options, self.target)
    }

    /// Plans that recompute whole segments. With L blocks of which each holds B bytes and begins with I, segments of n
    /// take about n·B + I·L/n, which is least at √(L·I/B): no length above √L is worth a try.
    fn segments(&self) -> Vec<State> {
        let nodes = &self.graph.programs[self.program].nodes;
        let blocks = nodes.iter().filter_map(|node| node.block).max().map_or(0, |last| last + 1);
        let longest = (1..).find(|n| n * n >= blocks).unwrap_or(1);
        (1..=longest).map(State::Segments).collect()
    }
}

/// Points of the lower convex hull in (bytes, seconds), from no recomputation to the fewest bytes.
fn lower_hull(mut rungs: Vec<Rung>, bytes: impl Fn(&Rung) -> u64) -> Vec<Rung> {
    let start = rungs.swap_remove(0);
    rungs.sort_by(|a, b| {
        bytes(b).cmp(&bytes(a)).then(b.seconds.total_cmp(&a.seconds)).then(b.peak.cmp(&a.peak))
    });
    let mut hull = vec![start];
    for rung in rungs {
        // Of equal bytes the last is the fastest.
        while hull.len() > 1 && hull.last().is_some_and(|last| rung.seconds <= last.seconds) {
            hull.pop();
        }
        let last = &hull[hull.len() - 1];
        if bytes(&rung) >= bytes(last) || rung.held >= last.held {
            continue;
        }
        while let [.., before, last] = &hull[..] {
            let saved = |a: &Rung, b: &Rung| (bytes(a) - bytes(b)) as f64;
            let (near, far) = (saved(before, last), saved(before, &rung));
            let above =
                (last.seconds - before.seconds) * far > (rung.seconds - before.seconds) * near;
            if !above || rung.held >= before.held {
                break;
            }
            hull.pop();
        }
        hull.push(rung);
    }
    hull
}

/// Bytes that a block's nodes hold from forward to backward, and the most that are live in the backward pass.
fn footprint(graph: &Graph, nodes: &[Node]) -> (u64, u64) {
    let boundary =
        nodes.iter().position(|node| node.phase != Phase::Forward).unwrap_or(nodes.len());
    let mut last_read = HashMap::new();
    for (step, node) in nodes.iter().enumerate() {
        for &tensor in node.inputs.iter().chain(&node.outputs) {
            last_read.insert(graph.storage(tensor), step);
        }
    }
    let mut change = vec![0i64; nodes.len() + 1];
    let mut held = 0;
    for (birth, node) in nodes.iter().enumerate() {
        for &tensor in &node.outputs {
            if graph.storage(tensor) != tensor || graph.info(tensor).life == Life::Persistent {
                continue;
            }
            let bytes = graph.ty(tensor).bytes();
            let death = last_read[&tensor];
            change[birth.max(boundary)] += bytes as i64;
            change[(death + 1).max(boundary)] -= bytes as i64;
            if birth < boundary && death >= boundary {
                held += bytes as u64;
            }
        }
    }
    let mut live = 0;
    let sums = change.iter().map(|step| {
        live += step;
        live
    });
    (held, sums.max().unwrap_or(0).max(0) as u64)
}
