//! The fastest plan within a budget: which activations to recompute, op by op.
//!
//! What each block may drop is weighed once ([`Blocks`]), and plans of all blocks are listed from the fastest to the
//! smallest ([`Front`]). What a plan of the list needs is then found by the liveness of the whole program, never by
//! the sum of what is saved. Below the last one, where block inputs alone are kept, whole segments are recomputed.

use std::collections::HashMap;

use super::blocks::Blocks;
use super::bound::{self, Bound};
use super::front::Front;
use super::liveness::Outline;
use super::remat::Turn;
use super::{Checkpoint, Options, Plan, Target, live_bytes, remat};
use crate::error::Result;
use crate::fuse::fuse;
use crate::graph::{Graph, Life, Node, Phase, Program, Tensor};

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
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What it needs.
    pub needs: Needs,
    state: State,
}

/// Part of a pass that a plan may be above its bound before that is looked at more closely.
const CLOSE: f64 = 0.002;

/// The plans of one graph, from the fastest to the smallest.
pub struct Search<'a> {
    graph: Graph,
    options: Options,
    target: &'a dyn Target,
    /// The program with a backward pass.
    program: usize,
    outline: Outline,
    /// Seconds of every node, by program.
    seconds: Vec<Vec<f64>>,
    /// Bytes of everything that no choice changes: what is there besides transients, and the transients of the largest
    /// other program.
    fixed: u64,
    others: u64,
    /// Bytes of what the ops of blocks make and their seconds, the fastest to make again first.
    droppable: Vec<(f64, f64)>,
    /// Made when something has to be dropped.
    listed: Option<Listed>,
    /// Plans that were looked at.
    known: HashMap<State, Needs>,
}

/// The choices of the blocks, the plans made of them, and what no plan betters.
struct Listed {
    blocks: Blocks,
    front: Front,
    bound: Option<Bound>,
}

