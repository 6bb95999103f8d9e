//! Evaluation of samples: sums over the rows of each, which don't depend on the samples that share a pass, where a figure is a mean
//! over rows, and else what passes add up to.

use std::ops::Range;

use tightrope_core::Role;
use tightrope_core::batch::Mixed;

use super::parts::in_order;
use super::{TrainError, Trainer, lacking};
use crate::error::Error;
use crate::figure::Figure;
use crate::handles::EvalHandles;
use crate::inputs::{Batch, Ordered, Values};
use crate::share::{Factors, Recording, Turn};

/// Loss and metrics of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Mean loss over what counts in it.
    pub loss: f32,
    /// The model's metrics by name: see [`crate::Pass::metric`].
    pub metrics: Vec<(String, f32)>,
}

/// A figure of a sample: its sum over the rows that count, and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The sum, in the order of rows.
    pub total: f64,
    /// Rows that count.
    pub count: f64,
}

/// A figure of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Scored {
    /// A mean over rows, by sample.
    Samples(Vec<Sum>),
    /// A number of the whole batch, of which samples have no parts.
    Batch(f64),
}

impl Scored {
    /// The figure of the whole batch: 0 if nothing counts.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Batch(figure) => *figure,
            Self::Samples(sums) => mean(sums),
        }
    }
}

fn mean(sums: &[Sum]) -> f64 {
    let sum = |of: fn(&Sum) -> f64| sums.iter().map(of).sum::<f64>();
    sum(|sum| sum.total) / sum(|sum| sum.count).max(1.0)
}

/// Figures of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// The loss.
    pub loss: Scored,
    /// The model's metrics by name: see [`crate::Pass::metric`].
    pub metrics: Vec<(String, Scored)>,
}

impl Trainer {
    /// The loss and metrics of one batch of micro-batch size, without dropout.
    ///
    /// # Errors
    /// [`TrainError::Batch`], and errors of the device.
    pub async fn evaluate(&mut self, batch: &Batch<'_>) -> Result<Evaluation, TrainError> {
        self.evaluate_samples(batch, self.config.micro_batch).await
    }

    /// The loss and metrics of `samples`, at least 1, without dropout: those that one pass over all of them has.
    ///
    /// # Errors
    /// [`TrainError::Batch`], errors of the device, and [`Error::Mixed`] of a model whose loss isn't cut, if `samples` isn't the
    /// micro-batch.
    pub async fn evaluate_samples(
        &mut self,
        batch: &Batch<'_>,
        samples: usize,
    ) -> Result<Evaluation, TrainError> {
        let Scores { loss, metrics } = self.scores_of(batch, samples).await?;
        let metrics = metrics.into_iter().map(|(name, figure)| (name, figure.mean() as f32));
        Ok(Evaluation { loss: loss.mean() as f32, metrics: metrics.collect() })
    }

    /// The op that mixes samples, if figures depend on which of them share a pass.
    pub fn mixed(&self) -> Option<Mixed> {
        self.handles.eval.as_ref()?.mixed(&self.config)
    }

