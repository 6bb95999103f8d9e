//! Rows in sequences: several in one, so that little of it is padding, or one in each.

use std::collections::BTreeSet;

use crate::loader::IGNORED;
use crate::{Error, Result};

/// Which rows are in which sequence of T positions.
///
/// ```
/// use tightrope_data::Packing;
///
/// let packing = Packing::new(&[3, 5, 2, 4], 8)?;
/// assert_eq!(packing.sequences(), [vec![1, 0], vec![3, 2]]);
/// assert_eq!(packing.padding(), 2.0 / 16.0);
/// # Ok::<(), tightrope_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    sequences: Vec<Vec<usize>>,
    seq_len: usize,
    /// Positions that rows take.
    taken: usize,
}

impl Packing {
    /// Packs rows by best fit, the longest first: each goes where the least room is left that holds it. `positions` is what
    /// each row takes of a sequence of `seq_len` (T): one less than its tokens, as the last is a target alone.
    ///
    /// # Errors
    /// A row of more than T positions, or of none, and sequences of none.
    pub fn new(positions: &[usize], seq_len: usize) -> Result<Self> {
        check(positions, seq_len)?;
        let mut order: Vec<usize> = (0..positions.len()).collect();
        order.sort_by_key(|&row| std::cmp::Reverse(positions[row]));
        let mut sequences: Vec<Vec<usize>> = Vec::new();
        // Sequences with the room that is left in each.
        let mut rooms = BTreeSet::new();
        for row in order {
            let length = positions[row];
            let (room, sequence) = match rooms.range((length, 0)..).next() {
                Some(&found) => {
                    rooms.remove(&found);
                    found
                }
                None => {
                    sequences.push(Vec::new());
                    (seq_len, sequences.len() - 1)
                }
            };
            sequences[sequence].push(row);
            rooms.insert((room - length, sequence));
        }
        Ok(Self { sequences, seq_len, taken: positions.iter().sum() })
    }

    /// A sequence for each row, in their order.
    ///
    /// # Errors
    /// As [`Packing::new`].
    pub fn apart(positions: &[usize], seq_len: usize) -> Result<Self> {
        check(positions, seq_len)?;
        let sequences = (0..positions.len()).map(|row| vec![row]).collect();
        Ok(Self { sequences, seq_len, taken: positions.iter().sum() })
    }

    /// Positions of a sequence, T.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// Rows of each sequence, in the order in which they stand in it.
    pub fn sequences(&self) -> &[Vec<usize>] {
        &self.sequences
    }

    /// Share of all positions that is padding.
    pub fn padding(&self) -> f64 {
        let all = self.sequences.len() * self.seq_len;
        if all == 0 { 0.0 } else { (all - self.taken) as f64 / all as f64 }
    }

    /// The numbers of `sequences`, by index, where `row` gives the token ids of a row and whether each is trained on.
    /// A sequence that isn't there is padding.
    pub fn batch<I: IntoIterator<Item = (i32, bool)>>(
        &self,
        sequences: impl IntoIterator<Item = usize>,
        row: impl FnMut(usize) -> I,
    ) -> RowBatch {
        self.batch_of(self.seq_len, sequences, row)
    }

    /// As [`Packing::batch`], in sequences of `length` positions, which hold their rows, where `row` gives the token ids of a row and whether each is trained on.
    /// A sequence that isn't there is padding.
    pub fn batch_of<I: IntoIterator<Item = (i32, bool)>>(
        &self,
        length: usize,
        sequences: impl IntoIterator<Item = usize>,
        mut row: impl FnMut(usize) -> I,
    ) -> RowBatch {
        let mut batch = RowBatch::default();
        let mut end = 0;
        for sequence in sequences {
            end += length;
            let rows = self.sequences.get(sequence).map_or(&[][..], Vec::as_slice);
            for (document, &index) in rows.iter().enumerate() {
                batch.push(document as i32, row(index));
            }
            batch.pad(end);
        }
        batch
    }
}

fn check(positions: &[usize], seq_len: usize) -> Result<()> {
    match positions.iter().find(|&&length| length == 0 || length > seq_len) {
        None => Ok(()),
        Some(length) => Err(Error::Setting {
            what: "positions of a row",
            value: length.to_string(),
            domain: "at least 1, and at most those of a sequence",
        }),
    }
}

