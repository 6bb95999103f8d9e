//! What of a step's sending goes on while its ranks compute.
//!
//! A device computes, and its links carry bytes, one thing at a time each, in the order in which the plan begins and ends them.

use tightrope_core::{Graph, Node};

use crate::cost::beside_seconds;
use crate::{Planned, Rates};

/// A step whose ranks compute while they send, as far as its plan has them do so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overlapped {
    /// Seconds of the step.
    pub step_s: f64,
    /// Seconds in which the device computes.
    pub compute_s: f64,
    /// Seconds in which the links are busy.
    pub sent_s: f64,
}

impl Overlapped {
    /// Seconds in which a rank waits for what ranks send.
    pub fn waited_s(&self) -> f64 {
        self.step_s - self.compute_s
    }

    /// Part of what is sent while the device computes.
    pub fn share(&self) -> f64 {
        let part = 1.0 - self.waited_s() / self.sent_s;
        if self.sent_s > 0.0 { part.clamp(0.0, 1.0) } else { 0.0 }
    }
}

impl Planned {
    /// How the plan's step takes turns between computing and sending, at these rates.
    pub fn overlapped(&self, rates: &Rates) -> Overlapped {
        let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
        let step_s = self.estimate(rates).step_s;
        let mut waited_s = 0.0;
        for (program, planned) in self.plan.graph.programs.iter().zip(&self.plan.programs) {
            // A shard that a rank takes of its own is sent to nobody.
            let is_own = |node: &&Node| match node.op.collective() {
                Some(collective) => !collective.sends(),
                None => node.op.direction().is_none(),
            };
            let own = program.nodes.iter().filter(is_own);
            let own_s: f64 = own.map(|node| seconds(&self.plan.graph, node)).sum();
            let runs = program.role.runs_per_step(self.config().accumulation()) as f64;
            let all_s = beside_seconds(&self.plan.graph, program, planned, &seconds);
            waited_s += runs * (all_s - own_s);
        }
        waited_s += self.sent_by_hosts_s(rates);
        let sent_s = self.sent_s(rates).values().sum();
        Overlapped { step_s, compute_s: step_s - waited_s, sent_s }
    }
}
