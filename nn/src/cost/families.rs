//! Seconds of ops by family, fitted to ops that were timed: a start, and so much for each operation, byte, row and element.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tightrope_core::{Graph, Node, Op, Rule as _};

use super::{Rates, Timed, again, cost};

/// Units of work: starts, floating-point operations, bytes, rows, elements.
const UNITS: usize = 5;

/// Seconds of each unit.
type Prices = [f64; UNITS];

/// Shortest time of an op that a clock tells apart from none, seconds.
const SHORTEST: f64 = 2e-7;
/// Weight of the rates that a fit begins with, against that of all timed ops. It decides where these don't tell units apart.
const PRIOR: f64 = 0.01;
/// Rounds of the fit, and the relative change that ends it sooner.
const ROUNDS: (usize, f64) = (3000, 1e-7);

/// Formulas from which on maps are priced alike. An update of AdamW has a loop of its own, and more formulas than those of other rules,
/// which run instruction by instruction.
const FORMULAS: usize = 4;
/// Groups of ops that are priced apart: families, and maps by the number of their formulas.
const GROUPS: usize = Op::FAMILIES.len() + FORMULAS;

/// Name of a group.
fn name(group: usize) -> String {
    match group.checked_sub(Op::FAMILIES.len()) {
        None => Op::FAMILIES[group].to_owned(),
        Some(more) => format!("Map of {}", more + 1),
    }
}

/// Groups of an op, the narrowest first.
fn groups(op: &Op) -> impl Iterator<Item = usize> {
    let by_formulas = match op {
        Op::Map(map) => Some(map.formulas.len().clamp(1, FORMULAS)),
        _ => None,
    };
    let narrow = by_formulas.map(|formulas| Op::FAMILIES.len() + formulas - 1);
    narrow.into_iter().chain(Op::FAMILIES.iter().position(|family| *family == op.family()))
}

/// Seconds of each unit, for the groups of which ops were timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Prices>", into = "BTreeMap<String, Prices>")]
pub(super) struct Families([Option<Prices>; GROUPS]);

impl From<BTreeMap<String, Prices>> for Families {
    fn from(known: BTreeMap<String, Prices>) -> Self {
        let mut families = Self::NONE;
        for (group, prices) in families.0.iter_mut().enumerate() {
            *prices = known.get(&name(group)).copied();
        }
        families
    }
}

impl From<Families> for BTreeMap<String, Prices> {
    fn from(families: Families) -> Self {
        let known = families.0.into_iter().enumerate();
        known.filter_map(|(group, prices)| Some((name(group), prices?))).collect()
    }
}

/// Work of an op in each unit.
fn units(graph: &Graph, node: &Node) -> [f64; UNITS] {
    let (flops, bytes) = cost(graph, node);
    let (inputs, outputs) = graph.types(node);
    let work = node.op.work(&inputs, &outputs);
    [1.0, flops, bytes + again(graph, node), work.rows as f64, work.elements as f64]
}

impl Families {
    /// No family was timed.
    pub(super) const NONE: Self = Self([None; GROUPS]);

    /// True if a device could take as long.
    pub(super) fn plausible(&self) -> bool {
        let mut prices = self.0.iter().flatten().flatten();
        prices.all(|price| (0.0..=1.0).contains(price))
    }

    /// All families, `by` times slower.
    pub(super) fn slower(mut self, by: f64) -> Self {
        self.0.iter_mut().flatten().flatten().for_each(|price| *price *= by);
        self
    }

    /// Seconds of an op; `None` if no op of its family was timed.
    pub(super) fn seconds(&self, graph: &Graph, node: &Node) -> Option<f64> {
        let prices = groups(&node.op).find_map(|group| self.0[group])?;
        Some(units(graph, node).iter().zip(prices).map(|(amount, price)| amount * price).sum())
    }

