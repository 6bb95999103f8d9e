//! Ranks that have a part of each sequence: which numbers of a batch are whose, and what parts come to together.

use std::ops::Range;

use super::{TrainError, Trainer};
use crate::inputs::{Ordered, Values};

impl Trainer {
    /// The position in its sequence of the first token that this rank has of it.
    pub(super) fn first_position(&self) -> i32 {
        let parts = self.config.parts();
        if parts == 1 {
            return 0;
        }
        let length = self.config.model.seq_len() / parts;
        ((self.rank % parts) * length) as i32
    }

    /// The numbers of a batch in the order of passes, where that's another than theirs: of each micro-batch the first parts of its
    /// sequences, then the second ones, each of which is a rank's pass.
    pub(super) fn by_pass(&self, values: &[(usize, Values<'_>)]) -> Vec<(usize, Ordered)> {
        let (parts, micro_batch) = (self.config.parts(), self.config.micro_batch);
        if parts == 1 || micro_batch == 1 {
            return vec![];
        }
        let ordered = |&(index, values): &(usize, Values<'_>)| {
            let samples = values.len() / (self.handles.inputs[index].0.ty(1).elements() * parts);
            (index, Ordered::new(values, ranges(values.len(), samples, [micro_batch, parts])))
        };
        values.iter().map(ordered).collect()
    }

    /// These `own` numbers, as many lists on every rank, and those of the other ranks that have a part of the same sequences, in the
    /// order of parts.
    pub(super) fn of_parts(
        &mut self,
        own: Vec<Vec<f64>>,
    ) -> Result<Vec<Vec<Vec<f64>>>, TrainError> {
        let parts = self.config.parts();
        let lengths: Vec<usize> = own.iter().map(Vec::len).collect();
        let first = self.rank / parts * parts;
        let all = self.figures_of_ranks("the loss of a batch", own.concat())?;
        let lists = |part: &Vec<f64>| {
            let mut rest = &part[..];
            let list = |&length: &usize| {
                let (list, after) = rest.split_at(length);
                rest = after;
                list.to_vec()
            };
            lengths.iter().map(list).collect()
        };
        Ok(all[first..first + parts].iter().map(lists).collect())
    }
}

/// These numbers, or what they became in another order.
pub(super) fn in_order<'v>(
    values: &[(usize, Values<'v>)],
    ordered: &'v [(usize, Ordered)],
) -> Vec<(usize, Values<'v>)> {
    match ordered {
        // A browser's tab has no others to train with.
        ordered if cfg!(target_family = "wasm") || ordered.is_empty() => values.to_vec(),
        ordered => ordered.iter().map(|(index, ordered)| (*index, ordered.values())).collect(),
    }
}

/// Where the numbers of each pass are, of `all` that `samples` have: of each micro-batch, each part.
fn ranges(
    all: usize,
    samples: usize,
    [micro_batch, parts]: [usize; 2],
) -> impl Iterator<Item = Range<usize>> {
    let length = all / (samples * parts).max(1);
    (0..samples.div_ceil(micro_batch)).flat_map(move |micro| {
        (0..parts).flat_map(move |part| {
            (0..micro_batch).map(move |sample| {
                let first = ((micro * micro_batch + sample) * parts + part) * length;
                first..first + length
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_micro_batch_follow_each_other() {
        // Four samples of two parts of three numbers, in micro-batches of two.
        let numbers: Vec<i32> = (0..24).collect();
        let ordered = Ordered::new(Values::I32(&numbers), ranges(24, 4, [2, 2]));
        let expected = [0, 6, 3, 9, 12, 18, 15, 21].into_iter().flat_map(|first| first..first + 3);
        assert_eq!(ordered, Ordered::I32(expected.collect()));
    }
}
