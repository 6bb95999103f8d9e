//! Liveness: from which step to which each transient needs its bytes, in program order.

use super::buffer::{Buffer, live_bytes};
use super::outline::Outline;
use super::remat::{Turn, turns};
use crate::graph::{Life, Phase, Tensor};

/// Buffers of one program's transients and scratch.
pub struct Live {
    /// What to place.
    pub buffers: Vec<Buffer>,
    /// Every transient tensor with a storage of its own, its buffer and the step that makes it; of tensors made again,
    /// the handle past all of the outline's.
    pub tensors: Vec<(Tensor, usize, usize)>,
    /// Buffer of each step's scratch.
    pub workspaces: Vec<Option<usize>>,
}

impl Outline {
    /// The most live bytes with `dropped` made again, and the bytes of parameters of all nodes that run.
    pub fn needs(&self, dropped: &[bool]) -> (u64, u64) {
        let turns = if dropped.is_empty() { self.turns() } else { turns(&self.nodes, dropped) };
        let live = live_bytes(&self.live(&turns, dropped).buffers, turns.len());
        (live.into_iter().max().unwrap_or(0), self.parameters(&turns))
    }

    /// Bytes that the device keeps for these turns besides tensors.
    pub fn parameters(&self, turns: &[Turn]) -> u64 {
        turns.iter().map(|turn| self.nodes[turn.node].parameters).sum()
    }

    /// Lifetimes of everything where nodes take these turns, with `dropped` made again for what is not of the forward
    /// pass.
    pub fn live(&self, turns: &[Turn], dropped: &[bool]) -> Live {
        let count = self.tensors.len();
        // What is made again is numbered past all others.
        let root = |index: usize| match self.tensors.get(index) {
            Some(stored) => stored.root.index(),
            None => index,
        };
        let stored = |root: usize| &self.tensors[if root < count { root } else { root - count }];
        let is_result = |root: usize| root < count && self.tensors[root].result;
        let read = |turn: &Turn, tensor: Tensor| {
            let later = turn.again || self.nodes[turn.node].phase != Phase::Forward;
            let again = later && dropped.get(tensor.index()).is_some_and(|dropped| *dropped);
            tensor.index() + if again { count } else { 0 }
        };
        let made = |turn: &Turn, tensor: Tensor| tensor.index() + usize::from(turn.again) * count;

        let last = turns.len().saturating_sub(1);
        let mut last_read = vec![0; 2 * count];
        for (step, turn) in turns.iter().enumerate() {
            let node = &self.nodes[turn.node];
            node.reads(turn).iter().for_each(|&tensor| last_read[root(read(turn, tensor))] = step);
            node.outputs.iter().for_each(|&tensor| last_read[root(made(turn, tensor))] = step);
        }
        for (index, stored) in self.tensors.iter().enumerate() {
            if stored.result {
                last_read[index] = last;
            }
        }
        let in_flight = self.in_flight(turns);
        for transfer in &in_flight {
            let turn = &turns[transfer.step];
            for &tensor in &self.nodes[turn.node].outputs {
                let last_read = &mut last_read[root(made(turn, tensor))];
                *last_read = transfer.end.max(*last_read);
            }
        }
        let mut in_flight = in_flight.into_iter().peekable();
        let mut live = Live {
            buffers: Vec::with_capacity(turns.len()),
            tensors: Vec::with_capacity(turns.len()),
            workspaces: Vec::with_capacity(turns.len()),
        };
        let mut buffer_of: Vec<Option<usize>> = vec![None; 2 * count];
        for (step, turn) in turns.iter().enumerate() {
            let node = &self.nodes[turn.node];
            for &tensor in node.reads(turn) {
                let root = root(read(turn, tensor));
                if stored(root).life == Life::Held && buffer_of[root].is_none() {
                    buffer_of[root] = Some(live.buffers.len());
                    live.tensors.push((Tensor(root as u32), live.buffers.len(), 0));
                    live.buffers.push(Buffer { bytes: stored(root).bytes, birth: 0, death: last });
                }
            }
            let transfer = in_flight.next_if(|transfer| transfer.step == step);
            let birth = transfer.map_or(step, |transfer| transfer.begin);
            let first = live.tensors.len();
            for (position, &tensor) in node.outputs.iter().enumerate() {
                let index = made(turn, tensor);
                if root(index) != index || stored(index).life != Life::Transient {
                    continue;
                }
                let death = last_read[index].max(step);
                let taken = &live.tensors[first..];
                let over = node.over.iter().filter(|&&(output, _)| output == position);
                let reused = over.clone().find_map(|&(_, input)| {
                    let input = root(read(turn, *node.reads(turn).get(input)?));
                    let buffer = buffer_of[input]?;
                    let dies = live.buffers[buffer].death == step
                        && !taken.iter().any(|&(_, taken, _)| taken == buffer);
                    (dies && !is_result(input)).then_some(buffer)
                });
                let buffer = reused.unwrap_or(live.buffers.len());
                match live.buffers.get_mut(buffer) {
                    Some(buffer) => buffer.death = death,
                    None => {
                        let bytes = stored(index).bytes;
                        live.buffers.push(Buffer { bytes, birth, death });
                    }
                }
                buffer_of[index] = Some(buffer);
                live.tensors.push((Tensor(index as u32), buffer, birth));
            }
            live.workspaces.push((node.workspace > 0).then(|| {
                live.buffers.push(Buffer { bytes: node.workspace, birth: step, death: step });
                live.buffers.len() - 1
            }));
        }
        live
    }
}
