//! Shares: the weights by which the passes of a batch add up to it.
//!
//! The numbers of a batch don't depend on how many passes it's cut into. What each pass weighs follows from the graph of the loss, recorded
//! over a pass's samples and over those of the whole batch: see [`tightrope_core::batch`].

use std::ops::Range;
use std::sync::Arc;

use tightrope_core::batch::{Action, Cut, Factor, FactorOf, Recorded, Weight, known_values};
use tightrope_core::expr::{Expr, constant, input};
use tightrope_core::ops::Map;
use tightrope_core::{DType, Graph, Tensor, Type};

use crate::error::{Error, Result};
use crate::inputs::{Input, Values};

/// A pass over a batch, and its inputs.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) recorded: Recorded,
    pub(crate) inputs: Vec<(Input, Tensor)>,
}

impl Recording {
    /// The elements of each of these tensors, of a batch with these numbers by index of their inputs.
    fn values(&self, numbers: &[(usize, Values<'_>)], wanted: &[Tensor]) -> Result<Vec<Vec<f64>>> {
        let bytes = |(index, (input, tensor)): (usize, &(Input, Tensor))| {
            let bytes = match &input.range {
                Some(range) => range.clone().flat_map(i32::to_le_bytes).collect(),
                None => numbers.iter().find(|(other, _)| *other == index)?.1.to_bytes(),
            };
            Some((*tensor, bytes))
        };
        let held: Vec<(Tensor, Vec<u8>)> =
            self.inputs.iter().enumerate().filter_map(bytes).collect();
        let written: Vec<_> = held.iter().map(|(tensor, bytes)| (*tensor, &bytes[..])).collect();
        known_values(&self.recorded.graph, &written, wanted).ok_or_else(|| Error::Setting {
            key: "model",
            problem: "figures of its inputs can't be worked out from what a batch gives".to_owned(),
        })
    }

    /// Labels that count in each sample.
    fn counts(&self, numbers: &[(usize, Values<'_>)], labels: Tensor) -> Result<Vec<usize>> {
        let samples = self.recorded.samples.max(1);
        let own = self.inputs.iter().position(|&(_, tensor)| tensor == labels);
        let given = own.and_then(|own| numbers.iter().find(|(index, _)| *index == own));
        if let Some((_, Values::I32(labels))) = given {
            let each = labels.chunks((labels.len() / samples).max(1));
            return Ok(each.map(|part| part.iter().filter(|&&label| label >= 0).count()).collect());
        }
        let labels = self.values(numbers, &[labels])?.swap_remove(0);
        let each = labels.chunks((labels.len() / samples).max(1));
        Ok(each.map(|part| part.iter().filter(|&&label| label >= 0.0).count()).collect())
    }
}

/// Weight of a figure of each pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// The same for all.
    Equal(f64),
    /// What the host writes before each pass, f32 (1).
    Written(Tensor),
}

impl Share {
    /// The gradient of a step's loss, f32 (1), with respect to a pass's: its share, times `scale` where there is one.
    pub(crate) fn seed(self, graph: &mut Graph, scale: Option<Tensor>) -> Result<Tensor> {
        let map = match (scale, self) {
            (None, Self::Written(tensor)) => return Ok(tensor),
            (None, Self::Equal(share)) => Map::fill(share, &Type::new(DType::F32, [1])),
            (Some(_), _) => Map::new(input(0) * self.factor(1), DType::F32),
        };
        let inputs: Vec<Tensor> = scale.into_iter().flat_map(|scale| self.with(&[scale])).collect();
        Ok(graph.one(map, &inputs, "loss_seed")?)
    }

    /// A pass's share of `figure`, f32 (1); or of figures and shares of several passes, both f32 (passes, 1).
    pub(crate) fn of(self, graph: &mut Graph, figure: Tensor, name: &str) -> Result<Tensor> {
        let map = Map::new(input(0) * self.factor(1), DType::F32);
        Ok(graph.one(map, &self.with(&[figure]), name)?)
    }

    /// Adds a pass's share of `figure`, f32 (1), to `sum`, and gives its new handle. The share is rounded before it's added, on every device:
    /// an op of its own, since one formula of both may be a fused multiply-add. So ranks' shares, which are exchanged between the two, add
    /// up to the same bits.
    pub(crate) fn add(
        self,
        graph: &mut Graph,
        sum: Tensor,
        figure: Tensor,
        name: &str,
    ) -> Result<Tensor> {
        let share = self.of(graph, figure, &format!("{name}.share"))?;
        let add = Map { in_place: vec![(0, 0)], ..Map::add(DType::F32) };
        Ok(graph.one(add, &[sum, share], name)?)
    }

    /// The share in a formula whose input `index` it is where the host writes it.
    fn factor(self, index: usize) -> Expr {
        match self {
            Self::Equal(share) => constant(share),
            Self::Written(_) => input(index),
        }
    }

    /// These inputs of a formula, then the share's.
    fn with(self, inputs: &[Tensor]) -> Vec<Tensor> {
        let own = match self {
            Self::Equal(_) => None,
            Self::Written(tensor) => Some(tensor),
        };
        inputs.iter().copied().chain(own).collect()
    }
}

/// Shares of the passes of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    pub(crate) cut: Cut,
    /// Recordings of a pass and of the batch; `None` for a batch of one pass.
    pub(crate) small: Option<Arc<Recording>>,
    pub(crate) whole: Option<Arc<Recording>>,
    /// Tensors of the factors that the graph reads, for the host to write.
    pub(crate) tensors: Vec<Option<Tensor>>,
    /// Weights of results, the loss first.
    pub(crate) shares: Vec<Share>,
}

impl Shares {
    /// Shares of a batch of one pass.
    pub(crate) fn alone() -> Self {
        Self { cut: Cut::none(0), small: None, whole: None, tensors: vec![], shares: vec![] }
    }

    /// The tensors of these shares, where a cut has the same factors.
    pub(crate) fn alike(&self, cut: &Cut) -> Option<&[Option<Tensor>]> {
        let same = |(a, b): (&Factor, &Factor)| {
            matches!(
                (a, b),
                (Factor::Count(_), Factor::Count(_))
                    | (Factor::Even, Factor::Even)
                    | (Factor::Ratio(_), Factor::Ratio(_))
                    | (Factor::Constant(_), Factor::Constant(_))
            )
        };
        let factors = &self.cut.factors;
        let all = factors.len() == cut.factors.len() && factors.iter().zip(&cut.factors).all(same);
        all.then_some(&self.tensors[..])
    }

    /// Weight of the loss of each pass.
    pub(crate) fn loss(&self) -> Share {
        self.shares.first().copied().unwrap_or(Share::Equal(1.0))
    }

    /// Weight of the figure at `index` of each pass.
    pub(crate) fn figure(&self, index: usize) -> Share {
        self.shares.get(index + 1).copied().unwrap_or(Share::Equal(1.0))
    }

    /// Returns `true` if passes are one of several: those of a batch that is one pass, or of figures by row, aren't.
    pub(crate) fn add_up(&self) -> bool {
        self.small.is_some()
    }

    /// Returns `true` if a pass reads factors.
    pub(crate) fn are_read(&self) -> bool {
        self.tensors.iter().any(Option::is_some)
    }

    /// Changes at a node of a pass, by its index: see [`Cut::actions`].
    pub(crate) fn actions(&self, node: usize) -> &[Action] {
        self.cut.actions.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The tensor of a factor that a pass reads.
    ///
    /// # Panics
    /// Where it isn't read.
    pub(crate) fn tensor(&self, factor: usize) -> Tensor {
        self.tensors[factor].expect("a factor that is read was declared")
    }

    /// The factors of the batch of a step, which has these numbers by index of their inputs.
    pub(crate) fn of_batch(&self, numbers: &[(usize, Values<'_>)]) -> Result<Factors> {
        self.whole.as_ref().map_or(Ok(Factors::default()), |whole| self.factors(whole, numbers))
    }

    /// The factors of a batch that was recorded as `whole`.
    pub(crate) fn factors(
        &self,
        whole: &Recording,
        numbers: &[(usize, Values<'_>)],
    ) -> Result<Factors> {
        let Some(small) = &self.small else { return Ok(Factors::default()) };
        let refused = |mixed| Error::Mixed { mixed, passes: 2 };
        let found = self.cut.at(&small.recorded, &whole.recorded).map_err(refused)?;
        let weighed = |index: usize| {
            self.tensors[index].is_some() || self.cut.weights.contains(&Weight::Factor(index))
        };
        let of = |(index, factor): (usize, FactorOf)| {
            Ok(match factor {
                _ if !weighed(index) => Number::Same(vec![]),
                FactorOf::Ratio(ratio) => Number::Ratio(ratio),
                FactorOf::Constant(ratio) => Number::Same(vec![ratio as f32]),
                FactorOf::Even => Number::Even,
                FactorOf::Count(labels) => Number::Count(whole.counts(numbers, labels)?),
                FactorOf::Known(figure) => {
                    let values = whole.values(numbers, &[figure])?.swap_remove(0);
                    Number::Same(values.into_iter().map(|value| value as f32).collect())
                }
            })
        };
        let numbers = found.into_iter().enumerate().map(of).collect::<Result<_>>()?;
        Ok(Factors { numbers, weights: self.cut.weights.clone(), tensors: self.tensors.clone() })
    }
}

/// The factors of a batch.
#[derive(Debug, Default)]
pub(crate) struct Factors {
    numbers: Vec<Number>,
    weights: Vec<Weight>,
    tensors: Vec<Option<Tensor>>,
}

#[derive(Debug)]
enum Number {
    /// Scale of a sum in the whole batch, divided by its scale in a pass.
    Ratio(f64),
    /// Labels that count in each sample.
    Count(Vec<usize>),
    Even,
    Same(Vec<f32>),
}

/// A pass over some of a batch's samples.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// Their indices.
    pub(crate) samples: Range<usize>,
    /// Copies of each of them in the pass.
    pub(crate) times: usize,
    /// Passes of the batch.
    pub(crate) passes: usize,
}

impl Factors {
    /// Numbers that the host writes before a pass, each with its tensor.
    pub(crate) fn written(&self, turn: &Turn) -> Vec<(Tensor, Vec<f32>)> {
        let numbers = self.numbers.iter().zip(&self.tensors);
        let written = numbers.filter_map(|(number, tensor)| {
            let values = match number {
                Number::Same(values) => values.clone(),
                number => vec![number.at(turn) as f32],
            };
            Some(((*tensor)?, values))
        });
        written.collect()
    }

    /// Weight of the result at `index` of a pass.
    pub(crate) fn weight(&self, index: usize, turn: &Turn) -> f64 {
        match self.weights.get(index) {
            Some(Weight::Factor(factor)) => self.numbers[*factor].at(turn),
            Some(Weight::One) | None => 1.0,
        }
    }
}

impl Number {
    fn at(&self, turn: &Turn) -> f64 {
        match self {
            Self::Ratio(ratio) => ratio / turn.times as f64,
            Self::Even => 1.0 / turn.passes as f64,
            Self::Same(values) => values.first().copied().unwrap_or(1.0).into(),
            Self::Count(counts) => match counts.iter().sum::<usize>() {
                0 => 1.0 / turn.passes as f64,
                all => counts[turn.samples.clone()].iter().sum::<usize>() as f64 / all as f64,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_weigh_by_what_counts_in_them() {
        let weights = |counts: &[usize], size: usize| -> Vec<f64> {
            let passes = counts.len() / size;
            let number = Number::Count(counts.to_vec());
            let turns = (0..passes).map(|pass| Turn {
                samples: pass * size..(pass + 1) * size,
                times: 1,
                passes,
            });
            turns.map(|turn| number.at(&turn)).collect()
        };
        assert_eq!(weights(&[0, 1, 1, 1], 2), [1.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(weights(&[0, 1, 1], 1), [0.0, 0.5, 0.5]);
        assert_eq!(weights(&[0; 4], 1), [0.25; 4]);
    }
}
