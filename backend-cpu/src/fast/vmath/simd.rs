//! Vectors of each instruction set, and how a generic loop is instantiated for each.

/// Width in f32 of the partial sums of every reduction, and what tile widths are a multiple of: the
/// widest vector of any instruction set, so that layouts do not depend on the one in use.
pub(crate) const LANES: usize = 16;

/// An instruction set. The methods on vectors are `unsafe` because they may only run on a CPU that
/// has it; inside a function instantiated by `dispatched!` that holds.
pub trait Simd: Copy + Send + Sync + 'static {
    /// A register of [`Simd::WIDTH`] f32.
    type Vector: Copy;
    /// Elements of a [`Simd::Vector`]: 16, 8 or 4.
    const WIDTH: usize;

    /// a·b + c, with one rounding where the instruction set has it and two elsewhere.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;

    /// All lanes equal to `x`.
    ///
    /// # Safety
    /// The CPU has this instruction set.
    unsafe fn splat(x: f32) -> Self::Vector;

    /// Reads [`Simd::WIDTH`] elements, unaligned.
    ///
    /// # Safety
    /// As [`Simd::splat`], and `from` is valid for reading that many elements.
    unsafe fn load(from: *const f32) -> Self::Vector;

    /// Writes [`Simd::WIDTH`] elements, unaligned.
    ///
    /// # Safety
    /// As [`Simd::splat`], and `to` is valid for writing that many elements.
    unsafe fn store(to: *mut f32, v: Self::Vector);

    /// a·b + c in each lane, rounded as [`Simd::mul_add`] does.
    ///
    /// # Safety
    /// As [`Simd::splat`].
    unsafe fn vector_mul_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// Transposes a block of 16 × 16: `to[c · to_stride + r] = from[r · from_stride + c]`.
    ///
    /// # Safety
    /// As [`Simd::splat`]; all 256 elements are valid for reading in `from` and writing in `to`,
    /// and the two blocks do not overlap.
    #[inline(always)]
    unsafe fn transpose_16x16(
        from: *const f32,
        from_stride: usize,
        to: *mut f32,
        to_stride: usize,
    ) {
        for c in 0..LANES {
            for r in 0..LANES {
                // SAFETY: r, c < 16, which the caller vouches for.
                unsafe { *to.add(c * to_stride + r) = *from.add(r * from_stride + c) };
            }
        }
    }
}

