//! Packing: from a strided matrix to the panels that the kernels read.
//!
//! Both operands are seen the same way, as `count` vectors of some depth: the rows of lhs, the columns of
//! rhs. A panel holds `width` neighbouring vectors as `(lanes, width)` 32-bit lanes; the last one is
//! narrowed to the next multiple of `unit` and filled up with zeros. An odd depth of bf16 pairs ends in a zero.

mod lanes;
mod wide;

use std::arch::x86_64::*;

use super::ahead::{LINE, Lines};
use super::kernel::Panels;
use super::sizes::SIDE_BY_SIDE;
use super::{Element, Mat};
use lanes::{Bf16, F16, F32, Lanes, Pairs};

/// Vectors that are packed together: the AVX2 width, which divides every panel width.
const GROUP: usize = 8;

/// Lanes packed before moving to the next group of vectors, where neighbouring vectors share cache lines.
const STRIP: usize = 16;

/// One operand: vector `p`, depth `l` lies `p * across + l * along` elements after `ptr`.
#[derive(Clone, Copy)]
pub(super) struct Side {
    ptr: *const u8,
    element: Element,
    across: isize,
    along: isize,
}

// SAFETY: only read, under the promise made to `gemm`.
unsafe impl Send for Side {}
// SAFETY: as above.
unsafe impl Sync for Side {}

impl Side {
    /// The rows of `mat`.
    pub(super) fn rows(mat: Mat) -> Self {
        Self { ptr: mat.ptr, element: mat.element, across: mat.row_stride, along: mat.col_stride }
    }

    /// The columns of `mat`.
    pub(super) fn columns(mat: Mat) -> Self {
        Self::rows(mat.transposed())
    }

    /// The memory of a block, to be asked for in so many parts.
    pub(super) fn lines(self, block: Block, parts: usize) -> Lines {
        let size = self.element.size() as isize;
        let (rows, length, step) = match (self.along, self.across) {
            (1, _) => (block.count, block.depth, self.across),
            (_, 1) => (block.depth, block.count, self.along),
            _ => return Lines::NONE,
        };
        let start = self.offset(block.first, block.start);
        Lines::new(start, rows, length * size as usize, step * size, parts)
    }

    /// Where depth `depth` of vector `vector` is.
    pub(super) fn offset(self, vector: usize, depth: usize) -> *const u8 {
        let elements = vector as isize * self.across + depth as isize * self.along;
        self.ptr.wrapping_offset(elements * self.element.size() as isize)
    }
}

/// What to pack of a side.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// First vector.
    pub(super) first: usize,
    /// Vectors.
    pub(super) count: usize,
    /// First depth.
    pub(super) start: usize,
    /// Depth, in elements.
    pub(super) depth: usize,
    /// Lanes of the panels, at least those of the depth; the others are zero.
    pub(super) lanes: usize,
    /// Vectors in a full panel; a multiple of 8.
    pub(super) width: usize,
    /// The last panel's width is a multiple of this.
    pub(super) unit: usize,
    /// Whether the CPU has AVX-512.
    pub(super) wide: bool,
}

/// Packs a block of `side`; `per_lane` is 2 to pair up bf16 as they are, 1 to widen to f32.
///
/// # Safety
///
/// Needs AVX2 and F16C, and AVX-512 where the block says so. The block must lie inside the matrix, and `panels` must have room for `count`
/// rounded up to `unit`, times the lanes. With `per_lane` 2 the side must be bf16.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn pack(
    side: Side,
    per_lane: usize,
    block: Block,
    layout: Panels,
    panels: *mut u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (side.element, per_lane) {
            (_, 2) if layout == Panels::Rows => pack_rows::<Pairs>(side, block, panels),
            (_, 2) => pack_lanes::<Pairs>(side, block, panels),
            (Element::F32, _) => pack_lanes::<F32>(side, block, panels),
            (Element::Bf16, _) => pack_lanes::<Bf16>(side, block, panels),
            (Element::F16, _) => pack_lanes::<F16>(side, block, panels),
        }
    }
}

