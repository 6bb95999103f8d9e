//! Full steps: where most bytes are live, in all and during a life.

use super::buffer::{Buffer, live_bytes};

/// Part of the most live bytes that makes a step a full one.
const NEARLY: f64 = 0.98;

/// Live bytes by step.
pub struct Full {
    live: Vec<u64>,
    /// The most of them.
    pub most: u64,
    /// The first of the fullest of 2, 4, 8, … steps, by the first of these steps.
    fullest: Vec<Vec<usize>>,
}

impl Full {
    /// Of the steps in which these buffers are live.
    pub fn of(buffers: &[Buffer]) -> Self {
        let steps = buffers.iter().map(|buffer| buffer.death + 1).max().unwrap_or(0);
        let live = live_bytes(buffers, steps);
        let most = live.iter().copied().max().unwrap_or(0);
        let mut full = Self { most, live, fullest: vec![] };
        // Each of two halves, but for what is longer than any life.
        let longest = buffers.iter().map(|buffer| buffer.death - buffer.birth + 1).max();
        let mut half = 1;
        while longest.is_some_and(|longest| 2 * half <= longest) {
            let level = (0..=steps - 2 * half)
                .map(|step| {
                    full.fuller(full.first_of(step, half), full.first_of(step + half, half))
                })
                .collect();
            full.fullest.push(level);
            half *= 2;
        }
        full
    }

    /// Live bytes at every step.
    pub fn live(&self) -> &[u64] {
        &self.live
    }

    /// The first of the fullest of `count` steps, which is a power of two.
    fn first_of(&self, step: usize, count: usize) -> usize {
        match count.ilog2().checked_sub(1) {
            None => step,
            Some(level) => self.fullest[level as usize][step],
        }
    }

    /// The fuller of two steps, of equals the first.
    fn fuller(&self, first: usize, other: usize) -> usize {
        if self.live[other] > self.live[first] { other } else { first }
    }

    /// The first of the fullest steps of a buffer's life.
    pub fn peak(&self, buffer: &Buffer) -> usize {
        let steps = buffer.death - buffer.birth + 1;
        let part = 1 << steps.ilog2();
        // Two parts that together are the whole life, and may overlap.
        let first = self.first_of(buffer.birth, part);
        self.fuller(first, self.first_of(buffer.death + 1 - part, part))
    }

    /// The fullest step of all these lives: of the last buffer that has a step as full, the last one.
    pub fn last_peak<'a>(
        &self,
        buffers: impl DoubleEndedIterator<Item = &'a Buffer> + Clone,
    ) -> Option<usize> {
        let most = buffers.clone().map(|buffer| self.live[self.peak(buffer)]).max()?;
        let as_full: Vec<usize> =
            (0..self.live.len()).filter(|&step| self.live[step] == most).collect();
        buffers.rev().find_map(|buffer| {
            let until = as_full.partition_point(|&step| step <= buffer.death);
            as_full[..until].last().copied().filter(|&step| step >= buffer.birth)
        })
    }

    /// The last step with the most.
    pub fn fullest(&self) -> usize {
        self.live.iter().rposition(|&bytes| bytes == self.most).unwrap_or(0)
    }

    /// The first step with [`NEARLY`] as many.
    pub fn first(&self) -> usize {
        let nearly = |&bytes: &u64| bytes as f64 >= NEARLY * self.most as f64;
        self.live.iter().position(nearly).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::super::buffer::tests::random_buffers;
    use super::*;

    #[test]
    fn peaks_are_those_of_a_sweep() {
        for steps in [1, 2, 7, 64, 100] {
            let mut buffers = random_buffers(steps as u32, 20, steps);
            // Of few sizes, so that many steps are as full as others.
            buffers.iter_mut().for_each(|buffer| buffer.bytes = 1 + buffer.bytes / 256 % 3);
            let full = Full::of(&buffers);
            for buffer in &buffers {
                let swept = (buffer.birth..=buffer.death)
                    .max_by_key(|&step| (full.live[step], Reverse(step)));
                assert_eq!(Some(full.peak(buffer)), swept);
            }
            let lives = || buffers[..5].iter();
            let swept = lives().flat_map(|b| b.birth..=b.death).max_by_key(|&step| full.live[step]);
            assert_eq!(full.last_peak(lives()), swept);
        }
    }
}
