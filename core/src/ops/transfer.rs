//! Moving tensors between the device and the host. The session does it between the steps of a program (see
//! [`crate::Session::offloading`]), so that no device has a kernel for it.
//!
//! A host's tensor keeps the handle that it has in the graph, and its place is in the host's plan alone.

use serde::{Deserialize, Serialize};

use super::{Array, Cost, Inferred, Op, Rule, arity};
use crate::launch::{Launched, Launches, Limits};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// A tensor that goes to the host, or comes from there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Transfer {
    /// Input: x. Output: x as it is, of which the host has a copy now.
    Store {
        /// The host's tensor that becomes x, or to which x is added where the host has an op for that.
        to: Tensor,
    },
    /// No input. Output: what the host's tensor holds.
    Load {
        /// The host's tensor.
        from: Tensor,
        /// Its type.
        ty: Type,
    },
}

/// Which way bytes go that the session moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// To the device.
    Load,
    /// To the host.
    Store,
    /// From rank to rank.
    Across,
}

impl Transfer {
    /// Which way it goes.
    pub fn direction(&self) -> Direction {
        match self {
            Self::Load { .. } => Direction::Load,
            Self::Store { .. } => Direction::Store,
        }
    }

    /// The host's tensor.
    pub fn host(&self) -> Tensor {
        match self {
            Self::Store { to } => *to,
            Self::Load { from, .. } => *from,
        }
    }

    /// What makes the output once more: what was stored is loaded.
    pub fn again(&self, output: &Type) -> Self {
        Self::Load { from: self.host(), ty: output.clone() }
    }
}

impl Op {
    /// Which way it moves bytes, where the session does it.
    pub fn direction(&self) -> Option<Direction> {
        match self {
            Self::Transfer(transfer) => Some(transfer.direction()),
            Self::Collective(_) => Some(Direction::Across),
            _ => None,
        }
    }

    /// The transfer, where it is one.
    pub fn transfer(&self) -> Option<&Transfer> {
        match self {
            Self::Transfer(transfer) => Some(transfer),
            _ => None,
        }
    }
}

impl Rule for Transfer {
    fn name(&self) -> &'static str {
        match self {
            Self::Store { .. } => "store",
            Self::Load { .. } => "load",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        match self {
            Self::Store { .. } => arity(inputs).map(|[x]| vec![x.clone()]),
            Self::Load { ty, .. } => arity(inputs).map(|[]: [&Type; 0]| vec![ty.clone()]),
        }
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        match self {
            Self::Store { .. } => vec![(0, 0)],
            Self::Load { .. } => vec![],
        }
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        if let Self::Load { ty, .. } = self {
            *ty = ty.with_dtype(with(ty.dtype));
        }
    }

    fn cost(&self, _inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: 0, bytes: outputs[0].bytes() as u64 }
    }

    fn launch(&self, _limits: &Limits, _inputs: &[&Type], _outputs: &[&Type]) -> Launched {
        Ok(Launches::new())
    }

    /// The session moves the bytes.
    fn reference(&self, _inputs: &[Array<'_>], _outputs: &[Array<'_>]) {}
}
