//! Numbers that are drawn: the same for the same words, reader and number of a file, so that a mutation is repeatable.

/// A stream of numbers (SplitMix64, Steele et al. 2014).
pub struct Draws(u64);

impl Draws {
    /// The stream of a file.
    pub fn of(words: &str, reader: &str, number: u64) -> Self {
        let bytes = words.bytes().chain([0]).chain(reader.bytes()).chain(number.to_le_bytes());
        Self(bytes.fold(0, |state, byte| mix(state ^ u64::from(byte))))
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
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
