//! The fastest plan within a budget: which activations to recompute, op by op.
//!
//! What each block may drop is weighed once ([`Blocks`]), and plans of all blocks are listed from the fastest to the
//! smallest ([`ParetoFront`]). What a plan of the list needs is then found by the liveness of the whole program, never by
//! the sum of what is saved. Below the last one, where block inputs alone are kept, whole segments are recomputed.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::blocks::Blocks;
use super::bound::{self, Bound};
use super::chunks::{self, Chunk, Levels};
use super::given::{Given, segments_of};
use super::pareto::{self, Item, ParetoFront};
use super::remat::Turn;
use super::{Checkpoint, Options, Plan, Target, remat};
use crate::error::Result;
use crate::graph::{Graph, Node, Program, Role, Tensor};

/// Seconds that a node takes on the device that the plan is for.
pub type Seconds<'a> = &'a dyn Fn(&Graph, &Node) -> f64;

/// What a plan of the list needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// Bytes that it needs at least, and all but always exactly: offsets can leave gaps.
    pub bytes: u64,
    /// Seconds that one replay of its training program takes longer than with everything kept: recomputation, and logits of
    /// fewer rows at a time.
    pub extra_s: f64,
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

/// A plan may take fewer bytes than the list says, by at most one in so many.
const APART: u64 = 50;

/// The plans of one graph, from the fastest to the smallest.
pub struct Search<'a> {
    given: Rc<Given<'a>>,
    /// Seconds of every node, by program.
    seconds: Vec<Vec<f64>>,
    /// Seconds that the losses take longer with each number of rows.
    chunks_s: Vec<f64>,
    /// Bytes of what the ops of blocks make and their seconds, the fastest to make again first.
    droppable: Vec<(f64, f64)>,
    /// Seconds of a pass that a plan saves at most by what is fused after it was chosen.
    fused_s: f64,
    /// Made when something has to be dropped.
    listed: Option<Listed>,
    /// What was looked at: of segments, with the last one dropped and kept.
    known: HashMap<Dropped, Vec<Simulated>>,
}

/// The choices of the blocks and of the losses, the plans made of them, and what no plan betters.
struct Listed {
    blocks: Blocks,
    /// The choices of each block, and last those of the losses.
    items: Vec<Vec<Item>>,
    gaps: Vec<u64>,
    front: OnceCell<ParetoFront>,
    bound: OnceCell<Bound>,
}

impl Listed {
    fn front(&self) -> &ParetoFront {
        self.front.get_or_init(|| ParetoFront::new(&self.items, &self.gaps))
    }

    fn bound(&self) -> &Bound {
        self.bound.get_or_init(|| Bound::new(&self.items, &self.gaps))
    }

    /// Transients and parameters that no plan takes fewer bytes of: those of the list are those of liveness but for what
    /// blocks do to each other.
    fn least_bytes(&self) -> u64 {
        let fewest = pareto::fewest_bytes(&self.items, &self.gaps);
        fewest - fewest / APART
    }
}

/// What a plan recomputes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Dropped {
    Nothing,
    /// What the plan at this place of the list drops.
    Listed(usize),
    /// Segments of so many whole blocks.
    Segments(usize),
}

/// One plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    dropped: Dropped,
    /// Index among the numbers of rows.
    chunk: usize,
}

impl State {
    /// Everything is kept, and the graph as it was built.
    const WHOLE: Self = Self { dropped: Dropped::Nothing, chunk: 0 };
}

/// What recomputation comes to, by liveness.
#[derive(Clone, Debug)]
struct Simulated {
    levels: Levels,
    /// Bytes that the device keeps for ops that run again.
    parameters: u64,
    recompute_s: f64,
}

