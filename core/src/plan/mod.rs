//! `Plan`: the whole training step, known in advance: a flat list of steps and the arena offset of every
//! tensor.
//!
//! Persistent tensors take fixed low offsets; each program's transients share the bytes above. A backend
//! allocates [`Plan::arena_bytes`] and nothing else, so that the predicted peak is the allocated one.

use std::ops::Range;

use crate::error::Result;
use crate::fuse::{self, fuse};
use crate::graph::{Graph, Life, Phase, Program, Tensor};
use crate::ops::{Cost, Rule};

mod blocks;
mod bound;
mod buffer;
mod chunks;
mod commit;
mod full;
mod gaps;
mod given;
mod in_flight;
mod liveness;
pub mod offload;
mod offsets;
mod outline;
mod pages;
mod pareto;
mod remat;
mod report;
mod search;
pub mod sharding;
mod taken;

pub use buffer::{Buffer, Page, live_bytes};
pub use in_flight::Event;
use liveness::Live;
pub use offsets::{Placement, place};
use outline::Outline;
use pages::Pages;
pub use remat::Checkpoint;
pub use report::{Alive, ByClass, GAPS, Report};
pub use search::{Found, Needs, Search, Seconds};

pub use crate::ops::Direction;
pub use crate::target::{PlannedAs, Target};

/// Choices of the planner that change memory and time, and no number.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which activations are recomputed.
    pub checkpoint: Checkpoint,
    /// Apply the fusion rewrites.
    pub fusion: bool,
    /// Let ops write over inputs that die with them.
    pub in_place: bool,
    /// Overlap transfers with the ops of a block, where the device has queues for them: elsewhere it would take bytes and
    /// save no time.
    pub overlap: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { checkpoint: Checkpoint::None, fusion: true, in_place: true, overlap: true }
    }
}

impl Options {
    /// Whether transfers overlap the ops of `target`.
    pub fn overlaps(&self, target: &dyn Target) -> bool {
        self.overlap && target.copy_queues()
    }

    /// Whether what ranks exchange overlaps the ops of `target`.
    pub fn exchanges_beside(&self, target: &dyn Target) -> bool {
        // A browser's tab has no others to train with.
        !cfg!(target_family = "wasm") && self.overlap && target.links_overlap()
    }

    /// As [`Options::exchanges_beside`], in programs of `graph`: not where the session moves tensors between the steps of any, as a device
    /// replays those between two transfers at once, and nothing may be on its way from one replay to the next.
    pub fn exchanges_beside_in(&self, graph: &Graph, target: &dyn Target) -> bool {
        self.exchanges_beside(target) && graph.has_collectives() && !graph.has_transfers()
    }
}

/// One op with its scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the node in its program.
    pub node: usize,
    /// Arena offset and bytes of the scratch, where the op needs any.
    pub workspace: Option<(u64, u64)>,
}

/// A range of the arena that a program uses for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The tensors that live in it one after the other, with the step that makes each; none for scratch.
    pub tensors: Vec<(Tensor, usize)>,
    /// Arena offset.
    pub offset: u64,
    /// Bytes, alignment included.
    pub bytes: u64,
    /// First step that needs it.
    pub birth: usize,
    /// Last step that needs it.
    pub death: usize,
}

/// One program of a plan.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// What becomes of its transfers, each before a step or after the last.
    pub events: Vec<(usize, Event)>,
    /// First step that changes what outlasts a step of training. From there on the program is finished, whoever asks to stop.
    pub commits_at: usize,
    /// What is where and when: the arena as a map of offset and time, persistent tensors apart.
    pub allocations: Vec<Allocation>,
    /// Live bytes during each step, persistent tensors included.
    pub timeline: Vec<u64>,
    /// Bytes of transients and scratch as placed.
    pub transient_bytes: u64,
    /// No placement of these transients can take less.
    pub lower_bound: u64,
    /// Arithmetic and traffic of one replay.
    pub cost: Cost,
}

impl ProgramPlan {
    /// What a session does between steps, and before which: all but collectives where the device makes those itself.
    pub fn events_of(&self, linked: bool) -> impl Iterator<Item = (usize, Event)> {
        let is_left = move |(_, event): &(usize, Event)| {
            let (Event::Begin(direction, _) | Event::End(direction, _)) = event;
            !linked || *direction != Direction::Across
        };
        self.events.iter().copied().filter(is_left)
    }

    /// Ranges of steps that a session runs without doing anything between them, in their order, on a device that makes collectives
    /// itself or doesn't. None is empty. A program that can be stopped is cut where it no longer can.
    pub fn uninterrupted(&self, linked: bool) -> Vec<Range<usize>> {
        let events = self.events_of(linked).map(|(step, _)| step);
        let commit = Some(self.commits_at).filter(|_| !linked);
        let mut cuts: Vec<usize> =
            [0, self.steps.len()].into_iter().chain(events).chain(commit).collect();
        cuts.sort_unstable();
        cuts.windows(2).map(|cut| cut[0]..cut[1]).filter(|range| !range.is_empty()).collect()
    }
}