    /// As [`Trainer::evaluate`], by sample where a figure is a mean over rows. The sums of a sample have the same bits on the CPU
    /// whatever the micro-batch is.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub async fn scores(&mut self, batch: &Batch<'_>) -> Result<Scores, TrainError> {
        self.scores_of(batch, self.config.micro_batch).await
    }

    async fn scores_of(&mut self, batch: &Batch<'_>, samples: usize) -> Result<Scores, TrainError> {
        let (parts, size) = (self.config.parts(), self.config.micro_batch);
        let values = self.checked(batch, samples * parts)?;
        let eval = self.handles.eval.clone().ok_or_else(|| lacking("the loss alone"))?;
        let ordered = self.by_pass(&values);
        let values = in_order(&values, &ordered);
        let turns = turns(samples * parts, size);
        let factors = match &eval.shares {
            Ok(shares)
                if shares.add_up() && (samples != size || parts > 1 || shares.are_read()) =>
            {
                let model = self.config.pass_model()?;
                let whole = Recording::new(&self.config, &*model, false, samples * parts)?;
                shares.factors(&whole, &values)?
            }
            _ => {
                let differs = samples != size || parts > 1 && eval.shares.is_err();
                if let Some(mixed) = eval.mixed(&self.config).filter(|_| differs) {
                    return Err(Error::Mixed { mixed, passes: turns.len() }.into());
                }
                Factors::default()
            }
        };
        let figures: Vec<Figure> = eval.figures().copied().collect();
        let mut totals: Vec<Total> = figures.iter().map(|_| Total::default()).collect();
        if parts > 1 {
            let own = turns.get(self.rank % parts).ok_or_else(|| lacking("whole sequences"))?;
            let own = self.evaluated(&values, (own, &factors), &figures).await?;
            let of_parts = self.of_parts(own)?;
            for (at, (figure, total)) in figures.iter().zip(&mut totals).enumerate() {
                let numbers: Vec<&[f64]> = of_parts.iter().map(|part| &part[at][..]).collect();
                match figure {
                    Figure::Rows(_) => total.add_rows(&numbers, size, &turns[0]),
                    Figure::Whole(_) => {
                        for (part, turn) in numbers.iter().zip(&turns) {
                            total.add(part[0], factors.weight(at, turn));
                        }
                    }
                }
            }
        } else {
            for turn in &turns {
                let own = self.evaluated(&values, (turn, &factors), &figures).await?;
                for (at, (figure, total)) in figures.iter().zip(&mut totals).enumerate() {
                    match figure {
                        Figure::Rows(_) => total.add_rows(&[&own[at]], size, turn),
                        Figure::Whole(_) => total.add(own[at][0], factors.weight(at, turn)),
                    }
                }
            }
        }
        let mut scored = figures.iter().zip(totals).map(|(figure, total)| total.scored(figure));
        let loss = scored.next().ok_or_else(|| lacking("the loss alone"))?;
        let names = eval.metrics.iter().map(|(name, _)| name.clone());
        Ok(Scores { loss, metrics: names.zip(scored).collect() })
    }

    /// The numbers of each figure in a pass over some of the samples that `values` are of.
    async fn evaluated(
        &mut self,
        values: &[(usize, Values<'_>)],
        (turn, factors): (&Turn, &Factors),
        figures: &[Figure],
    ) -> Result<Vec<Vec<f64>>, TrainError> {
        let of_turn = |&(index, values): &(usize, Values<'_>)| {
            let input = &self.handles.inputs[index].0;
            let each = input.ty(1).elements();
            let ranges: Vec<Range<usize>> = match input.batched {
                true => {
                    let samples = (0..turn.times).flat_map(|_| turn.samples.clone());
                    samples.map(|sample| sample * each..(sample + 1) * each).collect()
                }
                false => std::iter::once(0..values.len()).collect(),
            };
            (index, Ordered::new(values, ranges.into_iter()))
        };
        let own: Vec<(usize, Ordered)> = values.iter().map(of_turn).collect();
        let own: Vec<(usize, Values<'_>)> =
            own.iter().map(|(index, ordered)| (*index, ordered.values())).collect();
        self.write_inputs(None, &own, 0)?;
        for (tensor, values) in factors.written(turn) {
            self.session.write_values(tensor, &values)?;
        }
        self.session.run(Role::Eval)?;
        let mut read = vec![];
        for figure in figures {
            let mut numbers = vec![];
            for tensor in figure.tensors() {
                numbers.extend(self.session.read_values(tensor).await?.into_iter().map(f64::from));
            }
            read.push(numbers);
        }
        Ok(read)
    }
}

impl EvalHandles {
    /// Figures that the host reads, the loss first.
    fn figures(&self) -> impl Iterator<Item = &Figure> {
        [&self.loss].into_iter().chain(self.metrics.iter().map(|(_, figure)| figure))
    }
}

/// A figure over several passes.
#[derive(Debug, Default)]
struct Total {
    sums: Vec<Sum>,
    /// True if sums are of passes: rows that aren't those of samples.
    is_of_passes: bool,
    whole: f64,
}

impl Total {
    /// Adds the rows of a pass over `size` samples, in which every part of their sequences has as many: values of rows, then what each
    /// counts.
    fn add_rows(&mut self, parts: &[&[f64]], size: usize, turn: &Turn) {
        let sums = by_sample(parts, size);
        if sums.len() == size {
            self.sums.extend(&sums[..turn.samples.len()]);
            return;
        }
        self.is_of_passes = true;
        let times = turn.times as f64;
        let sums =
            sums.iter().map(|sum| Sum { total: sum.total / times, count: sum.count / times });
        self.sums.extend(sums);
    }

    /// Adds the number of a pass that weighs so much.
    fn add(&mut self, number: f64, weight: f64) {
        // Nothing that doesn't count is in a sum, even if it isn't a number.
        self.whole += if weight == 0.0 { 0.0 } else { number * weight };
    }

    fn scored(self, figure: &Figure) -> Scored {
        match figure {
            Figure::Whole(_) => Scored::Batch(self.whole),
            Figure::Rows(_) if self.is_of_passes => Scored::Batch(mean(&self.sums)),
            Figure::Rows(_) => Scored::Samples(self.sums),
        }
    }
}

/// Sums of each of these `samples`, of which every part has as many rows: values of rows, then what each counts. One sum over all if
/// rows aren't those of samples.
fn by_sample(parts: &[&[f64]], samples: usize) -> Vec<Sum> {
    let rows = parts.first().map_or(0, |part| part.len() / 2);
    let is_of_samples = rows.is_multiple_of(samples);
    let (count, each) = if is_of_samples { (samples, rows / samples) } else { (1, rows) };
    let sum = |sample: usize| {
        let mut sum = Sum::default();
        for part in parts {
            let (values, counts) = part.split_at(rows);
            let own = sample * each..(sample + 1) * each;
            for (value, count) in values[own.clone()].iter().zip(&counts[own]) {
                // Nothing that doesn't count is in a sum, even if it isn't a number.
                if *count > 0.0 {
                    sum.total += value;
                    sum.count += count;
                }
            }
        }
        sum
    };
    (0..count).map(sum).collect()
}

/// Passes of `size` samples over `samples`. Samples left at the end are repeated to fill a pass, which changes no mean: their number in a pass
/// divides `size`.
fn turns(samples: usize, size: usize) -> Vec<Turn> {
    let mut turns = vec![];
    let mut first = 0;
    while first < samples {
        let few = (1..=size.min(samples - first)).rev().find(|&few| size.is_multiple_of(few));
        let few = few.unwrap_or(1);
        turns.push(Turn { samples: first..first + few, times: size / few, passes: 0 });
        first += few;
    }
    let passes = turns.len();
    turns.iter_mut().for_each(|turn| turn.passes = passes);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_sample_are_summed_over_its_parts() {
        let (first, second) = ([1.0, f64::NAN, 3.0, 4.0, 1.0, 0.0, 1.0, 1.0], [5.0; 8]);
        let second: Vec<f64> = [&second[..4], &[1.0, 1.0, 0.0, 0.0]].concat();
        let found = by_sample(&[&first, &second], 2);
        assert_eq!(found, [Sum { total: 11.0, count: 3.0 }, Sum { total: 7.0, count: 2.0 }]);
        assert_eq!(mean(&found), 18.0 / 5.0);
        // Four rows aren't those of three samples.
        assert_eq!(by_sample(&[&first], 3), [Sum { total: 8.0, count: 3.0 }]);
        assert_eq!(mean(&by_sample(&[&[0.0, 0.0]], 1)), 0.0);
    }

    #[test]
    fn what_is_left_fills_passes_evenly() {
        let of = |samples, size| -> Vec<(usize, usize)> {
            turns(samples, size).iter().map(|turn| (turn.samples.len(), turn.times)).collect()
        };
        assert_eq!(of(12, 4), [(4, 1); 3]);
        assert_eq!(of(15, 8), [(8, 1), (4, 2), (2, 4), (1, 8)]);
        assert_eq!(of(2, 6), [(2, 3)]);
        assert_eq!(of(3, 1), [(1, 1); 3]);
        assert_eq!(of(12, 7), [(7, 1), (1, 7), (1, 7), (1, 7), (1, 7), (1, 7)]);
    }
}
