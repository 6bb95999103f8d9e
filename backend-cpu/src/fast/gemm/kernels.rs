//! Register tiles. A tile is 8 rows by up to three vectors of columns, summed over packed lanes.
//!
//! A lane is 32 bits of depth: one f32, or two neighbouring bf16. Both kinds of kernel therefore read
//! the same panels, differ in one instruction, and share everything outside this file:
//!
//!   lhs panel  (lanes, 8)              tile[i][j] (+)= Σ_l lhs[l][i] · rhs[l][j]
//!   rhs panel  (lanes, columns)        tile (8, columns), f32
//!
//! The tiles of AMX are larger, and their lhs panels laid out otherwise: see [`super::amx`].
//!
//! 24 accumulators hide the latency of the multiply-add, and 3 vector loads serve 24 of them, which keeps
//! the load ports free for the broadcasts. 48 columns divide the widths of common transformers. AVX2 has 16 registers: 12 of
//! them accumulate, for four rows at a time.

use std::arch::asm;
use std::arch::x86_64::*;

use super::ahead;
use super::ahead::Ahead;
use super::sizes::ROWS;
use super::tile::Tile;

/// Bytes of a lane.
const LANE: isize = 4;

/// Fewer rows cost less time; 1, 4 and 8 are compiled.
///
/// # Safety
///
/// As [`super::kernel::Kernel::run`].
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn avx512_f32(tile: &Tile, ahead: &mut Ahead) {
    // SAFETY: the caller's promise.
    unsafe {
        match (tile.rows, tile.vectors) {
            (1, 1) => avx512_f32_tile::<1, 1>(tile, ahead),
            (1, 2) => avx512_f32_tile::<1, 2>(tile, ahead),
            (1, _) => avx512_f32_tile::<1, 3>(tile, ahead),
            (2..=4, 1) => avx512_f32_tile::<4, 1>(tile, ahead),
            (2..=4, 2) => avx512_f32_tile::<4, 2>(tile, ahead),
            (2..=4, _) => avx512_f32_tile::<4, 3>(tile, ahead),
            (_, 1) => avx512_f32_tile::<ROWS, 1>(tile, ahead),
            (_, 2) => avx512_f32_tile::<ROWS, 2>(tile, ahead),
            (_, _) => avx512_f32_tile::<ROWS, 3>(tile, ahead),
        }
    }
}

/// # Safety
///
/// As [`super::kernel::Kernel::run`].
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn avx512_bf16(tile: &Tile, ahead: &mut Ahead) {
    // SAFETY: the caller's promise.
    unsafe {
        match (tile.rows, tile.vectors) {
            (_, 1) if tile.lhs_step.is_some() => avx512_bf16_tile::<ROWS, 1, true>(tile, ahead),
            (_, 2) if tile.lhs_step.is_some() => avx512_bf16_tile::<ROWS, 2, true>(tile, ahead),
            (_, _) if tile.lhs_step.is_some() => avx512_bf16_tile::<ROWS, 3, true>(tile, ahead),
            (1, 1) => avx512_bf16_tile::<1, 1, false>(tile, ahead),
            (1, 2) => avx512_bf16_tile::<1, 2, false>(tile, ahead),
            (1, _) => avx512_bf16_tile::<1, 3, false>(tile, ahead),
            (2..=4, 1) => avx512_bf16_tile::<4, 1, false>(tile, ahead),
            (2..=4, 2) => avx512_bf16_tile::<4, 2, false>(tile, ahead),
            (2..=4, _) => avx512_bf16_tile::<4, 3, false>(tile, ahead),
            (_, 1) => avx512_bf16_tile::<ROWS, 1, false>(tile, ahead),
            (_, 2) => avx512_bf16_tile::<ROWS, 2, false>(tile, ahead),
            (_, _) => avx512_bf16_tile::<ROWS, 3, false>(tile, ahead),
        }
    }
}

/// AVX2 has 16 registers: a tile is done four rows at a time.
///
/// # Safety
///
/// As [`super::kernel::Kernel::run`].
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn avx2_f32(tile: &Tile, ahead: &mut Ahead) {
    for first in (0..tile.rows).step_by(4) {
        // SAFETY: the caller's promise; `first` is 0 or 4, inside the panel's and the tile's 8 rows.
        unsafe {
            match tile.vectors {
                1 => avx2_f32_tile::<1>(tile, first, ahead),
                2 => avx2_f32_tile::<2>(tile, first, ahead),
                _ => avx2_f32_tile::<3>(tile, first, ahead),
            }
        }
    }
}

