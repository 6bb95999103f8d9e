//! Packing with AVX-512: 16 vectors at a time, a cache line of each.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::Lanes;
use super::{Block, STRIP, Side};

/// Vectors, and lanes of those whose depth is contiguous, that are packed together.
const GROUP: usize = 16;

/// Where a group goes: into one panel, or half by half into two that are narrower than the group.
#[derive(Clone, Copy)]
struct Place {
    first: *mut u32,
    second: *mut u32,
    width: usize,
}

impl Place {
    /// # Safety
    ///
    /// The lane's places must lie inside the panels. Needs AVX-512.
    #[inline(always)]
    unsafe fn store(self, lane: usize, values: __m512i) {
        let Self { first, second, width } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let to = first.add(lane * width);
            if width >= GROUP {
                _mm512_storeu_epi32(to.cast(), values);
            } else {
                let high = second.add(lane * width);
                _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(values));
                _mm256_storeu_si256(high.cast(), _mm512_extracti64x4_epi64::<1>(values));
            }
        }
    }
}

/// Packs what there is of whole groups, and says up to which vector and which lane of each that was.
///
/// # Safety
///
/// As [`super::pack`] with [`super::Panels::Lanes`]; needs AVX-512.
#[target_feature(enable = "avx512f,avx2,f16c")]
pub(super) unsafe fn pack<L: Lanes>(side: Side, block: Block, panels: *mut u32) -> (usize, usize) {
    let padded = block.count.next_multiple_of(block.unit);
    let vectors = block.count / GROUP * GROUP;
    let whole = block.depth / L::PER_LANE;
    let along = side.along == 1;
    let lanes = match (along, side.across == 1) {
        (true, _) => whole / GROUP * GROUP,
        (false, true) => whole,
        (false, false) => return (0, 0),
    };
    // Where depth is contiguous a group reads whole lines by itself, so one strip does.
    let strip = if along { lanes.max(1) } else { STRIP };
    for strip in (0..lanes).step_by(strip).map(|start| start..lanes.min(start + strip)) {
        for group in (0..vectors).step_by(GROUP) {
            let at = |vector: usize| {
                let panel = vector - vector % block.width;
                (panel * block.lanes + vector - panel, block.width.min(padded - panel))
            };
            let ((first, width), (second, _)) = (at(group), at(group + GROUP / 2));
            // SAFETY: both halves of the group are in panels, its vectors in the block, and so are the lanes.
            unsafe {
                let place = Place { first: panels.add(first), second: panels.add(second), width };
                let from =
                    side.offset(block.first + group, block.start + strip.start * L::PER_LANE);
                if along {
                    pack_along::<L>(side, from, lanes, place);
                } else {
                    pack_across::<L>(side, from, strip.clone(), place);
                }
            }
        }
    }
    (vectors, lanes)
}

/// Packs a group whose depth is contiguous; `lanes` is a multiple of 16.
///
/// # Safety
///
/// As [`pack`]; 16 vectors of so many lanes must be readable from `from` on.
#[inline]
#[target_feature(enable = "avx512f,avx2,f16c")]
unsafe fn pack_along<L: Lanes>(side: Side, from: *const u8, lanes: usize, place: Place) {
    let size = side.element.size();
    let (across, step) = (side.across * size as isize, GROUP * L::PER_LANE * size);
    let mut from = from;
    for lane in (0..lanes).step_by(GROUP) {
        // The next group's lines, as their first reads would all miss. A hint; it never faults.
        let next = from.wrapping_offset(GROUP as isize * across);
        let mut rows = [_mm512_setzero_si512(); GROUP];
        for (vector, row) in rows.iter_mut().enumerate() {
            let offset = vector as isize * across;
            // SAFETY: the caller's promise.
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_offset(offset).cast());
                *row = L::along_16(from.offset(offset));
            }
        }
        for (l, row) in transpose(rows).into_iter().enumerate() {
            // SAFETY: a lane of the group.
            unsafe { place.store(lane + l, row) };
        }
        from = from.wrapping_add(step);
    }
}

/// Packs a group of neighbours.
///
/// # Safety
///
/// As [`pack`]; the lanes of 16 neighbours must be readable, the first of them at `from`.
#[inline]
#[target_feature(enable = "avx512f,avx2,f16c")]
unsafe fn pack_across<L: Lanes>(side: Side, from: *const u8, strip: Range<usize>, place: Place) {
    let step = side.along * side.element.size() as isize;
    let lane_step = step * L::PER_LANE as isize;
    let mut from = from;
    for lane in strip {
        // The next strip's rows. A hint; it never faults.
        let next = from.wrapping_offset(STRIP as isize * lane_step);
        // SAFETY: the caller's promise.
        unsafe {
            for row in 0..L::PER_LANE {
                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_offset(row as isize * step).cast());
            }
            place.store(lane, L::across_16(from, step));
        }
        from = from.wrapping_offset(lane_step);
    }
}

/// Transposes 16 × 16 lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(r: [__m512i; GROUP]) -> [__m512i; GROUP] {
    let mut x = r;
    // Pairs of rows, then fours, inside each quarter.
    for i in 0..8 {
        x[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        x[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    // y[4g + c]: in quarter q, column 4q + c of rows 4g .. 4g + 4.
    let mut y = x;
    for g in [0, 4, 8, 12] {
        y[g] = _mm512_unpacklo_epi64(x[g], x[g + 2]);
        y[g + 1] = _mm512_unpackhi_epi64(x[g], x[g + 2]);
        y[g + 2] = _mm512_unpacklo_epi64(x[g + 1], x[g + 3]);
        y[g + 3] = _mm512_unpackhi_epi64(x[g + 1], x[g + 3]);
    }
    // Then the quarters.
    for c in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x88>(y[c], y[4 + c]);
        let high = _mm512_shuffle_i32x4::<0xdd>(y[c], y[4 + c]);
        let low2 = _mm512_shuffle_i32x4::<0x88>(y[8 + c], y[12 + c]);
        let high2 = _mm512_shuffle_i32x4::<0xdd>(y[8 + c], y[12 + c]);
        x[c] = _mm512_shuffle_i32x4::<0x88>(low, low2);
        x[4 + c] = _mm512_shuffle_i32x4::<0x88>(high, high2);
        x[8 + c] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
        x[12 + c] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
    }
    x
}