/// One plan of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The one at this place among those that drop activations of blocks. The first drops nothing.
    Listed(usize),
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
        seconds: Seconds<'_>,
    ) -> Result<Self> {
        graph.check_in_place()?;
        if options.fusion {
            fuse(&mut graph, target.operands());
            graph.check_in_place()?;
        }
        let backward = |program: &Program| program.nodes.iter().any(|n| n.phase == Phase::Backward);
        let program = graph.programs.iter().position(backward).unwrap_or(0);
        let mut outlines = Outline::all(&graph, options.in_place, target);
        let parameters: u64 = outlines.iter().map(|o| o.parameters(&o.turns())).sum();
        let outline = match program < outlines.len() {
            true => outlines.swap_remove(program),
            false => Outline::default(),
        };
        let others = outlines.iter().map(|other| other.needs(&[]).0).max().unwrap_or(0);
        let align = |bytes: usize| (bytes as u64).next_multiple_of(target.alignment());
        let kept = graph.tensors.iter().filter(|info| info.life == Life::Persistent);
        let kept = kept.filter(|info| info.replaces.is_none());
        let persistent: u64 = kept.map(|info| align(info.ty.bytes())).sum();
        let fixed = persistent + target.staging() + parameters;
        let options = options.clone();
        Ok(Self::timed(graph, options, target, (program, outline), (fixed, others), seconds))
    }

    /// The same search where ops take other `seconds`.
    pub fn retimed(&self, seconds: Seconds<'_>) -> Self {
        let part = (self.program, self.outline.clone());
        let (graph, options) = (self.graph.clone(), self.options.clone());
        Self::timed(graph, options, self.target, part, (self.fixed, self.others), seconds)
    }

    /// Of a graph of which everything but times is known.
    fn timed(
        graph: Graph,
        options: Options,
        target: &'a dyn Target,
        (program, outline): (usize, Outline),
        (fixed, others): (u64, u64),
        seconds: Seconds<'_>,
    ) -> Self {
        let times = |program: &Program| program.nodes.iter().map(|n| seconds(&graph, n)).collect();
        let seconds: Vec<Vec<f64>> = graph.programs.iter().map(times).collect();
        let droppable = match (graph.programs.get(program), seconds.get(program)) {
            (Some(program), Some(seconds)) => droppable(&outline, program, seconds),
            _ => vec![],
        };
        Self {
            options,
            target,
            program,
            outline,
            seconds,
            droppable,
            fixed,
            others,
            listed: None,
            known: HashMap::new(),
            graph,
        }
    }

    /// Seconds of a program without recomputation; 0 where there's none of this name.
    pub fn seconds(&self, program: &str) -> f64 {
        let programs = self.graph.programs.iter().zip(&self.seconds);
        let named = programs.filter(|(known, _)| known.name == program);
        named.flat_map(|(_, seconds)| seconds).sum()
    }

    /// The nodes of the program with a backward pass.
    fn nodes(&self) -> &[Node] {
        self.graph.programs.get(self.program).map_or(&[], |program| &program.nodes)
    }

    /// The plans that drop activations of blocks.
    fn listed(&mut self) -> &Listed {
        if self.listed.is_none() {
            let block_of: Vec<Option<usize>> = self.nodes().iter().map(|node| node.block).collect();
            let seconds = self.seconds.get(self.program).map_or(&[][..], |seconds| seconds);
            let mut blocks = Blocks::new(&self.outline, &block_of, seconds);
            // Other programs take the same bytes whatever is dropped.
            blocks.gaps[0] = blocks.gaps[0].max(self.others);
            let front = Front::new(&blocks.items, &blocks.gaps);
            self.listed = Some(Listed { blocks, front, bound: None });
        }
        self.listed.as_ref().expect("it was just made")
    }

    /// The tensors that a plan of the list recomputes.
    fn flags(&mut self, state: State, keep_last: bool) -> Result<Vec<bool>> {
        match state {
            State::Listed(plan) => {
                let mut flags = vec![false; self.graph.tensors.len()];
                self.dropped(plan).iter().for_each(|tensor| flags[tensor.index()] = true);
                if plan > 0 {
                    remat::drop_between(&self.graph.programs[self.program], &mut flags);
                }
                Ok(flags)
            }
            State::Segments(length) => {
                let checkpoint = segments_of(length);
                let program = &self.graph.programs[self.program];
                remat::chosen(&self.graph, program, &checkpoint, keep_last)
            }
        }
    }

    /// The tensors that a plan drops, in no order.
    fn dropped(&mut self, plan: usize) -> Vec<Tensor> {
        if plan == 0 {
            return vec![];
        }
        let Listed { blocks, front, .. } = self.listed();
        let choices = front.choices(plan).into_iter().enumerate();
        choices.flat_map(|(block, choice)| blocks.dropped(block, choice)).collect()
    }

    /// What a plan of the list recomputes.
    fn checkpoint(&mut self, state: State) -> Checkpoint {
        match state {
            State::Listed(0) => Checkpoint::None,
            State::Listed(plan) => {
                let mut dropped = self.dropped(plan);
                dropped.sort_unstable();
                let names = dropped.iter().map(|&tensor| self.graph.info(tensor).name.clone());
                Checkpoint::Tensors(names.collect())
            }
            State::Segments(length) => segments_of(length),
        }
    }

    /// What a plan of the list needs.
    fn needs(&mut self, state: State) -> Result<Needs> {
        if let Some(known) = self.known.get(&state) {
            return Ok(*known);
        }
        let flags = self.flags(state, false)?;
        let mut needs = self.simulated(&flags);
        if let State::Segments(_) = state {
            let flags = self.flags(state, true)?;
            let kept = self.simulated(&flags);
            if kept.bytes <= needs.bytes {
                needs = kept;
            }
        }
        self.known.insert(state, needs);
        Ok(needs)
    }

    /// What a plan that drops these tensors needs, by liveness.
    fn simulated(&self, flags: &[bool]) -> Needs {
        let turns = remat::turns(&self.outline.nodes, flags);
        let live = live_bytes(&self.outline.live(&turns, flags).buffers, turns.len());
        let most = live.into_iter().max().unwrap_or(0).max(self.others);
        let again: Vec<Turn> = turns.into_iter().filter(|turn| turn.again).collect();
        let parameters = self.outline.parameters(&again);
        let recompute_s = again.iter().map(|turn| self.seconds[self.program][turn.node]).sum();
        Needs { bytes: self.fixed + most + parameters, recompute_s }
    }

    /// Whether a plan of the list can need as few as `bytes`: what it drops is all that it can save.
    fn may_fit(&mut self, state: State, bytes: u64) -> Result<bool> {
        let whole = self.needs(State::Listed(0))?.bytes;
        let flags = self.flags(state, false)?;
        let dropped = self.outline.tensors.iter().zip(&flags).filter(|(_, dropped)| **dropped);
        let saved: u64 = dropped.map(|(stored, _)| stored.bytes).sum();
        Ok(whole.saturating_sub(saved) <= bytes)
    }

    /// Seconds of recomputation that no plan within `budget` bytes takes less than, known before any is listed: what is
    /// dropped is made again by its op, of which a part may run. Without end where no plan is as small.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn glanced_s(&mut self, budget: u64) -> Result<f64> {
        let whole = self.needs(State::Listed(0))?.bytes;
        let (mut left, mut sum) = (whole.saturating_sub(budget) as f64, 0.0);
        for &(bytes, seconds) in &self.droppable {
            if left <= 0.0 {
                break;
            }
            sum += (left / bytes).min(1.0) * seconds;
            left -= bytes;
        }
        Ok(if left > 0.0 { f64::INFINITY } else { sum })
    }

    /// Seconds of recomputation that no plan of the list within `budget` bytes takes less than: no choice of activations
    /// of whole blocks, and where none of these fits, no recomputation of segments. Without end where nothing fits.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn bound_s(&mut self, budget: u64) -> Result<f64> {
        let Some(Found { needs, state }) = self.fastest(budget)? else { return Ok(f64::INFINITY) };
        let State::Listed(plan) = state else { return Ok(needs.recompute_s) };
        if plan == 0 {
            return Ok(0.0);
        }
        let (fixed, pass_s) = (self.fixed, self.seconds[self.program].iter().sum::<f64>());
        self.listed();
        let Some(Listed { blocks, front, bound }) = &mut self.listed else { return Ok(0.0) };
        let bound = bound.get_or_insert_with(|| Bound::new(&blocks.items, &blocks.gaps));
        // Where the list counts more bytes than liveness does, those of the list are held against each other.
        let bytes = budget.saturating_sub(fixed).max(front.bytes(plan));
        let mut bound_s = bound.seconds(bytes);
        if needs.recompute_s - bound_s > CLOSE * pass_s {
            bound_s = bound_s.max(bound::closely(&blocks.items, &blocks.gaps, bytes));
        }
        Ok(bound_s.min(needs.recompute_s))
    }

    /// The fastest plan of the list that needs at most `bytes` by liveness, if one does.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn fastest(&mut self, bytes: u64) -> Result<Option<Found>> {
        if self.needs(State::Listed(0))?.bytes <= bytes {
            return self.found(State::Listed(0)).map(Some);
        }
        // The longest segments drop all that any plan does.
        let segments = self.segments();
        if let Some(&last) = segments.last()
            && !self.may_fit(last, bytes)?
        {
            return Ok(None);
        }
        let transient = bytes.saturating_sub(self.fixed);
        let Listed { front, .. } = self.listed();
        // Bytes of the list are those of liveness but for what blocks do to each other.
        let (count, mut plan) = (front.count(), front.first_within(transient));
        while plan < count && self.needs(State::Listed(plan))?.bytes > bytes {
            plan += 1;
        }
        while plan > 0 && self.needs(State::Listed(plan - 1))?.bytes <= bytes {
            plan -= 1;
        }
        if plan < count {
            return self.found(State::Listed(plan)).map(Some);
        }
        let mut fastest: Option<Found> = None;
        for state in segments {
            let slower = |found: &Found, needs: Needs| found.needs.recompute_s <= needs.recompute_s;
            if self.may_fit(state, bytes)? && self.needs(state)?.bytes <= bytes {
                let needs = self.needs(state)?;
                if !fastest.as_ref().is_some_and(|found| slower(found, needs)) {
                    fastest = Some(Found { needs, state });
                }
            }
        }
        Ok(fastest)
    }

    /// The plan of the list that needs the fewest bytes by liveness, the fastest of equals.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn smallest(&mut self) -> Result<Found> {
        let last = State::Listed(self.listed().front.count() - 1);
        let mut smallest = self.found(State::Listed(0))?;
        for state in [last].into_iter().chain(self.segments()) {
            let found = self.found(state)?;
            if found.needs.bytes < smallest.needs.bytes {
                smallest = found;
            }
        }
        Ok(smallest)
    }

    fn found(&mut self, state: State) -> Result<Found> {
        Ok(Found { needs: self.needs(state)?, state })
    }

    /// Gives every buffer of a plan its offset.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn place(&mut self, found: &Found) -> Result<Plan> {
        let options = Options { checkpoint: self.checkpoint(found.state), ..self.options.clone() };
        Plan::of_fused(self.graph.clone(), &options, self.target)
    }

    /// Plans that recompute whole segments. With L blocks of which each holds B bytes and begins with I, segments of n
    /// take about n·B + I·L/n, which is least at √(L·I/B): no length above √L is worth a try.
    fn segments(&self) -> Vec<State> {
        let blocks = self.nodes().iter().filter_map(|node| node.block).max().map_or(0, |b| b + 1);
        let longest = (1..).find(|n| n * n >= blocks).unwrap_or(1);
        (1..=longest).map(State::Segments).collect()
    }
}

/// Segments of so many blocks.
fn segments_of(length: usize) -> Checkpoint {
    if length == 1 { Checkpoint::Block } else { Checkpoint::Every(length) }
}

/// Bytes and seconds of the forward ops of blocks, the fewest seconds for their bytes first.
fn droppable(outline: &Outline, program: &Program, seconds: &[f64]) -> Vec<(f64, f64)> {
    let bytes = |tensor: &Tensor| outline.tensors[tensor.index()].bytes;
    let ops = program.nodes.iter().zip(seconds);
    let forward = ops.filter(|(node, _)| node.phase == Phase::Forward && node.block.is_some());
    let made =
        forward.map(|(node, &seconds)| (node.outputs.iter().map(bytes).sum::<u64>(), seconds));
    let made = made.filter(|&(bytes, _)| bytes > 0).map(|(bytes, seconds)| (bytes as f64, seconds));
    let mut made: Vec<(f64, f64)> = made.collect();
    made.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    made
}
