//! Optimizer state in 32, 16 or 8 bits.
//!
//! | bits | storage |
//! |---|---|
//! | 32 | f32 |
//! | 16 | bf16, rounded stochastically: a moment that decays by less than half a unit in the last place a step would otherwise stand still (Zamirai et al. 2020, "Revisiting BFloat16 Training") |
//! | 8 | quantized in blocks of [`BLOCK`] with an f32 scale each (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), 8.125 bits in all |
//!
//! Codes of second moments are of their roots, which span half as many decades: those of squares lie below the smallest
//! code of their block more often, and an update is divided by what is 0 then.
//!
//! As in bitsandbytes, 8 bits leave two kinds of parameters in 32: tables of embeddings and positions, whose rows
//! have gradients of very different sizes, and tensors below [`SMALLEST`] elements, where little is to be saved.
//! [`TableBits::B8`] quantizes tables too, with a scale for each row, so that no row is measured by another.

use serde::{Deserialize, Serialize};
use tightrope_core::graph::Sharded;
use tightrope_core::ops::Codebook;
use tightrope_core::{Class, DType, Graph, Tensor, Type};

use super::trained::Trained;
use super::{Optimizer, SQUARES};
use crate::params::Kind;

/// Elements that share a scale in 8-bit state, but for tables, of which a row shares one.
pub const BLOCK: usize = 256;
/// Elements from which on a parameter's state is stored in 8 bits.
pub const SMALLEST: usize = 4096;

/// Bits of each number of optimizer state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum StateBits {
    /// f32.
    #[default]
    B32,
    /// bf16, rounded stochastically.
    B16,
    /// Quantized in blocks; f32 for small tensors, and for tables unless [`TableBits::B8`].
    B8,
}

impl From<StateBits> for u32 {
    fn from(bits: StateBits) -> Self {
        match bits {
            StateBits::B32 => 32,
            StateBits::B16 => 16,
            StateBits::B8 => 8,
        }
    }
}

impl TryFrom<u32> for StateBits {
    type Error = String;

    fn try_from(bits: u32) -> Result<Self, String> {
        match bits {
            32 => Ok(Self::B32),
            16 => Ok(Self::B16),
            8 => Ok(Self::B8),
            _ => Err(format!("optimizer state has 32, 16 or 8 bits, not {bits}")),
        }
    }
}

impl StateBits {
    /// Whether an update with this state rounds by random numbers.
    pub fn draws(self, optimizer: &Optimizer) -> bool {
        self == Self::B16 && !optimizer.slots().is_empty()
    }

    /// What the state of a parameter consists of, where that of tables has `of_tables`.
    fn stored(self, of_tables: TableBits, graph: &Graph, trained: &Trained) -> &'static [Stored] {
        let small = trained.whole(graph).elements() < SMALLEST;
        let single = trained.kind == Kind::Table && of_tables == TableBits::B32;
        match self {
            Self::B8 if !small && !single => &[Stored::Quantized, Stored::Scales],
            Self::B16 => &[Stored::Half],
            Self::B32 | Self::B8 => &[Stored::Single],
        }
    }

    /// The fewest bits that state with tensors of these names is stored in: those of a checkpoint.
    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut found = Self::B32;
        for name in names {
            if name.ends_with(Stored::Half.suffix()) {
                return Self::B16;
            }
            if name.ends_with(Stored::Quantized.suffix()) {
                found = Self::B8;
            }
        }
        found
    }
}

/// Bits of each number of a table's optimizer state, where [`StateBits::B8`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum TableBits {
    /// f32.
    #[default]
    B32,
    /// Quantized, with a scale for each row.
    B8,
}

impl From<TableBits> for u32 {
    fn from(bits: TableBits) -> Self {
        match bits {
            TableBits::B32 => 32,
            TableBits::B8 => 8,
        }
    }
}

impl TryFrom<u32> for TableBits {
    type Error = String;

    fn try_from(bits: u32) -> Result<Self, String> {
        match bits {
            32 => Ok(Self::B32),
            8 => Ok(Self::B8),
            _ => Err(format!("the optimizer state of tables has 32 or 8 bits, not {bits}")),
        }
    }
}