/// A graph with a place for everything.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The graph after fusion and rematerialisation.
    pub graph: Graph,
    /// Choices it was made with.
    pub options: Options,
    /// One entry a program of the graph.
    pub programs: Vec<ProgramPlan>,
    /// Arena offset of each tensor; `None` for those that no program uses.
    pub offsets: Vec<Option<u64>>,
    /// Bytes of all persistent tensors, as placed.
    pub persistent_bytes: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes the device keeps besides: parameters of launches, staging.
    pub fixed_bytes: u64,
}

/// `graph` after the rewrites of fusion, where they're asked for.
fn fused(mut graph: Graph, options: &Options, target: &dyn Target) -> Result<Graph> {
    graph.check_in_place()?;
    if options.exchanges_beside_in(&graph, target) {
        sharding::exchange_late(&mut graph);
    }
    if options.fusion {
        fuse(&mut graph, target);
        graph.check_in_place()?;
    }
    Ok(graph)
}

/// Live bytes of transients at each step of each program.
fn timelines(graph: &Graph, lived: &[Live]) -> Vec<Vec<u64>> {
    let of = |(program, live): (&Program, &Live)| live_bytes(&live.buffers, program.nodes.len());
    graph.programs.iter().zip(lived).map(of).collect()
}

fn fullest(timelines: &[Vec<u64>]) -> u64 {
    timelines.iter().flatten().copied().max().unwrap_or(0)
}

/// Whether activations are made where the matmuls are that they read.
fn fuses_activations(options: &Options, target: &dyn Target) -> bool {
    options.fusion && target.epilogues()
}

/// `graph` with activations made where the matmuls are that they read, though others read those matmuls too. Both are
/// then alive at once, so that is done after what is recomputed was decided, and where the peak stays what it was.
fn with_activations(graph: Graph, options: &Options, target: &dyn Target) -> Graph {
    let live = |graph: &Graph| {
        let outlines = Outline::all(graph, options, target);
        let lived: Vec<Live> = outlines.iter().map(|o| o.live(&o.turns(), &[])).collect();
        timelines(graph, &lived)
    };
    let before = live(&graph);
    let most = fullest(&before);
    let mut after = graph.clone();
    for (index, timeline) in before.iter().enumerate() {
        fuse::activations_into_matmuls(&mut after, index, |tensor, steps| {
            let bytes = (graph.ty(tensor).bytes() as u64).next_multiple_of(target.alignment());
            timeline[steps].iter().all(|live| live + bytes <= most)
        });
    }
    // Each activation that moves is a node less.
    let nodes =
        |graph: &Graph| graph.programs.iter().map(|program| program.nodes.len()).sum::<usize>();
    if nodes(&after) < nodes(&graph) && fullest(&live(&after)) <= most { after } else { graph }
}

impl Plan {
    /// Plans `graph` for `target`. The same graph and options give the same plan.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] for a checkpoint tensor that isn't there, [`crate::Error::Overwritten`]
    /// where a tensor is read after an in-place op took its storage.
    pub fn new(graph: Graph, options: &Options, target: &dyn Target) -> Result<Self> {
        Self::of_fused(fused(graph, options, target)?, options, target)
    }

    /// As [`Plan::new`], of a graph with its maps fused already.
    fn of_fused(mut graph: Graph, options: &Options, target: &dyn Target) -> Result<Self> {
        let passes: Vec<usize> = (0..graph.programs.len())
            .filter(|&index| graph.programs[index].nodes.iter().any(|n| n.phase == Phase::Backward))
            .collect();
        let chosen = |graph: &Graph, keep_last: bool| -> Result<Vec<Vec<bool>>> {
            let of = |&index: &usize| {
                remat::chosen(graph, &graph.programs[index], &options.checkpoint, keep_last)
            };
            passes.iter().map(of).collect()
        };
        let mut dropped = chosen(&graph, false)?;
        if !matches!(options.checkpoint, Checkpoint::None | Checkpoint::Tensors(_)) {
            // Keeping the last segment saves its recomputation and rarely costs memory: take it where it's free.
            let kept = chosen(&graph, true)?;
            let outlines = Outline::all(&graph, options, target);
            let needs = |dropped: &[Vec<bool>]| {
                let of = |(index, outline): (usize, &Outline)| {
                    let pass = passes.iter().position(|&pass| pass == index);
                    outline.needs(pass.map_or(&[], |pass| &dropped[pass]))
                };
                let needs: Vec<(u64, u64)> = outlines.iter().enumerate().map(of).collect();
                let live = needs.iter().map(|&(live, _)| live).max().unwrap_or(0);
                live + needs.iter().map(|&(_, parameters)| parameters).sum::<u64>()
            };
            if needs(&kept) <= needs(&dropped) {
                dropped = kept;
            }
        }
        for (&index, dropped) in passes.iter().zip(&dropped) {
            let program = std::mem::take(&mut graph.programs[index]);
            graph.programs[index] = remat::rewrite(&mut graph, program, dropped);
        }
        graph.check_in_place()?;
        if fuses_activations(options, target) {
            graph = with_activations(graph, options, target);
        }
        Ok(Self::place(graph, options, target))
    }

