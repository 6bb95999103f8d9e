//! Liveness: from which step to which each transient needs its bytes, in program order.
//!
//! Lifetimes depend on few facts of a program. They are taken from it once, as an [`Outline`], so that what
//! recomputation comes to is simulated many times without making a program of it.

use super::flights::Direction;
use super::remat::{Links, Turn, turns};
use super::{Buffer, Options, Target, live_bytes};
use crate::graph::{Graph, Life, Phase, Program, Tensor, TensorInfo};
use crate::ops::Rule;

/// A program as numbers: all that lifetimes depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outline {
    /// The nodes in order.
    pub nodes: Vec<Brief>,
    /// The tensors by handle.
    pub tensors: Vec<Stored>,
    /// Whether transfers go on beside other ops.
    pub overlap: bool,
}

/// A node of an [`Outline`].
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    /// Part of the step.
    pub phase: Phase,
    /// Tensors read.
    pub inputs: Vec<Tensor>,
    /// Tensors written.
    pub outputs: Vec<Tensor>,
    /// Index of the repeated block; none in a part of a program, which is one block.
    pub block: Option<usize>,
    /// Which way it moves a tensor, where it does.
    pub transfer: Option<Direction>,
    /// Positions of an output and of an input whose storage it may take over, should that die here.
    over: Vec<(usize, usize)>,
    /// Bytes of scratch.
    pub workspace: u64,
    /// Bytes that the device keeps for the node besides.
    pub parameters: u64,
}

/// A tensor of an [`Outline`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored {
    /// The tensor whose storage it lives in.
    pub root: Tensor,
    /// Bytes, alignment included.
    pub bytes: u64,
    /// How long its storage is kept.
    pub life: Life,
    /// Whether what's in its storage is read after the program.
    pub result: bool,
}

impl Links for Brief {
    fn is_forward(&self) -> bool {
        self.phase == Phase::Forward
    }

    fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    fn inputs_again(&self) -> &[Tensor] {
        if self.transfer.is_some() { &[] } else { &self.inputs }
    }
}

impl Brief {
    /// Tensors read in a turn.
    fn reads(&self, turn: &Turn) -> &[Tensor] {
        if turn.again { self.inputs_again() } else { &self.inputs }
    }
}

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
    /// Of every program. With [`Options::in_place`], an output takes over the storage of an input that dies with its op where
    /// the op allows it.
    pub fn all(graph: &Graph, options: &Options, target: &dyn Target) -> Vec<Self> {
        let align = |bytes: usize| (bytes as u64).next_multiple_of(target.alignment());
        let stored = |(info, root): (&TensorInfo, Tensor)| Stored {
            root,
            bytes: align(info.ty.bytes()),
            life: info.life,
            result: false,
        };
        let tensors: Vec<Stored> = graph.tensors.iter().zip(graph.storages()).map(stored).collect();
        let of = |program| Self::new(graph, program, tensors.clone(), options, target);
        graph.programs.iter().map(of).collect()
    }

    fn new(
        graph: &Graph,
        program: &Program,
        mut tensors: Vec<Stored>,
        options: &Options,
        target: &dyn Target,
    ) -> Self {
        for &tensor in &program.results {
            let root = tensors[tensor.index()].root;
            tensors[root.index()].result = true;
        }
        let transient = |tensor: Tensor| tensors[tensor.index()].life == Life::Transient;
        let root = |tensor: Tensor| tensors[tensor.index()].root;
        let nodes = program.nodes.iter().map(|node| {
            let takes_over = |&(output, input): &(usize, usize)| {
                let Some((&made, &read)) = node.outputs.get(output).zip(node.inputs.get(input))
                else {
                    return false;
                };
                let read_once = node.inputs.iter().filter(|tensor| **tensor == read).count() == 1;
                let alike = graph.ty(read) == graph.ty(made);
                root(made) == made && transient(made) && transient(root(read)) && read_once && alike
            };
            let over = match options.in_place && target.in_place(&node.op) {
                true => node.op.may_overwrite().into_iter().filter(takes_over).collect(),
                false => vec![],
            };
            let (inputs, outputs) = graph.types(node);
            Brief {
                phase: node.phase,
                over,
                workspace: target
                    .workspace(&node.op, &inputs, &outputs)
                    .next_multiple_of(target.alignment()),
                parameters: target.parameters(&node.op, &inputs, &outputs),
                inputs: node.inputs.clone(),
                block: node.block,
                transfer: node.op.transfer().map(Direction::of),
                outputs: node.outputs.clone(),
            }
        });
        Self { nodes: nodes.collect(), tensors, overlap: options.overlaps(target) }
    }

    /// The nodes at these positions alone, with tensors of their own numbers, and the handles that those had. What
    /// `leaves` is a result.
    pub fn part(
        &self,
        positions: &[usize],
        leaves: &[bool],
        numbers: &mut [Option<u32>],
    ) -> (Self, Vec<Tensor>) {
        let mut handles: Vec<Tensor> = vec![];
        let mut number = |tensor: Tensor| {
            Tensor(*numbers[tensor.index()].get_or_insert_with(|| {
                handles.push(tensor);
                handles.len() as u32 - 1
            }))
        };
        let renumbered = |tensors: &[Tensor], number: &mut dyn FnMut(Tensor) -> Tensor| {
            let root = |&tensor: &Tensor| self.tensors[tensor.index()].root;
            tensors.iter().for_each(|tensor| {
                number(root(tensor));
            });
            tensors.iter().map(|&tensor| number(tensor)).collect::<Vec<_>>()
        };
        let mut nodes = vec![];
        for &position in positions {
            let node = &self.nodes[position];
            let inputs = renumbered(&node.inputs, &mut number);
            let outputs = renumbered(&node.outputs, &mut number);
            nodes.push(Brief { inputs, outputs, block: None, ..node.clone() });
        }
        let tensors = handles.iter().map(|&tensor| {
            let stored = self.tensors[tensor.index()];
            let root = numbers[stored.root.index()].expect("a root is numbered first");
            Stored { root: Tensor(root), result: stored.result || leaves[tensor.index()], ..stored }
        });
        let tensors = tensors.collect();
        handles.iter().for_each(|tensor| numbers[tensor.index()] = None);
        (Self { nodes, tensors, overlap: self.overlap }, handles)
    }

    /// Every node in its turn.
    pub fn turns(&self) -> Vec<Turn> {
        (0..self.nodes.len()).map(|node| Turn { node, again: false }).collect()
    }

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
        let flights = self.flights(turns);
        for flight in &flights {
            let turn = &turns[flight.step];
            for &tensor in &self.nodes[turn.node].outputs {
                let last_read = &mut last_read[root(made(turn, tensor))];
                *last_read = flight.end.max(*last_read);
            }
        }
        let mut flights = flights.into_iter().peekable();
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
            let flight = flights.next_if(|flight| flight.step == step);
            let birth = flight.map_or(step, |flight| flight.begin);
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
