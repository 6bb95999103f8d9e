//! Held-out samples in passes of a micro-batch.

use tightrope_nn::{Input, TrainerConfig};

use super::batches::{HeldOut, Numbers, Samples};
use crate::error::Result;

/// Samples in the order that data gives them, a micro-batch at a time, however many of them each item has.
pub(super) struct Passes {
    data: HeldOut,
    inputs: Vec<Input>,
    micro_batch: usize,
    /// Samples that the data has given, and no pass has.
    left: Option<Left>,
    ended: bool,
}

/// The samples of a pass.
#[derive(Debug, PartialEq)]
pub(super) struct Pass {
    /// A micro-batch, of which copies of the last sample fill up what the data lacks.
    pub(super) samples: Samples,
    /// Samples of the data in it, which come first.
    pub(super) count: usize,
    /// True if copies fill it up.
    pub(super) is_filled_up: bool,
    /// [`Samples::counted`] of the data's samples.
    pub(super) counted: f64,
}

/// Samples that follow each other.
struct Left {
    samples: Samples,
    count: usize,
    counted: f64,
}

impl Passes {
    /// Passes of a trainer of `config` over what `data` gives.
    pub(super) fn new(data: HeldOut, config: &TrainerConfig) -> Self {
        let micro_batch = config.micro_batch.max(1);
        Self { data, inputs: config.model.inputs(), micro_batch, left: None, ended: false }
    }

    /// The next item of the data, and the samples in it; a micro-batch where its numbers aren't those of samples, which the trainer
    /// refuses.
    fn item(&mut self) -> Result<Option<Left>> {
        let Some(samples) = self.data.next().transpose()? else { return Ok(None) };
        let batched = self.inputs.iter().filter(|input| input.batched && input.range.is_none());
        let counts = batched.map(|input| {
            let elements = input.ty(1).elements().max(1);
            let numbers = samples.numbers().find(|(name, _)| *name == input.name);
            let len = numbers.map_or(0, |(_, numbers)| numbers.len());
            (len > 0 && len.is_multiple_of(elements)).then_some(len / elements)
        });
        let counts: Vec<Option<usize>> = counts.collect();
        let alike = counts.windows(2).all(|pair| pair[0] == pair[1]);
        let count = counts.first().copied().flatten().filter(|_| alike);
        let counted = samples.counted as f64;
        Ok(Some(Left { samples, count: count.unwrap_or(self.micro_batch), counted }))
    }

    /// Returns `true` if samples of several items may share a pass: they have no input in common.
    fn joins(&self) -> bool {
        self.inputs.iter().all(|input| input.batched || input.range.is_some())
    }

    /// Elements of each sample in an input of this name.
    fn elements(&self, name: &str) -> Option<usize> {
        let input = self.inputs.iter().find(|input| input.name == name && input.batched)?;
        Some(input.ty(1).elements())
    }

    fn take(&mut self, mut left: Left) -> Pass {
        let count = left.count.min(self.micro_batch);
        let counted = left.counted * count as f64 / left.count.max(1) as f64;
        let mut samples = Samples::new(0);
        for (name, numbers) in left.samples.take_numbers() {
            let Some(elements) = self.elements(&name).filter(|_| left.count != self.micro_batch)
            else {
                samples = samples.with(&name, numbers);
                continue;
            };
            let (mut own, rest) = numbers.split_at(count * elements);
            own.repeat_last(elements, self.micro_batch - count);
            samples = samples.with(&name, own);
            left.samples = left.samples.with(&name, rest);
        }
        samples.counted = counted.round() as usize;
        left.count -= count;
        left.counted -= counted;
        self.left = Some(left).filter(|left| left.count > 0);
        let is_filled_up = count < self.micro_batch;
        Pass { samples, count, is_filled_up, counted }
    }
}

impl Iterator for Passes {
    type Item = Result<Pass>;

