//! Sequences of which the last tokens are scored, each under all tokens before it in the sequence.

use std::ops::Range;

use crate::{Batch, IGNORED};

/// Token ids of which the last are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scored {
    /// Token ids.
    pub ids: Vec<u32>,
    /// How many at the end are scored: fewer than there are.
    pub count: usize,
}

impl Scored {
    /// Of ids in which `range` is a sequence.
    pub fn of(ids: &[u32], (range, count): (Range<usize>, usize)) -> Self {
        Self { ids: ids[range].to_vec(), count }
    }

    /// Leaves out what doesn't fit in `context` tokens and the one that follows them, from the left. Whether anything was.
    pub fn cut(&mut self, context: usize) -> bool {
        let over = self.ids.len().saturating_sub(context + 1);
        self.ids.drain(..over);
        over > 0
    }
}

/// The windows of `context` tokens, each `stride` after the one before, that score every one of `len` tokens but the first once:
/// tokens and targets of each, and how many targets at its end are new.
///
/// With a stride of the context, windows share one token, and the last one reaches back to be as long as the others, as in
/// lm-evaluation-harness. With a shorter one, they are those of Hugging Face's sliding window.
///
/// ```
/// use tightrope_data::sliding;
///
/// let windows: Vec<_> = sliding(8, 4, 2).collect();
/// assert_eq!(windows, [(0..5, 4), (2..7, 2), (4..8, 1)]);
/// assert_eq!(sliding(8, 4, 4).collect::<Vec<_>>(), [(0..5, 4), (3..8, 3)]);
/// ```
///
/// # Panics
/// Where `stride` is 0 or larger than `context`.
pub fn sliding(
    len: usize,
    context: usize,
    stride: usize,
) -> impl Iterator<Item = (Range<usize>, usize)> {
    assert!((1..=context).contains(&stride), "a stride of {stride} in a context of {context}");
    // The last token that was a target.
    let mut last = 0;
    (0..len).step_by(stride).map_while(move |start| {
        let end = (start + context + 1).min(len);
        let count = (end - 1).checked_sub(last).filter(|&count| count > 0)?;
        last = end - 1;
        let back = if stride == context { end.saturating_sub(context + 1) } else { start };
        Some((start.min(back)..end, count))
    })
}

/// A batch of `batch` samples of `context` tokens, of which `rows` are the first; the others are padding, as is what follows a row.
///
/// # Panics
/// Where there are more rows, or longer ones than [`Scored::cut`] leaves.
pub fn scored_batch(rows: &[&Scored], batch: usize, context: usize) -> Batch {
    assert!(rows.len() <= batch, "{} rows in a batch of {batch}", rows.len());
    let mut inputs = Vec::with_capacity(batch * context);
    let mut targets = Vec::with_capacity(batch * context);
    for (index, row) in rows.iter().enumerate() {
        let last = row.ids.len() - 1;
        assert!(last <= context, "a row of {last} tokens in a context of {context}");
        inputs.extend(row.ids[..last].iter().map(|id| id.cast_signed()));
        targets.resize(index * context + last - row.count, IGNORED);
        targets.extend(row.ids[last + 1 - row.count..].iter().map(|id| id.cast_signed()));
        inputs.resize((index + 1) * context, 0);
        targets.resize((index + 1) * context, IGNORED);
    }
    inputs.resize(batch * context, 0);
    targets.resize(batch * context, IGNORED);
    Batch { inputs, targets, index: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_but_the_first_is_scored_once_whatever_the_stride() {
        for len in 0..40 {
            for context in 1..9 {
                for stride in 1..=context {
                    let windows: Vec<_> = sliding(len, context, stride).collect();
                    let targets: Vec<usize> =
                        windows.iter().flat_map(|(r, count)| r.end - count..r.end).collect();
                    assert_eq!(targets, (1..len).collect::<Vec<_>>(), "{len} {context} {stride}");
                    for (range, count) in windows {
                        assert!(range.len() <= context + 1 && count < range.len());
                        // Where it isn't the first, each target has at least context - stride + 1 tokens before it.
                        let before = range.end - count - range.start;
                        assert!(range.start == 0 || before > context - stride, "{range:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_cut_from_the_left_and_padded_at_the_right() {
        let mut long = Scored { ids: (0..9).collect(), count: 2 };
        assert!(long.cut(5) && !long.cut(5));
        assert_eq!(long.ids, [3, 4, 5, 6, 7, 8]);
        let short = Scored { ids: vec![1, 2, 3], count: 1 };
        let batch = scored_batch(&[&long, &short], 3, 5);
        assert_eq!(batch.inputs, [3, 4, 5, 6, 7, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        let no = IGNORED;
        assert_eq!(batch.targets, [no, no, no, 7, 8, no, 3, no, no, no, no, no, no, no, no]);
    }
}
