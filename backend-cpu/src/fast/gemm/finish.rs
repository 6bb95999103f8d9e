//! From f32 sums to the output: `out = round(scale·sum + bias (+ out))`, rounded to nearest even.
//!
//! The vector and the plain version do the same operations in the same order, and no multiply-add is fused,
//! so that an element's bits don't depend on where a block's edge falls.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{Element, Gemm};

/// Sums of a rectangle of the output.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// Sum (0, 0); rows are `stride` apart.
    pub(super) ptr: *const f32,
    /// f32 from one row to the next.
    pub(super) stride: usize,
    /// First row in the output.
    pub(super) row: usize,
    /// First column in the output.
    pub(super) column: usize,
    /// Rows.
    pub(super) rows: usize,
    /// Columns.
    pub(super) columns: usize,
}

/// Writes `sums` to the output of `matmul`, on any CPU.
///
/// # Safety
///
/// The rectangle must lie inside the output, no other thread may touch it, and the matmul's pointers must
/// hold to the contract of `gemm`.
pub(super) unsafe fn finish(matmul: &Gemm, sums: Sums) {
    for i in 0..sums.rows {
        for j in 0..sums.columns {
            // SAFETY: inside the rectangle.
            unsafe {
                let mut value = *sums.ptr.add(i * sums.stride + j) * matmul.scale;
                if let Some(bias) = matmul.bias {
                    let at = (sums.column + j) * bias.element.size();
                    value += read(bias.ptr.add(at), bias.element);
                }
                let out = at(matmul, sums.row + i, sums.column + j);
                if matmul.accumulate {
                    value += read(out, matmul.out.element);
                }
                write(out, matmul.out.element, value);
            }
        }
    }
}

/// Sets the sums of a tile to the output's f32 elements, and to 0 where the tile is padded.
///
/// # Safety
///
/// As [`finish`]; `to` holds `padded_rows` rows of `sums.stride`.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn start_from_output(
    matmul: &Gemm,
    sums: Sums,
    padded_rows: usize,
    to: *mut f32,
) {
    // SAFETY: elements inside the output and the tile, by the caller's promise.
    unsafe {
        to.write_bytes(0, padded_rows * sums.stride);
        for i in 0..sums.rows {
            let row = to.add(i * sums.stride);
            if matmul.out.col_stride == 1 {
                let from = at(matmul, sums.row + i, sums.column).cast::<f32>();
                // Bytes, as the output may be unaligned.
                row.cast::<u8>().copy_from_nonoverlapping(from.cast(), 4 * sums.columns);
                continue;
            }
            for j in 0..sums.columns {
                *row.add(j) = read(at(matmul, sums.row + i, sums.column + j), Element::F32);
            }
        }
    }
}

/// Address of element (i, j) of the output.
fn at(matmul: &Gemm, i: usize, j: usize) -> *mut u8 {
    let out = &matmul.out;
    let elements = i as isize * out.row_stride + j as isize * out.col_stride;
    out.ptr.wrapping_offset(elements * out.element.size() as isize)
}

/// # Safety
///
/// An element must be readable at `ptr`.
pub(super) unsafe fn read(ptr: *const u8, element: Element) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match element {
            Element::F32 => ptr.cast::<f32>().read_unaligned(),
            Element::Bf16 => bf16::from_bits(ptr.cast::<u16>().read_unaligned()).to_f32(),
            Element::F16 => f16::from_bits(ptr.cast::<u16>().read_unaligned()).to_f32(),
        }
    }
}

/// # Safety
///
/// An element must be writable at `ptr`.
unsafe fn write(ptr: *mut u8, element: Element, value: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match element {
            Element::F32 => ptr.cast::<f32>().write_unaligned(value),
            Element::Bf16 => {
                ptr.cast::<u16>().write_unaligned(bf16::from_f32(value).to_bits());
            }
            Element::F16 => ptr.cast::<u16>().write_unaligned(f16::from_f32(value).to_bits()),
        }
    }
}

/// Asks for the output's cache lines before a tile is computed, so that its stores don't wait for them:
/// worth 2 to 4 % at a depth of 384.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn prefetch(matmul: &Gemm, sums: Sums) {
    if matmul.out.col_stride == 1 {
        for i in 0..sums.rows {
            let row = at(matmul, sums.row + i, sums.column).cast::<i8>();
            for line in (0..sums.columns * matmul.out.element.size()).step_by(64) {
                // SAFETY: a hint; it never faults, and SSE is part of x86-64.
                unsafe { _mm_prefetch::<_MM_HINT_ET0>(row.wrapping_add(line)) };
            }
        }
    }
}

