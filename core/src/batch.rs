//! Cutting a batch into passes: an analysis of which samples each tensor of a loss depends on.
//!
//! A loss is recorded twice, over `small` batches, as a pass has them, and over the `whole` one. Going forward through the whole, each
//! tensor is found to be one of these:
//!
//! | `State` | a tensor is |
//! |---|---|
//! | `Shared` | made of parameters, constants and inputs that all samples share |
//! | `Each` | along one axis, made of each sample by itself |
//! | `Part` | a sum over samples: those of passes add up to that of the whole batch |
//! | `Met` | made of several samples in another way |
//!
//! A loss that's a `Part` may be cut. What makes its terms parts of those of the whole batch are [`Factor`]s, which the host writes before
//! each pass: a mean is scaled by its pass's share of what it's a mean over, what doesn't depend on the batch by the number of passes, and
//! figures of the inputs alone, such as counts, are those of the whole batch. Whatever isn't understood is `Met`, and isn't cut.

mod found;
mod known;
mod linear;
mod pair;
mod rule;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

pub use known::{Written, known_values};

use crate::expr::{Expr, input};
use crate::graph::{Graph, Tensor};
use crate::ops::{Map, Op, Rule};
use found::Found;
use linear::affine;
use pair::{Pairs, ratio};

/// A pass over a batch, recorded in a graph of one program.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The graph.
    pub graph: Graph,
    /// Samples of the batch.
    pub samples: usize,
    /// Inputs whose first axis is the batch.
    pub batched: Vec<Tensor>,
    /// Inputs that all samples share.
    pub shared: Vec<Tensor>,
    /// The loss, then figures, each f32 (1).
    pub results: Vec<Tensor>,
}

/// The samples that a tensor of the whole batch depends on: see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Shared,
    /// Axis `axis` goes over `ticks`, of which each sample has `unit`: all of them, or some of one sample.
    Each {
        axis: usize,
        ticks: Range<usize>,
        unit: usize,
    },
    Part,
    /// By this node of the whole.
    Met(usize),
}

/// The op that mixes samples, so that a batch can't be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixed {
    /// The op.
    pub op: &'static str,
    /// The tensor that it makes.
    pub name: String,
}

impl fmt::Display for Mixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({}) mixes the samples of a batch", self.name, self.op)
    }
}

/// A number that the host writes before a pass. Tensors and nodes are those of the small batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Factor {
    /// Scale of this node's sum over samples in the whole batch, divided by its scale in the small one.
    Ratio(usize),
    /// As [`Factor::Ratio`], of a constant of what isn't summed there.
    Constant(usize),
    /// The pass's share of the labels that aren't negative.
    Count(Tensor),
    /// One divided by the number of passes.
    Even,
    /// The whole batch's value of a figure of the inputs.
    Known(Tensor),
}

/// A [`Factor`] of a batch of which it's known what it holds. Tensors are those of its recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FactorOf {
    /// As [`Factor::Ratio`].
    Ratio(f64),
    /// As [`Factor::Constant`].
    Constant(f64),
    /// As [`Factor::Count`].
    Count(Tensor),
    /// As [`Factor::Even`].
    Even,
    /// As [`Factor::Known`].
    Known(Tensor),
}

/// A change at a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// An output is scaled by a factor: output, index of the factor.
    Scale(usize, usize),
    /// An output is replaced by a factor.
    Replace(usize, usize),
    /// The map's formulas become these, with a factor as their last input.
    Formulas(Vec<Expr>, usize),
}

/// Weight of a pass's result in that of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It's a part already.
    One,
    /// This factor.
    Factor(usize),
}

/// The changes and weights by which passes over small batches add up to the whole one.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// By index of the node.
    pub actions: BTreeMap<usize, Vec<Action>>,
    /// Numbers that the host writes.
    pub factors: Vec<Factor>,
    /// One for each result.
    pub weights: Vec<Weight>,
}

impl Cut {
    /// The cut of `whole`, of two samples or more, into batches like `small`.
    ///
    /// # Errors
    /// The first op that mixes samples.
    pub fn new(small: &Recorded, whole: &Recorded) -> Result<Self, Mixed> {
        let pairs = Pairs::new(small, whole)?;
        let found = Found::new(small, whole, &pairs);
        Planning { small, whole, pairs: &pairs, found: &found, cut: Self::none(0) }.run()
    }

    /// The cut of a batch into one pass, with this number of results.
    pub fn none(results: usize) -> Self {
        Self { actions: BTreeMap::new(), factors: vec![], weights: vec![Weight::One; results] }
    }

