//! A pseudo-random order of `0..len` that is computed, not stored.
//!
//! A Feistel network permutes the smallest even number of bits that holds `len`; values beyond `len`
//! are sent through again until one falls inside (cycle walking: Black and Rogaway, "Ciphers with
//! Arbitrary Finite Domains", 2002). At most 4 values share the domain with each one inside, so a
//! look-up takes 4 rounds through the network at most on average.

/// Enough that orders of a handful of elements are close to uniform.
const ROUNDS: usize = 8;

/// A bijection of `0..len`, chosen by a key.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The order of `len` elements, at least 1, that belongs to `key`.
    pub fn new(len: u64, key: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let keys = std::array::from_fn(|round| mix(key ^ mix(round as u64 + 1)));
        Self { len, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// The element at `position`, which is below `len`.
    pub fn get(&self, position: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = position;
        // Ends: the network is a bijection, so the walk returns to `position` at the latest.
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            value = left << self.half_bits | right;
            if value < self.len {
                return value;
            }
        }
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): every input bit reaches every output bit.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn each_element_comes_once() {
        for len in (1..70).chain([255, 256, 257, 1023, 4097, 100_003]) {
            let order = Permutation::new(len, len * 31);
            let mut seen = vec![false; len as usize];
            for position in 0..len {
                let element = order.get(position) as usize;
                assert!(!std::mem::replace(&mut seen[element], true), "{element} of {len} twice");
            }
        }
        let huge = Permutation::new(u64::MAX, 1);
        assert!(huge.get(u64::MAX - 1) < u64::MAX);
    }

    /// Chi-square of the 24 orders of four elements over keys; 49.7 is the 0.1 % point at 23 degrees.
    #[test]
    fn orders_are_uniform_over_keys() {
        let keys = 24_000;
        let mut counts = HashMap::new();
        for key in 0..keys {
            let order = Permutation::new(4, key);
            let order: Vec<u64> = (0..4).map(|i| order.get(i)).collect();
            *counts.entry(order).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        let expected = keys as f64 / 24.0;
        let square: f64 =
            counts.values().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        assert!(square < 49.7, "chi-square {square}");
    }

    /// Chi-square of the first element of 100 over keys; 148.2 is the 0.1 % point at 99 degrees.
    #[test]
    fn first_elements_are_uniform_over_keys() {
        let mut counts = [0u32; 100];
        for key in 0..100_000 {
            counts[Permutation::new(100, mix(key)).get(0) as usize] += 1;
        }
        let square: f64 = counts.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(square < 148.2, "chi-square {square}");
    }
}
