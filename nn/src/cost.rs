//! Estimated time of a plan: each op takes the longer of its arithmetic and its traffic, at the rates of its
//! family.
//!
//! Default rates are of one kind of machine and rounded: they rank plans and tell seconds from minutes. Measured
//! ones are what the ops of small steps took on the device, see [`Rates::fitted`] and [`Rates::by_family`].

mod families;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use tightrope_core::ops::{Collective, Direction};
use tightrope_core::plan::{Event, ProgramPlan};
use tightrope_core::{
    DType, Graph, Life, Node, Op, Phase, Plan, Program, Role, Rule as _, TensorInfo,
};

use crate::{Interconnect, Precision};
use families::Families;

/// What a device reaches with one storage type, FLOP/s and B/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Matmuls.
    matmul: f64,
    /// The loss: matmuls with the head, and what is computed from the logits.
    loss: f64,
    /// Attention, whose matmuls are small.
    attention: f64,
    /// Formulas, norms and sums, where they compute more than they move.
    elementwise: f64,
    /// Memory.
    bytes: f64,
    /// Between the host's memory and the device's.
    #[serde(default = "default_link")]
    link: f64,
    /// The host's memory, for what it computes for a device.
    #[serde(default = "default_host")]
    host: f64,
    /// Seconds to begin an op.
    launch_s: f64,
    /// Seconds of families of which ops were timed one by one.
    families: Families,
    /// Between ranks; by way of the host where that's not known.
    #[serde(skip)]
    interconnect: Option<Interconnect>,
}

/// Two channels of the host's memory, as its update reaches, B/s.
fn default_host() -> f64 {
    20e9
}

/// A PCI Express 3 slot of 16 lanes with what its protocol takes off, B/s.
fn default_link() -> f64 {
    12e9
}

/// What a GPU could reach at most, FLOP/s and B/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Matmuls of the storage type.
    pub matmul: f64,
    /// Arithmetic in f32 without tensor cores.
    pub vector: f64,
    /// Memory.
    pub bytes: f64,
    /// Between the host's memory and the device's, one way.
    pub link: f64,
}

/// FLOP/s and B/s of what may be a device: from a microcontroller to a rack of GPUs.
const PLAUSIBLE: RangeInclusive<f64> = 1e6..=1e18;
/// Threads that a socket's memory keeps busy.
const MEMORY_THREADS: usize = 6;
/// Seconds to begin an op on all threads of a processor, and on a GPU.
const LAUNCH_S: [f64; 2] = [4e-6, 10e-6];
/// Seconds from one kernel to the next of a CUDA graph.
const GRAPH_LAUNCH_S: f64 = 2e-6;

/// A Tesla T4, the slowest GPU that CUDA's kernels run on and anyone trains with, in f32 and in 16 bits: for one of which
/// nothing is known.
const SLOWEST_CUDA: [Peaks; 2] = {
    let f32 = Peaks { matmul: 8.1e12, vector: 8.1e12, bytes: 320e9, link: 15.8e9 };
    [f32, Peaks { matmul: 65e12, ..f32 }]
};

/// Ops with a rate in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    MatMul,
    Loss,
    Attention,
    Elementwise,
    Transfer,
}

impl Family {
    fn of(op: &Op) -> Self {
        match op {
            Op::MatMul(_) | Op::FusedMatMul(_) => Self::MatMul,
            op if op.loss().is_some() => Self::Loss,
            Op::Attention(_) | Op::AttentionGrad(_) | Op::CachedAttention(_) => Self::Attention,
            Op::Transfer(_) | Op::Collective(_) => Self::Transfer,
            _ => Self::Elementwise,
        }
    }
}

/// How long an op took.
#[derive(Clone, Copy, Debug)]
pub struct Timed<'a> {
    /// The graph it's in.
    pub graph: &'a Graph,
    /// The op.
    pub node: &'a Node,
    /// Seconds of one run.
    pub seconds: f64,
}

/// Arithmetic and traffic of an op.
fn cost(graph: &Graph, node: &Node) -> (f64, f64) {
    let (inputs, outputs) = graph.types(node);
    let cost = node.op.cost(&inputs, &outputs);
    (cost.flops as f64, cost.bytes as f64)
}

/// Traffic of a loss for chunks of logits after the first.
fn again(graph: &Graph, node: &Node) -> f64 {
    let (inputs, outputs) = graph.types(node);
    node.op.again_bytes(&inputs, &outputs) as f64
}

