//! Launches of attention: how it's cut into tiles, and what each launch is told.

use std::f64::consts::LOG2_E;
use std::ops::Range;

use super::Attention;
use super::entries::{BEGIN_GRAD, COUNTS, FORWARD, GRAD, GROUP_TILE, LSE};
use super::mask::Extra;
use crate::launch::{LAUNCHES_CUDA, Launch, Limits, Operand, Place};
use crate::types::{DType, Type};

/// Rows of a tile of scores, as many columns, and products of a thread along each.
const TILE: u32 = 32;
const PER_THREAD: u32 = 4;
/// Threads of a workgroup where each makes rows of its own, on a processor that emulates a GPU: few, because all
/// go on until the last has met the diagonal. And the rows that each makes.
const STRIP: u32 = 8;
const ROWS_PER_THREAD: u32 = 2;
/// Most channels of a head that such a thread's registers hold.
const MOST_IN_REGISTERS: usize = 128;
/// Rows of a tile on tensor cores, and of one that reads other rows half as often: as many as the registers of its threads and 48 KiB
/// of shared memory have room for. Its threads, and channels of heads whose vectors suit them.
const TENSOR_TILE: u32 = 64;
const TALL_TENSOR_TILE: u32 = 128;
const MOST_IN_TALL: usize = 64;
const TENSOR_THREADS: u32 = 128;
const TENSOR_HEADS: [usize; 4] = [16, 32, 64, 128];
/// The least scale there: products are compared before they're scaled, and a masked one is far below the others after it.
const LEAST_TENSOR_SCALE: f64 = 1e-20;
/// Threads of a workgroup of any other entry.
pub(super) const THREADS: u32 = 64;

/// Names that the kernel file has for tensors.
const OPERANDS: [&str; 9] =
    ["qkv", "out", "dout", "statistics", "keys", "values", "position", "documents", "key"];

/// Sequences of one launch, the first of them, their positions, and those that a cache has room for.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub first: u64,
    pub sequences: u64,
    pub seq_len: u64,
    pub capacity: u64,
    /// Where the second kind of statistics begins.
    pub deltas: u64,
}

impl Extents {
    pub fn new(range: &Range<u64>, seq_len: u64) -> Self {
        let sequences = range.end - range.start;
        Self { first: range.start, sequences, seq_len, capacity: 0, deltas: 0 }
    }
}

impl Attention {
    /// What the mask and dropout read, of which the first is input `own`.
    pub(super) fn extra_operands(
        &self,
        own: usize,
        inputs: &[&Type],
    ) -> Vec<(&'static str, Place)> {
        let places: Vec<Place> =
            inputs.iter().enumerate().map(|(index, ty)| Place::input(index, ty)).collect();
        let extra = Extra::of(self.mask, self.dropout, own, &places);
        let named = [("documents", extra.documents), ("key", extra.key)];
        named.into_iter().filter_map(|(name, place)| Some((name, place?))).collect()
    }