/// # Safety
///
/// As [`pack`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack_lanes<L: Lanes>(side: Side, block: Block, panels: *mut u32) {
    let lanes = block.depth.div_ceil(L::PER_LANE);
    let padded = block.count.next_multiple_of(block.unit);
    let (vectors, done) = match block.wide {
        // SAFETY: the caller's promise; the block says that there is AVX-512.
        true => unsafe { wide::pack::<L>(side, block, panels) },
        false => (0, 0),
    };
    // Where depth is contiguous a group reads whole lines by itself, so one strip does.
    let strip = if side.along == 1 { lanes.max(1) } else { STRIP };
    for from in (0..lanes).step_by(strip) {
        let strip = from..(from + strip).min(lanes);
        for group in (0..padded).step_by(GROUP) {
            let done = if group < vectors { done } else { 0 };
            let strip = strip.start.max(done)..strip.end;
            if strip.is_empty() {
                continue;
            }
            let panel = group - group % block.width;
            let width = block.width.min(padded - panel);
            let valid = block.count.saturating_sub(group).min(GROUP);
            // SAFETY: panels before this one hold `panel` vectors; the group is inside its panel, and
            // `valid` of its vectors are inside the block.
            unsafe {
                let to = panels.add(panel * block.lanes + group - panel);
                pack_group::<L>(side, block, group, valid, strip, to, width);
            }
        }
    }
    for panel in (0..padded).step_by(block.width) {
        let width = block.width.min(padded - panel);
        // SAFETY: the end of the panel's lanes.
        unsafe {
            let rest = panels.add(panel * block.lanes + lanes * width);
            rest.write_bytes(0, (block.lanes - lanes) * width);
        }
    }
}

/// As [`pack_lanes`], for [`Panels::Rows`].
///
/// # Safety
///
/// As [`pack`]; the block's lanes are a multiple of [`SIDE_BY_SIDE`], and its width and unit of [`GROUP`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack_rows<L: Lanes>(side: Side, block: Block, panels: *mut u32) {
    let lanes = block.depth.div_ceil(L::PER_LANE);
    let padded = block.count.next_multiple_of(block.unit);
    let step = side.along * side.element.size() as isize;
    let left = |lane: usize| block.depth.saturating_sub(lane * L::PER_LANE);
    for panel in (0..padded).step_by(block.width) {
        let width = block.width.min(padded - panel);
        for lane in (0..block.lanes).step_by(GROUP) {
            let at_lane = |vector: usize, lane: usize| {
                side.offset(block.first + vector, block.start + lane * L::PER_LANE)
            };
            let whole = left(lane) >= GROUP * L::PER_LANE;
            for group in (panel..panel + width).step_by(GROUP) {
                let valid = block.count.saturating_sub(group).min(GROUP);
                // SAFETY: eight lanes are read along where all their elements exist, and across where
                // all eight vectors do; else one by one. The eight rows are the group's in the panel.
                unsafe {
                    let rows: [__m256i; GROUP] = if side.along == 1 && whole {
                        std::array::from_fn(|vector| {
                            if vector < valid {
                                L::along(at_lane(group + vector, lane))
                            } else {
                                _mm256_setzero_si256()
                            }
                        })
                    } else if side.across == 1 && valid == GROUP {
                        transpose(std::array::from_fn(|l| {
                            let (lane, left) = (lane + l, left(lane + l));
                            if lane < lanes {
                                L::across(at_lane(group, lane), step, left)
                            } else {
                                _mm256_setzero_si256()
                            }
                        }))
                    } else {
                        std::array::from_fn(|vector| {
                            let mut row = [0u32; GROUP];
                            for (l, value) in row.iter_mut().enumerate() {
                                if vector < valid && lane + l < lanes {
                                    let ptr = at_lane(group + vector, lane + l);
                                    *value = L::one(ptr, step, left(lane + l));
                                }
                            }
                            _mm256_loadu_si256(row.as_ptr().cast())
                        })
                    };
                    let (beside, within) = (lane / SIDE_BY_SIDE, lane % SIDE_BY_SIDE);
                    for (vector, row) in rows.into_iter().enumerate() {
                        let vector = beside * width + group - panel + vector;
                        let to = panels.add(panel * block.lanes + vector * SIDE_BY_SIDE + within);
                        _mm256_storeu_si256(to.cast(), row);
                    }
                }
            }
        }
    }
}

