//! `Node` and `Tape`: an op in a graph, and what a family's gradient knows of the graph that it appends to.

use super::Op;
use crate::error::Result;
use crate::tensor::{Phase, Tensor, TensorInfo};
use crate::types::{DType, Type};

/// One op applied to tensors.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op with its attributes.
    pub op: Op,
    /// Tensors read.
    pub inputs: Vec<Tensor>,
    /// Tensors written.
    pub outputs: Vec<Tensor>,
    /// Part of the step.
    pub phase: Phase,
    /// Index of the repeated block, where the node belongs to one.
    pub block: Option<usize>,
}

/// A graph as a gradient sees it: tensors to look at, and a place to append ops.
pub trait Tape {
    /// Appends `op` and gives its outputs, named `name` (`name.0`, `name.1`, … where there are several).
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where the op doesn't take these inputs.
    fn append(&mut self, op: Op, inputs: &[Tensor], name: &str) -> Result<Vec<Tensor>>;

    /// What is known of `tensor`.
    fn info(&self, tensor: Tensor) -> &TensorInfo;

    /// Storage of the gradient of `tensor`: f32 for persistent tensors, whose gradients are summed over
    /// rows and micro-steps; the tensor's own dtype for the rest.
    fn grad_dtype(&self, tensor: Tensor) -> DType;
}

impl dyn Tape + '_ {
    /// [`Tape::append`] for an op of any family.
    ///
    /// # Errors
    /// As [`Tape::append`].
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Tensor],
        name: &str,
    ) -> Result<Vec<Tensor>> {
        self.append(op.into(), inputs, name)
    }

    /// [`Tape::append`] for an op with one output.
    ///
    /// # Errors
    /// As [`Tape::append`].
    pub fn one(&mut self, op: impl Into<Op>, inputs: &[Tensor], name: &str) -> Result<Tensor> {
        Ok(self.append(op.into(), inputs, name)?[0])
    }

    /// Dtype and shape of `tensor`.
    pub fn ty(&self, tensor: Tensor) -> &Type {
        &self.info(tensor).ty
    }

    /// Dtype of `tensor`.
    pub fn dtype(&self, tensor: Tensor) -> DType {
        self.ty(tensor).dtype
    }
}
