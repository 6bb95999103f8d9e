//! Adafactor (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost"), as transformers' `Adafactor`
//! with `relative_step=False` and `scale_parameter=False`.   R rows, C columns of a matrix; t counts updates from 1
//!
//!   β₂ = 1 − t^−0.8
//!   r ← β₂·r + (1 − β₂)·mean over columns of g² + ε,   c ← β₂·c + (1 − β₂)·mean over rows of g² + ε         (R) and (C)
//!   u = g / √(r·c / mean(r))             of a vector  v ← β₂·v + (1 − β₂)·(g² + ε),  u = g / √v
//!   w ← w·(1 − lr·decay) − lr·u / max(1, rms(u) / d)
//!
//! The state of a matrix is R + C numbers, and there is no first moment. Adam's is 2·R·C. A packed weight holds several matrices,
//! those that a checkpoint holds by names of their own: each has columns, a mean and a size of its own. Rows that no checkpoint
//! holds are padding, and stay. One parameter at a time has the tensors of its update.

use std::ops::Range;

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{Concat, Expand, Map, Op, Reduce, Slice};
use tightrope_core::{Class, DType, Expr, Graph, Tensor};

use super::norm::square_sum;
use super::shared::Shared;
use super::trained::{Rule, Trained};
use crate::error::Result;

/// ε, added to squares of gradients.
const EPS: f64 = 1e-30;
/// d, the root of the mean square that an update is held to.
const THRESHOLD: f64 = 1.0;
/// What β₂ goes to 1 by.
const POWER: f64 = -0.8;

/// β₂ and 1 − β₂ of update `t`, counted from 1.
pub(super) fn decays(t: Expr) -> [Expr; 2] {
    let rest = t.pow(constant(POWER));
    [constant(1.0) - rest.clone(), rest]
}

/// What Adafactor's ops read besides a parameter.
pub(super) struct Adafactor<'a>(pub &'a Shared<'a>);