    fn next(&mut self) -> Option<Self::Item> {
        let joins = self.joins();
        loop {
            let held = self.left.as_ref().map_or(0, |left| left.count);
            if held >= self.micro_batch || (held > 0 && (self.ended || !joins)) {
                break;
            }
            match self.item() {
                Err(error) => return Some(Err(error)),
                Ok(Some(item)) => match &mut self.left {
                    None => self.left = Some(item),
                    Some(left) => {
                        left.samples.append(item.samples);
                        left.count += item.count;
                        left.counted += item.counted;
                    }
                },
                Ok(None) if held == 0 => return None,
                Ok(None) => self.ended = true,
            }
        }
        let left = self.left.take()?;
        Some(Ok(self.take(left)))
    }
}

impl Numbers {
    fn len(&self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::I32(numbers) => numbers.len(),
        }
    }

    /// These up to `at`, or all if there are fewer, and the rest.
    fn split_at(self, at: usize) -> (Self, Self) {
        let at = at.min(self.len());
        match self {
            Self::F32(mut numbers) => {
                let rest = numbers.split_off(at);
                (Self::F32(numbers), Self::F32(rest))
            }
            Self::I32(mut numbers) => {
                let rest = numbers.split_off(at);
                (Self::I32(numbers), Self::I32(rest))
            }
        }
    }

    /// Appends copies of the last `count` numbers: `times` of them.
    fn repeat_last(&mut self, count: usize, times: usize) {
        let first = self.len().saturating_sub(count);
        let last = first..self.len();
        for _ in 0..times {
            match self {
                Self::F32(numbers) => numbers.extend_from_within(last.clone()),
                Self::I32(numbers) => numbers.extend_from_within(last.clone()),
            }
        }
    }

    fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::F32(numbers), Self::F32(others)) => numbers.extend(others),
            (Self::I32(numbers), Self::I32(others)) => numbers.extend(others),
            // The trainer refuses what is lacking.
            (Self::F32(_), Self::I32(_)) | (Self::I32(_), Self::F32(_)) => {}
        }
    }
}

impl Samples {
    fn take_numbers(&mut self) -> Vec<(String, Numbers)> {
        std::mem::take(&mut self.numbers)
    }

    /// Appends the samples of `other`, which gives the same inputs.
    fn append(&mut self, other: Self) {
        for (name, numbers) in other.numbers {
            match self.numbers.iter_mut().find(|(known, _)| *known == name) {
                Some((_, own)) => own.append(numbers),
                None => self.numbers.push((name, numbers)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tightrope_nn::preset;

    use super::*;

    fn passes(items: &[usize], micro_batch: usize) -> Vec<Pass> {
        let model = preset("tiny").unwrap().build(2).unwrap();
        let config = TrainerConfig { micro_batch, ..TrainerConfig::new(model) };
        let mut next = 0;
        let item = |&count: &usize| {
            let ids: Vec<i32> = (2 * next..2 * (next + count as i32)).collect();
            next += count as i32;
            Ok(Samples::new(2 * count).with("tokens", ids.clone()).with("targets", ids))
        };
        let data: Vec<Result<Samples>> = items.iter().map(item).collect();
        Passes::new(Box::new(data.into_iter()), &config).map(Result::unwrap).collect()
    }

    #[test]
    fn passes_have_the_same_samples_however_data_gives_them() {
        let expected = passes(&[5], 2);
        assert_eq!(expected.iter().map(|pass| pass.count).collect::<Vec<_>>(), [2, 2, 1]);
        for items in [&[1, 1, 1, 1, 1][..], &[2, 2, 1], &[3, 2], &[4, 1]] {
            assert_eq!(passes(items, 2), expected, "{items:?}");
        }
        let last = Samples::new(2).with("tokens", vec![8, 9, 8, 9]);
        assert_eq!(expected[2].samples, last.with("targets", vec![8, 9, 8, 9]));
        assert_eq!(passes(&[2, 3], 8).len(), 1);
        assert_eq!(passes(&[], 8), []);
    }
}
