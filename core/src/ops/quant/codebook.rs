//! `Codebook`: which number between −1 and 1 each of 256 quantized values stands for.
//!
//! The two dynamic codebooks are those of bitsandbytes (Dettmers 2016, "8-Bit Approximations for Parallelism in Deep
//! Learning"; Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), sorted:
//!
//!   10^(k−6) · (0.1 + 0.9·(j + ½)/n),   k < 7,   j < n = b·2ᵏ;   0;   1
//!
//! Each decade has twice as many values as the one below, spread evenly. b is 1 for signed codebooks, which have the
//! negatives of these values too (but not −1), and 2 for unsigned ones.
//!
//! Rounding to the nearest is off by at most [`Codebook::error`]: half of the space between neighbours where they are
//! farthest apart. Values down to 3e-7 of a block's largest stay apart from 0, where the linear codebook loses what is
//! below 4e-3: second moments span that many decades.

use serde::{Deserialize, Serialize};

use crate::types::DType;

/// The numbers that the quantized values of a block stand for, as parts of its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Codebook {
    /// Whole numbers from −127 to 127; the scale is the block's largest over 127.
    Linear,
    /// Dynamic, of both signs; for first moments.
    Signed,
    /// Dynamic, from 0 to 1; for second moments.
    Unsigned,
}

/// Decades of a dynamic codebook, the largest up to 1.
pub const DECADES: u32 = 7;

impl Codebook {
    /// Every codebook.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Signed, Self::Unsigned];
    const LARGEST_LINEAR: f64 = 127.0;

    /// Storage of quantized values.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Linear => DType::I8,
            Self::Signed | Self::Unsigned => DType::U8,
        }
    }

    /// What a block's largest absolute value is divided by to give its scale.
    pub const fn largest(self) -> f64 {
        match self {
            Self::Linear => Self::LARGEST_LINEAR,
            Self::Signed | Self::Unsigned => 1.0,
        }
    }

    /// Values of the lowest decade of one sign, b; 0 for the linear codebook.
    pub const fn base(self) -> u32 {
        match self {
            Self::Linear => 0,
            Self::Signed => 1,
            Self::Unsigned => 2,
        }
    }

    /// The quantized value of 0, which stands between those of both signs.
    pub const fn zero(self) -> f64 {
        match self {
            Self::Linear | Self::Unsigned => 0.0,
            Self::Signed => 127.0,
        }
    }

    /// The number that `quantized` stands for.
    pub fn value(self, quantized: f64) -> f64 {
        let rank = quantized - self.zero();
        match self {
            Self::Linear => quantized,
            Self::Signed => self.magnitude(rank.abs() as u32) * rank.signum(),
            Self::Unsigned => self.magnitude(rank as u32 + 1),
        }
    }

    /// Value `rank` of one sign of a dynamic codebook: b·2ᵏ + j for value j of decade k.
    fn magnitude(self, rank: u32) -> f64 {
        let Some(decade) = (rank / self.base()).checked_ilog2() else { return 0.0 };
        if decade == DECADES {
            return 1.0;
        }
        let count = self.base() << decade;
        let within = (f64::from(rank - count) + 0.5) / f64::from(count);
        10_f64.powi(decade as i32 - DECADES as i32 + 1) * (0.1 + 0.9 * within)
    }

    /// The quantized value whose number is nearest to `x`.
    pub fn nearest(self, x: f64) -> f64 {
        if self == Self::Linear {
            return x.round_ties_even().clamp(-Self::LARGEST_LINEAR, Self::LARGEST_LINEAR);
        }
        // Quantized values are in the order of their numbers: the last up to x, or the one after it.
        let (mut below, mut above) = (0_u32, 255);
        while above - below > 1 {
            let middle = (below + above) / 2;
            if self.value(middle.into()) <= x { below = middle } else { above = middle }
        }
        let [first, second] = [below, above].map(f64::from);
        if x - self.value(first) < self.value(second) - x { first } else { second }
    }

    /// Largest distance from a number between −1 and 1 (0 and 1 where unsigned) to the nearest value, as a
    /// part of a block's largest absolute value.
    pub fn error(self) -> f64 {
        match self {
            Self::Linear => 0.5 / Self::LARGEST_LINEAR,
            Self::Signed | Self::Unsigned => 0.45 / f64::from(self.base() << (DECADES - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bitsandbytes.functional.create_dynamic_map(signed)`, written out as it makes it.
    fn dynamic_map(signed: bool) -> Vec<f64> {
        let mut data = vec![0.0, 1.0];
        for i in 0..7 {
            let items = 1 << if signed { i } else { i + 1 };
            let bound = |n: i32| 0.1 + 0.9 * f64::from(n) / f64::from(items);
            let means = (0..items).map(|n| (bound(n) + bound(n + 1)) / 2.0);
            for value in means.map(|mean| 10_f64.powi(i - 6) * mean) {
                data.push(value);
                data.extend(signed.then_some(-value));
            }
        }
        data.sort_by(f64::total_cmp);
        data
    }

    #[test]
    fn dynamic_codebooks_are_those_of_bitsandbytes() {
        for (codebook, signed) in [(Codebook::Signed, true), (Codebook::Unsigned, false)] {
            let map = dynamic_map(signed);
            assert_eq!(map.len(), 256);
            for (index, expected) in map.into_iter().enumerate() {
                let value = codebook.value(index as f64);
                assert!(
                    (value - expected).abs() <= 1e-15,
                    "{codebook:?} {index}: {value} {expected}"
                );
            }
            assert_eq!(codebook.value(codebook.zero()), 0.0);
        }
    }

    #[test]
    fn the_nearest_code_is_the_nearest_of_all() {
        for codebook in Codebook::ALL {
            let (low, high) = match codebook {
                Codebook::Linear => (-127, 127),
                _ => (0, 255),
            };
            let smallest = if codebook == Codebook::Unsigned { 0.0 } else { -1.0 };
            let distance = |x: f64, c: f64| (codebook.value(c) / codebook.largest() - x).abs();
            let mut largest = 0.0_f64;
            for i in 0..20_000 {
                let x = smallest + (1.0 - smallest) * f64::from(i) / 19_999.0;
                let x = if i % 2 == 0 { x } else { x.powi(9) };
                let found = codebook.nearest(x * codebook.largest());
                let best = (low..=high).map(|c| distance(x, c.into())).fold(1.0, f64::min);
                assert!(distance(x, found) <= best + 1e-15, "{codebook:?} {x}");
                largest = largest.max(distance(x, found));
            }
            let bound = codebook.error();
            assert!(
                largest <= bound + 1e-12 && largest > 0.95 * bound,
                "{codebook:?} {largest} {bound}"
            );
        }
    }
}
