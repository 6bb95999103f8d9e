//! Direct preference optimization (Rafailov et al. 2023, "Direct Preference Optimization: Your Language Model is Secretly a
//! Reward Model").   B pairs of a chosen and a rejected answer, c and r their log-likelihoods, c₀ and r₀ those under the reference
//!
//!   reward = β (c − c₀), and so for the rejected one
//!   loss   = mean over pairs of  −log σ(reward of the chosen − reward of the rejected)

use tightrope_core::expr::{Expr, constant, input};
use tightrope_core::ops::{Map, Reduce, Slice};
use tightrope_core::{DType, Tensor};

use crate::error::Result;
use crate::pass::Pass;

/// Margins below this lose less than f32 shows where the loss is their negative: e to more than that may be infinite.
const LINEAR: f64 = -20.0;

/// The loss of pairs, f32 (1), and as figures the mean `chosen_reward`, `rejected_reward` and their `margin`, and as `accuracy` the
/// share of pairs whose chosen answer has the larger reward.
///
/// `found` and `reference`, f32 (B, 2), are log-likelihoods of the chosen and the rejected answer, sums over their tokens: of the
/// model, and of the one that it isn't to move far from. `tokens`, f32 (B, 2), is how many each is a sum over: a pair without any
/// doesn't count. `beta` says how far: the smaller, the farther.
///
/// # Errors
/// Tensors of other shapes.
pub fn preference(
    pass: &mut Pass<'_>,
    [found, reference, tokens]: [Tensor; 3],
    beta: f64,
) -> Result<Tensor> {
    let f32_map = |formula| Map::new(formula, DType::F32);
    let one = || constant(1.0);
    let rewards = f32_map((input(0) - input(1)) * constant(beta));
    let rewards = pass.one(rewards, &[found, reference], "rewards")?;
    let column = |start| Slice { axis: 1, start, len: 1 };
    let chosen = pass.one(column(0), &[rewards], "rewards.chosen")?;
    let rejected = pass.one(column(1), &[rewards], "rewards.rejected")?;
    // What each pair weighs: nothing where it's padding.
    let counted = pass.one(column(0), &[tokens], "pairs.tokens")?;
    let counts = f32_map(constant(0.0).less(input(0)));
    let counted = pass.one(counts, &[counted], "pairs.counted")?;
    let pairs = pass.one(Reduce::to_suffix(vec![1], DType::F32), &[counted], "pairs")?;
    let share = f32_map(input(0) / input(1).max(one()));
    let share = pass.one(share, &[counted, pairs], "pairs.share")?;
    let mut mean = |formula: Expr, name: &str| -> Result<Tensor> {
        if pass.is_by_row() {
            let each = f32_map(formula * input(2));
            let rows = [chosen, rejected, counted];
            let each = pass.one(each, &rows, &format!("{name}.rows"))?;
            return pass.row_mean(each, counted, name);
        }
        let each = f32_map(formula * input(2));
        let each = pass.one(each, &[chosen, rejected, share], &format!("{name}.each"))?;
        pass.one(Reduce::to_suffix(vec![1], DType::F32), &[each], name)
    };
    let margin = || input(0) - input(1);
    let figures = [
        ("chosen_reward", input(0)),
        ("rejected_reward", input(1)),
        ("margin", margin()),
        ("accuracy", input(1).less(input(0))),
    ];
    let figures = figures.map(|(name, formula)| Ok((name, mean(formula, name)?)));
    let figures = figures.into_iter().collect::<Result<Vec<_>>>()?;
    let softplus = (one() + (-margin()).exp()).ln();
    let loss = margin().less(constant(LINEAR)).select(-margin(), softplus);
    let loss = mean(loss, "loss")?;
    for (name, figure) in figures {
        pass.figure(name, figure);
    }
    Ok(loss)
}
