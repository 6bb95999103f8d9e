//! Lengths that sequences of rows are padded to, so that short ones aren't padded to the longest.

/// Steps of a length that is chosen: a sixteenth of the longest.
const GRID: usize = 16;
/// A multiple of so many positions, of lengths that have as many steps.
const TILE: usize = 8;
/// Lengths that are chosen where nobody says how many.
const MOST: usize = 6;
/// The share of the positions that are left which one more length has to save where nobody says how many there are.
const WORTH: f64 = 0.05;

/// How many lengths sequences are padded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketCount {
    /// As many as are worthwhile, six at most.
    Auto,
    /// At most so many.
    Most(usize),
}

impl BucketCount {
    /// One: batches are drawn whatever lengths their rows have.
    pub const ONE: Self = Self::Most(1);
}

/// The lengths that sequences of these `positions` are padded to, the longest last: that is `seq_len` (T). Each is a multiple of
/// about T/16, and together they leave the fewest positions to pad of all lengths that are as many.
///
/// ```
/// use tightrope_data::{BucketCount, bucket_lengths};
///
/// let rows = [[60; 90], [500; 90]].concat();
/// assert_eq!(bucket_lengths(&rows, 512, BucketCount::Auto), [64, 512]);
/// assert_eq!(bucket_lengths(&rows, 512, BucketCount::Most(1)), [512]);
/// ```
pub fn bucket_lengths(positions: &[usize], seq_len: usize, count: BucketCount) -> Vec<usize> {
    let step = seq_len.div_ceil(GRID).max(1);
    // Kernels take whole tiles of positions.
    let step = if step < TILE { step } else { step.next_multiple_of(TILE) };
    let cells = seq_len.div_ceil(step).max(1);
    let length = |cell: usize| ((cell + 1) * step).min(seq_len.max(1));
    let mut rows = vec![0; cells];
    for &taken in positions {
        rows[(taken.max(1).div_ceil(step) - 1).min(cells - 1)] += 1;
    }
    let before: Vec<usize> = std::iter::once(0)
        .chain(rows.iter().scan(0, |sum, &count| {
            *sum += count;
            Some(*sum)
        }))
        .collect();
    // The rows of cells `first..=last`, padded to the last.
    let padded = |first: usize, last: usize| (before[last + 1] - before[first]) * length(last);
    let (most, worth) = match count {
        BucketCount::Auto => (MOST, WORTH),
        BucketCount::Most(most) => (most, 0.0),
    };
    // By the number of lengths, the fewest positions of the rows up to each cell, and the cell that the length before ends at.
    let mut fewest: Vec<usize> = (0..cells).map(|last| padded(0, last)).collect();
    let mut ends: Vec<Vec<Option<usize>>> = vec![vec![None; cells]];
    let mut chosen = 1;
    while ends.len() < most.min(cells) {
        let best = |last: usize| {
            let split = (0..last).map(|end| (fewest[end] + padded(end + 1, last), Some(end)));
            split.chain([(fewest[last], None)]).min_by_key(|&(sum, _)| sum)
        };
        let found: Vec<(usize, Option<usize>)> = (0..cells).filter_map(best).collect();
        let saved = fewest[cells - 1] - found[cells - 1].0;
        if saved == 0 || (saved as f64) < worth * fewest[cells - 1] as f64 {
            break;
        }
        fewest = found.iter().map(|&(sum, _)| sum).collect();
        ends.push(found.into_iter().map(|(_, end)| end).collect());
        chosen = ends.len();
    }
    let (mut lengths, mut last) = (vec![length(cells - 1)], cells - 1);
    for ends in ends[..chosen].iter().rev() {
        if let Some(end) = ends[last] {
            last = end;
            lengths.push(length(end));
        }
    }
    lengths.reverse();
    lengths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn padded(positions: &[usize], lengths: &[usize]) -> usize {
        let of = |taken: &usize| lengths.iter().find(|length| *length >= taken).copied();
        positions.iter().map(|taken| of(taken).unwrap_or(usize::MAX)).sum()
    }

    proptest! {
        #[test]
        fn no_other_lengths_pad_less(
            positions in proptest::collection::vec(1usize..=64, 1..60),
        ) {
            let found = bucket_lengths(&positions, 64, BucketCount::Most(3));
            let grid: Vec<usize> = (1..=16).map(|cell| 4 * cell).collect();
            for &first in &grid {
                for &second in &grid {
                    let mut others = vec![first, second, 64];
                    others.sort_unstable();
                    prop_assert!(padded(&positions, &found) <= padded(&positions, &others));
                }
            }
            prop_assert!(found.len() <= 3 && found.last() == Some(&64));
            prop_assert!(found.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn a_length_that_saves_little_is_left_out() {
        assert_eq!(bucket_lengths(&[100; 50], 100, BucketCount::Auto), [100]);
        let mostly = [vec![128; 99], vec![8; 1]].concat();
        assert_eq!(bucket_lengths(&mostly, 128, BucketCount::Auto), [128]);
        assert_eq!(bucket_lengths(&mostly, 128, BucketCount::Most(2)), [8, 128]);
        assert_eq!(bucket_lengths(&[], 5, BucketCount::Auto), [5]);
        assert_eq!(bucket_lengths(&[1], 0, BucketCount::Auto), [1]);
    }
}
