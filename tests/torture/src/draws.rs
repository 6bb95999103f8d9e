//! Numbers that are drawn: the same for the same seed, scenario and case, so that a case can be repeated. The engine's test of hostile files
//! draws by them too.

/// A stream of numbers (SplitMix64, Steele et al. 2014).
pub struct Draws(u64);

impl Draws {
    /// The stream of a case of a scenario.
    pub fn of(seed: u64, scenario: &str, case: u64) -> Self {
        let bytes = scenario.bytes().chain(case.to_le_bytes());
        Self(bytes.fold(mix(seed), |state, byte| mix(state ^ u64::from(byte))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A place in something of this length.
    pub fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of a list that isn't empty.
    pub fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.place(list.len())]
    }

    /// True in one of `of` cases.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_draws_the_same_again_and_others_differ() {
        let drawn = |seed, scenario, case| {
            let mut draws = Draws::of(seed, scenario, case);
            [(); 4].map(|()| draws.below(1 << 40))
        };
        assert_eq!(drawn(1, "kills", 2), drawn(1, "kills", 2));
        let others = [
            drawn(1, "kills", 2),
            drawn(2, "kills", 2),
            drawn(1, "flips", 2),
            drawn(1, "kills", 3),
        ];
        assert!((0..4).all(|a| (0..a).all(|b| others[a] != others[b])));
        let mut draws = Draws::of(0, "", 0);
        assert!((0..1000).all(|_| draws.below(7) < 7));
        assert_eq!(draws.below(0), 0);
    }
}
