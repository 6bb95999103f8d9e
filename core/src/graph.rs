//! `Graph`: an SSA list of ops over typed tensors.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::ops::{Op, Rule, Tape};
use crate::shards::Shards;
use crate::types::{DType, Type};

pub use crate::ops::Node;
pub use crate::role::Role;
pub use crate::tensor::{Class, Life, Phase, Tensor, TensorInfo};

/// A list of nodes that is replayed as a whole.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What it's for.
    pub role: Role,
    /// Its nodes, in order.
    pub nodes: Vec<Node>,
    /// Tensors the host reads after a replay; they live to the end of the program.
    pub results: Vec<Tensor>,
}

/// A tensor of which each rank has its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharded {
    /// How it's cut.
    pub shards: Shards,
    /// The type of all of it.
    pub whole: Type,
}

/// Tensors, and the programs that work on them. Persistent tensors are shared by all programs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// All tensors, by handle.
    pub tensors: Vec<TensorInfo>,
    /// All programs, in the order they were begun.
    pub programs: Vec<Program>,
    /// Storage of the gradients of persistent matrices (see [`Graph::grad_dtype`]); f32 where it isn't set.
    pub matrix_gradients: Option<DType>,
    /// Persistent tensors that are this rank's shard of a larger one.
    pub sharded: BTreeMap<Tensor, Sharded>,
    scopes: Vec<String>,
    phase: Option<Phase>,
    block: Option<usize>,
    streams: u32,
}

impl Graph {
    /// A graph without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a program: nodes pushed from here on belong to it.
    pub fn begin(&mut self, role: Role) {
        self.programs.push(Program { role, nodes: vec![], results: vec![] });
        self.phase = Some(Phase::Forward);
        self.block = None;
    }