/// [`finish`], eight columns at a time where the output's rows are contiguous.
///
/// # Safety
///
/// As [`finish`]; needs AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn finish_avx2(matmul: &Gemm, sums: Sums) {
    let whole = if matmul.out.col_stride == 1 { sums.columns / 8 * 8 } else { 0 };
    // SAFETY: inside the rectangle: groups of eight columns end at `whole`, the rest follows.
    unsafe {
        match (matmul.out.element, matmul.accumulate || matmul.bias.is_some()) {
            (Element::F32, false) => groups::<F32x8, false>(matmul, sums, whole),
            (Element::F32, true) => groups::<F32x8, true>(matmul, sums, whole),
            (Element::Bf16, false) => groups::<Bf16x8, false>(matmul, sums, whole),
            (Element::Bf16, true) => groups::<Bf16x8, true>(matmul, sums, whole),
            (Element::F16, false) => groups::<F16x8, false>(matmul, sums, whole),
            (Element::F16, true) => groups::<F16x8, true>(matmul, sums, whole),
        }
        if whole < sums.columns {
            let rest = Sums {
                ptr: sums.ptr.add(whole),
                column: sums.column + whole,
                columns: sums.columns - whole,
                ..sums
            };
            finish(matmul, rest);
        }
    }
}

/// Columns `0..whole` of `sums`; `ADD` where there is a bias or the output is accumulated to. Both are
/// compiled apart because at small depths this loop shows in the time of the matmul.
///
/// # Safety
///
/// As [`finish_avx2`]; the output's rows are contiguous and its type is `O`'s.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn groups<O: Eight, const ADD: bool>(matmul: &Gemm, sums: Sums, whole: usize) {
    let scale = _mm256_set1_ps(matmul.scale);
    for i in 0..sums.rows {
        let row = at(matmul, sums.row + i, sums.column);
        for j in (0..whole).step_by(8) {
            // SAFETY: inside the rectangle.
            unsafe {
                let out = row.add(j * matmul.out.element.size());
                let sum = _mm256_loadu_ps(sums.ptr.add(i * sums.stride + j));
                let mut value = _mm256_mul_ps(sum, scale);
                if ADD && let Some(bias) = matmul.bias {
                    let at = bias.ptr.add((sums.column + j) * bias.element.size());
                    let bias = match bias.element {
                        Element::F32 => F32x8::read(at),
                        Element::Bf16 => Bf16x8::read(at),
                        Element::F16 => F16x8::read(at),
                    };
                    value = _mm256_add_ps(value, bias);
                }
                if ADD && matmul.accumulate {
                    value = _mm256_add_ps(value, O::read(out));
                }
                O::write(out, value);
            }
        }
    }
}

/// Eight neighbours of a storage type, as f32. Needs AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
trait Eight {
    /// # Safety
    ///
    /// Eight elements must be readable at `ptr`.
    unsafe fn read(ptr: *const u8) -> __m256;

    /// # Safety
    ///
    /// Eight elements must be writable at `ptr`.
    unsafe fn write(ptr: *mut u8, value: __m256);
}

#[cfg(target_arch = "x86_64")]
struct F32x8;
#[cfg(target_arch = "x86_64")]
struct Bf16x8;
#[cfg(target_arch = "x86_64")]
struct F16x8;

#[cfg(target_arch = "x86_64")]
impl Eight for F32x8 {
    #[inline(always)]
    unsafe fn read(ptr: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(ptr.cast()) }
    }

    #[inline(always)]
    unsafe fn write(ptr: *mut u8, value: __m256) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(ptr.cast(), value) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Eight for Bf16x8 {
    #[inline(always)]
    unsafe fn read(ptr: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(ptr.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        }
    }

    #[inline(always)]
    unsafe fn write(ptr: *mut u8, value: __m256) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(ptr.cast(), round_bf16(value)) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Eight for F16x8 {
    #[inline(always)]
    unsafe fn read(ptr: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(ptr.cast())) }
    }

    #[inline(always)]
    unsafe fn write(ptr: *mut u8, value: __m256) {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            _mm_storeu_si128(ptr.cast(), bits);
        }
    }
}

/// Eight bf16, to nearest even; keeps denormals, unlike `vcvtneps2bf16`, and quiets NaNs.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn round_bf16(value: __m256) -> __m128i {
    let bits = _mm256_castps_si256(value);
    let upper = _mm256_srli_epi32::<16>(bits);
    let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    let rounded = _mm256_srli_epi32::<16>(rounded);
    let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
    let chosen = _mm256_blendv_epi8(rounded, quiet, nan);
    let packed = _mm256_packus_epi32(chosen, chosen);
    _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed))
}
