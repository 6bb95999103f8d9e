//! Liveness: from which step to which each transient needs its bytes, in program order.

use super::{Buffer, Target};
use crate::graph::{Graph, Life, Program, Tensor};
use crate::ops::Rule;

/// Buffers of one program's transients and scratch.
pub struct Live {
    /// What to place.
    pub buffers: Vec<Buffer>,
    /// Every transient tensor with a storage of its own, its buffer and the step that makes it.
    pub tensors: Vec<(Tensor, usize, usize)>,
    /// Buffer of each node's scratch.
    pub workspaces: Vec<Option<usize>>,
}

/// Lifetimes of everything in `program`. With `in_place`, an output takes over the storage of an input that
/// dies with its op where the op allows it.
pub fn analyse(graph: &Graph, program: &Program, in_place: bool, target: &dyn Target) -> Live {
    let last = program.nodes.len().saturating_sub(1);
    let mut last_read = vec![0; graph.tensors.len()];
    for (step, node) in program.nodes.iter().enumerate() {
        for &tensor in node.inputs.iter().chain(&node.outputs) {
            last_read[graph.storage(tensor).index()] = step;
        }
    }
    for &tensor in &program.results {
        last_read[graph.storage(tensor).index()] = last;
    }
    let mut live = Live { buffers: vec![], tensors: vec![], workspaces: vec![] };
    let mut buffer_of: Vec<Option<usize>> = vec![None; graph.tensors.len()];
    let align = |bytes: usize| (bytes as u64).next_multiple_of(target.alignment());
    for (step, node) in program.nodes.iter().enumerate() {
        let mut taken: Vec<usize> = vec![];
        for &tensor in &node.inputs {
            let root = graph.storage(tensor);
            if graph.info(root).life == Life::Held && buffer_of[root.index()].is_none() {
                let bytes = align(graph.ty(root).bytes());
                buffer_of[root.index()] = Some(live.buffers.len());
                live.tensors.push((root, live.buffers.len(), 0));
                live.buffers.push(Buffer { bytes, birth: 0, death: last });
            }
        }
        for (position, &tensor) in node.outputs.iter().enumerate() {
            let root = graph.storage(tensor);
            if root != tensor || graph.info(tensor).life != Life::Transient {
                continue;
            }
            let death = last_read[root.index()].max(step);
            let reused = node
                .op
                .may_overwrite()
                .into_iter()
                .filter(|&(output, _)| in_place && output == position && target.in_place(&node.op))
                .find_map(|(_, index)| {
                    let input = *node.inputs.get(index)?;
                    let input_root = graph.storage(input);
                    let buffer = buffer_of[input_root.index()]?;
                    let dies = live.buffers[buffer].death == step && !taken.contains(&buffer);
                    let transient = graph.info(input_root).life == Life::Transient;
                    let kept = program.results.iter().any(|&r| graph.storage(r) == input_root);
                    let read_once = node.inputs.iter().filter(|t| **t == input).count() == 1;
                    let alike = graph.ty(input) == graph.ty(tensor);
                    (dies && !kept && transient && read_once && alike).then_some(buffer)
                });
            let buffer = match reused {
                Some(buffer) => {
                    live.buffers[buffer].death = death;
                    taken.push(buffer);
                    buffer
                }
                None => {
                    let bytes = align(graph.ty(tensor).bytes());
                    live.buffers.push(Buffer { bytes, birth: step, death });
                    live.buffers.len() - 1
                }
            };
            buffer_of[tensor.index()] = Some(buffer);
            live.tensors.push((tensor, buffer, step));
        }
        let (inputs, outputs) = graph.types(node);
        let bytes = target.workspace(&node.op, &inputs, &outputs);
        live.workspaces.push((bytes > 0).then(|| {
            let bytes = bytes.next_multiple_of(target.alignment());
            live.buffers.push(Buffer { bytes, birth: step, death: step });
            live.buffers.len() - 1
        }));
    }
    live
}
