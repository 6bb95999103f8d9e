//! Buffers to place, by their bytes and the steps in which they are live, and the cuts that none may lie across.

/// A buffer to place: bytes, and the steps in which it's live, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Size, a multiple of the alignment.
    pub bytes: u64,
    /// First step that needs it.
    pub birth: usize,
    /// Last step that needs it.
    pub death: usize,
}

impl Buffer {
    pub(super) fn is_live(&self, step: usize) -> bool {
        (self.birth..=self.death).contains(&step)
    }
}

/// Live bytes at every step; the largest is the lower bound of any placement.
pub fn live_bytes(buffers: &[Buffer], steps: usize) -> Vec<u64> {
    let mut change = vec![0i64; steps + 1];
    for buffer in buffers {
        change[buffer.birth] += buffer.bytes as i64;
        change[buffer.death + 1] -= buffer.bytes as i64;
    }
    let mut live = 0;
    change[..steps]
        .iter()
        .map(|step| {
            live += step;
            live as u64
        })
        .collect()
}

/// Cuts that no buffer may lie across: multiples of `bytes` in an arena that these buffers follow `base`
/// bytes into.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Arena offset of the first buffer.
    pub base: u64,
    /// Bytes between two cuts.
    pub bytes: u64,
}

impl Page {
    /// No cuts.
    pub const UNCUT: Self = Self { base: 0, bytes: u64::MAX };

    /// The first offset from `offset` on at which `size` bytes lie across no cut; buffers larger than a page
    /// lie across some whatever their offset, and start at one.
    pub(super) fn fit(self, offset: u64, size: u64) -> u64 {
        let (start, last) = (self.base + offset, self.base + offset + size.saturating_sub(1));
        if start / self.bytes == last / self.bytes {
            offset
        } else {
            start.next_multiple_of(self.bytes) - self.base
        }
    }

    /// The last offset at which `size` bytes end at `end` or before and lie across no cut.
    pub(super) fn fit_below(self, end: u64, size: u64) -> Option<u64> {
        let start = self.base + end.checked_sub(size)?;
        let cut = (self.base + end.saturating_sub(1)) / self.bytes * self.bytes;
        let start = match () {
            () if start >= cut => start,
            () if size <= self.bytes => cut - size,
            () => start / self.bytes * self.bytes,
        };
        start.checked_sub(self.base)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Buffers of which most live shortly.
    pub fn random_buffers(seed: u32, count: usize, steps: usize) -> Vec<Buffer> {
        let draw = |stream, i| crate::ops::uniform([seed, 0, 0, 0], stream, i as u64);
        (0..count)
            .map(|i| {
                let birth = (draw(0, i) * steps as f64) as usize;
                let length = (draw(1, i).powi(3) * (steps - birth) as f64) as usize;
                Buffer {
                    bytes: 256 * (1 + (draw(2, i) * 64.0) as u64),
                    birth,
                    death: birth + length,
                }
            })
            .collect()
    }
}
