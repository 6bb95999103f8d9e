//! Elementary functions of one f32, written so that a loop over them vectorises: no branches, no
//! tables, no calls. Polynomials are own minimax fits (Lawson's iteration on Chebyshev nodes,
//! weighted for relative error); the argument reductions are the classical ones of Cody and Waite,
//! *Software Manual for the Elementary Functions* (1980).
//!
//! Results below the smallest normal f32 are flushed to zero where stated. NaN gives NaN.

use super::Simd;
use std::f32::consts::{FRAC_2_SQRT_PI, LOG2_E};
use std::f64::consts::FRAC_2_PI;

/// 1.5 · 2²³: adding and subtracting it rounds |x| < 2²² to an integer, ties to even.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts: the first has 9 bits, so that its product with an exponent is exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// c₀ + c₁·x + c₂·x² + …
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut y = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        y = S::mul_add(y, x, coefficients[i]);
    }
    y
}

/// eˣ, within 2 ulp. Results below 2⁻¹²⁶ are 0.
#[inline(always)]
pub fn exp<S: Simd>(x: f32) -> f32 {
    const C: [f32; 5] = [4.999_999_3e-1, 1.666_650_9e-1, 4.166_853e-2, 8.370_135e-3, 1.381_166e-3];
    const MAX: f32 = 88.722_83; // ln of the largest f32
    const MIN: f32 = -87.336_54; // ln of the smallest normal f32
    // Comparisons are written so that NaN passes through the clamp.
    let clamped = if x > MAX { MAX } else { x };
    let clamped = if clamped < MIN { MIN } else { clamped };
    let shifted = S::mul_add(clamped, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = S::mul_add(n, -LN_2_LOW, S::mul_add(n, -LN_2_HIGH, clamped));
    let y = S::mul_add(r * r, polynomial::<S, 5>(r, C), r) + 1.0;
    // Added to the exponent's bits and not multiplied, since n can be 128, which no exponent holds;
    // y is below 1 there.
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()) << 23;
    let y = f32::from_bits(y.to_bits().wrapping_add(exponent));
    let y = if x > MAX { f32::INFINITY } else { y };
    if x < MIN { 0.0 } else { y }
}

/// Natural logarithm, within 2 ulp, denormal arguments included; −∞ at ±0, NaN below.
#[inline(always)]
pub fn ln<S: Simd>(x: f32) -> f32 {
    const C: [f32; 9] = [
        3.333_331_3e-1,
        -2.500_001e-1,
        2.000_211_9e-1,
        -1.666_799_6e-1,
        1.421_955_1e-1,
        -1.240_559_1e-1,
        1.188_817_5e-1,
        -1.167_564_1e-1,
        6.746_601e-2,
    ];
    let denormal = x < f32::MIN_POSITIVE;
    let scaled = if denormal { x * 8_388_608.0 } else { x };
    // Exponent and mantissa with the mantissa in [√½, √2).
    let bits = scaled.to_bits().wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits());
    let n = ((bits as i32) >> 23) as f32 - if denormal { 23.0 } else { 0.0 };
    let m = f32::from_bits((bits & 0x007f_ffff) + std::f32::consts::FRAC_1_SQRT_2.to_bits());
    let f = m - 1.0;
    let square = f * f;
    let tail = S::mul_add(n, LN_2_LOW, f * square * polynomial::<S, 9>(f, C));
    let y = S::mul_add(n, LN_2_HIGH, S::mul_add(square, -0.5, tail) + f);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// Hyperbolic tangent, within 2 ulp.
#[inline(always)]
pub fn tanh<S: Simd>(x: f32) -> f32 {
    const C: [f32; 5] =
        [-3.333_327e-1, 1.333_109_2e-1, -5.370_966e-2, 2.053_882_4e-2, -5.591_02e-3];
    let magnitude = x.abs();
    let square = x * x;
    let small = S::mul_add(magnitude * square, polynomial::<S, 5>(square, C), magnitude);
    let large = 1.0 - 2.0 / (exp::<S>(2.0 * magnitude) + 1.0);
    (if magnitude < 0.625 { small } else { large }).copysign(x)
}

/// 1 / (1 + e⁻ˣ), within 3 ulp. Results below 2⁻¹²⁶ may be 0.
#[inline(always)]
pub fn sigmoid<S: Simd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-x))
}

/// The error function, within 2 ulp.
#[inline(always)]
pub fn erf<S: Simd>(x: f32) -> f32 {
    // Below the split x·P(x²); above it 1 − exp(t·Q(t)), since erfc is nearly Gaussian.
    const SMALL: [f32; 7] = [
        FRAC_2_SQRT_PI - 1.0,
        -3.761_263_2e-1,
        1.128_367_6e-1,
        -2.685_834e-2,
        5.198_453e-3,
        -8.113_965e-4,
        8.250_715_3e-5,
    ];
    const LARGE: [f32; 7] = [
        -1.128_637_1,
        -6.351_980_3e-1,
        -1.061_590_5e-1,
        2.369_456_6e-2,
        -3.610_342e-3,
        3.148_581e-4,
        -1.043_311_4e-5,
    ];
    let magnitude = x.abs();
    let small = S::mul_add(magnitude, polynomial::<S, 7>(x * x, SMALL), magnitude);
    // From 4 on the nearest f32 is 1, which is as far as the fit goes.
    let t = if magnitude > 4.0 { 4.0 } else { magnitude };
    let large = 1.0 - exp::<S>(t * polynomial::<S, 7>(t, LARGE));
    (if magnitude < 0.93 { small } else { large }).copysign(x)
}

