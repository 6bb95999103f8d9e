//! How long planned steps take, by the rates of a processor that every machine is told of.

use tightrope_core::{Graph, Node, Phase, Plan};
use tightrope_nn::{Precision, Rates};

/// Threads that the rates are of.
pub const THREADS: usize = 2;

/// Seconds of one node.
pub fn rate(graph: &Graph, node: &Node) -> f64 {
    Rates::of("cpu, avx512", Precision::F32, THREADS).seconds(graph, node)
}

/// Seconds of a step, and of recomputation in one of its passes.
pub fn seconds(plan: &Plan, passes: usize) -> (f64, f64) {
    let (mut step, mut again) = (0.0, 0.0);
    for program in &plan.graph.programs {
        let times = program.role.runs_per_step(passes) as f64;
        for node in &program.nodes {
            let seconds = rate(&plan.graph, node);
            step += times * seconds;
            if node.phase == Phase::Recompute {
                again += seconds;
            }
        }
    }
    (step, again)
}