impl Rates {
    /// Whether a device could have them. What a damaged file says isn't to be planned with.
    pub fn plausible(&self) -> bool {
        let Self { matmul, loss, attention, elementwise, bytes, link, host, launch_s, .. } = *self;
        let rates = [matmul, loss, attention, elementwise, bytes, link, host];
        rates.iter().all(|rate| PLAUSIBLE.contains(rate))
            && (0.0..=1.0).contains(&launch_s)
            && self.families.plausible()
    }

    /// Default rates of a device by its name, which for a CPU says how wide its vectors are, with this many
    /// threads of it.
    pub fn of(device: &str, precision: Precision, threads: usize) -> Self {
        let narrow = precision.dtype() != DType::F32;
        if device.starts_with("cuda") {
            return Self::of_peaks(&SLOWEST_CUDA[usize::from(narrow)]);
        }
        // Of a GPU in all, and of a CPU for each thread.
        let ([matmul, attention, elementwise, bytes], threads, launch_s) =
            if device.starts_with("wgpu") {
                // A small GPU: what a page may meet.
                ([600e9, 200e9, 60e9, 60e9], 1, LAUNCH_S[1])
            } else if device.contains("avx512") {
                ([if narrow { 180e9 } else { 90e9 }, 45e9, 8e9, 10e9], threads, LAUNCH_S[0])
            } else if device.contains("avx2") {
                ([if narrow { 45e9 } else { 55e9 }, 25e9, 5e9, 8e9], threads, LAUNCH_S[0])
            } else {
                ([if narrow { 4e9 } else { 6e9 }, 4e9, 1e9, 6e9], threads, LAUNCH_S[0])
            };
        let all = threads as f64;
        Self {
            matmul: matmul * all,
            loss: matmul * all,
            attention: attention * all,
            elementwise: elementwise * all,
            bytes: bytes * threads.min(MEMORY_THREADS) as f64,
            link: default_link(),
            host: default_host(),
            launch_s,
            families: Families::NONE,
            interconnect: None,
        }
    }

    /// Rates of a GPU that was never measured, by its peaks. Its matmuls take twice as long as at the peak, and its memory
    /// gives four fifths.
    pub fn of_peaks(peaks: &Peaks) -> Self {
        let matmul = 0.5 * peaks.matmul;
        Self {
            matmul,
            loss: matmul,
            attention: 0.6 * matmul,
            elementwise: 0.25 * peaks.vector,
            bytes: 0.8 * peaks.bytes,
            link: 0.8 * peaks.link,
            host: default_host(),
            launch_s: GRAPH_LAUNCH_S,
            families: Families::NONE,
            interconnect: None,
        }
    }

    /// These rates on a device that multiplies matrices at `matmul` FLOP/s, and does everything else as much
    /// faster or slower.
    pub fn scaled_to(&self, matmul: f64) -> Self {
        let by = matmul / self.matmul;
        Self {
            matmul,
            loss: by * self.loss,
            attention: by * self.attention,
            elementwise: by * self.elementwise,
            bytes: by * self.bytes,
            families: self.families.slower(1.0 / by),
            ..*self
        }
    }

    /// These rates, with bytes between host and device as fast as `link`, B/s.
    pub fn linked(self, link: f64) -> Self {
        Self { link, ..self }
    }

    /// These rates, with ranks that are connected so.
    pub fn connected(self, interconnect: Option<Interconnect>) -> Self {
        Self { interconnect, ..self }
    }

    /// Seconds of what the host runs once a step, with what is fetched for it and sent back.
    pub(crate) fn host_seconds(&self, device: &Graph, host: &Graph) -> f64 {
        let own = host.programs.iter().filter(|program| program.role != Role::Add);
        let seconds: f64 = own.map(|program| self.host_program_seconds(host, program)).sum();
        let shared = host.tensors.iter().zip(&device.tensors);
        let kept = |info: &TensorInfo| info.life == Life::Persistent && info.replaces.is_none();
        let both = shared.filter(|(host, device)| kept(host) && kept(device));
        seconds + both.map(|(info, _)| info.ty.bytes() as f64).sum::<f64>() / self.link
    }

