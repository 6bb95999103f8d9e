//! Numbers drawn for tests, the same on every run.

/// Draws one number after the other (Knuth, MMIX).
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + ((self.0 >> 33) as usize) % most
    }

    pub(crate) fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.up_to(list.len()) - 1]
    }
}