/// What a tensor of state holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// f32 numbers.
    Single,
    /// bf16 numbers.
    Half,
    /// Quantized numbers, u8.
    Quantized,
    /// Scales of blocks of quantized numbers, f32.
    Scales,
}

impl Stored {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Single => "",
            Self::Half => ".bf16",
            Self::Quantized => ".codes",
            Self::Scales => ".scales",
        }
    }
}

/// A tensor of optimizer state, persistent and 0 at the start.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Index in the list of trained parameters.
    pub parameter: usize,
    /// Name of the state in torch.optim: `exp_avg`, `exp_avg_sq`, `momentum_buffer`.
    pub slot: &'static str,
    /// What the tensor holds.
    pub stored: Stored,
    /// The tensor, named `optim.{parameter}.{name}`.
    pub tensor: Tensor,
}

impl State {
    /// The slot, and how it's stored where that isn't f32.
    pub fn name(&self) -> String {
        format!("{}{}", self.slot, self.stored.suffix())
    }

    /// Declares all state of parameter `index`.
    pub(super) fn declare(
        graph: &mut Graph,
        optimizer: &Optimizer,
        (bits, of_tables): (StateBits, TableBits),
        index: usize,
        trained: &Trained,
    ) -> Vec<Self> {
        let ty = trained.whole(graph).clone();
        let rule = match trained.matrices.is_empty() {
            true => optimizer.elementwise(),
            false => *optimizer,
        };
        let mut state = vec![];
        let slots = match optimizer {
            Optimizer::Adafactor => slots_of(graph, trained),
            _ => rule.slots(),
        };
        for &slot in slots {
            for &stored in bits.stored(of_tables, graph, trained) {
                let ty = match stored {
                    Stored::Single if *optimizer == Optimizer::Adafactor => {
                        Type::new(DType::F32, shape_of(graph, slot, trained))
                    }
                    Stored::Single => ty.with_dtype(DType::F32),
                    Stored::Half => ty.with_dtype(DType::BF16),
                    Stored::Quantized => ty.with_dtype(codebook(slot).dtype()),
                    Stored::Scales => {
                        let blocks = ty.elements().div_ceil(block(graph, trained));
                        Type::new(DType::F32, [blocks])
                    }
                };
                let name = format!("optim.{}.{slot}{}", trained.name, stored.suffix());
                let tensor = match &trained.sharded {
                    None => graph.persistent(&name, ty, Class::Optimizer),
                    Some(Sharded { shards, .. }) => {
                        let shards = match stored {
                            Stored::Scales => shards.of_blocks(block(graph, trained)),
                            Stored::Single | Stored::Half | Stored::Quantized => shards.clone(),
                        };
                        graph.persistent_shard(&name, ty, shards, Class::Optimizer)
                    }
                };
                state.push(Self { parameter: index, slot, stored, tensor });
            }
        }
        state
    }
}

/// The slots of a matrix whose second moment is factored.
pub(super) const FACTORS: [&str; 2] = ["exp_avg_sq_row", "exp_avg_sq_col"];

/// Adafactor's slots of a parameter.
fn slots_of(graph: &Graph, trained: &Trained) -> &'static [&'static str] {
    if graph.ty(trained.weight).shape.len() == 2 { &FACTORS } else { &[SQUARES] }
}

/// The shape of one of these slots.
fn shape_of(graph: &Graph, slot: &str, trained: &Trained) -> Vec<usize> {
    let ty = graph.ty(trained.weight);
    match FACTORS.iter().position(|factor| *factor == slot) {
        None => ty.shape.clone(),
        Some(0) => vec![ty.shape[0]],
        Some(_) => vec![trained.parts.len() * ty.last()],
    }
}

/// Elements that share a scale in 8-bit state: of a table, those of a row.
pub(super) fn block(graph: &Graph, trained: &Trained) -> usize {
    match trained.kind {
        Kind::Table => trained.whole(graph).last(),
        _ => BLOCK,
    }
}

/// The codebook of a slot in 8 bits: squares have no sign.
pub(super) fn codebook(slot: &str) -> Codebook {
    if slot == SQUARES { Codebook::Unsigned } else { Codebook::Signed }
}
