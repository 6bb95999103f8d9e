//! Storage of weights and activations.

use serde::{Deserialize, Serialize};
use tightrope_core::DType;

use crate::error::{Result, ensure};

/// Storage of weights and activations. Arithmetic is f32 in each; [`Gradients`] is the storage of gradients of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32 throughout.
    F32,
    /// bf16; the f32 master is the weight and its 16-bit remainder.
    BF16,
    /// f16, with an f32 master.
    F16,
}

/// Storage of the gradients of trained matrices, and of their sums over micro-batches. Those of vectors, as norms and biases,
/// are f32: they are a thousandth of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gradients {
    /// f32.
    #[default]
    F32,
    /// bf16. A sum over micro-batches is rounded at each, and loses gradients below half a unit in its last place.
    #[serde(rename = "bf16")]
    BF16,
    /// bf16, and the rounding error of a sum over micro-batches beside it, in bf16 too (Kahan 1965): as many bytes as f32
    /// where there are several, and as few as bf16 where there is one.
    #[serde(rename = "bf16-kahan")]
    Kahan,
}

impl Gradients {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::F32, Self::BF16, Self::Kahan];

    /// Lower-case name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::BF16 => "bf16",
            Self::Kahan => "bf16-kahan",
        }
    }

    /// Storage of the gradients of matrices, where that isn't f32.
    pub const fn of_matrices(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::BF16 | Self::Kahan => Some(DType::BF16),
        }
    }
}

/// How the gradients of several micro-batches are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GradientSums {
    /// What makes a gradient adds it to the sum of those before, as it's made.
    #[default]
    Fused,
    /// A micro-batch's gradient is made whole, and then added. So any number of ranks that take the same micro-batches have
    /// the same bits, where gradients are f32.
    Ordered,
}

impl GradientSums {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Fused, Self::Ordered];

    /// Lower-case name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Ordered => "ordered",
        }
    }
}

/// What is kept of a 16-bit weight besides what the model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Master {
    /// Its f32 master (see [`Precision::remainder`]).
    #[default]
    F32,
    /// Nothing: an update rounds the new bf16 weight stochastically, so that updates below half a unit in its last place
    /// change it as often as they should (Zamirai et al. 2020, "Revisiting BFloat16 Training").
    None,
}

impl Master {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::F32, Self::None];

    /// Lower-case name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::None => "none",
        }
    }

    /// # Errors
    /// [`crate::Error::Setting`] where weights aren't bf16, and there is none.
    pub(crate) fn check(self, precision: Precision) -> Result<()> {
        ensure(self == Self::F32 || precision == Precision::BF16, "memory.master", || {
            match precision
        {
            Precision::F32 => {
                "weights in f32 have no master apart: leave it out, or take run.precision = \"bf16\"".into()
            }
            _ => "weights in f16 need their f32 master: leave it out, or take run.precision = \"bf16\"".into(),
        }
        })
    }
}

impl Precision {
    /// Every precision.
    pub const ALL: &'static [Self] = &[Self::F32, Self::BF16, Self::F16];

    /// Lower-case name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::BF16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Storage of weights and activations.
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::BF16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    /// Storage of the master remainder, without which small updates would be lost: the lower half of a bf16 weight's
    /// f32 master, or the whole master of an f16 weight.
    pub const fn remainder(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::BF16 => Some(DType::I16),
            Self::F16 => Some(DType::F32),
        }
    }
}