/// What every target has: SSE2, NEON, wasm's scalars or simd128.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Simd for Portable {
    type Vector = [f32; 4];
    const WIDTH: usize = 4;

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        // Without the instruction, `f32::mul_add` is a call into libm.
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            a.mul_add(b, c)
        } else {
            a * b + c
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        // SAFETY: the caller vouches for four elements; the read is unaligned.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: [f32; 4]) {
        // SAFETY: the caller vouches for four elements; the write is unaligned.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn vector_mul_add(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        [0, 1, 2, 3].map(|i| Self::mul_add(a[i], b[i], c[i]))
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Simd;
    use std::arch::x86_64::*;

    /// AVX2, FMA and F16C: Haswell, Zen and later.
    #[derive(Clone, Copy, Debug)]
    pub struct Avx2;

    impl Simd for Avx2 {
        type Vector = __m256;
        const WIDTH: usize = 8;

        #[inline(always)]
        fn mul_add(a: f32, b: f32, c: f32) -> f32 {
            a.mul_add(b, c)
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m256 {
            // SAFETY: the caller vouches for AVX2, here and below.
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m256 {
            // SAFETY: the caller vouches for eight elements.
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, v: __m256) {
            // SAFETY: the caller vouches for eight elements.
            unsafe { _mm256_storeu_ps(to, v) }
        }
        #[inline(always)]
        unsafe fn vector_mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: the caller vouches for FMA.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
    }

    /// AVX-512 F, BW, CD, DQ and VL: Skylake-SP, Zen 4 and later.
    #[derive(Clone, Copy, Debug)]
    pub struct Avx512;

    impl Simd for Avx512 {
        type Vector = __m512;
        const WIDTH: usize = 16;

        #[inline(always)]
        fn mul_add(a: f32, b: f32, c: f32) -> f32 {
            a.mul_add(b, c)
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            // SAFETY: the caller vouches for AVX-512, here and below.
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m512 {
            // SAFETY: the caller vouches for sixteen elements.
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, v: __m512) {
            // SAFETY: the caller vouches for sixteen elements.
            unsafe { _mm512_storeu_ps(to, v) }
        }
        #[inline(always)]
        unsafe fn vector_mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the caller vouches for AVX-512.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        // Four rounds of exchanges, as a butterfly: pairs of f32, pairs of f64, then quarters.
        #[inline(always)]
        unsafe fn transpose_16x16(
            from: *const f32,
            from_stride: usize,
            to: *mut f32,
            to_stride: usize,
        ) {
            // SAFETY: the caller vouches for AVX-512 and for both blocks.
            unsafe {
                let mut x = [_mm512_setzero_ps(); 16];
                for (r, row) in x.iter_mut().enumerate() {
                    *row = _mm512_loadu_ps(from.add(r * from_stride));
                }
                let mut y = x;
                for i in 0..8 {
                    y[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
                    y[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
                }
                // x[4g + c]: in quarter q, column 4q + c of rows 4g .. 4g + 4.
                for g in 0..4 {
                    let pair = |i: usize| _mm512_castps_pd(y[4 * g + i]);
                    x[4 * g] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(0), pair(2)));
                    x[4 * g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(0), pair(2)));
                    x[4 * g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(1), pair(3)));
                    x[4 * g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(1), pair(3)));
                }
                for c in 0..4 {
                    let low = _mm512_shuffle_f32x4::<0x88>(x[c], x[4 + c]);
                    let high = _mm512_shuffle_f32x4::<0xdd>(x[c], x[4 + c]);
                    let low2 = _mm512_shuffle_f32x4::<0x88>(x[8 + c], x[12 + c]);
                    let high2 = _mm512_shuffle_f32x4::<0xdd>(x[8 + c], x[12 + c]);
                    let column = |q: usize| to.add((4 * q + c) * to_stride);
                    _mm512_storeu_ps(column(0), _mm512_shuffle_f32x4::<0x88>(low, low2));
                    _mm512_storeu_ps(column(1), _mm512_shuffle_f32x4::<0x88>(high, high2));
                    _mm512_storeu_ps(column(2), _mm512_shuffle_f32x4::<0xdd>(low, low2));
                    _mm512_storeu_ps(column(3), _mm512_shuffle_f32x4::<0xdd>(high, high2));
                }
            }
        }
    }
}

/// `dispatched!(fn name<T>(a: A) -> R = body)` defines `name(isa, a)`, which runs `body::<S, T>(a)`
/// compiled for the instruction set `isa`. `body` and what it calls must be `#[inline(always)]`:
/// only what is inlined is compiled for the wider set.
macro_rules! dispatched {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($T:ident),+>)? (
        $($arg:ident: $type:ty),* $(,)?
    ) $(-> $ret:ty)? = $body:ident) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "kernels take the dimensions one by one")]
        $vis fn $name $(<$($T: $crate::fast::vmath::Storage),+>)? (
            isa: $crate::isa::Isa, $($arg: $type),*
        ) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            fn avx2 $(<$($T: $crate::fast::vmath::Storage),+>)? ($($arg: $type),*) $(-> $ret)? {
                $body::<$crate::fast::vmath::Avx2, $($($T),+)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            fn avx512 $(<$($T: $crate::fast::vmath::Storage),+>)? ($($arg: $type),*) $(-> $ret)? {
                $body::<$crate::fast::vmath::Avx512, $($($T),+)?>($($arg),*)
            }
            match isa.level() {
                // SAFETY: an `Isa` of this level is proof of every feature enabled above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx512
                | $crate::isa::Level::Avx512Bf16
                | $crate::isa::Level::Amx => {
                    // SAFETY: as above, and wider ones have these features too.
                    unsafe { avx512($($arg),*) }
                }
                _ => $body::<$crate::fast::vmath::Portable, $($($T),+)?>($($arg),*),
            }
        }
    };
}
pub(crate) use dispatched;