    /// The factors of passes like `small` over a batch like `whole`.
    ///
    /// # Errors
    /// The first op that isn't the same in both.
    pub fn at(&self, small: &Recorded, whole: &Recorded) -> Result<Vec<FactorOf>, Mixed> {
        let pairs = Pairs::new(small, whole)?;
        let ratio_of = |node: usize| {
            let few = &small.graph.programs[0].nodes[node];
            let twin = few.outputs.iter().find_map(|&output| pairs.twin(output))?;
            let all = &whole.graph.programs[0].nodes[pairs.maker(twin)?];
            ratio(&few.op, &all.op)
        };
        let of = |factor: &Factor| {
            Some(match *factor {
                Factor::Even => FactorOf::Even,
                Factor::Count(labels) => FactorOf::Count(pairs.twin(labels)?),
                Factor::Known(figure) => FactorOf::Known(pairs.twin(figure)?),
                Factor::Ratio(node) => FactorOf::Ratio(ratio_of(node)?),
                Factor::Constant(node) => FactorOf::Constant(ratio_of(node)?),
            })
        };
        let last = small.graph.programs[0].nodes.len().saturating_sub(1);
        let found: Option<Vec<FactorOf>> = self.factors.iter().map(of).collect();
        found.ok_or_else(|| mixed(small, last))
    }

    /// True if the graph reads factor `index`; false if it weighs results alone.
    pub fn is_read(&self, index: usize) -> bool {
        let read = |action: &Action| match action {
            Action::Scale(_, factor) | Action::Replace(_, factor) | Action::Formulas(_, factor) => {
                *factor == index
            }
        };
        self.actions.values().flatten().any(read)
    }

    fn factor(&mut self, factor: Factor) -> usize {
        let known = self.factors.iter().position(|other| *other == factor);
        known.unwrap_or_else(|| {
            self.factors.push(factor);
            self.factors.len() - 1
        })
    }
}

/// The cut as it's worked out, from the results back.
struct Planning<'a> {
    small: &'a Recorded,
    whole: &'a Recorded,
    pairs: &'a Pairs,
    found: &'a Found,
    cut: Cut,
}

