//! Sizes of every kernel's tiles and panels, as data: blocks and scratch follow from them, on any machine.

use super::Element;
use super::sizes::{AMX_ROWS, ROWS, SIDE_BY_SIDE};
#[cfg(target_arch = "x86_64")]
use super::{
    Gemm,
    ahead::Ahead,
    amx,
    finish::{Sums, finish_avx2, finish_avx512},
    kernels::{avx2_f32, avx512_bf16, avx512_f32},
    tile::Tile,
};
use crate::isa::Level;

/// The order of a panel's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panels {
    /// `(lanes, width)`: neighbouring vectors side by side.
    Lanes,
    /// `(lanes / 16, width, 16)`: 16 neighbouring lanes of a vector side by side, as AMX reads lhs.
    Rows,
}

/// A kernel and what the blocking needs to know of it.
#[derive(Debug)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "asked about, never run"))]
pub(super) struct Kernel {
    /// For people.
    pub(super) name: &'static str,
    /// Rows of a full tile, and width of the lhs panels.
    pub(super) rows: usize,
    /// Rows of a tile are padded to a multiple of this.
    pub(super) row_unit: usize,
    /// f32 per vector; columns of a tile are padded to a multiple of it.
    pub(super) vector: usize,
    /// Vectors in a full tile's row.
    pub(super) vectors: usize,
    /// Elements of depth per lane: 1 (f32) or 2 (bf16).
    pub(super) per_lane: usize,
    /// Lanes are padded to a multiple of this.
    pub(super) lane_unit: usize,
    /// Most lanes in a slice of depth, so that panels fit the nearest cache.
    pub(super) slice: usize,
    /// The order of lanes in packed panels of lhs.
    pub(super) lhs: Panels,
    /// `true` if a full tile may read its rows of lhs in the matrix.
    pub(super) reads_lhs: bool,
    /// `true` if the rows of a tile's sums may lie apart, as those of an output do.
    pub(super) any_stride: bool,
    /// Functions that run it.
    #[cfg(target_arch = "x86_64")]
    pub(super) code: Code,
}

/// Functions of a kernel.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
pub(super) struct Code {
    /// Readies a thread for tiles, and ends that.
    pub(super) enter: unsafe fn(),
    pub(super) leave: unsafe fn(),
    pub(super) run: unsafe fn(&Tile, &mut Ahead),
    pub(super) finish: unsafe fn(&Gemm, Sums),
}

static AMX_BF16: Kernel = Kernel {
    name: "amx-bf16",
    rows: 2 * AMX_ROWS,
    row_unit: AMX_ROWS,
    vector: 16,
    vectors: 2,
    per_lane: 2,
    lane_unit: SIDE_BY_SIDE,
    slice: 384,
    lhs: Panels::Rows,
    reads_lhs: false,
    any_stride: false,
    #[cfg(target_arch = "x86_64")]
    code: Code { enter: amx::enter, leave: amx::leave, run: amx::run, finish: finish_avx512 },
};

static AVX512_BF16: Kernel = Kernel {
    name: "avx512-bf16",
    per_lane: 2,
    reads_lhs: true,
    #[cfg(target_arch = "x86_64")]
    code: Code { enter: || {}, leave: || {}, run: avx512_bf16, finish: finish_avx512 },
    ..AVX512_F32
};

static AVX512_F32: Kernel = Kernel {
    name: "avx512-f32",
    vector: 16,
    #[cfg(target_arch = "x86_64")]
    code: Code { enter: || {}, leave: || {}, run: avx512_f32, finish: finish_avx512 },
    ..AVX2_F32
};

static AVX2_F32: Kernel = Kernel {
    name: "avx2-f32",
    rows: ROWS,
    row_unit: ROWS,
    vector: 8,
    vectors: 3,
    per_lane: 1,
    lane_unit: 1,
    // An lhs panel of 12 KiB, an rhs panel of at most 72 KiB.
    slice: 384,
    lhs: Panels::Lanes,
    // Rows in f32 take twice the room in L2, and a panel's lie closer there.
    reads_lhs: false,
    any_stride: true,
    #[cfg(target_arch = "x86_64")]
    code: Code { enter: || {}, leave: || {}, run: avx2_f32, finish: finish_avx2 },
};

impl Kernel {
    /// The kernel of an instruction set for operands of these types; `None` where the `gemm` crate computes.
    pub(super) fn of(level: Level, lhs: Element, rhs: Element) -> Option<&'static Self> {
        let pairs = lhs == Element::Bf16 && rhs == Element::Bf16;
        match level {
            Level::Portable => None,
            Level::Avx2 => Some(&AVX2_F32),
            Level::Avx512Bf16 if pairs => Some(&AVX512_BF16),
            Level::Amx if pairs => Some(&AMX_BF16),
            Level::Avx512 | Level::Avx512Bf16 | Level::Amx => Some(&AVX512_F32),
        }
    }

    /// `true` if its vectors are those of AVX-512.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn is_wide(&self) -> bool {
        self.vector == 16
    }

    /// Columns of a full tile.
    pub(super) fn columns(&self) -> usize {
        self.vectors * self.vector
    }

    /// Lanes of `depth` elements, padded.
    pub(super) fn lanes(&self, depth: usize) -> usize {
        depth.div_ceil(self.per_lane).next_multiple_of(self.lane_unit)
    }

    /// `rows`, padded.
    pub(super) fn padded_rows(&self, rows: usize) -> usize {
        rows.next_multiple_of(self.row_unit)
    }
}

#[cfg(target_arch = "x86_64")]
impl Kernel {
    /// Calls `work` between what readies this thread for tiles and what ends that.
    ///
    /// # Safety
    ///
    /// The CPU must support the kernel.
    pub(super) unsafe fn within(&self, work: impl FnOnce()) {
        // SAFETY: the caller's promise.
        unsafe { (self.code.enter)() };
        work();
        // SAFETY: as above.
        unsafe { (self.code.leave)() };
    }

    /// Computes `tile`, and asks for the memory of what comes next.
    ///
    /// # Safety
    ///
    /// The CPU must support the kernel, this must be [`within`](Self::within) it, and the tile's pointers must reach what their docs say.
    #[inline]
    pub(super) unsafe fn run(&self, tile: &Tile, ahead: &mut Ahead) {
        // SAFETY: the caller's promise.
        unsafe { (self.code.run)(tile, ahead) }
    }

    /// Writes the sums of a tile to the output.
    ///
    /// # Safety
    ///
    /// As [`finish`](super::finish::finish); the CPU must support the kernel.
    #[inline]
    pub(super) unsafe fn finish(&self, matmul: &Gemm, sums: Sums) {
        // SAFETY: the caller's promise.
        unsafe { (self.code.finish)(matmul, sums) }
    }
}