    fn place(graph: Graph, options: &Options, target: &dyn Target) -> Self {
        let align = |bytes: u64| bytes.next_multiple_of(target.alignment());
        let mut offsets = vec![None; graph.tensors.len()];
        let mut pages = Pages::new(target.buffer_bytes());
        for (index, info) in graph.tensors.iter().enumerate() {
            if info.life == Life::Persistent && info.replaces.is_none() {
                offsets[index] = Some(pages.append(align(info.ty.bytes() as u64)));
            }
        }
        let persistent_bytes = pages.end();
        let page = Page { base: persistent_bytes, bytes: target.buffer_bytes() };
        let outlines = Outline::all(&graph, options, target);
        let lived: Vec<Live> = outlines.iter().map(|o| o.live(&o.turns(), &[])).collect();
        let transfers = outlines.iter().map(|o| o.in_flight(&o.turns()));
        let parameters: u64 = outlines.iter().map(|o| o.parameters(&o.turns())).sum();
        let timelines = timelines(&graph, &lived);
        // Programs share the space, so that none has to be smaller than the largest can be.
        let enough = fullest(&timelines);
        let mut programs = vec![];
        let lived = lived.into_iter().zip(transfers);
        for ((program, (live, transfers)), timeline) in
            graph.programs.iter().zip(lived).zip(timelines)
        {
            let lower_bound = timeline.iter().copied().max().unwrap_or(0);
            let placement = place(&live.buffers, enough, page);
            let mut allocations: Vec<Allocation> = live
                .buffers
                .iter()
                .zip(&placement.offsets)
                .map(|(buffer, offset)| Allocation {
                    tensors: vec![],
                    offset: persistent_bytes + offset,
                    bytes: buffer.bytes,
                    birth: buffer.birth,
                    death: buffer.death,
                })
                .collect();
            for (tensor, buffer, born) in live.tensors {
                offsets[tensor.index()] = Some(allocations[buffer].offset);
                allocations[buffer].tensors.push((tensor, born));
            }
            let steps = (0..program.nodes.len())
                .map(|node| Step {
                    node,
                    workspace: live.workspaces[node]
                        .map(|buffer| (allocations[buffer].offset, allocations[buffer].bytes)),
                })
                .collect();
            let events = in_flight::events(&transfers);
            programs.push(ProgramPlan {
                commits_at: commit::commits_at(&graph, program, &events),
                events,
                steps,
                allocations,
                timeline: timeline.iter().map(|live| live + persistent_bytes).collect(),
                transient_bytes: placement.bytes,
                lower_bound,
                cost: cost(&graph, program),
            });
        }
        for (index, root) in graph.storages().into_iter().enumerate() {
            offsets[index] = offsets[index].or(offsets[root.index()]);
        }
        let transient = programs.iter().map(|program| program.transient_bytes).max().unwrap_or(0);
        let beside = options.exchanges_beside_in(&graph, target);
        let options = Options { overlap: options.overlaps(target) || beside, ..options.clone() };
        let arena_bytes = persistent_bytes + transient;
        let fixed_bytes = target.staging() + parameters;
        Self { graph, options, programs, offsets, persistent_bytes, arena_bytes, fixed_bytes }
    }

    /// All bytes that a device allocates for this plan: the predicted peak.
    pub fn peak_bytes(&self) -> u64 {
        self.arena_bytes + self.fixed_bytes
    }

    /// Arena offset and bytes of `tensor`; `None` where no program uses it.
    pub fn range(&self, tensor: Tensor) -> Option<(u64, u64)> {
        let offset = self.offsets.get(tensor.index()).copied().flatten()?;
        Some((offset, self.graph.ty(tensor).bytes() as u64))
    }

    /// Largest sum of live bytes of any step, and what is kept besides: no arena for these programs can be
    /// smaller.
    pub fn lower_bound_bytes(&self) -> u64 {
        let bound = self.programs.iter().map(|program| program.lower_bound).max().unwrap_or(0);
        self.persistent_bytes + bound + self.fixed_bytes
    }
}

fn cost(graph: &Graph, program: &Program) -> Cost {
    let mut sum = Cost::default();
    for node in &program.nodes {
        let (inputs, outputs) = graph.types(node);
        let cost = node.op.cost(&inputs, &outputs);
        sum.flops += cost.flops;
        sum.bytes += cost.bytes;
    }
    sum
}
