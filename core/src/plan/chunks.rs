//! Rows of logits at a time: with fewer, a loss takes less scratch, and longer.
//!
//! Scratch lives for one step, so what any number of rows comes to follows from the lifetimes with another.

use super::outline::Outline;
use super::remat::Turn;
use super::{Buffer, Target, live_bytes};
use crate::graph::{Graph, Node, Program};
use crate::ops::Op;

/// What one number of rows at a time comes to.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// How many; as the graph was built where there's none.
    pub rows: Option<usize>,
    /// Scratch of each loss of the program with a backward pass, bytes.
    pub scratch: Vec<u64>,
    /// Bytes that the device keeps for all programs besides tensors.
    pub parameters: u64,
    /// The most live bytes of the other programs.
    pub others: u64,
}

/// Live bytes of a program's steps, those of its losses apart and without their scratch.
#[derive(Clone, Debug)]
pub struct Levels {
    elsewhere: u64,
    losses: Vec<u64>,
}

impl Levels {
    /// Of a program whose nodes take these turns, with `dropped` made again.
    pub fn new(outline: &Outline, turns: &[Turn], dropped: &[bool], losses: &[usize]) -> Self {
        Self::of(outline, turns, &outline.live(turns, dropped).buffers, losses)
    }

    /// Of what lives whichever of `droppable` are made again: that only ever makes the rest live longer.
    pub fn least(outline: &Outline, droppable: &[bool], losses: &[usize]) -> Self {
        let turns = outline.turns();
        let mut live = outline.live(&turns, &[]);
        for (tensor, buffer, _) in live.tensors {
            if droppable[tensor.index()] {
                live.buffers[buffer].bytes = 0;
            }
        }
        Self::of(outline, &turns, &live.buffers, losses)
    }

    fn of(outline: &Outline, turns: &[Turn], buffers: &[Buffer], losses: &[usize]) -> Self {
        let live = live_bytes(buffers, turns.len());
        let mut levels = Self { elsewhere: 0, losses: vec![] };
        for (turn, bytes) in turns.iter().zip(live) {
            if losses.contains(&turn.node) {
                levels.losses.push(bytes - outline.nodes[turn.node].workspace);
            } else {
                levels.elsewhere = bytes.max(levels.elsewhere);
            }
        }
        levels
    }

    /// The most live bytes of the losses, where they take this scratch.
    pub fn of_losses(&self, scratch: &[u64]) -> u64 {
        self.losses.iter().zip(scratch).map(|(level, scratch)| level + scratch).max().unwrap_or(0)
    }

    /// The most live bytes, where losses take this scratch.
    pub fn most(&self, scratch: &[u64]) -> u64 {
        self.elsewhere.max(self.of_losses(scratch))
    }
}

/// Positions of a program's losses.
pub fn losses(program: &Program) -> Vec<usize> {
    let nodes = program.nodes.iter().enumerate();
    nodes.filter(|(_, node)| node.op.loss().is_some()).map(|(position, _)| position).collect()
}

/// The op with so many rows of logits at a time, where it's a loss of more.
pub fn with_rows(op: &Op, rows: Option<usize>) -> Op {
    let mut op = op.clone();
    if let (Some(loss), Some(rows)) = (op.loss_mut(), rows) {
        loss.chunk = loss.chunk.min(rows);
    }
    op
}

/// Gives every loss of a graph so many rows of logits at a time.
pub fn set_rows(graph: &mut Graph, rows: Option<usize>) {
    for node in graph.programs.iter_mut().flat_map(|program| &mut program.nodes) {
        if node.op.loss().is_some() {
            node.op = with_rows(&node.op, rows);
        }
    }
}

impl Chunk {
    /// As the graph was built, and where `free` every smaller one, the fastest first. `program` is the one with a backward
    /// pass.
    pub fn all(
        graph: &Graph,
        outlines: &[Outline],
        program: usize,
        free: bool,
        target: &dyn Target,
    ) -> Vec<Self> {
        let built = || graph.programs.get(program).into_iter().flat_map(|program| &program.nodes);
        let fewer = |node: &Node| {
            let rows = graph.ty(*node.inputs.first()?).rows();
            Some(node.op.loss()?.fewer_rows(rows))
        };
        let fewer = built().filter(|_| free).filter_map(fewer).max().unwrap_or_default();
        let parts: Vec<(Vec<usize>, Levels)> = (graph.programs.iter().zip(outlines))
            .map(|(program, outline)| {
                let losses = losses(program);
                let levels = Levels::new(outline, &outline.turns(), &[], &losses);
                (losses, levels)
            })
            .collect();
        let of = |rows: Option<usize>| {
            let mut chunk = Self { rows, scratch: vec![], parameters: 0, others: 0 };
            for (index, (losses, levels)) in parts.iter().enumerate() {
                let outline = &outlines[index];
                chunk.parameters += outline.parameters(&outline.turns());
                let mut scratch = vec![];
                for &position in losses {
                    let node = &graph.programs[index].nodes[position];
                    let (inputs, outputs) = graph.types(node);
                    let op = with_rows(&node.op, rows);
                    chunk.parameters -= outline.nodes[position].parameters;
                    chunk.parameters += target.parameters(&op, &inputs, &outputs);
                    let bytes = target.workspace(&op, &inputs, &outputs);
                    scratch.push(bytes.next_multiple_of(target.alignment()));
                }
                if index == program {
                    chunk.scratch = scratch;
                } else {
                    chunk.others = chunk.others.max(levels.most(&scratch));
                }
            }
            chunk
        };
        [None].into_iter().chain(fewer.into_iter().map(Some)).map(of).collect()
    }
}
