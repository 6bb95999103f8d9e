//! Which keys a query attends to, and which of its probabilities are dropped.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::super::{Array, ensure};
use crate::random::{RandomKey, uniform};
use crate::types::{DType, Type};

/// Which keys a query attends to: those that all parts allow. A query always attends to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// Only keys up to the query's own position.
    pub causal: bool,
    /// Only keys less than so many positions away: a window of 1 is the query itself.
    pub window: Option<usize>,
    /// Only keys of the query's own document: an input says which one each position belongs to, so that sequences packed from
    /// several documents don't see each other.
    pub documents: bool,
}

/// Dropout of probabilities (Srivastava et al. 2014): each is 0 with probability `p`, and the rest are scaled by 1/(1 − p).
/// What is dropped depends on the key of random numbers, the stream and the pair of positions alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropout {
    /// Probability that a probability is dropped; below 1.
    pub p: f64,
    /// Stream of random numbers, as [`crate::Graph::new_stream`] gives it.
    pub stream: u32,
}

impl Mask {
    /// Each query attends to all keys up to its own.
    pub const CAUSAL: Self = Self { causal: true, window: None, documents: false };

    /// Each query attends to all keys.
    pub const NONE: Self = Self { causal: false, window: None, documents: false };

    /// Keys that `query` attends to of a sequence of `seq_len`, documents apart.
    pub fn keys(&self, query: usize, seq_len: usize) -> Range<usize> {
        let window = self.window.unwrap_or(seq_len);
        let end = if self.causal { query + 1 } else { query.saturating_add(window) };
        (query + 1).saturating_sub(window)..end.min(seq_len)
    }

    /// Pairs of a query and a key that it attends to, documents apart.
    pub(super) fn pairs(&self, seq_len: u64) -> u64 {
        let window = self.window.map_or(seq_len, |window| window as u64).min(seq_len);
        let back = window * (window + 1) / 2 + (seq_len - window) * window;
        if self.causal { back } else { 2 * back - seq_len }
    }

    /// The window where it hides something of a sequence, else 0, as kernels take it.
    pub(super) fn width(&self, seq_len: u64) -> u64 {
        self.window.map(|window| window as u64).filter(|&window| window < seq_len).unwrap_or(0)
    }
}

/// Words of random numbers that one counter gives.
const WORDS: u64 = 4;

impl Dropout {
    /// The element of the stream that decides on a probability: of query `row`, counted over all heads and sequences, and `key`.
    /// Rows begin at multiples of 4.
    pub fn element(row: u64, key: u64, seq_len: u64) -> u64 {
        row * seq_len.next_multiple_of(WORDS) + key
    }

    /// What a probability is multiplied by.
    pub(super) fn factor(&self, key: RandomKey, element: u64) -> f64 {
        // In f32, as kernels compare.
        let dropped = uniform(key, self.stream, element) < f64::from(self.p as f32);
        if dropped { 0.0 } else { 1.0 / (1.0 - self.p) }
    }

    /// `Err` where the probability is none, or there are more rows than the counter of 32 bits tells apart.
    pub(super) fn check(&self, rows: u64, seq_len: u64) -> Result<(), String> {
        ensure((0.0..1.0).contains(&self.p), || {
            format!("the probability of dropout must be at least 0 and below 1, is {}", self.p)
        })?;
        ensure(Self::element(rows, 0, seq_len) / WORDS <= 1 << 32, || {
            format!(
                "dropout tells apart 2^34 probabilities, {rows} queries of {seq_len} keys have more"
            )
        })
    }
}

/// The inputs that a mask and dropout read after an op's own: the document of each position, and the key of random numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct Extra<T> {
    pub documents: Option<T>,
    pub key: Option<T>,
}

impl<T: Copy> Extra<T> {
    /// Those of `inputs` from position `own` on.
    pub fn of(mask: Mask, dropout: Option<Dropout>, own: usize, inputs: &[T]) -> Self {
        let mut rest = inputs.iter().skip(own).copied();
        let documents = if mask.documents { rest.next() } else { None };
        Self { documents, key: dropout.and_then(|_| rest.next()) }
    }

    /// How many there are for this mask and dropout.
    pub fn count(mask: Mask, dropout: Option<Dropout>) -> usize {
        usize::from(mask.documents) + usize::from(dropout.is_some())
    }
}

impl Extra<&Type> {
    /// `Err` unless they have the right types for sequences of this shape.
    pub fn check(&self, batch: usize, seq_len: usize) -> Result<(), String> {
        if let Some(documents) = self.documents {
            let expected = Type::new(DType::I32, [batch, seq_len]);
            super::super::typed("the documents", documents, &expected)?;
        }
        self.key.map_or(Ok(()), |key| {
            super::super::typed("the key of random numbers", key, &Type::new(DType::U32, [4]))
        })
    }
}

impl Extra<Array<'_>> {
    /// Whether two positions of a sequence belong to the same document.
    pub fn together(&self, b: usize, seq_len: usize, i: usize, j: usize) -> bool {
        let document =
            |position| self.documents.map(|documents| documents.index(b * seq_len + position));
        document(i) == document(j)
    }

    /// The words that key random numbers.
    pub fn words(&self) -> RandomKey {
        self.key.map_or([0; 4], |key| std::array::from_fn(|i| key.get(i) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted() {
        for seq_len in [1, 2, 7] {
            for window in [None, Some(1), Some(3), Some(7), Some(100)] {
                for causal in [false, true] {
                    let mask = Mask { causal, window, documents: false };
                    let counted: usize = (0..seq_len).map(|q| mask.keys(q, seq_len).len()).sum();
                    assert_eq!(mask.pairs(seq_len as u64), counted as u64, "{mask:?} of {seq_len}");
                    assert!((0..seq_len).all(|q| mask.keys(q, seq_len).contains(&q)), "{mask:?}");
                }
            }
        }
    }
}
