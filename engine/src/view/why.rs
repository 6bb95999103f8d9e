//! Why the peak of a plan is where it is, in a line.

use std::fmt::Write as _;

use tightrope_core::plan::{Plan, ProgramPlan, Report};
use tightrope_core::{Class, Graph, Node, Phase, Program};

use super::names::{name_of, phase_name};

/// Classes that take less than this percentage of the peak aren't named.
const LEAST_PERCENT: u64 = 5;

/// Where the peak is and what takes its bytes: ``at `mlp.gelu` of block 3, backward: 61% activations, kept for the
/// backward pass of blocks 0 to 3; 24% optimizer state``. It follows "the peak is". Empty for a plan without ops.
pub fn why(plan: &Plan, report: &Report) -> String {
    let mut programs = plan.graph.programs.iter().zip(&plan.programs);
    let found = programs.find(|(program, _)| program.role == report.peak_program);
    let Some((program, planned)) = found else { return String::new() };
    let Some(node) = program.nodes.get(report.peak_step) else { return String::new() };
    let mut text = place(&plan.graph, node);
    let mut before = ":";
    for (class, percent) in shares(report) {
        // Writing to a String can't fail.
        let _ = write!(text, "{before} {percent}% {}", words(class));
        before = ";";
        let bytes = report.by_class[class.name()];
        if class == Class::Activation {
            text += &Waiting::of(&plan.graph, program, planned, report.peak_step).text(bytes);
        }
    }
    text
}

/// The op as people find it in the model: what it's of, its block and its phase.
fn place(graph: &Graph, node: &Node) -> String {
    let name = name_of(graph, node);
    let name = name.strip_prefix("grad.").unwrap_or(&name);
    let phase = phase_name(node.phase);
    let Some(block) = node.block else { return format!("at `{name}`, {phase}") };
    // Within its block: `mlp.gelu` of `h.3.mlp.gelu`.
    let number = block.to_string();
    let mut words = name.split('.');
    let within = if words.any(|word| word == number) { words.collect() } else { vec![name] };
    format!("at `{}` of block {block}, {phase}", within.join("."))
}

/// The classes that take a good part of the peak, in percent, the largest first.
fn shares(report: &Report) -> Vec<(Class, u64)> {
    let peak = report.peak_bytes.max(1);
    let percent = |class: Class| {
        let bytes = report.by_class.get(class.name()).copied().unwrap_or(0);
        (class, (200 * bytes + peak) / (2 * peak))
    };
    let mut shares: Vec<_> = Class::ALL.map(percent).into();
    shares.retain(|&(_, percent)| percent >= LEAST_PERCENT);
    shares.sort_by_key(|&(_, percent)| std::cmp::Reverse(percent));
    shares
}

/// What a class is, and why it's there at any peak.
fn words(class: Class) -> &'static str {
    match class {
        Class::Weight => "weights",
        Class::Frozen => "frozen weights",
        Class::Gradient => "gradients, which wait for the update",
        Class::Optimizer => "optimizer state",
        Class::Activation => "activations",
        Class::Workspace => "workspace of this op",
        Class::Input => "inputs",
    }
}

/// Activations at the peak that wait for the backward pass.
#[derive(Default)]
struct Waiting {
    /// Bytes that the forward pass left.
    kept: u64,
    /// First and last block that left some.
    blocks: Option<(usize, usize)>,
    /// Bytes that were computed once more.
    recomputed: u64,
}

impl Waiting {
    fn of(graph: &Graph, program: &Program, planned: &ProgramPlan, step: usize) -> Self {
        let mut waiting = Self::default();
        let phase = |step: usize| program.nodes.get(step).map(|node| node.phase);
        for allocation in &planned.allocations {
            if !(allocation.birth..=allocation.death).contains(&step) {
                continue;
            }
            // Of those that share the place, the one that is there at the peak.
            let there = allocation.tensors.iter().rposition(|&(_, born)| born <= step);
            let Some(there) = there else { continue };
            let (tensor, born) = allocation.tensors[there];
            let next = allocation.tensors.get(there + 1).map(|&(_, next)| next);
            let end = phase(next.unwrap_or(allocation.death));
            let waits = matches!(end, Some(Phase::Backward | Phase::Recompute));
            let info = graph.info(tensor);
            if info.class != Class::Activation || !waits {
                continue;
            }
            let bytes = info.ty.bytes() as u64;
            match phase(born) {
                Some(Phase::Forward) => {
                    waiting.kept += bytes;
                    if let Some(block) = program.nodes[born].block {
                        let (first, last) = waiting.blocks.unwrap_or((block, block));
                        waiting.blocks = Some((first.min(block), last.max(block)));
                    }
                }
                Some(Phase::Recompute) => waiting.recomputed += bytes,
                _ => {}
            }
        }
        waiting
    }

    /// What most of `all` activations wait for; empty where most don't wait.
    fn text(&self, all: u64) -> String {
        if 2 * self.kept >= all {
            let of = match self.blocks {
                None => String::new(),
                Some((first, last)) if first == last => format!(" of block {first}"),
                Some((first, last)) => format!(" of blocks {first} to {last}"),
            };
            format!(", kept for the backward pass{of}")
        } else if 2 * self.recomputed >= all {
            ", recomputed for the backward pass".to_owned()
        } else {
            String::new()
        }
    }
}