    /// Sets the phase of the nodes pushed from here on.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = Some(phase);
    }

    /// Runs `build` with `name` as a prefix of every tensor name, separated by a dot.
    pub fn scope<R>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> R) -> R {
        self.enter(name);
        let result = build(self);
        self.leave();
        result
    }

    /// Puts `name` before the name of every tensor until [`Graph::leave`], for who can't build in one [`Graph::scope`].
    pub fn enter(&mut self, name: &str) {
        self.scopes.push(name.into());
    }

    /// Ends what the last [`Graph::enter`] began.
    pub fn leave(&mut self) {
        self.scopes.pop();
    }

    /// Runs `build` with its nodes marked as belonging to repeated block `index`.
    pub fn in_block<R>(&mut self, index: usize, build: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.set_block(Some(index));
        let result = build(self);
        self.set_block(before);
        result
    }

    /// Marks the nodes pushed from here on as belonging to this repeated block, or to none. Gives the block before.
    pub fn set_block(&mut self, block: Option<usize>) -> Option<usize> {
        std::mem::replace(&mut self.block, block)
    }

    /// A number for a new stream of random numbers, different from all before.
    pub fn new_stream(&mut self) -> u32 {
        self.streams += 1;
        self.streams
    }

    /// A tensor kept across programs and steps, written by the host or updated in place.
    pub fn persistent(&mut self, name: &str, ty: Type, class: Class) -> Tensor {
        self.declare(name, ty, class, Life::Persistent)
    }

    /// As [`Graph::persistent`], of which this rank has its shard alone: a tensor of one axis.
    pub fn persistent_shard(
        &mut self,
        name: &str,
        whole: Type,
        shards: Shards,
        class: Class,
    ) -> Tensor {
        let tensor = self.persistent(name, Type::new(whole.dtype, [shards.shard()]), class);
        self.sharded.insert(tensor, Sharded { shards, whole });
        tensor
    }

    /// The type of what a tensor is, or is a shard of.
    pub fn whole(&self, tensor: Tensor) -> &Type {
        self.sharded.get(&tensor).map_or_else(|| self.ty(tensor), |sharded| &sharded.whole)
    }

    /// A tensor that keeps its value between replays of the current program only.
    pub fn held(&mut self, name: &str, ty: Type, class: Class) -> Tensor {
        self.declare(name, ty, class, Life::Held)
    }

    fn declare(&mut self, name: &str, ty: Type, class: Class, life: Life) -> Tensor {
        let name = self.unique_name(name);
        self.add(TensorInfo { name, ty, class, life, replaces: None })
    }

    pub(crate) fn add(&mut self, info: TensorInfo) -> Tensor {
        let handle = Tensor(u32::try_from(self.tensors.len()).expect("fewer than 2^32 tensors"));
        self.tensors.push(info);
        handle
    }

    fn unique_name(&self, name: &str) -> String {
        let mut full = self.scopes.join(".");
        if !full.is_empty() && !name.is_empty() {
            full.push('.');
        }
        full.push_str(name);
        full
    }

    /// Appends `op` to the current program and gives its outputs, named `name` (`name.0`, `name.1`, …
    /// where there are several). Outputs that the op overwrites in place keep their input's class and
    /// life.
    ///
    /// # Errors
    /// [`Error::Shape`] where the op doesn't take these inputs.
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Tensor],
        name: &str,
    ) -> Result<Vec<Tensor>> {
        let op = op.into();
        let full = self.unique_name(name);
        let types: Vec<&Type> = inputs.iter().map(|&t| self.ty(t)).collect();
        let produced = op.infer(&types).map_err(|problem| Error::Shape {
            op: op.name(),
            name: full.clone(),
            problem,
            inputs: types.iter().map(|&t| t.clone()).collect(),
        })?;
        let phase = self.phase.unwrap_or(Phase::Forward);
        let mut replaced = vec![None; produced.len()];
        for (output, input) in op.overwrites() {
            replaced[output] = Some(inputs[input]);
        }
        let single = produced.len() == 1;
        let mut outputs = Vec::with_capacity(produced.len());
        for (index, ty) in produced.into_iter().enumerate() {
            let name = if single { full.clone() } else { format!("{full}.{index}") };
            let info = match replaced[index] {
                Some(replaced) => {
                    let before = self.info(replaced);
                    if before.ty != ty {
                        return Err(Error::Shape {
                            op: op.name(),
                            name,
                            problem: format!("in-place output {ty} differs from {}", before.ty),
                            inputs: inputs.iter().map(|&t| self.ty(t).clone()).collect(),
                        });
                    }
                    TensorInfo { name, replaces: Some(replaced), ..before.clone() }
                }
                None => TensorInfo {
                    name,
                    ty,
                    class: Class::Activation,
                    life: Life::Transient,
                    replaces: None,
                },
            };
            outputs.push(self.add(info));
        }
        let node =
            Node { op, inputs: inputs.into(), outputs: outputs.clone(), phase, block: self.block };
        if self.programs.is_empty() {
            self.begin(Role::Main);
        }
        self.current().nodes.push(node);
        Ok(outputs)
    }

    /// [`Graph::push`] for an op with one output.
    ///
    /// # Errors
    /// As [`Graph::push`].
    pub fn one(&mut self, op: impl Into<Op>, inputs: &[Tensor], name: &str) -> Result<Tensor> {
        Ok(self.push(op, inputs, name)?[0])
    }

    /// Marks a tensor of the current program as read by the host after each replay.
    pub fn result(&mut self, tensor: Tensor) {
        self.current().results.push(tensor);
    }

    fn current(&mut self) -> &mut Program {
        self.programs.last_mut().expect("a program was begun")
    }

    /// What is known of `tensor`.
    pub fn info(&self, tensor: Tensor) -> &TensorInfo {
        &self.tensors[tensor.index()]
    }

    /// Changes what is known of `tensor`, for builders that sort tensors into classes.
    pub fn info_mut(&mut self, tensor: Tensor) -> &mut TensorInfo {
        &mut self.tensors[tensor.index()]
    }

    /// Dtype and shape of `tensor`.
    pub fn ty(&self, tensor: Tensor) -> &Type {
        &self.info(tensor).ty
    }

    /// Types of a node's inputs and outputs.
    pub fn types(&self, node: &Node) -> (Vec<&Type>, Vec<&Type>) {
        let of = |tensors: &[Tensor]| tensors.iter().map(|&tensor| self.ty(tensor)).collect();
        (of(&node.inputs), of(&node.outputs))
    }

    /// Dtype of `tensor`.
    pub fn dtype(&self, tensor: Tensor) -> DType {
        self.ty(tensor).dtype
    }

    /// Storage of the gradient of `tensor`: f32 for persistent tensors, whose gradients are summed over
    /// rows and micro-steps, or [`Graph::matrix_gradients`] for those of two axes or more; the tensor's own dtype for the
    /// rest.
    pub fn grad_dtype(&self, tensor: Tensor) -> DType {
        let TensorInfo { ty, life, .. } = self.info(tensor);
        match self.matrix_gradients.filter(|_| ty.shape.len() > 1) {
            _ if *life != Life::Persistent => ty.dtype,
            Some(dtype) => dtype,
            None => ty.dtype.statistics(),
        }
    }

    /// The tensor whose storage `tensor` lives in: itself, or the first of a chain of in-place ops.
    pub fn storage(&self, tensor: Tensor) -> Tensor {
        let mut root = tensor;
        while let Some(before) = self.info(root).replaces {
            root = before;
        }
        root
    }

    /// [`Graph::storage`] of every tensor.
    pub fn storages(&self) -> Vec<Tensor> {
        let mut roots: Vec<Tensor> = Vec::with_capacity(self.tensors.len());
        for (index, info) in self.tensors.iter().enumerate() {
            let tensor = Tensor(index as u32);
            roots.push(match info.replaces {
                // What came before is known already.
                Some(before) if before < tensor => roots[before.index()],
                Some(_) => self.storage(tensor),
                None => tensor,
            });
        }
        roots
    }

    /// The tensor of that name; the newest where an in-place op gave a name twice.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the most similar name.
    pub fn find(&self, name: &str) -> Result<Tensor> {
        let position = self.tensors.iter().rposition(|info| info.name == name);
        position.map(|index| Tensor(index as u32)).ok_or_else(|| Error::Unknown {
            kind: "tensor",
            name: name.into(),
            nearest: nearest(name, self.tensors.iter().map(|info| info.name.as_str())),
        })
    }

    /// Index of the program of that role.
    ///
    /// # Errors
    /// [`Error::NoProgram`].
    pub fn program(&self, role: Role) -> Result<usize> {
        let position = self.programs.iter().position(|program| program.role == role);
        position.ok_or(Error::NoProgram(role))
    }

    /// Whether ranks do something together in a program.
    pub fn has_collectives(&self) -> bool {
        let mut nodes = self.programs.iter().flat_map(|program| &program.nodes);
        nodes.any(|node| node.op.collective().is_some())
    }

    /// Whether tensors come from the host or go there in a program.
    pub fn has_transfers(&self) -> bool {
        let mut nodes = self.programs.iter().flat_map(|program| &program.nodes);
        nodes.any(|node| node.op.transfer().is_some())
    }

    /// Nodes of the current program pushed so far.
    pub fn node_count(&self) -> usize {
        self.programs.last().map_or(0, |program| program.nodes.len())
    }

    /// The nodes of the current program within `range`.
    pub fn nodes(&self, range: Range<usize>) -> &[Node] {
        self.programs.last().map_or(&[], |program| &program.nodes[range])
    }

    /// Holds that no op reads a tensor after its storage was overwritten.
    ///
    /// # Errors
    /// [`Error::Overwritten`].
    pub fn check_in_place(&self) -> Result<()> {
        let storages = self.storages();
        let storage = |tensor: Tensor| storages[tensor.index()].index();
        for program in &self.programs {
            let mut owner: Vec<Option<Tensor>> = vec![None; self.tensors.len()];
            for node in &program.nodes {
                for &read in &node.inputs {
                    let current = owner[storage(read)];
                    if let Some(writer) = current.filter(|&writer| writer != read) {
                        return Err(Error::Overwritten {
                            tensor: self.info(read).name.clone(),
                            writer: self.info(writer).name.clone(),
                            reader: self.info(node.outputs[0]).name.clone(),
                        });
                    }
                }
                for &written in &node.outputs {
                    owner[storage(written)] = Some(written);
                }
            }
        }
        Ok(())
    }
}

impl Tape for Graph {
    fn append(&mut self, op: Op, inputs: &[Tensor], name: &str) -> Result<Vec<Tensor>> {
        self.push(op, inputs, name)
    }

    fn info(&self, tensor: Tensor) -> &TensorInfo {
        self.info(tensor)
    }

    fn grad_dtype(&self, tensor: Tensor) -> DType {
        self.grad_dtype(tensor)
    }
}

/// The candidate with the smallest edit distance, where that is small enough to be a typing error.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    candidates
        .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
        .filter(|&(distance, candidate)| distance * 2 <= candidate.chars().count().max(2))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate.to_string())
}
