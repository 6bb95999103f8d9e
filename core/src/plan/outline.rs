//! `Outline`: a program as numbers. Lifetimes depend on few facts of a program. They are taken from it once, so that what
//! recomputation comes to is simulated many times without making a program of it.

use std::collections::{BTreeMap, VecDeque};

use super::remat::{Links, Turn};
use super::{Options, Target};
use crate::graph::{Graph, Life, Node, Phase, Program, Tensor, TensorInfo};
use crate::ops::{Collective, Direction, Op, Rule};
use crate::types::Type;

/// A program as numbers: all that lifetimes depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outline {
    /// The nodes in order.
    pub nodes: Vec<Brief>,
    /// The tensors by handle.
    pub tensors: Vec<Stored>,
    /// Whether transfers overlap other ops.
    pub overlap: bool,
    /// Whether what ranks exchange does.
    pub beside: bool,
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
    /// When it may begin, where ranks exchange beside other ops.
    pub begins: Begins,
    /// Positions of an output and of an input whose storage it may take over, should that die here.
    pub over: Vec<(usize, usize)>,
    /// Bytes of scratch.
    pub workspace: u64,
    /// Bytes that the device keeps for the node besides.
    pub parameters: u64,
}

/// When a collective may begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Begins {
    /// In its turn.
    #[default]
    InTurn,
    /// Once what it reads is made.
    WhenMade,
    /// As [`Begins::WhenMade`], and not before what comes for the block before has come.
    ABlockAhead,
}

impl Begins {
    fn of(node: &Node) -> Self {
        // A browser's tab has no others to train with.
        if cfg!(target_family = "wasm") {
            return Self::InTurn;
        }
        match node.op.collective() {
            Some(Collective::Exchange(_)) => Self::WhenMade,
            Some(Collective::Assemble { .. }) if node.phase != Phase::Update => Self::ABlockAhead,
            _ => Self::InTurn,
        }
    }
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

/// Bytes that a target asks for an op on tensors of these types, besides the tensors.
struct Asked<'a> {
    op: &'a Op,
    types: (Vec<&'a Type>, Vec<&'a Type>),
    workspace: u64,
    parameters: u64,
}

/// Ops of a family that are remembered. A family has fewer in a block of any model.
const REMEMBERED: usize = 32;

/// Bytes that a target asks for the ops of a graph, the latest of each family last. A target makes launches to tell, and nodes that are alike
/// recur with each block, pass and rank.
#[derive(Default)]
struct Asks<'a>(BTreeMap<&'static str, VecDeque<Asked<'a>>>);

impl<'a> Asks<'a> {
    /// Bytes of scratch for `node`, and those that the device keeps for it.
    fn of(&mut self, graph: &'a Graph, node: &'a Node, target: &dyn Target) -> (u64, u64) {
        let (op, types) = (&node.op, graph.types(node));
        let known = self.0.entry(op.family()).or_default();
        let alike = |asked: &&Asked<'_>| asked.types == types && asked.op == op;
        if let Some(asked) = known.iter().rev().find(alike) {
            return (asked.workspace, asked.parameters);
        }
        let workspace = target.workspace(op, &types.0, &types.1);
        let workspace = workspace.next_multiple_of(target.alignment());
        let parameters = target.parameters(op, &types.0, &types.1);
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(Asked { op, types, workspace, parameters });
        (workspace, parameters)
    }
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
        match self.transfer {
            Some(Direction::Load | Direction::Store) => &[],
            Some(Direction::Across) | None => &self.inputs,
        }
    }
}

impl Brief {
    /// Tensors read in a turn.
    pub fn reads(&self, turn: &Turn) -> &[Tensor] {
        if turn.again { self.inputs_again() } else { &self.inputs }
    }
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
        let mut asks = Asks::default();
        let of = |program| Self::new(graph, program, tensors.clone(), options, (target, &mut asks));
        graph.programs.iter().map(of).collect()
    }

    fn new<'a>(
        graph: &'a Graph,
        program: &'a Program,
        mut tensors: Vec<Stored>,
        options: &Options,
        (target, asks): (&dyn Target, &mut Asks<'a>),
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
                let size = |tensor| (graph.dtype(tensor), graph.ty(tensor).elements());
                let alike = size(read) == size(made);
                root(made) == made && transient(made) && transient(root(read)) && read_once && alike
            };
            let over = match options.in_place && target.in_place(&node.op) {
                true => node.op.may_overwrite().into_iter().filter(takes_over).collect(),
                false => vec![],
            };
            let (workspace, parameters) = asks.of(graph, node, target);
            Brief {
                phase: node.phase,
                over,
                workspace,
                parameters,
                inputs: node.inputs.clone(),
                block: node.block,
                transfer: node.op.direction(),
                begins: Begins::of(node),
                outputs: node.outputs.clone(),
            }
        });
        let beside = options.exchanges_beside_in(graph, target);
        Self { nodes: nodes.collect(), tensors, overlap: options.overlaps(target), beside }
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
        (Self { nodes, tensors, overlap: self.overlap, beside: self.beside }, handles)
    }

    /// Every node in its turn.
    pub fn turns(&self) -> Vec<Turn> {
        (0..self.nodes.len()).map(|node| Turn { node, again: false }).collect()
    }
}