/// (sin x, cos x), each within 2 ulp for |x| ≤ 2²⁰ radians; the argument is reduced in f64, whose
/// error grows beyond (1e-6 of the full scale at 2³⁰). NaN at ±∞.
#[inline(always)]
pub fn sin_cos<S: Simd>(x: f32) -> (f32, f32) {
    const ROUND_F64: f64 = 6_755_399_441_055_744.0; // 1.5 · 2⁵²
    const HALF_PI_HIGH: f64 = 1.570_796_326_734_125_6; // π/2 in 33 bits
    const HALF_PI_LOW: f64 = 6.077_100_506_506_192e-11;
    const SIN: [f32; 3] = [-1.666_665_4e-1, 8.332_113e-3, -1.950_874_2e-4];
    const COS: [f32; 3] = [4.166_664_4e-2, -1.388_725_1e-3, 2.442_568e-5];
    let wide = f64::from(x);
    let shifted = wide * FRAC_2_PI + ROUND_F64;
    let n = shifted - ROUND_F64;
    let r = ((wide - n * HALF_PI_HIGH) - n * HALF_PI_LOW) as f32;
    let quadrant = shifted.to_bits() as u32;
    let square = r * r;
    // The sign is copied for the sake of −0.
    let s = S::mul_add(r * square, polynomial::<S, 3>(square, SIN), r).copysign(r);
    let c = S::mul_add(square * square, polynomial::<S, 3>(square, COS), 1.0 - 0.5 * square);
    let swap = quadrant & 1 == 1;
    let (sin, cos) = if swap { (c, s) } else { (s, c) };
    // sin changes sign in quadrants 2 and 3, cos in 1 and 2.
    let sin_sign = (quadrant & 2) << 30;
    let cos_sign = (quadrant.wrapping_add(1) & 2) << 30;
    (f32::from_bits(sin.to_bits() ^ sin_sign), f32::from_bits(cos.to_bits() ^ cos_sign))
}

/// Sine; see [`sin_cos`].
#[inline(always)]
pub fn sin<S: Simd>(x: f32) -> f32 {
    sin_cos::<S>(x).0
}

/// Cosine; see [`sin_cos`].
#[inline(always)]
pub fn cos<S: Simd>(x: f32) -> f32 {
    sin_cos::<S>(x).1
}

/// xʸ within 1 ulp, with the special cases of IEEE 754's `pow`; results below 2⁻¹²⁶ are 0.
#[inline(always)]
pub fn pow<S: Simd>(x: f32, y: f32) -> f32 {
    // y·log₂ x needs more digits than f32 has, since its absolute error becomes a relative one.
    let exponent = f64::from(y) * log2_f64(f64::from(x.abs()));
    let magnitude = exp2_f64(exponent);

    let y_abs = y.abs();
    let (integer, odd) = (is_integer(y_abs), is_integer(y_abs) && !is_integer(0.5 * y_abs));
    let result = if x == 0.0 { if y < 0.0 { f32::INFINITY } else { 0.0 } } else { magnitude };
    let result = if x.is_sign_negative() && odd { -result } else { result };
    let invalid = x < 0.0 && x != f32::NEG_INFINITY && !integer;
    let result = if invalid || x.is_nan() || y.is_nan() { f32::NAN } else { result };
    let one = x == 1.0 || y == 0.0 || (x == -1.0 && y_abs == f32::INFINITY);
    if one { 1.0 } else { result }
}

/// Whether x ≥ 0 is an integer; infinity is one, and even.
#[inline(always)]
fn is_integer(x: f32) -> bool {
    const TWO_23: f32 = 8_388_608.0;
    x >= TWO_23 || (x + TWO_23) - TWO_23 == x
}

/// log₂ of x > 0 to 1e-11 relative: m in [√½, √2), t = (m − 1)/(m + 1), 2·atanh(t)·log₂ e.
#[inline(always)]
fn log2_f64(x: f64) -> f64 {
    use std::f64::consts::{FRAC_1_SQRT_2, LOG2_E};
    // Every nonzero f32 is a normal f64. Signed exponent bits become f64 through the magic sum,
    // which vectorises where a 64-bit integer conversion does not.
    let bits = x.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits());
    let magic = 6_755_399_441_055_744.0f64; // 1.5 · 2⁵²
    let n = f64::from_bits((((bits as i64) >> 52) as u64).wrapping_add(magic.to_bits())) - magic;
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(FRAC_1_SQRT_2.to_bits()));
    let t = (m - 1.0) / (m + 1.0);
    let u = t * t;
    let mut series = 1.0 / 15.0;
    for k in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * u + 1.0 / k;
    }
    let y = n + 2.0 * LOG2_E * t * series;
    if x == f64::INFINITY { x } else { y }
}

/// 2ˣ to 1e-10 relative, rounded to f32.
#[inline(always)]
fn exp2_f64(x: f64) -> f32 {
    use std::f64::consts::LN_2;
    let magic = 6_755_399_441_055_744.0f64; // 1.5 · 2⁵²
    let clamped = if x > 200.0 { 200.0 } else { x };
    let clamped = if clamped < -200.0 { -200.0 } else { clamped };
    let shifted = clamped + magic;
    let r = (clamped - (shifted - magic)) * LN_2;
    let mut series = 1.0 / 362_880.0;
    for factorial in [40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        series = series * r + 1.0 / factorial;
    }
    let scale =
        f64::from_bits(shifted.to_bits().wrapping_sub(magic.to_bits()).wrapping_add(1023) << 52);
    let y = (series * scale) as f32;
    if y < f32::MIN_POSITIVE { 0.0 } else { y }
}