impl<'a> Search<'a> {
    /// Readies the search over `graph`, whose ops take `seconds`. Of `options`, the checkpoint is what is searched; where
    /// `free_chunk`, so are the rows of logits at a time, up to those that the graph was built with.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn new(
        graph: Graph,
        options: &Options,
        free_chunk: bool,
        target: &'a dyn Target,
        seconds: Seconds<'_>,
    ) -> Result<Self> {
        let given = Given::new(graph, options, free_chunk, target)?;
        Ok(Self::timed(Rc::new(given), seconds))
    }

    /// The same search where ops take other `seconds`.
    pub fn retimed(&self, seconds: Seconds<'_>) -> Self {
        Self::timed(Rc::clone(&self.given), seconds)
    }

    fn timed(given: Rc<Given<'a>>, seconds: Seconds<'_>) -> Self {
        let Given { graph, program, losses, chunks, .. } = &*given;
        let times = |graph: &Graph, program: &Program| -> Vec<f64> {
            program.nodes.iter().map(|node| seconds(graph, node)).collect()
        };
        let all: Vec<Vec<f64>> = graph.programs.iter().map(|it| times(graph, it)).collect();
        let (mut droppable, mut chunks_s, mut fused_s) = (vec![], vec![0.0; chunks.len()], 0.0);
        if let (Some(program), Some(own)) = (graph.programs.get(*program), all.get(*program)) {
            droppable = given.droppable(own);
            if let Some(fused) = &given.fused {
                let after_s = times(fused, &fused.programs[given.program]).iter().sum::<f64>();
                fused_s = (own.iter().sum::<f64>() - after_s).max(0.0);
            }
            let longer = |chunk: &Chunk, position: usize| {
                let node = &program.nodes[position];
                let op = chunks::with_rows(&node.op, chunk.rows);
                seconds(graph, &Node { op, ..node.clone() }) - own[position]
            };
            let longer = |chunk: &Chunk| losses.iter().map(|&loss| longer(chunk, loss)).sum();
            chunks_s = chunks.iter().map(longer).collect();
        }
        let (seconds, known) = (all, HashMap::new());
        Self { seconds, chunks_s, droppable, fused_s, listed: None, known, given }
    }

    /// The graph, with its maps fused.
    pub fn graph(&self) -> &Graph {
        &self.given.graph
    }

    /// Seconds of a program with everything kept; 0 where there's none of this role.
    pub fn seconds(&self, role: Role) -> f64 {
        let programs = self.given.graph.programs.iter().zip(&self.seconds);
        programs.filter(|(program, _)| program.role == role).flat_map(|(_, seconds)| seconds).sum()
    }

    /// Seconds of a pass that a plan may take less than its search says, as often as an op runs: activations are made by the
    /// matmuls that they read where there's room, once a plan is chosen.
    pub fn fused_s(&self) -> f64 {
        self.fused_s
    }

    /// The plans that drop activations of blocks.
    fn listed(&mut self) -> &Listed {
        if self.listed.is_none() {
            let Given { outline, losses, chunks, .. } = &*self.given;
            let block_of: Vec<Option<usize>> =
                self.given.nodes().iter().map(|node| node.block).collect();
            let seconds = self.seconds.get(self.given.program).map_or(&[][..], |seconds| seconds);
            let blocks = Blocks::new(outline, &block_of, seconds, losses);
            let (mut items, mut gaps) = (blocks.items.clone(), blocks.gaps.clone());
            // Other programs take the same bytes whatever is dropped.
            let others = chunks.iter().map(|chunk| chunk.others).min().unwrap_or(0);
            gaps[0] = gaps[0].max(others);
            // Losses are as a block after all others, which holds nothing.
            let levels = Levels::new(outline, &outline.turns(), &[], losses);
            let least = chunks.iter().map(|chunk| chunk.parameters).min().unwrap_or(0);
            let item = |(chunk, seconds): (&Chunk, &f64)| Item {
                peak: levels.of_losses(&chunk.scratch),
                saved: 0,
                seconds: *seconds,
                parameters: chunk.parameters - least,
            };
            items.push(chunks.iter().zip(&self.chunks_s).map(item).collect());
            gaps.push(0);
            let (front, bound) = (OnceCell::new(), OnceCell::new());
            self.listed = Some(Listed { blocks, items, gaps, front, bound });
        }
        self.listed.as_ref().expect("it was just made")
    }

    /// The plan at a place of the list.
    fn at(&mut self, plan: usize) -> State {
        let choices = self.listed().front().choices(plan);
        State { dropped: Dropped::Listed(plan), chunk: choices.last().copied().unwrap_or(0) }
    }

    /// Segments of so many blocks, with each number of rows of logits.
    fn segments_at(&self, length: usize) -> impl Iterator<Item = State> + use<> {
        let dropped = Dropped::Segments(length);
        (0..self.given.chunks.len()).map(move |chunk| State { dropped, chunk })
    }

    /// Plans that aren't in the list.
    fn unlisted(&self) -> Vec<State> {
        let segments = self.lengths().flat_map(|length| self.segments_at(length));
        [State::WHOLE].into_iter().chain(segments).collect()
    }

    /// The tensors that a plan recomputes.
    fn flags(&mut self, dropped: Dropped, keep_last: bool) -> Result<Vec<bool>> {
        let mut flags = vec![false; self.given.graph.tensors.len()];
        match dropped {
            Dropped::Nothing => Ok(flags),
            Dropped::Listed(plan) => {
                self.tensors(plan).iter().for_each(|tensor| flags[tensor.index()] = true);
                remat::drop_between(&self.given.graph.programs[self.given.program], &mut flags);
                Ok(flags)
            }
            Dropped::Segments(length) => {
                let checkpoint = segments_of(length);
                let Given { graph, program, .. } = &*self.given;
                remat::chosen(graph, &graph.programs[*program], &checkpoint, keep_last)
            }
        }
    }

    /// The tensors that a plan of the list drops, in no order.
    fn tensors(&mut self, plan: usize) -> Vec<Tensor> {
        let listed = self.listed();
        let blocks = &listed.blocks;
        let choices = listed.front().choices(plan).into_iter().enumerate().take(blocks.items.len());
        choices.flat_map(|(block, choice)| blocks.dropped(block, choice)).collect()
    }

    /// What a plan recomputes, for [`Plan::new`].
    fn checkpoint(&mut self, dropped: Dropped) -> Checkpoint {
        match dropped {
            Dropped::Nothing => Checkpoint::None,
            Dropped::Listed(plan) => {
                let mut dropped = self.tensors(plan);
                if dropped.is_empty() {
                    return Checkpoint::None;
                }
                dropped.sort_unstable();
                let graph = &self.given.graph;
                let names = dropped.iter().map(|&tensor| graph.info(tensor).name.clone());
                Checkpoint::Tensors(names.collect())
            }
            Dropped::Segments(length) => segments_of(length),
        }
    }

    /// What a plan needs.
    fn needs(&mut self, State { dropped, chunk }: State) -> Result<Needs> {
        if !self.known.contains_key(&dropped) {
            let ways =
                if matches!(dropped, Dropped::Segments(_)) { &[true, false][..] } else { &[false] };
            let mut simulated = vec![];
            for &keep_last in ways {
                let flags = self.flags(dropped, keep_last)?;
                simulated.push(self.simulated(&flags));
            }
            self.known.insert(dropped, simulated);
        }
        // As [`Plan::new`] decides: of equals, the last segment is kept.
        let needs = |simulated: &Simulated| Needs {
            bytes: self.bytes(simulated, chunk),
            extra_s: simulated.recompute_s + self.chunks_s[chunk],
        };
        let least = self.known[&dropped].iter().map(needs).min_by_key(|needs| needs.bytes);
        Ok(least.expect("one way or more"))
    }

    /// What dropping these tensors comes to.
    fn simulated(&self, flags: &[bool]) -> Simulated {
        let Given { outline, losses, program, .. } = &*self.given;
        let turns = remat::turns(&outline.nodes, flags);
        let levels = Levels::new(outline, &turns, flags, losses);
        let again: Vec<Turn> = turns.into_iter().filter(|turn| turn.again).collect();
        let parameters = outline.parameters(&again);
        let recompute_s = again.iter().map(|turn| self.seconds[*program][turn.node]).sum();
        Simulated { levels, parameters, recompute_s }
    }

    /// Bytes of all, with this number of rows of logits.
    fn bytes(&self, simulated: &Simulated, chunk: usize) -> u64 {
        self.given.bytes(&simulated.levels, chunk) + simulated.parameters
    }

    /// The fewest bytes with everything kept.
    fn whole(&mut self) -> Result<u64> {
        let mut fewest = u64::MAX;
        for chunk in 0..self.given.chunks.len() {
            fewest = fewest.min(self.needs(State { chunk, ..State::WHOLE })?.bytes);
        }
        Ok(fewest)
    }

    /// Bytes that no plan takes fewer of, however fast ops are.
    pub fn least_bytes(&self) -> u64 {
        self.given.least_bytes
    }

    /// Extra seconds that no plan within `budget` bytes takes less than, known before any is listed: what is dropped is made
    /// again by its op, of which a part may run. Without end where no plan is as small.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn glanced_s(&mut self, budget: u64) -> Result<f64> {
        if budget < self.least_bytes() {
            return Ok(f64::INFINITY);
        }
        let (mut left, mut sum) = (self.whole()?.saturating_sub(budget) as f64, 0.0);
        for &(bytes, seconds) in &self.droppable {
            if left <= 0.0 {
                break;
            }
            sum += (left / bytes).min(1.0) * seconds;
            left -= bytes;
        }
        Ok(if left > 0.0 { f64::INFINITY } else { sum })
    }

    /// Extra seconds that no plan of the list within `budget` bytes takes less than: no choice of activations of whole blocks,
    /// and where none of these fits, no recomputation of segments. Without end where nothing fits.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn bound_s(&mut self, budget: u64) -> Result<f64> {
        let Some(Found { needs, state }) = self.fastest(budget)? else { return Ok(f64::INFINITY) };
        let Dropped::Listed(plan) = state.dropped else { return Ok(needs.extra_s) };
        let (base, pass_s) =
            (self.given.base(), self.seconds[self.given.program].iter().sum::<f64>());
        let listed = self.listed();
        // Where the list counts more bytes than liveness does, those of the list are held against each other.
        let bytes = budget.saturating_sub(base).max(listed.front().bytes(plan));
        let mut bound_s = listed.bound().seconds(bytes);
        if needs.extra_s - bound_s > CLOSE * pass_s {
            bound_s = bound_s.max(bound::closely(&listed.items, &listed.gaps, bytes));
        }
        Ok(bound_s.min(needs.extra_s))
    }

    /// The fastest plan of the list that needs at most `bytes` by liveness, if one does.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn fastest(&mut self, bytes: u64) -> Result<Option<Found>> {
        if self.needs(State::WHOLE)?.bytes <= bytes {
            return self.found(State::WHOLE).map(Some);
        }
        if bytes < self.least_bytes() {
            return Ok(None);
        }
        let transient = bytes.saturating_sub(self.given.base());
        let listed = self.listed();
        let (mut count, mut plan) = (0, 0);
        if transient >= listed.least_bytes() {
            (count, plan) = (listed.front().count(), listed.front().first_within(transient));
        }
        while plan < count && self.listed_needs(plan)?.bytes > bytes {
            plan += 1;
        }
        while plan > 0 && self.listed_needs(plan - 1)?.bytes <= bytes {
            plan -= 1;
        }
        if plan < count {
            let state = self.at(plan);
            return self.found(state).map(Some);
        }
        let mut fastest: Option<Found> = None;
        for length in self.lengths() {
            for state in self.segments_at(length) {
                let found = self.found(state)?;
                let slower = |fastest: &Found| found.needs.extra_s < fastest.needs.extra_s;
                if found.needs.bytes <= bytes && fastest.as_ref().is_none_or(slower) {
                    fastest = Some(found);
                }
            }
        }
        Ok(fastest)
    }

    fn listed_needs(&mut self, plan: usize) -> Result<Needs> {
        let state = self.at(plan);
        self.needs(state)
    }

    /// Plans that need few bytes by liveness, those with the fewest first, and of these the fastest; one or more.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn smallest(&mut self) -> Result<Vec<Found>> {
        let last = self.listed().front().count() - 1;
        let last = self.at(last);
        let all = self.unlisted().into_iter().chain([last]);
        let mut smallest = all.map(|state| self.found(state)).collect::<Result<Vec<_>>>()?;
        smallest.sort_by(|a, b| {
            let seconds = a.needs.extra_s.total_cmp(&b.needs.extra_s);
            a.needs.bytes.cmp(&b.needs.bytes).then(seconds)
        });
        Ok(smallest)
    }

    fn found(&mut self, state: State) -> Result<Found> {
        Ok(Found { needs: self.needs(state)?, state })
    }

    /// Rows of logits at a time in a plan; those that the graph was built with where there's none.
    pub fn rows(&self, found: &Found) -> Option<usize> {
        self.given.chunks[found.state.chunk].rows
    }

    /// Gives every buffer of a plan its offset.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn place(&mut self, found: &Found) -> Result<Plan> {
        let checkpoint = self.checkpoint(found.state.dropped);
        let Given { graph, options, target, .. } = &*self.given;
        let options = Options { checkpoint, ..options.clone() };
        let mut graph = graph.clone();
        chunks::set_rows(&mut graph, self.rows(found));
        Plan::of_fused(graph, &options, *target)
    }

    /// Lengths of whole segments that are recomputed.
    fn lengths(&self) -> RangeInclusive<usize> {
        1..=self.given.longest
    }
}