    /// Seconds that the host takes to add the gradients of one pass.
    pub(crate) fn add_seconds(&self, host: &Graph) -> f64 {
        let adds = host.programs.iter().filter(|program| program.role == Role::Add);
        adds.map(|program| self.host_program_seconds(host, program)).sum()
    }

    fn host_program_seconds(&self, host: &Graph, program: &Program) -> f64 {
        // A browser's tab has no others to train with.
        let is_across = |node: &&Node| {
            !cfg!(target_family = "wasm") && node.op.collective().is_some_and(Collective::sends)
        };
        let own = program.nodes.iter().filter(|node| !is_across(node));
        let across = program.nodes.iter().filter(is_across);
        own.map(|node| cost(host, node).1).sum::<f64>() / self.host
            + across.map(|node| self.seconds(host, node)).sum::<f64>()
    }

    /// The rates at which ops took as long as they did. What none of them tells stays as it is here.
    pub fn fitted(&self, ops: &[Timed<'_>]) -> Self {
        // More arithmetic than this for each byte, and an op's memory has time to spare.
        let balance = self.elementwise / self.bytes;
        let mut sums = [(0.0, 0.0); 5];
        for &Timed { graph, node, seconds } in ops {
            let (flops, bytes) = cost(graph, node);
            let (index, amount) = match Family::of(&node.op) {
                Family::MatMul => (0, flops),
                Family::Loss => (1, flops),
                Family::Attention => (2, flops),
                Family::Elementwise if flops > balance * bytes => (3, flops),
                Family::Elementwise => (4, bytes),
                // The session makes it, and it's no op of the device.
                Family::Transfer => continue,
            };
            sums[index].0 += amount;
            let again_s = again(graph, node) / self.bytes;
            sums[index].1 += (seconds - self.launch_s - again_s).max(0.0);
        }
        let rate = |(amount, seconds): (f64, f64), default: f64| {
            if amount > 0.0 && seconds > 0.0 { amount / seconds } else { default }
        };
        Self {
            matmul: rate(sums[0], self.matmul),
            loss: rate(sums[1], self.loss),
            attention: rate(sums[2], self.attention),
            elementwise: rate(sums[3], self.elementwise),
            bytes: rate(sums[4], self.bytes),
            ..*self
        }
    }

    /// These rates, and beside them what ops of each family took by their operations, bytes, rows and elements. The ops are to be of
    /// several sizes.
    pub fn by_family(&self, ops: &[Timed<'_>]) -> Self {
        Self { families: Families::fitted(self, ops), ..*self }
    }

    /// FLOP/s of an op of the device.
    fn flops(&self, op: &Op) -> f64 {
        match Family::of(op) {
            Family::MatMul => self.matmul,
            Family::Loss => self.loss,
            Family::Attention => self.attention,
            Family::Elementwise | Family::Transfer => self.elementwise,
        }
    }

    /// Seconds of a start, an operation, a byte, a row and an element of the op.
    fn prices(&self, node: &Node) -> [f64; 5] {
        [self.launch_s, 1.0 / self.flops(&node.op), 1.0 / self.bytes, 0.0, 0.0]
    }

    /// Seconds of one op.
    pub fn seconds(&self, graph: &Graph, node: &Node) -> f64 {
        if let Some(seconds) = self.families.seconds(graph, node) {
            return seconds;
        }
        let (flops, bytes) = cost(graph, node);
        if Family::of(&node.op) == Family::Transfer {
            return self.sent_seconds(node, bytes) + self.launch_s;
        }
        let rate = self.flops(&node.op);
        // What chunks read again delays their matmuls.
        let again_s = again(graph, node) / self.bytes;
        (flops / rate).max(bytes / self.bytes) + again_s + self.launch_s
    }

    /// Seconds of a transfer or a collective that sends so many bytes.
    fn sent_seconds(&self, node: &Node, bytes: f64) -> f64 {
        match (node.op.collective(), self.interconnect) {
            (Some(collective), Some(interconnect)) if bytes > 0.0 => {
                let ranks = collective.shards().ranks;
                interconnect.seconds(ranks, bytes / (ranks - 1) as f64)
            }
            _ => bytes / self.link,
        }
    }
}

/// Time of one optimizer step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Seconds in all.
    pub step_s: f64,
    /// Seconds spent on computing activations again.
    pub recompute_s: f64,
    /// Floating-point operations, those of recomputation included.
    pub flops: f64,
}

/// Seconds of the work that overlaps where copies have queues of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lanes {
    /// Ops of the device.
    pub(crate) ops: f64,
    /// Copies to it.
    pub(crate) loads: f64,
    /// Copies from it.
    pub(crate) stores: f64,
    /// What the host adds up meanwhile.
    pub(crate) adds: f64,
}

