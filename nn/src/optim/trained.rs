//! A parameter that an update changes, and where its f32 value is.

use std::ops::Range;

use tightrope_core::expr::{Binary, Unary, input, random};
use tightrope_core::graph::Sharded;
use tightrope_core::{DType, Expr, Graph, Tensor, Type};

use crate::error::{Error, Result, ensure};
use crate::params::Kind;

/// A parameter to update.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Name of its optimizer state.
    pub name: String,
    /// Weight as the model reads it: f32, bf16 or f16.
    pub weight: Tensor,
    /// With a bf16 weight the i16 remainder of its f32 master, with an f16 weight the f32 master (see
    /// [`crate::Precision::remainder`]). Without one, a bf16 weight is rounded stochastically.
    pub remainder: Option<Tensor>,
    /// Gradient, f32 or bf16, of the weight's shape.
    pub gradient: Tensor,
    /// Weight decay applies.
    pub decay: bool,
    /// What it is: how the state of a table is stored in 8 bits is an option.
    pub kind: Kind,
    /// Rows that are a matrix each, where it's the weight of a hidden linear layer; none otherwise. Muon updates them.
    pub matrices: Vec<Range<usize>>,
    /// Rows of each tensor that a checkpoint holds it in; what follows is padding. Adafactor's means are of each.
    pub parts: Vec<Range<usize>>,
    /// How it's cut among ranks, where weight, remainder and gradient are a rank's shard of it; its state is one then too.
    pub sharded: Option<Sharded>,
}

impl Trained {
    /// The type of all of the weight.
    pub(super) fn whole<'a>(&'a self, graph: &'a Graph) -> &'a Type {
        self.sharded.as_ref().map_or_else(|| graph.ty(self.weight), |sharded| &sharded.whole)
    }

    pub(super) fn check(&self, graph: &Graph) -> Result<Master> {
        let (weight, gradient) = (graph.ty(self.weight), graph.ty(self.gradient));
        let expected = [DType::F32, DType::BF16].map(|dtype| weight.with_dtype(dtype));
        ensure(expected.contains(gradient), "gradient", || {
            let [single, half] = &expected;
            format!("of `{}` is {gradient}, must be {single} or {half}", self.name)
        })?;
        let remainder = self.remainder.map(|tensor| graph.ty(tensor));
        ensure(remainder.is_none_or(|ty| ty.shape == weight.shape), "remainder", || {
            format!("of `{}` has another shape than the weight {weight}", self.name)
        })?;
        match (weight.dtype, remainder.map(|ty| ty.dtype)) {
            (DType::F32, None) => Ok(Master::Weight),
            (DType::BF16, Some(DType::I16)) => Ok(Master::Halves),
            (DType::BF16, None) => Ok(Master::Rounded),
            (DType::F16, Some(DType::F32)) => Ok(Master::Separate),
            (dtype, remainder) => {
                let remainder = remainder.map_or("nothing".into(), |dtype| dtype.to_string());
                let problem = format!(
                    "`{}` is {dtype} with a remainder in {remainder}; supported: f32 with nothing, bf16 with i16 \
                     or nothing, f16 with f32",
                    self.name
                );
                Err(Error::Setting { key: "remainder", problem })
            }
        }
    }
}

/// Where the f32 value of a weight is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Master {
    /// The weight is f32.
    Weight,
    /// A bf16 weight and its i16 remainder.
    Halves,
    /// A tensor of its own, with an f16 weight.
    Separate,
    /// Nowhere: a bf16 weight is what random numbers round it to.
    Rounded,
}

impl Master {
    /// The f32 value of a weight that is formula input `at`, what belongs to it being the next.
    pub fn value(self, at: usize) -> Expr {
        match self {
            Self::Weight | Self::Rounded => input(at),
            Self::Halves => input(at).binary(Binary::JoinHalves, input(at + 1)),
            Self::Separate => input(at + 1),
        }
    }

    /// Tensors that it has besides the weight.
    pub fn remainders(self) -> usize {
        match self {
            Self::Weight | Self::Rounded => 0,
            Self::Halves | Self::Separate => 1,
        }
    }

    /// Formulas of the new tensors, each with the input that it's written over. `stream` is that of the random numbers that
    /// round.
    pub fn written(self, stream: u32, at: usize, after: Expr) -> Vec<(usize, Expr)> {
        match self {
            Self::Weight => vec![(at, after)],
            Self::Halves => vec![
                (at, after.clone().unary(Unary::HighHalf)),
                (at + 1, after.unary(Unary::LowHalf)),
            ],
            Self::Separate => vec![(at, after.clone()), (at + 1, after)],
            Self::Rounded => vec![(at, after.binary(Binary::StochasticHalf, random(stream)))],
        }
    }
}

/// Parameters that one map can update: whether they decay, and where their f32 values are.
pub(super) type Rule = (bool, Master);