/// Sequences of rows: four inputs of (B, T), row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowBatch {
    /// Token ids; 0 of padding.
    pub tokens: Vec<i32>,
    /// The next token's id of the same row; [`IGNORED`] where it isn't trained on.
    pub targets: Vec<i32>,
    /// Number of the row within its sequence, from 0; [`RowBatch::PADDING`] of padding. A position attends to those of its
    /// own row alone.
    pub documents: Vec<i32>,
    /// Place within the row, from 0, and within the padding.
    pub positions: Vec<i32>,
    /// A number for each sequence, where they have some: see [`Sequences::with_numbers`](crate::Sequences::with_numbers).
    pub numbers: Vec<f32>,
}

impl RowBatch {
    /// The row that padding is of.
    pub const PADDING: i32 = -1;

    fn push(&mut self, document: i32, row: impl IntoIterator<Item = (i32, bool)>) {
        let mut row = row.into_iter();
        let Some((mut token, _)) = row.next() else { return };
        for (position, (next, trained)) in row.enumerate() {
            self.tokens.push(token);
            self.targets.push(if trained { next } else { IGNORED });
            self.documents.push(document);
            self.positions.push(position as i32);
            token = next;
        }
    }

    fn pad(&mut self, end: usize) {
        let padding = end.saturating_sub(self.tokens.len());
        self.tokens.resize(end, 0);
        self.targets.resize(end, IGNORED);
        self.documents.resize(end, Self::PADDING);
        self.positions.extend(0..padding as i32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_stand_one_after_the_other_and_know_their_places() {
        let rows = [
            vec![(1, false), (2, true), (3, true)],
            vec![(4, false), (5, false), (6, true), (7, true)],
            vec![(8, false), (9, true)],
        ];
        let lengths: Vec<usize> = rows.iter().map(|row| row.len() - 1).collect();
        let packing = Packing::new(&lengths, 5).unwrap();
        assert_eq!(packing.sequences(), [vec![1, 0], vec![2]]);
        let batch = packing.batch([0, 1, 2], |row| rows[row].clone());
        let padding = RowBatch::PADDING;
        assert_eq!(batch.tokens, [4, 5, 6, 1, 2, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(batch.targets[..6], [IGNORED, 6, 7, 2, 3, 9]);
        assert!(batch.targets[6..].iter().all(|&target| target == IGNORED));
        assert_eq!(batch.documents[..7], [0, 0, 0, 1, 1, 0, padding]);
        assert_eq!(batch.positions, [0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 0, 1, 2, 3, 4]);
        assert!((packing.padding() - 4.0 / 10.0).abs() < 1e-12);
        for wrong in [0, 6] {
            assert!(Packing::new(&[wrong], 5).is_err() && Packing::apart(&[wrong], 5).is_err());
        }
        assert!(Packing::new(&[], 5).unwrap().sequences().is_empty());
        let apart = Packing::apart(&lengths, 5).unwrap();
        assert_eq!(apart.sequences(), [[0], [1], [2]]);
        assert!((apart.padding() - 9.0 / 15.0).abs() < 1e-12);
    }

    #[test]
    fn little_is_padding_where_lengths_are_as_in_instruction_data() {
        // Log-normal around 90 tokens, as Alpaca's rows are.
        let lengths: Vec<usize> = (0..5000_u64)
            .map(|n| {
                let uniform = |salt| {
                    (crate::permutation::mix(2 * n + salt) >> 11) as f64 / (1_u64 << 53) as f64
                };
                let normal = (-2.0 * uniform(0).max(1e-12).ln()).sqrt()
                    * (std::f64::consts::TAU * uniform(1)).cos();
                ((4.5 + 0.6 * normal).exp() as usize).clamp(1, 512)
            })
            .collect();
        let packing = Packing::new(&lengths, 512).unwrap();
        assert!(packing.padding() < 0.01, "{}", packing.padding());
    }

    proptest! {
        #[test]
        fn every_row_is_in_one_sequence_that_holds_it(
            lengths in proptest::collection::vec(1usize..60, 0..200),
        ) {
            let packing = Packing::new(&lengths, 64).unwrap();
            let mut seen: Vec<usize> = packing.sequences().concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            let taken = |rows: &Vec<usize>| rows.iter().map(|&row| lengths[row]).sum::<usize>();
            prop_assert!(packing.sequences().iter().all(|rows| taken(rows) <= 64));
            // Best fit fills all sequences but one by more than half.
            let loose = packing.sequences().iter().filter(|rows| taken(rows) <= 32).count();
            prop_assert!(loose <= 1);
        }
    }
}
