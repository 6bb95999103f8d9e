//! What a plan says to people: the peak by class, the tensors alive there, the timeline.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::Plan;
use crate::graph::{Class, Life, Role, Tensor};
use crate::ops::Rule;

/// Bytes of each class at the peak, and [`GAPS`]. They add up to the peak.
pub type ByClass = BTreeMap<&'static str, u64>;

/// Bytes that no tensor has at the peak: those that round sizes up to the alignment, and holes of the arena.
pub const GAPS: &str = "gaps";

/// A tensor that is live at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alive {
    /// Name in the graph.
    pub name: String,
    /// Dtype and shape.
    pub ty: String,
    /// Lower-case name of its class.
    pub class: &'static str,
    /// Bytes of storage.
    pub bytes: u64,
}

/// Where the memory of a plan goes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes the device allocates: the predicted peak.
    pub peak_bytes: u64,
    /// No arena for these programs can be smaller.
    pub lower_bound_bytes: u64,
    /// Bytes by class at the peak, which add up to it; frozen ones only where there are any.
    pub by_class: ByClass,
    /// Program with the most live bytes.
    pub peak_program: Role,
    /// Step of that program with the most live bytes.
    pub peak_step: usize,
    /// The op of that step, with the name of its first output.
    pub peak_op: String,
    /// Tensors live at that step, largest first.
    pub alive: Vec<Alive>,
    /// Steps of all programs.
    pub steps: usize,
    /// Steps that recompute an activation.
    pub recomputed: usize,
    /// Multiply-adds counted as two, of one replay of each program, by program.
    pub flops: BTreeMap<&'static str, u64>,
}

impl Plan {
    /// Where the memory goes.
    pub fn report(&self) -> Report {
        let peak = (0..self.programs.len())
            .flat_map(|p| {
                self.programs[p].timeline.iter().enumerate().map(move |(s, &live)| (live, p, s))
            })
            .max_by_key(|&(live, p, s)| (live, usize::MAX - p, usize::MAX - s));
        let (_, program, step) = peak.unwrap_or((0, 0, 0));
        let mut alive = self.alive_at(program, step);
        alive.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let always = Class::ALL.into_iter().filter(|&class| class != Class::Frozen);
        let mut by_class: ByClass = always.map(|class| (class.name(), 0)).collect();
        for tensor in &alive {
            *by_class.entry(tensor.class).or_default() += tensor.bytes;
        }
        let gaps = self.peak_bytes().saturating_sub(by_class.values().sum());
        by_class.insert(GAPS, gaps);
        let nodes = || self.graph.programs.iter().flat_map(|program| &program.nodes);
        let peak_node = self.graph.programs.get(program).and_then(|p| p.nodes.get(step));
        let flops = self.graph.programs.iter().zip(&self.programs);
        Report {
            peak_bytes: self.peak_bytes(),
            lower_bound_bytes: self.lower_bound_bytes(),
            by_class,
            peak_program: self.graph.programs.get(program).map_or(Role::default(), |p| p.role),
            peak_step: step,
            peak_op: peak_node.map_or(String::new(), |node| {
                format!("{} {}", node.op.name(), self.graph.info(node.outputs[0]).name)
            }),
            alive,
            steps: nodes().count(),
            recomputed: nodes().filter(|node| node.phase == crate::Phase::Recompute).count(),
            flops: flops.map(|(p, plan)| (p.role.name(), plan.cost.flops)).collect(),
        }
    }

    /// Everything with bytes during a step: persistent tensors, live transients, scratch.
    fn alive_at(&self, program: usize, step: usize) -> Vec<Alive> {
        let of = |tensor: Tensor| {
            let info = self.graph.info(tensor);
            Alive {
                name: info.name.clone(),
                ty: info.ty.to_string(),
                class: info.class.name(),
                bytes: info.ty.bytes() as u64,
            }
        };
        let mut alive: Vec<Alive> = (0..self.graph.tensors.len())
            .map(|index| Tensor(index as u32))
            .filter(|&t| {
                let info = self.graph.info(t);
                info.life == Life::Persistent && info.replaces.is_none()
            })
            .map(of)
            .collect();
        if self.fixed_bytes > 0 {
            alive.push(Alive {
                name: "parameters of launches and staging".into(),
                ty: format!("u8[{}]", self.fixed_bytes),
                class: Class::Workspace.name(),
                bytes: self.fixed_bytes,
            });
        }
        let Some(plan) = self.programs.get(program) else { return alive };
        for allocation in plan.allocations.iter().filter(|r| r.birth <= step && step <= r.death) {
            // The newest tensor in a storage stands for it.
            match allocation.tensors.iter().rev().find(|&&(_, born)| born <= step) {
                Some(&(tensor, _)) => alive.push(of(tensor)),
                None => {
                    let node = &self.graph.programs[program].nodes[step];
                    alive.push(Alive {
                        name: format!("scratch of {}", self.graph.info(node.outputs[0]).name),
                        ty: format!("u8[{}]", allocation.bytes),
                        class: Class::Workspace.name(),
                        bytes: allocation.bytes,
                    });
                }
            }
        }
        alive
    }

    /// The program as text, one line a step: the op, its tensors with offsets, live bytes. A refactor that
    /// changes no plan changes none of it.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let line = |text: std::fmt::Arguments<'_>, out: &mut String| {
            // Writing to a String can't fail.
            let _ = out.write_fmt(text);
        };
        line(
            format_args!(
                "arena {} = persistent {} + transient {}; lower bound {}\n",
                self.arena_bytes,
                self.persistent_bytes,
                self.arena_bytes - self.persistent_bytes,
                self.lower_bound_bytes()
            ),
            &mut text,
        );
        let show = |tensor: &Tensor| {
            let info = self.graph.info(*tensor);
            let offset = self.range(*tensor).map_or("-".into(), |(offset, _)| offset.to_string());
            format!("{}:{}@{offset}", info.name, info.ty)
        };
        let list = |tensors: &[Tensor]| tensors.iter().map(show).collect::<Vec<_>>().join(" ");
        for (program, plan) in self.graph.programs.iter().zip(&self.programs) {
            line(format_args!("program {}\n", program.role), &mut text);
            for (step, live) in plan.steps.iter().zip(&plan.timeline) {
                let node = &program.nodes[step.node];
                let scratch =
                    step.workspace.map_or(String::new(), |(at, n)| format!(" scratch {n}@{at}"));
                line(
                    format_args!(
                        "  {:>4} {:<9} {} <- {} ({}){scratch} live {live}\n",
                        step.node,
                        format!("{:?}", node.phase).to_lowercase(),
                        list(&node.outputs),
                        node.op.name(),
                        list(&node.inputs),
                    ),
                    &mut text,
                );
            }
        }
        text
    }
}
