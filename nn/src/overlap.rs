//! A step whose ranks compute while they send: what it would take.
//!
//! A device computes, and its links carry bytes, one thing at a time each. The weights of a block are fetched while the block before
//! computes. Gradients are exchanged while the next block's are made, and added up once they have come. So two blocks are on their way
//! at once at most.

use std::collections::{BTreeSet, VecDeque};

use tightrope_core::graph::Program;
use tightrope_core::ops::Collective;
use tightrope_core::{Graph, Node, Phase, Role, Tensor};

use crate::{Planned, Rates};

/// A step whose ranks compute while they send.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overlapped {
    /// Seconds of the step.
    pub step_s: f64,
    /// Seconds in which the device computes.
    pub compute_s: f64,
    /// Seconds in which the links are busy.
    pub sent_s: f64,
    /// Bytes that are alive for longer than in the plan: weights of the next block, and gradients of the last.
    pub ahead_bytes: u64,
}

impl Overlapped {
    /// Part of what is sent while the device computes.
    pub fn share(&self) -> f64 {
        if self.sent_s > 0.0 {
            (1.0 - (self.step_s - self.compute_s) / self.sent_s).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

impl Planned {
    /// What the step would take if ranks computed while they send.
    pub fn overlapped(&self, rates: &Rates) -> Overlapped {
        let mut step = Overlapped::default();
        let graph = &self.plan.graph;
        for program in &graph.programs {
            let runs = program.role.runs_per_step(self.config().accumulation()) as f64;
            if runs > 0.0 {
                let lanes = Lanes::of(graph, program, rates);
                step.step_s += runs * lanes.compute.max(lanes.links);
                step.compute_s += runs * lanes.compute_s;
                step.sent_s += runs * lanes.sent_s;
            }
            if matches!(program.role, Role::Micro | Role::Train) {
                let leave = self.config().gradients_leave();
                step.ahead_bytes = step.ahead_bytes.max(ahead_bytes(graph, program, leave));
            }
        }
        step
    }
}

/// Whether it puts weights together for the ops after it.
fn fetches(node: &Node) -> bool {
    node.phase != Phase::Update && matches!(node.op.collective(), Some(Collective::Assemble { .. }))
}

fn sends(node: &Node) -> bool {
    node.op.collective().is_some_and(Collective::sends)
}

/// Nodes of a program from each change of phase or block to the next. What is sent as soon as it's made is in between.
fn groups(program: &Program) -> Vec<&[Node]> {
    let (mut groups, mut start, mut place) = (vec![], 0, None);
    for (index, node) in program.nodes.iter().enumerate() {
        if node.phase != Phase::Update && place != Some((node.phase, node.block)) {
            if place.is_some() {
                groups.push(&program.nodes[start..index]);
                start = index;
            }
            place = Some((node.phase, node.block));
        }
    }
    groups.push(&program.nodes[start..]);
    groups
}

/// The most bytes of weights that a group of nodes needs, and of gradients that it makes.
fn ahead_bytes(graph: &Graph, program: &Program, leave: bool) -> u64 {
    let bytes = |tensors: BTreeSet<Tensor>| -> u64 {
        tensors.iter().map(|&tensor| graph.ty(tensor).bytes() as u64).sum()
    };
    let (mut weights, mut gradients) = (0, 0);
    for group in groups(program) {
        let fetched = group.iter().filter(|node| fetches(node) && sends(node));
        weights = weights.max(bytes(fetched.map(|node| node.outputs[0]).collect()));
        let exchanges =
            |node: &&Node| matches!(node.op.collective(), Some(Collective::Exchange(_)));
        let exchanged = group.iter().filter(|node| leave && exchanges(node));
        gradients = gradients.max(bytes(exchanged.map(|node| node.inputs[0]).collect()));
    }
    weights + gradients
}

/// The device and its links in a program, with the seconds until each is free.
struct Lanes<'a> {
    graph: &'a Graph,
    rates: &'a Rates,
    compute: f64,
    links: f64,
    compute_s: f64,
    sent_s: f64,
    /// When each tensor is there.
    ready: Vec<f64>,
    /// Whether it's of what other ranks sent.
    late: Vec<bool>,
    /// What waits for other ranks, in the order of the program, with the group of each.
    waiting: VecDeque<(usize, &'a Node)>,
}

impl<'a> Lanes<'a> {
    fn of(graph: &'a Graph, program: &'a Program, rates: &'a Rates) -> Self {
        let tensors = graph.tensors.len();
        let mut lanes = Self {
            graph,
            rates,
            compute: 0.0,
            links: 0.0,
            compute_s: 0.0,
            sent_s: 0.0,
            ready: vec![0.0; tensors],
            late: vec![false; tensors],
            waiting: VecDeque::new(),
        };
        let groups = groups(program);
        lanes.fetch(groups[0]);
        for (index, group) in groups.iter().enumerate() {
            lanes.finish(|_, of, _| of + 1 < index);
            lanes.fetch(groups.get(index + 1).copied().unwrap_or_default());
            for node in group.iter().filter(|node| !fetches(node)) {
                lanes.reach(index, node);
            }
        }
        lanes.finish(|_, _, _| true);
        lanes
    }

    /// Sends for the weights of a group, from now on.
    fn fetch(&mut self, group: &[Node]) {
        for node in group.iter().filter(|node| fetches(node)) {
            self.run(node, self.compute);
        }
    }

    /// Runs an op, or leaves it until what it reads has come.
    fn reach(&mut self, group: usize, node: &'a Node) {
        if node.inputs.iter().any(|input| self.late[input.index()]) {
            node.outputs.iter().for_each(|output| self.late[output.index()] = true);
            self.waiting.push_back((group, node));
            return;
        }
        self.finish(|lanes, _, node| lanes.ready(node) <= lanes.compute);
        self.run(node, 0.0);
        if sends(node) {
            node.outputs.iter().for_each(|output| self.late[output.index()] = true);
        }
    }

    /// Runs what waits, as long as `due` says so of the next.
    fn finish(&mut self, due: impl Fn(&Self, usize, &Node) -> bool) {
        while let Some(&(group, node)) = self.waiting.front()
            && due(self, group, node)
        {
            self.waiting.pop_front();
            self.run(node, 0.0);
        }
    }

    fn ready(&self, node: &Node) -> f64 {
        node.inputs.iter().map(|input| self.ready[input.index()]).fold(0.0, f64::max)
    }

    fn run(&mut self, node: &Node, earliest: f64) {
        let (start, seconds) =
            (self.ready(node).max(earliest), self.rates.seconds(self.graph, node));
        let (lane, sum) = match sends(node) {
            true => (&mut self.links, &mut self.sent_s),
            false => (&mut self.compute, &mut self.compute_s),
        };
        *lane = lane.max(start) + seconds;
        *sum += seconds;
        let end = *lane;
        node.outputs.iter().for_each(|output| self.ready[output.index()] = end);
    }
}