impl Planning<'_> {
    fn run(mut self) -> Result<Cut, Mixed> {
        let (small, whole) = (self.small, self.whole);
        let mut readers: Vec<Vec<usize>> = vec![vec![]; small.graph.tensors.len()];
        let mut needed = vec![false; small.graph.tensors.len()];
        small.results.iter().for_each(|result| needed[result.index()] = true);
        let nodes = &small.graph.programs[0].nodes;
        for (index, node) in nodes.iter().enumerate().rev() {
            let mut reads = false;
            for (place, &output) in node.outputs.iter().enumerate() {
                if !needed[output.index()] {
                    continue;
                }
                let twin = self.pairs.twin(output).ok_or_else(|| mixed(small, index))?;
                if self.found.known[twin.index()] {
                    let factor = self.cut.factor(Factor::Known(output));
                    self.act(index, Action::Replace(place, factor));
                    continue;
                }
                reads = true;
                self.output(index, place, twin)?;
            }
            if reads {
                for &input in &node.inputs {
                    needed[input.index()] = true;
                    readers[input.index()].push(index);
                }
            }
        }
        // A result that nothing else reads is weighed where it's added up, and not scaled before.
        let mut weighed = vec![];
        for &result in &small.results {
            let maker = nodes.iter().position(|node| node.outputs.contains(&result));
            let state = self.pairs.twin(result).map(|twin| &self.found.states[twin.index()]);
            let weight = match state {
                Some(State::Part) => match self.scale(result, &readers) {
                    Some((node, place, factor)) => {
                        weighed.push((node, place));
                        Weight::Factor(factor)
                    }
                    None => Weight::One,
                },
                Some(State::Shared) => Weight::Factor(self.cut.factor(Factor::Even)),
                _ => return Err(mixed(small, maker.unwrap_or_default())),
            };
            self.cut.weights.push(weight);
        }
        for (node, place) in weighed {
            if let Some(actions) = self.cut.actions.get_mut(&node) {
                actions.retain(|action| !matches!(action, Action::Scale(at, _) if *at == place));
            }
        }
        self.cut.actions.retain(|_, actions| !actions.is_empty());
        debug_assert_eq!(self.cut.weights.len(), whole.results.len());
        Ok(self.cut)
    }

    fn act(&mut self, node: usize, action: Action) {
        self.cut.actions.entry(node).or_default().push(action);
    }

    /// Adds the changes that a needed output takes; `twin` is its twin.
    fn output(&mut self, index: usize, place: usize, twin: Tensor) -> Result<(), Mixed> {
        let (small, whole) = (self.small, self.whole);
        let node = &small.graph.programs[0].nodes[index];
        let of_whole = self.pairs.maker(twin).ok_or_else(|| mixed(small, index))?;
        let other = &whole.graph.programs[0].nodes[of_whole];
        let state = &self.found.states[twin.index()];
        if let State::Met(by) = state {
            return Err(mixed(whole, *by));
        }
        let ratio = ratio(&node.op, &other.op).ok_or_else(|| mixed(small, index))?;
        let is_part = |tensor: &Tensor| self.found.states[tensor.index()] == State::Part;
        let of_parts = other.inputs.iter().any(is_part);
        let sums = *state == State::Part && !of_parts;
        let labels = labels(&node.op).filter(|_| sums);
        if sums && labels.is_none() || ratio != 1.0 {
            let factor = if sums { Factor::Ratio(index) } else { Factor::Constant(index) };
            let factor = self.cut.factor(factor);
            self.act(index, Action::Scale(place, factor));
        }
        if let Some(labels) = labels {
            let labels = node.inputs[labels];
            let twin = self.pairs.twin(labels).filter(|twin| self.found.given[twin.index()]);
            twin.ok_or_else(|| mixed(small, index))?;
            let factor = self.cut.factor(Factor::Count(labels));
            self.act(index, Action::Scale(place, factor));
        }
        if *state == State::Part
            && of_parts
            && let (Op::Map(map), 0) = (&node.op, place)
        {
            let parts: Vec<usize> =
                (0..other.inputs.len()).filter(|&at| is_part(&other.inputs[at])).collect();
            self.join(index, map, &parts, ratio)?;
        }
        Ok(())
    }

    /// A map of sums over samples and of what doesn't depend on them: a pass has its part of the latter too.
    fn join(&mut self, index: usize, map: &Map, parts: &[usize], ratio: f64) -> Result<(), Mixed> {
        let split: Option<Vec<_>> =
            map.formulas.iter().map(|formula| affine(formula, parts)).collect();
        let split = split.ok_or_else(|| mixed(self.small, index))?;
        if split.iter().all(|(_, rest)| rest.is_none()) {
            return Ok(());
        }
        if ratio != 1.0 {
            return Err(mixed(self.small, index));
        }
        let factor = self.cut.factor(Factor::Even);
        let arity = map.formulas.iter().map(Expr::arity).max().unwrap_or(0);
        let joined = split.into_iter().map(|(sums, rest)| match (sums, rest) {
            (Some(sums), Some(rest)) => sums + rest * input(arity),
            (Some(sums), None) => sums,
            (None, rest) => rest.unwrap_or_else(|| crate::expr::constant(0.0)) * input(arity),
        });
        let joined = joined.collect();
        self.act(index, Action::Formulas(joined, factor));
        Ok(())
    }

    /// The only scale of a result that's a sum over samples, if nothing but results reads it: node, output and factor. Some results are slices
    /// of what is scaled.
    fn scale(&self, result: Tensor, readers: &[Vec<usize>]) -> Option<(usize, usize, usize)> {
        let nodes = &self.small.graph.programs[0].nodes;
        let maker = |tensor: Tensor| nodes.iter().position(|node| node.outputs.contains(&tensor));
        let is_last = |tensor: &Tensor| {
            self.small.results.contains(tensor) && readers[tensor.index()].is_empty()
        };
        let moves = |node: usize| matches!(nodes[node].op, Op::Slice(_) | Op::Reshape(_));
        if !is_last(&result) {
            return None;
        }
        let (mut node, mut scaled) = (maker(result)?, result);
        if moves(node) {
            scaled = nodes[node].inputs[0];
            let last = |&reader: &usize| moves(reader) && nodes[reader].outputs.iter().all(is_last);
            if !readers[scaled.index()].iter().all(last) {
                return None;
            }
            node = maker(scaled)?;
        }
        let place = nodes[node].outputs.iter().position(|&output| output == scaled)?;
        let mut scales = self.cut.actions.get(&node)?.iter().filter_map(|action| match action {
            Action::Scale(at, factor) if *at == place => Some(*factor),
            _ => None,
        });
        match (scales.next(), scales.next()) {
            (Some(factor), None) => Some((node, place, factor)),
            _ => None,
        }
    }
}

/// The input of which numbers that aren't negative count, of an op that makes a mean over them.
fn labels(op: &Op) -> Option<usize> {
    match op {
        Op::CrossEntropy(_) => Some(1),
        Op::LinearCrossEntropy(_) | Op::LinearDistillation(_) => Some(2),
        _ => None,
    }
}

fn mixed(recorded: &Recorded, node: usize) -> Mixed {
    let node = &recorded.graph.programs[0].nodes[node];
    let name = recorded.graph.info(node.outputs[0]).name.clone();
    Mixed { op: node.op.name(), name }
}

#[cfg(test)]
mod tests;
