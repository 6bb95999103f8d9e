//! A training step as data: what every op takes, and every tensor's place, life and readers.

use std::collections::HashSet;

use serde::Serialize;
use tightrope_core::plan::{Allocation, ByClass, Plan, Report};
use tightrope_core::{Class, Life, Phase, Role, Rule as _, Tensor};
use tightrope_nn::Rates;

use super::names::name_of;
use super::why::why;

/// One op of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownOp {
    /// Family.
    pub op: &'static str,
    /// Name of its first output.
    pub name: String,
    /// Part of the step.
    pub phase: Phase,
    /// Predicted seconds of one run.
    pub seconds: f64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that it reads and writes.
    pub bytes: u64,
    /// Bytes in use meanwhile.
    pub live: u64,
}

/// One tensor in the arena.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownTensor {
    /// Name in the graph.
    pub name: String,
    /// Dtype and shape.
    #[serde(rename = "type")]
    pub ty: String,
    /// What it's for.
    pub class: Class,
    /// Place in the arena.
    pub offset: u64,
    /// Bytes there.
    pub bytes: u64,
    /// The op that makes it; the first one, where it's kept between steps.
    pub birth: usize,
    /// The last op that it's needed for.
    pub death: usize,
    /// Ops that read it.
    pub read_by: Vec<usize>,
    /// Whether it's kept between steps.
    pub kept: bool,
    /// Whether the host reads it after the program.
    pub result: bool,
    /// Predicted seconds of making it once more; `None` for what can't be made again in the step.
    pub again_s: Option<f64>,
}

/// A program with its tensors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownProgram {
    /// What it's for.
    #[serde(rename = "name")]
    pub role: Role,
    /// Runs in an optimizer step.
    pub repeats: usize,
    /// Its ops, in order.
    pub ops: Vec<ShownOp>,
    /// Tensors that are kept between steps, then all others.
    pub tensors: Vec<ShownTensor>,
}

/// A plan with its programs: what the pages show, that of a browser's run and that of `plan --html`.
#[derive(Clone, Debug, Serialize)]
pub struct ShownPlan {
    /// Bytes of the whole plan.
    pub peak_bytes: u64,
    /// Bytes below which no plan of this order of ops can be.
    pub lower_bound_bytes: u64,
    /// Bytes that the plan may take, where that's known.
    pub budget_bytes: Option<u64>,
    /// Bytes that are kept between steps.
    pub persistent_bytes: u64,
    /// Bytes of launch parameters and staging: part of the peak, outside of the arena.
    pub fixed_bytes: u64,
    /// Bytes of each class at the peak, and of gaps. They add up to `peak_bytes`.
    pub by_class: ByClass,
    /// Where the peak is and what takes its bytes, after "the peak is".
    pub why: String,
    /// Predicted seconds of an optimizer step.
    pub step_s: f64,
    /// The programs of an optimizer step, in order.
    pub programs: Vec<ShownProgram>,
}

impl ShownPlan {
    /// Of a plan with its report and its programs.
    pub fn new(
        plan: &Plan,
        report: &Report,
        budget: Option<u64>,
        step_s: f64,
        programs: Vec<ShownProgram>,
    ) -> Self {
        Self {
            peak_bytes: report.peak_bytes,
            lower_bound_bytes: report.lower_bound_bytes,
            budget_bytes: budget,
            persistent_bytes: plan.persistent_bytes,
            fixed_bytes: plan.fixed_bytes,
            by_class: report.by_class.clone(),
            why: why(plan, report),
            step_s,
            programs,
        }
    }
}

/// The programs of an optimizer step, in order.
pub fn programs(plan: &Plan, accumulation: usize, rates: &Rates) -> Vec<ShownProgram> {
    let named = plan.graph.programs.iter().enumerate();
    named
        .filter_map(|(index, program)| {
            let repeats = program.role.runs_per_step(accumulation);
            (repeats > 0).then(|| ShownProgram {
                role: program.role,
                repeats,
                ops: ops(plan, index, rates),
                tensors: tensors(plan, index, rates),
            })
        })
        .collect()
}

fn ops(plan: &Plan, program: usize, rates: &Rates) -> Vec<ShownOp> {
    let graph = &plan.graph;
    let nodes = graph.programs[program].nodes.iter();
    nodes
        .zip(&plan.programs[program].timeline)
        .map(|(node, live)| {
            let (inputs, outputs) = graph.types(node);
            let cost = node.op.cost(&inputs, &outputs);
            ShownOp {
                op: node.op.name(),
                name: name_of(graph, node),
                phase: node.phase,
                seconds: rates.seconds(graph, node),
                flops: cost.flops,
                bytes: cost.bytes,
                live: live + plan.fixed_bytes,
            }
        })
        .collect()
}

fn tensors(plan: &Plan, program: usize, rates: &Rates) -> Vec<ShownTensor> {
    let graph = &plan.graph;
    let nodes = &graph.programs[program].nodes;
    let place = |tensor: &Tensor| graph.storage(*tensor).index();
    let mut readers: Vec<Vec<usize>> = vec![vec![]; graph.tensors.len()];
    for (step, node) in nodes.iter().enumerate() {
        let mut read: Vec<usize> = node.inputs.iter().map(place).collect();
        read.sort_unstable();
        read.dedup();
        read.into_iter().for_each(|index| readers[index].push(step));
    }
    let results: HashSet<usize> = graph.programs[program].results.iter().map(place).collect();
    let last = nodes.len().saturating_sub(1);
    let mut shown = vec![];
    for (index, info) in graph.tensors.iter().enumerate() {
        let kept = info.life == Life::Persistent && info.replaces.is_none();
        let Some(offset) = plan.offsets[index].filter(|_| kept) else { continue };
        shown.push(ShownTensor {
            name: info.name.clone(),
            ty: info.ty.to_string(),
            class: info.class,
            offset,
            bytes: info.ty.bytes() as u64,
            birth: 0,
            death: last,
            read_by: readers[index].clone(),
            kept: true,
            result: results.contains(&index),
            again_s: None,
        });
    }
    let again = |step: usize| {
        let node = &nodes[step];
        let forward = matches!(node.phase, Phase::Forward | Phase::Recompute);
        // An op that works in place would do its work twice.
        (forward && node.op.overwrites().is_empty()).then(|| rates.seconds(graph, node))
    };
    for allocation in &plan.programs[program].allocations {
        let Allocation { tensors, offset, bytes, birth, death } = allocation;
        if tensors.is_empty() {
            shown.push(ShownTensor {
                name: format!("scratch of {}", name_of(graph, &nodes[*birth])),
                ty: format!("u8[{bytes}]"),
                class: Class::Workspace,
                offset: *offset,
                bytes: *bytes,
                birth: *birth,
                death: *death,
                read_by: vec![],
                kept: false,
                result: false,
                again_s: None,
            });
        }
        // Those that live in it one after the other.
        for (turn, &(tensor, born)) in tensors.iter().enumerate() {
            let info = graph.info(tensor);
            let until = tensors.get(turn + 1).map_or(*death, |&(_, next)| next.saturating_sub(1));
            shown.push(ShownTensor {
                name: info.name.clone(),
                ty: info.ty.to_string(),
                class: info.class,
                offset: *offset,
                bytes: info.ty.bytes() as u64,
                birth: born,
                death: until.max(born),
                read_by: readers[tensor.index()].clone(),
                kept: false,
                result: results.contains(&tensor.index()),
                again_s: (info.class == Class::Activation).then(|| again(born)).flatten(),
            });
        }
    }
    shown
}
