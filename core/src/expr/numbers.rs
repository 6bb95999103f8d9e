//! Functions of formulas that no library has: numbers in halves, rounding by chance, and the error function.

use half::bf16;

/// An f32 as the nearest bf16 (ties away from zero) and the signed distance to it in units of the
/// f32's last place. A NaN keeps its upper half and becomes quiet.
#[inline(always)]
pub fn split(master: f32) -> (bf16, i16) {
    let bits = master.to_bits();
    let high = bits.wrapping_add(0x8000) >> 16;
    let low = bits.wrapping_sub(high << 16) as i16;
    // Without a branch, so that loops over it vectorise. The quiet bit keeps a NaN a NaN.
    let nan = master.is_nan();
    let quiet = (bits >> 16) | 0x40;
    (bf16::from_bits(if nan { quiet } else { high } as u16), if nan { 0 } else { low })
}

/// The f32 that [`split`] gave both parts of, bit for bit.
#[inline(always)]
pub fn join(high: bf16, low: i16) -> f32 {
    f32::from_bits((u32::from(high.to_bits()) << 16).wrapping_add(i32::from(low) as u32))
}

/// The bf16 number that [`super::Binary::StochasticHalf`] describes, as f32. What isn't finite stays as it is.
#[inline(always)]
pub fn round_stochastic(x: f32, uniform: f32) -> f32 {
    const UNITS: f32 = 65_536.0;
    let bits = x.to_bits();
    // The lower half counts the way to the next number in these units.
    let rounded = f32::from_bits(bits.wrapping_add((uniform * UNITS) as u32) & 0xFFFF_0000);
    if x.is_finite() { rounded } else { x }
}

/// Error function to 1e-15 relative: Maclaurin series below 3, the complement's continued fraction
/// above (Abramowitz and Stegun 7.1.5 and 7.1.14).
pub(super) fn erf(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() || a > 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    if a < 3.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-17 * f64::abs(sum) {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let mut fraction = a;
    for k in (1..=60).rev() {
        fraction = a + f64::from(k) / 2.0 / fraction;
    }
    let complement = (-a * a).exp() / fraction / std::f64::consts::PI.sqrt();
    (1.0 - complement) * x.signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_rejoin_bit_for_bit() {
        let samples = (0..=u32::MAX).step_by(65_521).map(f32::from_bits);
        for master in samples.chain([0.0, -0.0, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY]) {
            let (high, low) = split(master);
            if master.is_nan() {
                assert!(join(high, low).is_nan());
            } else {
                assert_eq!(join(high, low).to_bits(), master.to_bits(), "{master:e}");
            }
        }
    }

    #[test]
    fn stochastic_rounding_keeps_the_mean() {
        for x in [1.0_f32, 1.003, -0.3, 3e-5, -1.999_9, 1e-40, f32::MIN_POSITIVE] {
            const DRAWS: u32 = 4096;
            let draw = |i: u32| round_stochastic(x, i as f32 / DRAWS as f32);
            let mean = (0..DRAWS).map(|i| f64::from(draw(i))).sum::<f64>() / f64::from(DRAWS);
            let (low, high) = (draw(0), draw(DRAWS - 1));
            for rounded in [low, high] {
                assert_eq!(rounded, bf16::from_f32(rounded).to_f32(), "{x} gives a bf16");
            }
            assert!(low.abs() <= x.abs() && x.abs() <= high.abs().max(x.abs()), "{x}");
            let unit = f64::from(f32::from_bits((x.to_bits() & 0xFFFF_0000) + 0x1_0000))
                - f64::from(f32::from_bits(x.to_bits() & 0xFFFF_0000));
            assert!((mean - f64::from(x)).abs() <= unit.abs() / 4000.0, "{x} {mean}");
        }
        assert_eq!(round_stochastic(f32::INFINITY, 0.999), f32::INFINITY);
        assert!(round_stochastic(f32::NAN, 0.999).is_nan());
    }

    #[test]
    fn erf_at_known_points() {
        for (x, y) in [
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (3.5, 0.999_999_256_901_627_7),
        ] {
            assert!((erf(x) - y).abs() < 1e-14);
            assert_eq!(erf(-x), -erf(x));
        }
    }
}
