//! Lanes of 32 bits, as they are read from what is stored.

use std::arch::x86_64::*;

/// How 32-bit lanes are read from a storage type. The methods that return vectors need AVX2 and F16C.
pub(super) trait Lanes {
    /// Elements of depth per lane.
    const PER_LANE: usize;

    /// One lane; `left` is how many elements of depth remain, at least 1.
    ///
    /// # Safety
    ///
    /// The lane's elements must be readable: at `ptr`, and at `ptr + step` bytes where there are two.
    unsafe fn one(ptr: *const u8, step: isize, left: usize) -> u32;

    /// Eight lanes of one vector whose depth is contiguous.
    ///
    /// # Safety
    ///
    /// `8 * PER_LANE` elements must be readable.
    unsafe fn along(ptr: *const u8) -> __m256i;

    /// One lane of eight contiguous vectors; `step` and `left` as in `one`.
    ///
    /// # Safety
    ///
    /// As `one`, for eight neighbours.
    unsafe fn across(ptr: *const u8, step: isize, left: usize) -> __m256i;

    /// Sixteen lanes of one vector whose depth is contiguous.
    ///
    /// # Safety
    ///
    /// `16 * PER_LANE` elements must be readable. Needs AVX-512.
    unsafe fn along_16(ptr: *const u8) -> __m512i;

    /// One whole lane of sixteen contiguous vectors.
    ///
    /// # Safety
    ///
    /// Sixteen elements must be readable at `ptr`, and at `ptr + step` bytes where a lane has two. Needs AVX-512.
    unsafe fn across_16(ptr: *const u8, step: isize) -> __m512i;
}

/// f32 as they are.
pub(super) struct F32;
/// bf16, widened.
pub(super) struct Bf16;
/// f16, widened.
pub(super) struct F16;
/// Two neighbours of bf16, as they are.
pub(super) struct Pairs;

impl Lanes for F32 {
    const PER_LANE: usize = 1;

    #[inline(always)]
    unsafe fn one(ptr: *const u8, _: isize, _: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { ptr.cast::<u32>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn along(ptr: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(ptr.cast()) }
    }

    #[inline(always)]
    unsafe fn across(ptr: *const u8, _: isize, _: usize) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { Self::along(ptr) }
    }

    #[inline(always)]
    unsafe fn along_16(ptr: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_epi32(ptr.cast()) }
    }

    #[inline(always)]
    unsafe fn across_16(ptr: *const u8, _: isize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { Self::along_16(ptr) }
    }
}

impl Lanes for Bf16 {
    const PER_LANE: usize = 1;

    #[inline(always)]
    unsafe fn one(ptr: *const u8, _: isize, _: usize) -> u32 {
        // SAFETY: the caller's promise.
        u32::from(unsafe { ptr.cast::<u16>().read_unaligned() }) << 16
    }

    #[inline(always)]
    unsafe fn along(ptr: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(ptr.cast()))) }
    }

    #[inline(always)]
    unsafe fn across(ptr: *const u8, _: isize, _: usize) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { Self::along(ptr) }
    }

    #[inline(always)]
    unsafe fn along_16(ptr: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(ptr.cast()))) }
    }

    #[inline(always)]
    unsafe fn across_16(ptr: *const u8, _: isize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { Self::along_16(ptr) }
    }
}

impl Lanes for F16 {
    const PER_LANE: usize = 1;

    #[inline(always)]
    unsafe fn one(ptr: *const u8, _: isize, _: usize) -> u32 {
        // SAFETY: the caller's promise.
        half::f16::from_bits(unsafe { ptr.cast::<u16>().read_unaligned() }).to_f32().to_bits()
    }

    #[inline(always)]
    unsafe fn along(ptr: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128(ptr.cast()))) }
    }

    #[inline(always)]
    unsafe fn across(ptr: *const u8, _: isize, _: usize) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { Self::along(ptr) }
    }

    #[inline(always)]
    unsafe fn along_16(ptr: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_castps_si512(_mm512_cvtph_ps(_mm256_loadu_si256(ptr.cast()))) }
    }

    #[inline(always)]
    unsafe fn across_16(ptr: *const u8, _: isize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { Self::along_16(ptr) }
    }
}

impl Lanes for Pairs {
    const PER_LANE: usize = 2;

    #[inline(always)]
    unsafe fn one(ptr: *const u8, step: isize, left: usize) -> u32 {
        // SAFETY: the caller's promise; the second element is read only where there is one.
        unsafe {
            let low = u32::from(ptr.cast::<u16>().read_unaligned());
            if left < 2 {
                return low;
            }
            low | u32::from(ptr.wrapping_offset(step).cast::<u16>().read_unaligned()) << 16
        }
    }

    #[inline(always)]
    unsafe fn along(ptr: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(ptr.cast()) }
    }

    #[inline(always)]
    unsafe fn across(ptr: *const u8, step: isize, left: usize) -> __m256i {
        // SAFETY: the caller's promise; the second row is read only where there is one.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(ptr.cast()));
            if left < 2 {
                return low;
            }
            let high = _mm_loadu_si128(ptr.wrapping_offset(step).cast());
            _mm256_or_si256(low, _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(high)))
        }
    }

    #[inline(always)]
    unsafe fn along_16(ptr: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_epi32(ptr.cast()) }
    }

    #[inline(always)]
    unsafe fn across_16(ptr: *const u8, step: isize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let row = |ptr: *const u8| _mm512_cvtepu16_epi32(_mm256_loadu_si256(ptr.cast()));
            let (low, high) = (row(ptr), row(ptr.wrapping_offset(step)));
            _mm512_or_si512(low, _mm512_slli_epi32::<16>(high))
        }
    }
}
