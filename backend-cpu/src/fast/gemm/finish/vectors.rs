//! [`finish`] a vector of columns at a time, with AVX2 and with AVX-512.

use std::arch::x86_64::*;

use super::{Element, Gemm, Sums, at, finish};

/// [`finish`], eight columns at a time where the output's rows are contiguous.
///
/// # Safety
///
/// As [`finish`]; needs AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(in super::super) unsafe fn finish_avx2(matmul: &Gemm, sums: Sums) {
    // SAFETY: passed on.
    unsafe { by_element::<__m256>(matmul, sums) }
}

/// [`finish`], sixteen columns at a time where the output's rows are contiguous.
///
/// # Safety
///
/// As [`finish`]; needs AVX-512.
#[target_feature(enable = "avx512f")]
pub(in super::super) unsafe fn finish_avx512(matmul: &Gemm, sums: Sums) {
    // SAFETY: passed on.
    unsafe { by_element::<__m512>(matmul, sums) }
}

/// # Safety
///
/// As [`finish`]; needs the instructions of `V`.
#[inline(always)]
unsafe fn by_element<V: Vector>(matmul: &Gemm, sums: Sums) {
    let contiguous = matmul.out.col_stride == 1;
    let whole = if contiguous { sums.columns / V::WIDTH * V::WIDTH } else { 0 };
    // SAFETY: inside the rectangle: groups of columns end at `whole`, the rest follows.
    unsafe {
        match matmul.out.element {
            Element::F32 => by_sum::<V>(matmul, sums, whole, Element::F32),
            Element::Bf16 => by_sum::<V>(matmul, sums, whole, Element::Bf16),
            Element::F16 => by_sum::<V>(matmul, sums, whole, Element::F16),
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

/// What adds and what doesn't are compiled apart because at small depths this loop shows in the time of the matmul.
///
/// # Safety
///
/// As [`groups`].
#[inline(always)]
unsafe fn by_sum<V: Vector>(matmul: &Gemm, sums: Sums, whole: usize, element: Element) {
    // SAFETY: passed on.
    unsafe {
        if matmul.accumulate || matmul.bias.is_some() {
            groups::<V, true>(matmul, sums, whole, element);
        } else {
            groups::<V, false>(matmul, sums, whole, element);
        }
    }
}

/// Columns `0..whole` of `sums`; `ADD` where there is a bias or the output is accumulated to.
///
/// # Safety
///
/// As [`by_element`]; the output's rows are contiguous, and its type is `element`, a constant where this is inlined.
#[inline(always)]
unsafe fn groups<V: Vector, const ADD: bool>(
    matmul: &Gemm,
    sums: Sums,
    whole: usize,
    element: Element,
) {
    for i in 0..sums.rows {
        let row = at(matmul, sums.row + i, sums.column);
        for j in (0..whole).step_by(V::WIDTH) {
            // SAFETY: inside the rectangle.
            unsafe {
                let out = row.add(j * element.size());
                let sum = V::read(sums.ptr.add(i * sums.stride + j).cast(), Element::F32);
                let mut value = sum.times(matmul.scale);
                if ADD && let Some(bias) = matmul.bias {
                    let at = bias.ptr.add((sums.column + j) * bias.element.size());
                    value = value.plus(V::read(at, bias.element));
                }
                if ADD && matmul.accumulate {
                    value = value.plus(V::read(out, element));
                }
                value.write(out, element);
            }
        }
    }
}

/// Neighbouring columns in f32. All methods need the CPU's instructions.
trait Vector: Copy {
    /// Columns.
    const WIDTH: usize;

    /// # Safety
    ///
    /// So many elements must be readable at `ptr`.
    unsafe fn read(ptr: *const u8, element: Element) -> Self;

    /// # Safety
    ///
    /// So many elements must be writable at `ptr`.
    unsafe fn write(self, ptr: *mut u8, element: Element);

    /// # Safety
    ///
    /// As above.
    unsafe fn times(self, factor: f32) -> Self;

    /// # Safety
    ///
    /// As above.
    unsafe fn plus(self, other: Self) -> Self;
}

impl Vector for __m256 {
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn read(ptr: *const u8, element: Element) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match element {
                Element::F32 => _mm256_loadu_ps(ptr.cast()),
                Element::Bf16 => {
                    let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(ptr.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
                }
                Element::F16 => _mm256_cvtph_ps(_mm_loadu_si128(ptr.cast())),
            }
        }
    }

    #[inline(always)]
    unsafe fn write(self, ptr: *mut u8, element: Element) {
        // SAFETY: the caller's promise.
        unsafe {
            match element {
                Element::F32 => _mm256_storeu_ps(ptr.cast(), self),
                Element::Bf16 => _mm_storeu_si128(ptr.cast(), eight_bf16(self)),
                Element::F16 => {
                    let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self);
                    _mm_storeu_si128(ptr.cast(), bits);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn times(self, factor: f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_mul_ps(self, _mm256_set1_ps(factor)) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_add_ps(self, other) }
    }
}

impl Vector for __m512 {
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn read(ptr: *const u8, element: Element) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match element {
                Element::F32 => _mm512_loadu_ps(ptr.cast()),
                Element::Bf16 => {
                    let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(ptr.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
                }
                Element::F16 => _mm512_cvtph_ps(_mm256_loadu_si256(ptr.cast())),
            }
        }
    }

    #[inline(always)]
    unsafe fn write(self, ptr: *mut u8, element: Element) {
        // SAFETY: the caller's promise.
        unsafe {
            match element {
                Element::F32 => _mm512_storeu_ps(ptr.cast(), self),
                Element::Bf16 => _mm256_storeu_si256(ptr.cast(), sixteen_bf16(self)),
                Element::F16 => {
                    let bits = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self);
                    _mm256_storeu_si256(ptr.cast(), bits);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn times(self, factor: f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mul_ps(self, _mm512_set1_ps(factor)) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_add_ps(self, other) }
    }
}

/// Eight bf16, to nearest even; keeps denormals, unlike `vcvtneps2bf16`, and quiets NaNs.
#[inline]
#[target_feature(enable = "avx2")]
fn eight_bf16(value: __m256) -> __m128i {
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

/// Sixteen bf16, as [`eight_bf16`].
#[inline]
#[target_feature(enable = "avx512f")]
fn sixteen_bf16(value: __m512) -> __m256i {
    let bits = _mm512_castps_si512(value);
    let upper = _mm512_srli_epi32::<16>(bits);
    let odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    let rounded = _mm512_srli_epi32::<16>(rounded);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
    let chosen = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    _mm512_cvtepi32_epi16(chosen)
}