/// # Safety
///
/// As [`super::kernel::Kernel::run`].
#[target_feature(enable = "avx512f")]
unsafe fn avx512_f32_tile<const R: usize, const V: usize>(tile: &Tile, ahead: &mut Ahead) {
    // SAFETY: panels have `lanes × 8` and `lanes × 16V` elements, sums 8 rows of 16V.
    unsafe {
        let mut sums = avx512_load::<R, V>(tile);
        let (mut lhs, mut rhs) = (tile.lhs.cast::<f32>(), tile.rhs.cast::<f32>());
        let mut left = tile.lanes;
        while left > 0 {
            let count = left.min(ahead::LANES);
            for _ in 0..count {
                let columns: [__m512; V] =
                    std::array::from_fn(|v| _mm512_loadu_ps(rhs.add(16 * v)));
                for (i, row) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(*lhs.add(i));
                    for (sum, y) in row.iter_mut().zip(columns) {
                        *sum = _mm512_fmadd_ps(x, y, *sum);
                    }
                }
                lhs = lhs.add(ROWS);
                rhs = rhs.add(16 * V);
            }
            left -= count;
            ahead.ask();
        }
        avx512_store(tile, &sums);
    }
}

/// # Safety
///
/// As [`super::kernel::Kernel::run`].
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn avx512_bf16_tile<const R: usize, const V: usize, const IN_PLACE: bool>(
    tile: &Tile,
    ahead: &mut Ahead,
) {
    // Constants in a panel, as the compiler then has one pointer to move.
    let [row_step, lane_step] = match tile.lhs_step {
        Some(step) if IN_PLACE => [step, LANE],
        _ => [LANE, ROWS as isize * LANE],
    };
    // SAFETY: as in `avx512_f32_tile`, or eight rows of lhs have so many lanes in the matrix; `__m512i` and `__m512bh` are both 512
    // plain bits.
    unsafe {
        let bf16 = |bits: __m512i| std::mem::transmute::<__m512i, __m512bh>(bits);
        let mut sums = avx512_load::<R, V>(tile);
        let (mut lhs, mut rhs) = (tile.lhs, tile.rhs.cast::<i32>());
        let mut left = tile.lanes;
        while left > 0 {
            let count = left.min(ahead::LANES);
            for _ in 0..count {
                let columns: [__m512i; V] =
                    std::array::from_fn(|v| _mm512_loadu_epi32(rhs.add(16 * v)));
                for (i, row) in sums.iter_mut().enumerate() {
                    let x = lhs.offset(i as isize * row_step).cast::<i32>();
                    let x = bf16(_mm512_set1_epi32(x.read_unaligned()));
                    for (sum, y) in row.iter_mut().zip(columns) {
                        *sum = _mm512_dpbf16_ps(*sum, x, bf16(y));
                    }
                }
                lhs = lhs.offset(lane_step);
                rhs = rhs.add(16 * V);
            }
            left -= count;
            ahead.ask();
        }
        avx512_store(tile, &sums);
    }
}

/// # Safety
///
/// As [`super::kernel::Kernel::run`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn avx512_load<const R: usize, const V: usize>(tile: &Tile) -> [[__m512; V]; R] {
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    if tile.resume {
        for (i, row) in sums.iter_mut().enumerate() {
            for (v, sum) in row.iter_mut().enumerate() {
                // SAFETY: `sums` has 8 rows of 16V elements, and R ≤ 8.
                *sum = unsafe { _mm512_loadu_ps(tile.row(i).add(16 * v)) };
            }
        }
    }
    sums
}

/// # Safety
///
/// As [`super::kernel::Kernel::run`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn avx512_store<const R: usize, const V: usize>(tile: &Tile, sums: &[[__m512; V]; R]) {
    for (i, row) in sums.iter().enumerate() {
        for (v, sum) in row.iter().enumerate() {
            // SAFETY: `sums` has 8 rows of 16V elements, and R ≤ 8.
            unsafe { _mm512_storeu_ps(tile.row(i).add(16 * v), *sum) };
        }
    }
}

