//! A micro-batch's share of a step: what counts in it, over what counts in the whole batch.
//!
//! A loss is a mean over what counts in its pass. Passes that add up to a step weigh by their shares, so that the step's loss is the mean
//! over all that counts in it, however the batch is cut.

use tightrope_core::expr::{Expr, constant, input};
use tightrope_core::ops::Map;
use tightrope_core::{Class, DType, Graph, Tensor, Type};

use crate::TrainerConfig;
use crate::error::Result;
use crate::inputs::{SHARE, Values};

/// What each pass of a step weighs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// The same for all: samples count alike.
    Equal(f64),
    /// What the host writes before each pass, f32 (1).
    Counted {
        /// Where it's written.
        tensor: Tensor,
        /// The model's input whose numbers that aren't negative count.
        input: usize,
    },
}

impl Share {
    /// That of the passes of a step, declared in `graph` where the host writes it.
    pub(crate) fn declare(graph: &mut Graph, config: &TrainerConfig) -> Self {
        let passes = config.passes();
        let counted = config.model.counted().filter(|_| passes > 1);
        let list = config.model.inputs();
        let of = |name| list.iter().position(|input| input.name == name && input.batched);
        match counted.and_then(of) {
            Some(input) => {
                let one = Type::new(DType::F32, [1]);
                Self::Counted { tensor: graph.persistent(SHARE, one, Class::Input), input }
            }
            None => Self::Equal(1.0 / passes as f64),
        }
    }

    /// The gradient of a step's loss, f32 (1), with respect to a pass's: its share, times `scale` where there is one.
    pub(crate) fn seed(self, graph: &mut Graph, scale: Option<Tensor>) -> Result<Tensor> {
        let map = match (scale, self) {
            (None, Self::Counted { tensor, .. }) => return Ok(tensor),
            (None, Self::Equal(share)) => Map::fill(share, &Type::new(DType::F32, [1])),
            (Some(_), _) => Map::new(input(0) * self.factor(1), DType::F32),
        };
        let inputs: Vec<Tensor> = scale.into_iter().flat_map(|scale| self.with(&[scale])).collect();
        Ok(graph.one(map, &inputs, "loss_seed")?)
    }

    /// A pass's share of `figure`, f32 (1).
    pub(crate) fn of(self, graph: &mut Graph, figure: Tensor, name: &str) -> Result<Tensor> {
        let map = Map::new(input(0) * self.factor(1), DType::F32);
        Ok(graph.one(map, &self.with(&[figure]), name)?)
    }

    /// Adds a pass's share of `figure`, f32 (1), to `sum`, and gives its new handle.
    pub(crate) fn add(
        self,
        graph: &mut Graph,
        sum: Tensor,
        figure: Tensor,
        name: &str,
    ) -> Result<Tensor> {
        let formula = input(0) + input(1) * self.factor(2);
        let map = Map { in_place: vec![(0, 0)], ..Map::new(formula, DType::F32) };
        Ok(graph.one(map, &self.with(&[sum, figure]), name)?)
    }

    /// The share in a formula whose input `index` it is where the host writes it.
    fn factor(self, index: usize) -> Expr {
        match self {
            Self::Equal(share) => constant(share),
            Self::Counted { .. } => input(index),
        }
    }

    /// These inputs of a formula, then the share's.
    fn with(self, inputs: &[Tensor]) -> Vec<Tensor> {
        let own = match self {
            Self::Equal(_) => None,
            Self::Counted { tensor, .. } => Some(tensor),
        };
        inputs.iter().copied().chain(own).collect()
    }

    /// What the host writes before each of `passes`, of a batch with these numbers by index of their inputs; and where. All weigh alike
    /// where nothing counts.
    pub(crate) fn written(
        self,
        batch: &[(usize, Values<'_>)],
        passes: usize,
    ) -> Option<(Tensor, Vec<f32>)> {
        let Self::Counted { tensor, input } = self else { return None };
        let (_, values) = batch.iter().find(|(index, _)| *index == input)?;
        let Values::I32(numbers) = values else { return None };
        let counts = numbers.chunks(numbers.len().div_ceil(passes).max(1));
        let counts: Vec<usize> =
            counts.map(|part| part.iter().filter(|&&number| number >= 0).count()).collect();
        let all: usize = counts.iter().sum();
        let share = |&count: &usize| match all {
            0 => 1.0 / passes as f64,
            _ => count as f64 / all as f64,
        };
        Some((tensor, counts.iter().map(|count| share(count) as f32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_weigh_by_what_counts_in_them() {
        let tensor = Graph::new().persistent(SHARE, Type::new(DType::F32, [1]), Class::Input);
        let share = Share::Counted { tensor, input: 1 };
        let shares = |targets: &[i32], passes| {
            let batch = [(0, Values::F32(&[])), (1, Values::I32(targets))];
            share.written(&batch, passes).map(|(_, shares)| shares)
        };
        assert_eq!(
            shares(&[-1, 3, 2, 0], 2),
            Some(vec![(1.0_f64 / 3.0) as f32, (2.0_f64 / 3.0) as f32])
        );
        assert_eq!(shares(&[-1, -1, 7, -1, -1, 9], 3), Some(vec![0.0, 0.5, 0.5]));
        assert_eq!(shares(&[-1; 4], 4), Some(vec![0.25; 4]));
        assert_eq!(Share::Equal(0.5).written(&[], 2).map(|(_, shares)| shares), None);
    }
}
