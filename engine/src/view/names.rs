//! What ops and phases are called.

use tightrope_core::{Graph, Node, Phase};

/// Lower-case name of a phase.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Recompute => "recompute",
        Phase::Update => "update",
    }
}

/// The name of an op's first output, which stands for the op.
pub fn name_of(graph: &Graph, node: &Node) -> String {
    node.outputs.first().map_or_else(String::new, |&tensor| graph.info(tensor).name.clone())
}
