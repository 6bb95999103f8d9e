//! The point of a program from which on it has to be finished.

use crate::graph::{Class, Graph, Life, Node, Program, Role};
use crate::ops::Direction;
use crate::tensor::Tensor;

use super::Event;

/// The first step of a program that changes weights or optimizer state, on the device or on the host. A program that stops before it leaves
/// the run as it was, but for sums of gradients; as many as there are steps where none does.
///
/// The update is such a step. With gradients consumed where they're made, it's the backward pass of the last layer.
pub(super) fn commits_at(graph: &Graph, program: &Program, events: &[(usize, Event)]) -> usize {
    let steps = program.nodes.len();
    let accumulates = graph.programs.iter().any(|program| program.role == Role::Micro);
    match program.role {
        Role::Clear | Role::Add => return 0,
        Role::Train | Role::Update => {}
        Role::Shorter if !accumulates => {}
        // A micro-batch changes sums alone, which are cleared when the step is dropped.
        Role::Micro | Role::Shorter => return steps,
        Role::Eval | Role::Logits | Role::Losses | Role::Decode | Role::Main => return steps,
    }
    let lasts = |&tensor: &Tensor| {
        let info = graph.info(graph.storage(tensor));
        info.life == Life::Persistent && matches!(info.class, Class::Weight | Class::Optimizer)
    };
    let own = program.nodes.iter().position(|node| node.outputs.iter().any(lasts));
    let stored = |node: &Node| node.op.transfer().is_some_and(|transfer| lasts(&transfer.host()));
    let sent = events.iter().find_map(|&(at, event)| match event {
        Event::Begin(Direction::Store, step) if stored(&program.nodes[step]) => Some(at),
        _ => None,
    });
    own.into_iter().chain(sent).min().unwrap_or(steps)
}
