//! Ranks that have a part of each sequence: which numbers of a batch are whose, and what parts come to together.

use std::ops::Range;

use super::Trainer;
use crate::inputs::{Ordered, Values};

#[cfg(not(target_family = "wasm"))]
use super::TrainError;

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

    /// Means over whole sequences of `figures`, which are means over this rank's part of them: of what counts in the batch `values`, whose
    /// passes are the parts.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn of_whole_sequences(
        &mut self,
        values: &[(usize, Values<'_>)],
        figures: Vec<f32>,
    ) -> Result<Vec<f32>, TrainError> {
        let (rank, parts) = (self.rank, self.config.parts());
        let counts = self.counts(values);
        let own = figures.iter().map(|&figure| f64::from(figure)).collect();
        let all = self.figures_of_ranks("the loss of a batch", own)?;
        let of_context = &all[rank / parts * parts..][..parts];
        let count: f64 = counts.iter().sum();
        let mean = |figure: usize| {
            let shares = of_context.iter().zip(&counts);
            // Nothing that doesn't count is in a sum, even if it isn't a number.
            let counted = shares.filter(|&(_, &count)| count > 0.0);
            counted.map(|(figures, count)| figures[figure] * count).sum::<f64>() / count.max(1.0)
        };
        Ok((0..figures.len()).map(|figure| mean(figure) as f32).collect())
    }

    /// How much counts in each part of a batch.
    #[cfg(not(target_family = "wasm"))]
    fn counts(&self, values: &[(usize, Values<'_>)]) -> Vec<f64> {
        let parts = self.config.parts();
        let name = self.config.model.counted();
        let is_counted = |index: usize| Some(&*self.handles.inputs[index].0.name) == name;
        match values.iter().find(|&&(index, _)| is_counted(index)) {
            Some((_, Values::I32(numbers))) => {
                let of_parts = numbers.chunks((numbers.len() / parts).max(1));
                let count = |part: &[i32]| part.iter().filter(|&&number| number >= 0).count();
                of_parts.map(|part| count(part) as f64).collect()
            }
            _ => vec![1.0; parts],
        }
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