/// Packs the lanes `strip` of eight vectors, of which the first `valid` exist, to `to + lane * width`.
///
/// # Safety
///
/// As [`pack`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack_group<L: Lanes>(
    side: Side,
    block: Block,
    group: usize,
    valid: usize,
    strip: std::ops::Range<usize>,
    to: *mut u32,
    width: usize,
) {
    let at = |vector: usize, lane: usize| {
        side.offset(block.first + group + vector, block.start + lane * L::PER_LANE)
    };
    let step = side.along * side.element.size() as isize;
    let left = |lane: usize| block.depth - lane * L::PER_LANE;
    let size = side.element.size();
    // A hint; it never faults.
    let ahead = |ptr: *const u8| _mm_prefetch::<_MM_HINT_T1>(ptr.cast());
    let mut lane = strip.start;
    // SAFETY: `at` stays inside the block for `vector < valid` and lanes of the strip. Eight lanes along
    // are read only where all their elements exist, eight vectors across only where all eight do. Writes
    // go to the 8 columns of the group in rows of the strip.
    unsafe {
        if side.along == 1 {
            while lane + 8 <= strip.end && left(lane) >= 8 * L::PER_LANE {
                // The next group's rows, a line each, as their first reads would all miss.
                if (lane * L::PER_LANE * size).is_multiple_of(LINE) {
                    for vector in 0..GROUP {
                        ahead(at(GROUP + vector, lane));
                    }
                }
                let rows = std::array::from_fn(|vector| {
                    if vector < valid { L::along(at(vector, lane)) } else { _mm256_setzero_si256() }
                });
                for (l, row) in transpose(rows).into_iter().enumerate() {
                    _mm256_storeu_si256(to.add((lane + l) * width).cast(), row);
                }
                lane += 8;
            }
        } else if side.across == 1 && valid == GROUP {
            while lane < strip.end {
                // The next strip's rows, a line each.
                if (group * size).is_multiple_of(LINE) {
                    for row in 0..L::PER_LANE {
                        ahead(at(0, lane + STRIP).wrapping_offset(row as isize * step));
                    }
                }
                let row = L::across(at(0, lane), step, left(lane));
                _mm256_storeu_si256(to.add(lane * width).cast(), row);
                lane += 1;
            }
        }
        while lane < strip.end {
            for vector in 0..GROUP {
                let value =
                    if vector < valid { L::one(at(vector, lane), step, left(lane)) } else { 0 };
                to.add(lane * width + vector).write(value);
            }
            lane += 1;
        }
    }
}

/// Transposes 8 × 8 lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; 8]) -> [__m256i; 8] {
    // Pairs of rows, then fours, inside each 128-bit half; then the halves.
    let pair = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let four = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let (a0, a1) = pair(r[0], r[1]);
    let (b0, b1) = pair(r[2], r[3]);
    let (c0, c1) = pair(r[4], r[5]);
    let (d0, d1) = pair(r[6], r[7]);
    let (p0, p1) = four(a0, b0);
    let (p2, p3) = four(a1, b1);
    let (q0, q1) = four(c0, d0);
    let (q2, q3) = four(c1, d1);
    let low = |p, q| _mm256_permute2x128_si256::<0x20>(p, q);
    let high = |p, q| _mm256_permute2x128_si256::<0x31>(p, q);
    [
        low(p0, q0),
        low(p1, q1),
        low(p2, q2),
        low(p3, q3),
        high(p0, q0),
        high(p1, q1),
        high(p2, q2),
        high(p3, q3),
    ]
}