    /// Prices at which ops took as long as they did, with the least sum of squares of relative errors.
    pub(super) fn fitted(rates: &Rates, ops: &[Timed<'_>]) -> Self {
        let of = |group: usize| {
            let mut prior = None;
            let mut rows = vec![];
            for &Timed { graph, node, seconds } in ops {
                if groups(&node.op).all(|own| own != group) {
                    continue;
                }
                prior = prior.or_else(|| Some(rates.prices(node)));
                let seconds = seconds.max(SHORTEST);
                rows.push(units(graph, node).map(|amount| amount / seconds));
            }
            Some(fit(&rows, prior?))
        };
        let mut families = Self::NONE;
        for (group, prices) in families.0.iter_mut().enumerate() {
            *prices = of(group);
        }
        families
    }
}

/// Prices, none below 0, at which each of `rows` comes close to 1: coordinate descent on the squares of the differences, with a pull towards
/// `prior`.
fn fit(rows: &[[f64; UNITS]], prior: Prices) -> Prices {
    let mut prices = prior;
    let squares: Prices =
        std::array::from_fn(|unit| rows.iter().map(|row| row[unit].powi(2)).sum());
    let mut sums: Vec<f64> = rows
        .iter()
        .map(|row| row.iter().zip(prices).map(|(amount, price)| amount * price).sum())
        .collect();
    for _ in 0..ROUNDS.0 {
        let mut moved = 0.0_f64;
        for unit in (0..UNITS).filter(|&unit| squares[unit] > 0.0) {
            let short: f64 = rows.iter().zip(&sums).map(|(row, sum)| row[unit] * (1.0 - sum)).sum();
            let pull = PRIOR * (prior[unit] - prices[unit]);
            let price = prices[unit] + (short / squares[unit] + pull) / (1.0 + PRIOR);
            let change = price.max(0.0) - prices[unit];
            prices[unit] += change;
            for (row, sum) in rows.iter().zip(&mut sums) {
                *sum += change * row[unit];
            }
            // Of the share of an op's time that the unit has.
            moved = moved.max(change.abs() * (squares[unit] / rows.len() as f64).sqrt());
        }
        if moved < ROUNDS.1 {
            break;
        }
    }
    prices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_that_made_the_times_are_found() {
        let made = [3e-6, 1e-11, 2e-10, 5e-8, 1e-9];
        let mut state = 7_u64;
        let mut draw = |most: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            most.powf((state >> 11) as f64 / (1_u64 << 53) as f64)
        };
        let mut rows = vec![];
        for _ in 0..40 {
            let amounts = [1.0, draw(1e9), draw(1e7), draw(1e4), draw(1e6)];
            let seconds: f64 = amounts.iter().zip(made).map(|(amount, price)| amount * price).sum();
            rows.push(amounts.map(|amount| amount / seconds));
        }
        let prices = fit(&rows, [4e-6, 2e-11, 1e-10, 0.0, 0.0]);
        for row in &rows {
            let predicted: f64 = row.iter().zip(prices).map(|(amount, price)| amount * price).sum();
            assert!((0.9..1.1).contains(&predicted), "{predicted} of 1 by {prices:?}");
        }
    }

    #[test]
    fn what_ops_do_not_tell_apart_stays_as_it_was() {
        // All have as many operations as bytes, and no rows.
        let rows = [[1.0, 100.0, 100.0, 0.0, 0.0], [0.5, 200.0, 200.0, 0.0, 0.0]];
        let prices = fit(&rows, [0.1, 1e-3, 2e-3, 7.0, 9.0]);
        assert_eq!(prices[3..], [7.0, 9.0]);
        assert!(prices[1] < prices[2], "{prices:?}");
    }

    #[test]
    fn families_are_kept_by_name() {
        let mut families = Families::NONE;
        families.0[3] = Some([1e-6, 0.0, 2.5e-11, 0.0, 0.0]);
        families.0[GROUPS - 1] = Some([2e-6, 1e-10, 0.0, 0.0, 0.0]);
        let kept = serde_json::to_string(&families).unwrap();
        assert!(kept.contains(Op::FAMILIES[3]) && kept.contains("Map of 4"), "{kept}");
        assert_eq!(serde_json::from_str::<Families>(&kept).unwrap(), families);
        assert_eq!(
            serde_json::from_str::<Families>(r#"{"Unknown": [1, 1, 1, 1, 1]}"#).unwrap(),
            Families::NONE
        );
        assert!(families.plausible() && !families.slower(1e9).plausible());
    }
}
