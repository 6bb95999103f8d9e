//! Self-attention with grouped-query heads, in tiles: no tensor of T × T exists.
//!
//! Forward keeps a running maximum and sum per query while it walks over the keys (online softmax);
//! backward recomputes the probabilities from the saved log-sum-exp. Dao et al., *FlashAttention*
//! (2022, arXiv:2205.14135) and *FlashAttention-2* (2023, arXiv:2307.08691); grouped queries:
//! Ainslie et al. (2023, arXiv:2305.13245).
//!
//! Letters: B batch, T positions, H query heads, KV key-value heads (H a multiple of KV), D channels
//! of a head. Query head h reads key-value head h / (H / KV).
//!
//! Packed qkv is (B, T, (H + 2·KV)·D): queries of head h at columns h·D.., keys of key-value head j
//! at (H + j)·D.., its values at (H + KV + j)·D... Arithmetic is in f32 whatever the storage, but for tensors in
//! bf16 where the CPU multiplies pairs of them: there the probabilities, and the gradients of scores, are rounded to
//! bf16 before they are multiplied, and every sum is still in f32.
//! Results don't depend on the number of threads, bit for bit. Tiles that a mask leaves empty are skipped.

mod backward;
mod decode;
mod forward;
mod mask;
mod operands;
mod panel;
#[cfg(test)]
mod tests;
mod tile;

pub use backward::{Saved, backward, backward_scratch};
pub use decode::{Cache, Place, decode, decode_scratch};
pub use forward::{forward, forward_scratch};
pub use mask::{Masked, Scores};

use std::any::TypeId;

use half::bf16;

use crate::fast::vmath::{LANES, Storage};
use crate::isa::Level;

/// Sizes of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// B, sequences.
    pub batch: usize,
    /// T, positions of each sequence.
    pub positions: usize,
    /// H, query heads.
    pub heads: usize,
    /// KV, key-value heads; divides `heads`.
    pub kv_heads: usize,
    /// D, channels of a head.
    pub head_dim: usize,
}

impl Dims {
    /// (H + 2·KV)·D, the width of packed qkv.
    pub fn packed(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// H·D, the width of the output.
    pub fn channels(&self) -> usize {
        self.heads * self.head_dim
    }

    /// H / KV, query heads that share a key-value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Elements of packed qkv.
    pub fn qkv_len(&self) -> usize {
        self.batch * self.positions * self.packed()
    }

    /// Elements of the output.
    pub fn out_len(&self) -> usize {
        self.batch * self.positions * self.channels()
    }

    /// Elements of the log-sum-exp, (B, H, T).
    pub fn lse_len(&self) -> usize {
        self.batch * self.heads * self.positions
    }

    /// Channels of a head in a tile, so that they fill vectors of lanes of `depth` elements.
    fn width(&self, depth: usize) -> usize {
        self.head_dim.next_multiple_of(LANES * depth)
    }

    /// Panics where the sizes are none of an attention: core checks them when it builds the graph.
    fn check(&self) {
        assert!(
            self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads) && self.head_dim > 0,
            "{self:?}: heads must be a multiple of kv_heads, and head_dim positive"
        );
    }
}

/// Queries of a tile, at most.
const QUERIES: usize = 64;

/// Queries of a tile of a sequence.
fn tile_rows(positions: usize) -> usize {
    QUERIES.min(positions).max(1)
}

/// Elements in a lane of the operands of tensors of `T`: 2 where they are multiplied as pairs of bf16.
fn depth<T: Storage>(level: Level) -> usize {
    if level.multiplies_bf16() && TypeId::of::<T>() == TypeId::of::<bf16>() { 2 } else { 1 }
}
