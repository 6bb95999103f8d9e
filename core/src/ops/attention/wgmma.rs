//! Attention by warpgroups, straight from shared memory (Hopper's `wgmma`): for which heads, and in what tiles.

use super::Attention;
use super::entries::{BEGIN_GRAD, COUNTS, FORWARD, GRAD, GROUP_TILE as TILE};
use super::launches::{self, Extents};
use crate::launch::{Boxed, LAUNCHES_CUDA, Launch, Launches, Limits, Place};
use crate::types::DType;

/// The name that kernel files have for what the gradient needs besides counts.
const PARTIAL: &str = "partial";

/// Three groups of four warps: one copies, two multiply.
const THREADS: u32 = 384;
/// Queries of a tile of the gradient's, and warps that count how many blocks have added to parts of it.
const GRAD_QUERIES: u32 = 64;
const COUNTED: u64 = 8;
/// Channels of the heads that it takes: one or two rows of boxes.
const HEADS: [usize; 2] = [64, 128];
/// Bytes of shared memory that hold tiles, and the barriers of a tile of keys or values and of the rest.
const TILES_BYTES: u32 = 192 << 10;
const BARRIER_BYTES: u32 = 8;
const BARRIERS_OF_SLOT: u32 = 2;
const OTHER_BARRIERS: u32 = 4;
/// Buffers of slopes in the gradient, and barriers besides those of stages.
const BUFFERS: u32 = 2;
const OTHER_GRAD_BARRIERS: u32 = BUFFERS + 1;

/// Multiprocessors of a device that has the kernels, where they take this op: they look for the largest product of a query and
/// keys, which is the largest score where the factor is above 0.
pub(super) fn takes(op: &Attention, limits: &Limits, qkv: Place) -> Option<u32> {
    let suits = matches!(qkv.dtype, DType::BF16 | DType::F16)
        && HEADS.contains(&op.head_dim)
        && op.scale > 0.0
        && op.cap.is_none()
        && op.dropout.is_none()
        && qkv.elements > 0;
    let cuda = limits.cuda();
    cuda.wgmma.filter(|_| LAUNCHES_CUDA && suits && !cuda.warp_attention)
}

/// Scratch of the gradient, in which blocks add to sums one after the other.
pub(super) struct Ordered {
    /// Sums of the queries' gradients so far.
    partial: Place,
    /// A ticket for the next block, and how many blocks have added to each part of the sums.
    counts: Place,
}

impl Ordered {
    /// Sums of a sequence.
    pub(super) fn sums(op: &Attention, seq_len: u64) -> u64 {
        op.heads as u64 * seq_len.next_multiple_of(GRAD_QUERIES.into()) * op.head_dim as u64
    }

    /// That of so many sequences.
    pub(super) fn new(
        launches: &mut Launches,
        op: &Attention,
        sequences: u64,
        seq_len: u64,
    ) -> Self {
        let partial = launches.scratch(DType::F32, sequences * Self::sums(op, seq_len));
        let tiles = sequences * op.heads as u64 * seq_len.div_ceil(GRAD_QUERIES.into());
        Self { partial, counts: launches.scratch(DType::U32, 1 + COUNTED * tiles) }
    }
}

impl Attention {
    /// The launch that makes values.
    pub(super) fn forward_wgmma(
        &self,
        multiprocessors: u32,
        extents: Extents,
        operands: &[(&'static str, Place)],
        flops: u64,
    ) -> Launch {
        let Extents { sequences, seq_len, .. } = extents;
        let groups = sequences * self.heads as u64 * seq_len.div_ceil(TILE.into());
        // One more tile is the queries'.
        let slots = TILES_BYTES / self.tile_bytes(TILE) - 1;
        let barriers = BARRIERS_OF_SLOT * slots + OTHER_BARRIERS;
        let shared_bytes = TILES_BYTES + barriers * BARRIER_BYTES;
        let rows = boxed("rows", operands, "qkv", self.packed(), extents, TILE);
        self.kernel((FORWARD, THREADS, groups), extents, operands, flops)
            .constant("SLOTS", slots)
            .persistent(multiprocessors, shared_bytes, vec![rows])
    }

    /// The launch that makes what the gradient reads.
    pub(super) fn begin_grad_wgmma(
        &self,
        ordered: &Ordered,
        extents: Extents,
        operands: &[(&'static str, Place)],
    ) -> Launch {
        let rows = extents.sequences * self.heads as u64 * extents.seq_len;
        let operands = [operands, &[(COUNTS, ordered.counts)]].concat();
        let threads = launches::THREADS;
        let flops = 2 * rows * self.head_dim as u64;
        let groups = rows.div_ceil(threads.into());
        self.kernel((BEGIN_GRAD, threads, groups), extents, &operands, flops)
    }

    /// The launch that makes the gradient. Its blocks go by tickets, one for each tile of keys.
    pub(super) fn grad_wgmma(
        &self,
        ordered: &Ordered,
        extents: Extents,
        operands: &[(&'static str, Place)],
        flops: u64,
    ) -> Launch {
        let Extents { sequences, seq_len, .. } = extents;
        let groups = sequences * self.kv_heads as u64 * seq_len.div_ceil(TILE.into());
        let [keys, queries] = [TILE, GRAD_QUERIES].map(|rows| self.tile_bytes(rows));
        // Keys and values, and slopes, which are of 16 bits too.
        let whole = 2 * keys + BUFFERS * TILE * GRAD_QUERIES * 2;
        let stages = (TILES_BYTES - whole) / (2 * queries);
        // Of each query two numbers of 32 bits.
        let statistics = stages * GRAD_QUERIES * 2 * 4;
        let barriers = BARRIERS_OF_SLOT * stages + OTHER_GRAD_BARRIERS;
        let shared_bytes = whole + stages * 2 * queries + statistics + barriers * BARRIER_BYTES;
        let boxed = vec![
            boxed("rows", operands, "qkv", self.packed(), extents, GRAD_QUERIES),
            boxed("gradients", operands, "dout", self.heads * self.head_dim, extents, GRAD_QUERIES),
        ];
        let operands = [operands, &[(PARTIAL, ordered.partial), (COUNTS, ordered.counts)]].concat();
        let launch = self
            .kernel((GRAD, THREADS, groups), extents, &operands, flops)
            .constant("SLOTS", stages);
        Launch { shared_bytes, boxed, ..launch }
    }

    /// Bytes of so many rows of a head.
    fn tile_bytes(&self, rows: u32) -> u32 {
        rows * self.head_dim as u32 * 2
    }
}

/// What an operand is, in boxes of `tall` rows of a sequence.
fn boxed(
    name: &'static str,
    operands: &[(&'static str, Place)],
    operand: &str,
    columns: usize,
    extents: Extents,
    tall: u32,
) -> Boxed {
    let (sequences, seq_len, columns) = (extents.sequences, extents.seq_len, columns as u64);
    let place = operands.iter().find(|(name, _)| *name == operand).expect("an operand").1;
    Boxed {
        name,
        place,
        first: 0,
        extents: [columns, seq_len, sequences],
        strides: [columns, columns * seq_len],
        edges: [Boxed::ROW_BYTES / place.dtype.size() as u32, tall, 1],
    }
}