    /// A launch of `entry` that binds `operands`.
    pub(super) fn kernel(
        &self,
        (entry, threads, groups): (&'static str, u32, u64),
        extents: Extents,
        operands: &[(&'static str, Place)],
        flops: u64,
    ) -> Launch {
        let (kernel, tile) = match entry {
            FORWARD => ("attention_wgmma", GROUP_TILE),
            GRAD => ("attention_wgmma_grad", GROUP_TILE),
            BEGIN_GRAD => ("attention_ordered", TILE),
            _ if entry.ends_with("_mma") => ("attention_mma", self.tensor_tile(entry, extents)),
            _ => ("attention", TILE),
        };
        let mut launch = Launch::new(kernel, entry, threads, groups)
            .constant("HEADS", self.heads as u64)
            .constant("KV_HEADS", self.kv_heads as u64)
            .constant("HEAD_DIM", self.head_dim as u64)
            .constant("ROWS", tile)
            .constant("CAUSAL", u64::from(self.mask.causal))
            .constant("WINDOW", self.mask.width(extents.seq_len.max(extents.capacity)))
            .constant("DOCUMENTS", u64::from(self.mask.documents))
            .constant("DROPOUT", u64::from(self.dropout.is_some()))
            .constant("CAPPED", u64::from(self.cap.is_some()))
            .param("first", extents.first)
            .param("sequences", extents.sequences)
            .param("seq_len", extents.seq_len)
            .param("capacity", extents.capacity)
            .param("deltas", extents.deltas)
            .param("stream", self.dropout.map_or(0, |dropout| dropout.stream))
            .real("dropped", self.dropout.map_or(0.0, |dropout| dropout.p))
            .real("scale", self.scale)
            .real("prescale", self.cap.map_or(self.scale * LOG2_E, |cap| self.scale / cap))
            .real("cap2", self.cap.unwrap_or_default() * LOG2_E);
        let numbers = |name: &str| {
            matches!(name, "statistics" | "position" | "documents" | "key" | COUNTS | LSE)
        };
        for &(name, place) in operands {
            let aligned = self.head_dim.is_multiple_of(4) && !numbers(name);
            launch = launch.bind_four(name, place, aligned);
        }
        launch = launch.costing(flops);
        // What an entry doesn't name is bound as something it does, which takes no further binding.
        for name in OPERANDS {
            let bound = |wanted: &dyn Fn(&str) -> bool| {
                launch.operands.iter().find(|operand| wanted(&operand.name)).cloned()
            };
            if bound(&|other| other == name).is_none() {
                let like = bound(&|other| name != "statistics" || numbers(other));
                launch.operands.extend(like.map(|like| Operand { name: name.into(), ..like }));
            }
        }
        launch
    }

    /// Rows of a tile of an entry on tensor cores.
    fn tensor_tile(&self, entry: &str, extents: Extents) -> u32 {
        let light = self.dropout.is_none() && self.cap.is_none() && entry != "grad_keys_mma";
        let long = extents.seq_len >= TALL_TENSOR_TILE.into();
        if light && long && self.head_dim <= MOST_IN_TALL { TALL_TENSOR_TILE } else { TENSOR_TILE }
    }

    /// A launch that makes the rows of `heads` heads, of which `operands` begin with the packed projections.
    pub(super) fn rows_kernel(
        &self,
        limits: &Limits,
        entries: [&'static str; 3],
        heads: usize,
        extents: Extents,
        operands: &[(&'static str, Place)],
        flops: u64,
    ) -> Launch {
        let dtype = operands.first().map_or(DType::F32, |(_, packed)| packed.dtype);
        let rows = self.rows_of(limits, entries, heads, extents, dtype);
        let launch = self.kernel(rows, extents, operands, flops);
        let subgroup = limits.webgpu().subgroup.filter(|&threads| threads == STRIP);
        let [_, direct, _] = entries;
        if rows.0 == direct { launch.constant("SUBGROUP", subgroup.unwrap_or(1)) } else { launch }
    }

    /// Entry, threads and workgroups that make the rows of `heads` heads: in tiles, or where processors emulate a
    /// GPU, in registers of one thread.
    fn rows_of(
        &self,
        limits: &Limits,
        [tiled, direct, tensor]: [&'static str; 3],
        heads: usize,
        extents: Extents,
        dtype: DType,
    ) -> (&'static str, u32, u64) {
        let direct_pays = !limits.tile.shares();
        let (entry, threads, rows) = if LAUNCHES_CUDA
            && limits.cuda().tensor_cores.contains(&dtype)
            && !limits.cuda().plain_attention
            && TENSOR_HEADS.contains(&self.head_dim)
            && self.scale >= LEAST_TENSOR_SCALE
        {
            (tensor, TENSOR_THREADS, self.tensor_tile(tensor, extents))
        } else if direct_pays && self.head_dim <= MOST_IN_REGISTERS {
            (direct, STRIP, STRIP * ROWS_PER_THREAD)
        } else {
            (tiled, (TILE / PER_THREAD).pow(2), TILE)
        };
        let groups = extents.sequences * heads as u64 * extents.seq_len.div_ceil(rows.into());
        (entry, threads, groups)
    }
}
