//! `Shards`: how the elements of a tensor are cut among ranks.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Segments that follow each other in a tensor's row-major order, of each of which a rank has a shard. A rank's shards follow each other
/// likewise. All ranks' shards are equally long, and the last ones of a segment may reach beyond it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shards {
    /// How many ranks there are.
    pub ranks: usize,
    /// The segments.
    pub segments: Vec<Segment>,
}

/// Elements that are cut among ranks: of each rank so many, in the order of ranks, as far as there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// How many there are.
    pub elements: usize,
    /// Those of a rank.
    pub shard: usize,
}

/// A part of each rank's shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    /// How the tensor is cut.
    pub shards: Shards,
    /// Which elements of a shard.
    pub range: Range<usize>,
}

impl Segment {
    /// So many elements among `ranks`, each shard but of a small tensor whole granules of so many elements.
    pub fn of(elements: usize, ranks: usize, granule: usize) -> Self {
        let shard = elements.div_ceil(ranks.max(1)).next_multiple_of(granule.max(1));
        Self { elements, shard: shard.min(elements) }
    }
}

impl Shards {
    /// One segment, as [`Segment::of`].
    pub fn of(elements: usize, ranks: usize, granule: usize) -> Self {
        Self { ranks, segments: vec![Segment::of(elements, ranks, granule)] }
    }

    /// How what there is one of for each `block` elements is cut, where shards are whole blocks.
    pub fn of_blocks(&self, block: usize) -> Self {
        let of = |segment: &Segment| Segment {
            elements: segment.elements.div_ceil(block),
            shard: segment.shard.div_ceil(block),
        };
        Self { ranks: self.ranks, segments: self.segments.iter().map(of).collect() }
    }

    /// Elements of the tensor.
    pub fn elements(&self) -> usize {
        self.segments.iter().map(|segment| segment.elements).sum()
    }

    /// Elements of a rank's shards together.
    pub fn shard(&self) -> usize {
        self.segments.iter().map(|segment| segment.shard).sum()
    }

    /// Where the elements `range` of a rank's shards are in the tensor: runs of them, each with the index of its first in the tensor. What
    /// is beyond a segment is in none.
    pub fn runs(&self, rank: usize, range: &Range<usize>) -> Vec<Run> {
        let (mut own, mut whole) = (0, 0);
        let mut runs = vec![];
        for &Segment { elements, shard } in &self.segments {
            let first = (rank * shard).min(elements);
            let count = shard.min(elements - first);
            let (start, end) = (range.start.max(own), range.end.min(own + count));
            if start < end {
                runs.push(Run { own: start, whole: whole + first + start - own, len: end - start });
            }
            (own, whole) = (own + shard, whole + elements);
        }
        runs
    }

    /// What a rank has of the tensor's elements `range`: the same runs, cut to it.
    pub fn held(&self, rank: usize, range: &Range<usize>) -> Vec<Run> {
        let cut = |run: Run| {
            let start = range.start.max(run.whole);
            let end = range.end.min(run.whole + run.len);
            (start < end).then(|| Run {
                own: run.own + start - run.whole,
                whole: start,
                len: end - start,
            })
        };
        self.runs(rank, &(0..self.shard())).into_iter().filter_map(cut).collect()
    }
}

/// Elements that follow each other in a rank's shards and in the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first in the shards.
    pub own: usize,
    /// Index of the first in the tensor.
    pub whole: usize,
    /// How many.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_hold_every_element_once() {
        for (segments, ranks) in [
            (vec![Segment::of(15, 4, 2)], 4),
            (vec![Segment::of(1, 3, 4), Segment::of(10, 3, 4), Segment::of(24, 3, 4)], 3),
            (vec![Segment::of(7, 1, 4)], 1),
        ] {
            let shards = Shards { ranks, segments };
            let mut found = vec![0; shards.elements()];
            for rank in 0..ranks {
                let mut cut = shards.runs(rank, &(0..2));
                cut.extend(shards.runs(rank, &(2..shards.shard())));
                let count = |runs: &[Run]| runs.iter().map(|run| run.len).sum::<usize>();
                assert_eq!(count(&cut), count(&shards.runs(rank, &(0..shards.shard()))));
                for Run { whole, len, .. } in cut {
                    found[whole..whole + len].iter_mut().for_each(|times| *times += 1);
                }
            }
            assert!(found.iter().all(|&times| times == 1), "{shards:?}: {found:?}");
        }
    }

    #[test]
    fn a_rank_holds_its_part_of_any_range() {
        let shards = Shards::of(15, 4, 2);
        assert_eq!(shards.shard(), 4);
        assert_eq!(shards.held(1, &(2..6)), [Run { own: 0, whole: 4, len: 2 }]);
        assert_eq!(shards.held(3, &(0..15)), [Run { own: 0, whole: 12, len: 3 }]);
        assert_eq!(shards.held(0, &(4..9)), []);
    }

    #[test]
    fn a_small_tensor_is_the_first_rank_s() {
        let shards = Shards::of(5, 4, 4096);
        assert_eq!(shards.shard(), 5);
        assert_eq!(shards.runs(0, &(0..5)).len(), 1);
        assert!((1..4).all(|rank| shards.runs(rank, &(0..5)).is_empty()));
    }
}
