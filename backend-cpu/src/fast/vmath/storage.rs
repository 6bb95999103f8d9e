//! Storage types of tensors, and their conversions from and to f32.
//!
//! The conversions are branch-free integer arithmetic, so that loops over them vectorise on every
//! instruction set. 16-bit results are rounded to nearest, ties to even; f16 overflows to infinity;
//! NaN stays NaN; denormals are kept in both directions.

use half::{bf16, f16};

/// A type in which a tensor's elements are stored; arithmetic is in f32.
pub trait Storage: Copy + Send + Sync + bytemuck::Pod {
    /// The exact value.
    fn to_f32(self) -> f32;

    /// The nearest value.
    fn from_f32(x: f32) -> Self;

    /// Converts `from` into `to`, of the same length; the shorter one counts if they differ.
    #[inline(always)]
    fn load(from: &[Self], to: &mut [f32]) {
        for (y, x) in to.iter_mut().zip(from) {
            *y = x.to_f32();
        }
    }

    /// Converts `from` into `to`, of the same length; the shorter one counts if they differ.
    #[inline(always)]
    fn store(from: &[f32], to: &mut [Self]) {
        for (y, &x) in to.iter_mut().zip(from) {
            *y = Self::from_f32(x);
        }
    }
}

impl Storage for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(x: f32) -> f32 {
        x
    }
}

impl Storage for bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> bf16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        // The quiet bit keeps a NaN whose payload is in the low half from becoming infinity.
        let nan = (bits >> 16) | 0x40;
        bf16::from_bits(if x.is_nan() { nan } else { rounded } as u16)
    }
}

impl Storage for f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let sign = (bits & 0x8000) << 16;
        let magnitude = bits & 0x7fff;
        // Rebiasing by a product also normalises denormals.
        let finite = (f32::from_bits(magnitude << 13) * 2f32.powi(112)).to_bits();
        let special = (magnitude << 13) | 0x7f80_0000;
        f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
    }
    #[inline(always)]
    fn from_f32(x: f32) -> f16 {
        let bits = x.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        // Exponent bias 127 to 15, then round off 13 bits.
        let normal =
            magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        // The last place of 0.5 is f16's smallest denormal, so this addition rounds to it.
        let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let huge = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let finite = if magnitude < 0x3880_0000 { denormal } else { normal };
        let value = if magnitude >= 0x4780_0000 { huge } else { finite };
        f16::from_bits((sign | value) as u16)
    }
}

/// Asks for the cache lines of `count` elements, of which none needs to exist. A hint, and only on x86-64.
#[inline(always)]
pub fn prefetch<T>(start: *const T, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..count * size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it never faults, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, count);
}