impl Adafactor<'_> {
    /// Appends the update of one parameter.
    pub fn append(
        &self,
        graph: &mut Graph,
        rule: Rule,
        trained: &Trained,
        state: &[Tensor],
    ) -> Result<()> {
        let name = format!("update.{}", trained.name);
        let ty = graph.ty(trained.weight).with_dtype(DType::F32);
        let moments = self.moments(graph, trained, state, &name)?;
        let mut updates = vec![];
        for (index, part) in trained.parts.iter().enumerate() {
            let gradient = slice(graph, trained.gradient, part.clone(), &name)?;
            let direction = match moments[..] {
                [rows, columns] => {
                    let rows = slice(graph, rows, part.clone(), &name)?;
                    let width = ty.last();
                    let columns = slice(graph, columns, index * width..(index + 1) * width, &name)?;
                    let mean = Reduce {
                        scale: 1.0 / part.len() as f64,
                        ..Reduce::to_suffix(vec![1], DType::F32)
                    };
                    let mean = append(graph, mean, &[rows], &name)?;
                    let root = Map::new(constant(1.0) / (input(0) / input(1)).sqrt(), DType::F32);
                    let root = append(graph, root, &[rows, mean], &name)?;
                    let expand = Expand { axis: 1, extent: width };
                    let root = append(graph, expand, &[root], &name)?;
                    let formula = input(0) / input(1).sqrt() * (input(2) * input(3));
                    let map = Map::new(formula, DType::F32);
                    append(graph, map, &[root, columns, gradient, self.0.factor], &name)?
                }
                _ => {
                    let squares = slice(graph, moments[0], part.clone(), &name)?;
                    let map = Map::new(input(1) * input(2) / input(0).sqrt(), DType::F32);
                    append(graph, map, &[squares, gradient, self.0.factor], &name)?
                }
            };
            updates.push(held(graph, direction, &name)?);
        }
        let stored = trained.parts.last().map_or(0, |part| part.end);
        if stored < ty.shape[0] {
            let mut padding = ty.clone();
            padding.shape[0] -= stored;
            updates.push(append(graph, Map::fill(0.0, &padding), &[], &name)?);
        }
        let update = match updates[..] {
            [update] => update,
            _ => append(graph, Concat { axis: 0 }, &updates, &name)?,
        };
        self.apply(graph, rule, trained, update)
    }

    /// Appends the new state over the old one, where the step isn't skipped: means over columns and over rows of a matrix, else
    /// all squares.
    fn moments(
        &self,
        graph: &mut Graph,
        trained: &Trained,
        state: &[Tensor],
        name: &str,
    ) -> Result<Vec<Tensor>> {
        let gradient = input(0) * input(1);
        let squares = Map::new(gradient.clone() * gradient + constant(EPS), DType::F32);
        let squares = append(graph, squares, &[trained.gradient, self.0.factor], name)?;
        let [row, column] = state else {
            return Ok(vec![self.mixed(graph, state[0], squares, name)?]);
        };
        let width = graph.ty(squares).last();
        let means = Reduce { scale: 1.0 / width as f64, ..Reduce::last(DType::F32) };
        let means = append(graph, means, &[squares], name)?;
        let mut columns = vec![];
        for part in &trained.parts {
            let squares = slice(graph, squares, part.clone(), name)?;
            let scale = 1.0 / part.len() as f64;
            let mean = Reduce { scale, ..Reduce::to_suffix(vec![width], DType::F32) };
            columns.push(append(graph, mean, &[squares], name)?);
        }
        let columns = match columns[..] {
            [column] => column,
            _ => append(graph, Concat { axis: 0 }, &columns, name)?,
        };
        Ok(vec![self.mixed(graph, *row, means, name)?, self.mixed(graph, *column, columns, name)?])
    }

    /// Appends the running mean over `state`, with new numbers.
    fn mixed(&self, graph: &mut Graph, state: Tensor, new: Tensor, name: &str) -> Result<Tensor> {
        let [decay, rest] = self.0.corrections.expect("Adafactor has a decay");
        let mixed = input(1) * input(3) + input(2) * input(4);
        let map = Map {
            in_place: vec![(0, 3)],
            ..Map::new(input(0).select(mixed, input(3)), DType::F32)
        };
        append(graph, map, &[self.0.ok, decay, rest, state, new], name)
    }

    /// Appends the map that moves the weight, where the step isn't skipped.
    fn apply(
        &self,
        graph: &mut Graph,
        (decays, master): Rule,
        trained: &Trained,
        update: Tensor,
    ) -> Result<()> {
        let Shared { ok, scalars, options, .. } = *self.0;
        let own = [trained.weight].into_iter().chain(trained.remainder);
        let mut inputs: Vec<Tensor> = [ok, scalars.lr, update].into_iter().chain(own).collect();
        let kept = constant(1.0) - input(1) * constant(options.weight_decay);
        let before = master.value(3);
        let before = if decays { before * kept } else { before };
        let after = before - input(1) * input(2);
        let written = master.written(self.0.streams.weights, 3, after);
        let (mut over, formulas): (Vec<usize>, Vec<Expr>) = written.into_iter().unzip();
        let formulas = formulas.into_iter().zip(&over);
        let mut formulas: Vec<Expr> =
            formulas.map(|(new, &over)| input(0).select(new, input(over))).collect();
        if options.zero_gradients {
            // A map reads what it writes over, and nothing is less than itself.
            let gradient = || input(inputs.len());
            formulas.push(gradient().less(gradient()));
            over.push(inputs.len());
            inputs.push(trained.gradient);
        }
        let dtypes = over.iter().map(|&index| graph.dtype(inputs[index])).collect();
        let in_place = over.into_iter().enumerate().collect();
        let map = Map { in_place, ..Map::several(formulas, dtypes) };
        self.0.push(graph, map, inputs, &format!("update.{}", trained.name))?;
        Ok(())
    }
}

/// Appends an update that is held to [`THRESHOLD`].
fn held(graph: &mut Graph, update: Tensor, name: &str) -> Result<Tensor> {
    let sum = square_sum(graph, update, name)?;
    let scale = constant(1.0 / graph.ty(update).elements() as f64);
    let size = (input(1) * scale).sqrt() * constant(1.0 / THRESHOLD);
    let map = Map::new(input(0) / size.max(constant(1.0)), DType::F32);
    append(graph, map, &[update, sum], name)
}

/// Appends these rows of a tensor; itself where they are all.
fn slice(graph: &mut Graph, tensor: Tensor, rows: Range<usize>, name: &str) -> Result<Tensor> {
    if rows == (0..graph.ty(tensor).shape[0]) {
        return Ok(tensor);
    }
    append(graph, Slice { axis: 0, start: rows.start, len: rows.len() }, &[tensor], name)
}

/// Appends an op whose only output belongs to the optimizer.
fn append(graph: &mut Graph, op: impl Into<Op>, inputs: &[Tensor], name: &str) -> Result<Tensor> {
    let tensor = graph.one(op, inputs, name)?;
    graph.info_mut(tensor).class = Class::Optimizer;
    Ok(tensor)
}
