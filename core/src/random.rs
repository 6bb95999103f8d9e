//! Random numbers by counter: what is drawn depends on seed, step, stream and element, and on nothing that ran
//! before. So every backend draws the same, and so does a recomputed forward pass.

/// The four words that key random numbers: seed (low, high), step, micro-step.
pub type RandomKey = [u32; 4];

/// Words of a [`RandomKey`] in memory.
pub const KEY_WORDS: usize = 4;
/// Words of a key for shards, the last of which is the rank: its elements are counted as in the whole tensor, so that it draws what a process
/// would that has all of it.
pub const SHARD_KEY_WORDS: usize = KEY_WORDS + 1;

/// Uniform number in [0, 1) with 24 random bits for one element: word `element mod 4` of Philox4x32-10
/// (Salmon et al. 2011) at counter (element / 4, stream, step, micro-step) under the seed.
pub fn uniform(key: RandomKey, stream: u32, element: u64) -> f64 {
    let [seed_low, seed_high, step, micro] = key;
    let words = philox([(element / 4) as u32, stream, step, micro], [seed_low, seed_high]);
    f64::from(words[(element % 4) as usize] >> 8) / f64::from(1 << 24)
}

/// [`uniform`] for the elements from `first` on. Where that is a multiple of 4, generators of neighbouring elements advance side by
/// side, so that the loop vectorises.
#[inline(always)]
pub fn fill_uniform(key: RandomKey, stream: u32, first: u64, to: &mut [f32]) {
    const LANES: usize = 16;
    if !first.is_multiple_of(4) {
        for (element, value) in (first..).zip(to) {
            *value = uniform(key, stream, element) as f32;
        }
        return;
    }
    let [seed_low, seed_high, step, micro] = key;
    for (piece, to) in to.chunks_mut(4 * LANES).enumerate() {
        let start = (first / 4) as u32 + (piece * LANES) as u32;
        let mut words = [[0; LANES], [stream; LANES], [step; LANES], [micro; LANES]];
        for (lane, counter) in words[0].iter_mut().enumerate() {
            *counter = start.wrapping_add(lane as u32);
        }
        let mut round_key = [seed_low, seed_high];
        for _ in 0..ROUNDS {
            for lane in 0..LANES {
                let counter = round(words.map(|word| word[lane]), round_key);
                words.iter_mut().zip(counter).for_each(|(word, value)| word[lane] = value);
            }
            round_key = next_key(round_key);
        }
        for (element, value) in to.iter_mut().enumerate() {
            *value = (words[element % 4][element / 4] >> 8) as f32 / (1 << 24) as f32;
        }
    }
}

const ROUNDS: usize = 10;

#[inline(always)]
fn round(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let a = u64::from(counter[0]) * 0xD251_1F53;
    let b = u64::from(counter[2]) * 0xCD9E_8D57;
    [
        (b >> 32) as u32 ^ counter[1] ^ key[0],
        b as u32,
        (a >> 32) as u32 ^ counter[3] ^ key[1],
        a as u32,
    ]
}

#[inline(always)]
fn next_key(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)]
}

/// Philox4x32 with ten rounds.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        counter = round(counter, key);
        key = next_key(key);
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers from the Random123 distribution.
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn many_at_once_are_the_same_numbers() {
        let key = [9, 8, 7, 6];
        for (first, count) in [(0, 256), (1028, 61), (4, 1), (1031, 70)] {
            let mut many = vec![0.0; count];
            fill_uniform(key, 3, first, &mut many);
            let alone = (first..).map(|element| uniform(key, 3, element) as f32);
            assert!(many.iter().zip(alone).all(|(&a, b)| a == b), "{first} {count}");
        }
    }

    #[test]
    fn uniform_fills_the_interval() {
        let draws: Vec<f64> = (0..10_000).map(|i| uniform([1, 2, 3, 4], 5, i)).collect();
        let mean = draws.iter().sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert!(draws.iter().all(|x| (0.0..1.0).contains(x)));
    }
}
