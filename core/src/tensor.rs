//! Tensors of a graph: their handles, and what is known of each before anything runs.

use serde::{Deserialize, Serialize};

use crate::types::Type;

/// Handle of a tensor in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tensor(pub(crate) u32);

impl Tensor {
    /// Position in [`Graph::tensors`](crate::Graph::tensors).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a tensor is for; the planner reports memory by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Trained parameters.
    Weight,
    /// Parameters that training leaves as they are.
    Frozen,
    /// Gradients of parameters.
    Gradient,
    /// Optimizer state and scalars of the update.
    Optimizer,
    /// Values of the forward and backward pass.
    Activation,
    /// Scratch of a single op.
    Workspace,
    /// Tokens, targets and settings the host writes.
    Input,
}

impl Class {
    /// Every class, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Weight,
        Self::Frozen,
        Self::Gradient,
        Self::Optimizer,
        Self::Activation,
        Self::Workspace,
        Self::Input,
    ];

    /// Lower-case name, as in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Frozen => "frozen",
            Self::Gradient => "gradient",
            Self::Optimizer => "optimizer",
            Self::Activation => "activation",
            Self::Workspace => "workspace",
            Self::Input => "input",
        }
    }
}

/// How long a tensor's storage is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// Across programs and steps.
    Persistent,
    /// Within one program, from its producer to its last reader.
    Transient,
    /// Across replays of the one program that uses it, until another program runs.
    Held,
}

/// Everything known of a tensor before anything runs.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Unique, readable name.
    pub name: String,
    /// Dtype and shape.
    pub ty: Type,
    /// What it's for.
    pub class: Class,
    /// How long its storage is kept.
    pub life: Life,
    /// The tensor whose storage this one took over in place.
    pub replaces: Option<Tensor>,
}

/// Part of the step that a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// From tokens to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// A forward op run once more for the backward pass.
    Recompute,
    /// Gradient norm and optimizer.
    Update,
}
