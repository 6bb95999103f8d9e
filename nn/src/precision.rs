//! Storage of weights and activations.

use serde::{Deserialize, Serialize};
use tightrope_core::DType;

/// Storage of weights and activations. Gradients of weights and arithmetic are f32 in each.
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