/// Adds `count` lanes to four rows of sums.
///
/// Three vectors take all 16 registers: 12 of sums, 3 of rhs and 1 of lhs. A compiler reorders the loads, runs out of registers, and
/// moves sums about in every lane, at half the speed. So they are in assembly.
///
/// # Safety
///
/// `count` is at least 1; `lhs` and `rhs` have as many lanes, those of a panel of 8 rows and of one of V vectors.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_f32_lanes<const V: usize>(
    sums: &mut [[__m256; V]; 4],
    lhs: *const f32,
    rhs: *const f32,
    count: usize,
) {
    if let [a0, a1, a2, b0, b1, b2, c0, c1, c2, d0, d1, d2] = sums.as_flattened_mut() {
        // SAFETY: reads `count` lanes of both panels, counting down to 0, and writes the registers that are named.
        unsafe {
            asm!(
                "2:",
                "vmovups {y0}, ymmword ptr [{rhs}]",
                "vmovups {y1}, ymmword ptr [{rhs} + 32]",
                "vmovups {y2}, ymmword ptr [{rhs} + 64]",
                "vbroadcastss {x}, dword ptr [{lhs}]",
                "vfmadd231ps {a0}, {x}, {y0}",
                "vfmadd231ps {a1}, {x}, {y1}",
                "vfmadd231ps {a2}, {x}, {y2}",
                "vbroadcastss {x}, dword ptr [{lhs} + 4]",
                "vfmadd231ps {b0}, {x}, {y0}",
                "vfmadd231ps {b1}, {x}, {y1}",
                "vfmadd231ps {b2}, {x}, {y2}",
                "vbroadcastss {x}, dword ptr [{lhs} + 8]",
                "vfmadd231ps {c0}, {x}, {y0}",
                "vfmadd231ps {c1}, {x}, {y1}",
                "vfmadd231ps {c2}, {x}, {y2}",
                "vbroadcastss {x}, dword ptr [{lhs} + 12]",
                "vfmadd231ps {d0}, {x}, {y0}",
                "vfmadd231ps {d1}, {x}, {y1}",
                "vfmadd231ps {d2}, {x}, {y2}",
                "add {lhs}, {lhs_step}",
                "add {rhs}, 96",
                "dec {count}",
                "jnz 2b",
                lhs = inout(reg) lhs => _,
                rhs = inout(reg) rhs => _,
                count = inout(reg) count => _,
                lhs_step = const 4 * ROWS,
                x = out(ymm_reg) _,
                y0 = out(ymm_reg) _,
                y1 = out(ymm_reg) _,
                y2 = out(ymm_reg) _,
                a0 = inout(ymm_reg) *a0,
                a1 = inout(ymm_reg) *a1,
                a2 = inout(ymm_reg) *a2,
                b0 = inout(ymm_reg) *b0,
                b1 = inout(ymm_reg) *b1,
                b2 = inout(ymm_reg) *b2,
                c0 = inout(ymm_reg) *c0,
                c1 = inout(ymm_reg) *c1,
                c2 = inout(ymm_reg) *c2,
                d0 = inout(ymm_reg) *d0,
                d1 = inout(ymm_reg) *d1,
                d2 = inout(ymm_reg) *d2,
                options(nostack, readonly),
            );
        }
        return;
    }
    for lane in 0..count {
        // SAFETY: inside the panels.
        unsafe {
            let (lhs, rhs) = (lhs.add(lane * ROWS), rhs.add(lane * 8 * V));
            let columns: [__m256; V] = std::array::from_fn(|v| _mm256_loadu_ps(rhs.add(8 * v)));
            for (i, row) in sums.iter_mut().enumerate() {
                let x = _mm256_broadcast_ss(&*lhs.add(i));
                for (sum, y) in row.iter_mut().zip(columns) {
                    *sum = _mm256_fmadd_ps(x, y, *sum);
                }
            }
        }
    }
}

/// Rows `first..first + 4` of a tile.
///
/// # Safety
///
/// As [`super::kernel::Kernel::run`]; `first` is 0 or 4.
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_f32_tile<const V: usize>(tile: &Tile, first: usize, ahead: &mut Ahead) {
    // SAFETY: panels have `lanes × 8` and `lanes × 8V` elements, sums 8 rows of 8V.
    unsafe {
        let (mut lhs, mut rhs) = (tile.lhs.cast::<f32>().add(first), tile.rhs.cast::<f32>());
        let mut sums = [[_mm256_setzero_ps(); V]; 4];
        if tile.resume {
            for (i, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = _mm256_loadu_ps(tile.row(first + i).add(8 * v));
                }
            }
        }
        let mut left = tile.lanes;
        while left > 0 {
            let count = left.min(ahead::LANES);
            // `left` isn't 0, so `count` isn't either.
            avx2_f32_lanes(&mut sums, lhs, rhs, count);
            lhs = lhs.add(count * ROWS);
            rhs = rhs.add(count * 8 * V);
            left -= count;
            ahead.ask();
        }
        for (i, row) in sums.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                _mm256_storeu_ps(tile.row(first + i).add(8 * v), *sum);
            }
        }
    }
}