impl Lanes {
    /// Of a program whose ops take `seconds`.
    pub(crate) fn of(
        graph: &Graph,
        program: &Program,
        seconds: &dyn Fn(&Graph, &Node) -> f64,
    ) -> Self {
        let mut lanes = Self::default();
        for node in &program.nodes {
            let lane = match node.op.direction() {
                // Ops wait for the other ranks.
                None | Some(Direction::Across) => &mut lanes.ops,
                Some(Direction::Load) => &mut lanes.loads,
                Some(Direction::Store) => &mut lanes.stores,
            };
            *lane += seconds(graph, node);
        }
        lanes
    }

    /// Seconds in all: of the longest, where they `overlap`.
    pub(crate) fn seconds(self, overlap: bool) -> f64 {
        let Self { ops, loads, stores, adds } = self;
        if overlap { ops.max(loads).max(stores).max(adds) } else { ops + loads + stores + adds }
    }
}

/// Seconds of one run of a program, beside which the host takes `adds` seconds.
pub(crate) fn run_seconds(
    plan: &Plan,
    (program, planned): (&Program, &ProgramPlan),
    adds: f64,
    seconds: &dyn Fn(&Graph, &Node) -> f64,
) -> f64 {
    let mut lanes = Lanes { adds, ..Lanes::of(&plan.graph, program, seconds) };
    // A browser's tab has no others to train with.
    if !cfg!(target_family = "wasm") {
        lanes.ops = beside_seconds(&plan.graph, program, planned, seconds);
    }
    lanes.seconds(plan.options.overlap)
}

/// Seconds of a program's ops, with those in which they wait for what ranks exchange: one thing at a time, each from where it begins on.
pub(crate) fn beside_seconds(
    graph: &Graph,
    program: &Program,
    planned: &ProgramPlan,
    seconds: &dyn Fn(&Graph, &Node) -> f64,
) -> f64 {
    let (mut ops, mut links) = (0.0_f64, 0.0_f64);
    let mut done = vec![0.0; program.nodes.len()];
    let mut events = planned.events.iter().peekable();
    for (step, node) in program.nodes.iter().enumerate() {
        while let Some((_, event)) = events.next_if(|(at, _)| *at <= step) {
            match *event {
                Event::Begin(Direction::Across, of) => {
                    links = links.max(ops) + seconds(graph, &program.nodes[of]);
                    done[of] = links;
                }
                Event::End(Direction::Across, of) => ops = ops.max(done[of]),
                _ => {}
            }
        }
        if node.op.direction().is_none() {
            ops += seconds(graph, node);
        }
    }
    ops
}

impl Estimate {
    /// Of `plan`, whose `micro` program runs `accumulation` times a step, with what `host` does for it.
    pub(crate) fn new(
        plan: &Plan,
        host: Option<&Graph>,
        accumulation: usize,
        rates: &Rates,
    ) -> Self {
        let mut estimate = Self::default();
        let overlap = plan.options.overlap;
        let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
        for (program, planned) in plan.graph.programs.iter().zip(&plan.programs) {
            let times = program.role.runs_per_step(accumulation) as f64;
            let adds = match program.role {
                Role::Micro => host.map_or(0.0, |host| rates.add_seconds(host)),
                _ => 0.0,
            };
            estimate.step_s += times * run_seconds(plan, (program, planned), adds, &seconds);
            let again = program.nodes.iter().filter(|node| {
                node.phase == Phase::Recompute && !(overlap && node.op.transfer().is_some())
            });
            let again_s: f64 = again.map(|node| seconds(&plan.graph, node)).sum();
            estimate.recompute_s += times * again_s;
            estimate.flops += times * planned.cost.flops as f64;
        }
        let host_s = host.map_or(0.0, |host| rates.host_seconds(&plan.graph, host));
        estimate.step_s += host_s;
        estimate
    }

    /// Part of the time that recomputation takes.
    pub fn recomputed(&self) -> f64 {
        if self.step_s > 0.0 { self.recompute_s / self.step_s } else { 0.0 }
    }
}
