//! Muon (Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon/>), as torch.optim.Muon.
//!
//!   m ← µ·m + (1 − µ)·g,   d = (1 − µ)·g + µ·m                                       (Nesterov's momentum)
//!   x₀ = d / ‖d‖,          xᵢ₊₁ = a·xᵢ + (b·A + c·A²)·xᵢ  with  A = xᵢ·xᵢᵀ              (Newton–Schulz, five times)
//!   w ← w·(1 − lr·decay) − lr·r·x₅
//!
//! x₅ has the singular vectors of d and singular values near 1, so that every direction of a weight moves as far. It is
//! for matrices that multiply activations: weights of hidden linear layers. AdamW updates everything else. A packed weight holds
//! several matrices, those that a checkpoint holds by names of their own: Llama's queries, keys and values are three, GPT-2's
//! `c_attn` is one. Rows are outputs, whichever way a checkpoint stores them.
//!
//! As in PyTorch the iteration is in bf16, rounded where PyTorch rounds. The state is one tensor, half of Adam's. One matrix at a
//! time has the tensors of its iteration.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{Concat, Map, MatMul, Op, Slice};
use tightrope_core::{Class, DType, Expr, Graph, Tensor};

use super::norm::square_sum;
use super::shared::{Blocks, Shared};
use super::state::State;
use super::trained::{Rule, Trained};
use crate::error::Result;

/// Coefficients a, b and c, with the largest slope at 0 of those that keep singular values near 1.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];
/// Iterations.
const STEPS: usize = 5;
/// Smallest norm that a direction is divided by.
const EPS: f64 = 1e-7;

/// The factor r on the learning rate of a matrix, by its rows and columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdjustLr {
    /// √max(1, rows/columns), PyTorch's default.
    Original,
    /// 0.2·√max(rows, columns), so that elements move as far as by AdamW, whose learning rate and decay then serve both (Liu et
    /// al. 2025, "Muon is Scalable for LLM Training").
    #[default]
    MatchRmsAdamw,
}

impl AdjustLr {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Original, Self::MatchRmsAdamw];

    /// Its name in PyTorch.
    pub fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::MatchRmsAdamw => "match_rms_adamw",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|adjust| adjust.name() == name)
    }

    /// The factor for a matrix of this size.
    pub fn factor(self, rows: usize, columns: usize) -> f64 {
        let (rows, columns) = (rows as f64, columns as f64);
        match self {
            Self::Original => (rows / columns).max(1.0).sqrt(),
            Self::MatchRmsAdamw => 0.2 * rows.max(columns).sqrt(),
        }
    }
}

/// What Muon's ops read besides a parameter.
pub(super) struct Muon<'a> {
    pub shared: &'a Shared<'a>,
    /// µ.
    pub momentum: f64,
    pub adjust: AdjustLr,
}

impl Muon<'_> {
    /// Appends the update of one parameter.
    pub fn append(
        &self,
        graph: &mut Graph,
        (decays, master): Rule,
        trained: &Trained,
        state: &[State],
    ) -> Result<()> {
        let name = |what: &str| format!("update.{}.{what}", trained.name);
        let direction = self.direction(graph, trained, state)?;
        let columns = graph.ty(direction).last();
        let factor = |rows: &Range<usize>| self.adjust.factor(rows.len(), columns);
        let matrices = &trained.matrices;
        // Matrices that are as large have the same factor: their parts can go on in bf16.
        let common = matrices.first().map_or(1.0, factor);
        let alike = matrices.iter().all(|rows| factor(rows) == common);
        let mut parts = vec![];
        for rows in matrices {
            let own = match matrices.len() {
                1 => direction,
                _ => {
                    let slice = Slice { axis: 0, start: rows.start, len: rows.len() };
                    append(graph, slice, &[direction], &name("direction"))?
                }
            };
            let mut part = orthogonalize(graph, own, &name("direction"))?;
            if !alike {
                let scaled = Map::new(input(0) * constant(factor(rows)), DType::F32);
                part = append(graph, scaled, &[part], &name("direction"))?;
            }
            parts.push(part);
        }
        let whole = match parts[..] {
            [one] => one,
            _ => append(graph, Concat { axis: 0 }, &parts, &name("direction"))?,
        };
        self.apply(graph, (decays, master), trained, whole, if alike { common } else { 1.0 })
    }

    /// Appends new momentum over the old, and what the matrices are made of, bf16.
    fn direction(&self, graph: &mut Graph, trained: &Trained, state: &[State]) -> Result<Tensor> {
        let Shared { ok, factor, options, .. } = *self.shared;
        let blocks = Blocks::of(graph, trained, state);
        let before = match blocks.first() {
            Some(blocks) => blocks.values(graph)?,
            None => state[0].tensor,
        };
        let (momentum, gradient) = (constant(self.momentum), input(3) * input(1));
        let rest = constant(1.0 - self.momentum);
        let after = momentum.clone() * input(2) + rest.clone() * gradient.clone();
        let direction = rest * gradient + momentum * after.clone();
        let kept = input(0).select(self.shared.rounded(0, after), input(2));
        let mut map = Map::several(vec![kept, direction], vec![graph.dtype(before), DType::BF16]);
        map.in_place = vec![(0, 2)];
        if options.zero_gradients {
            map.formulas.push(constant(0.0));
            map.dtypes.push(graph.dtype(trained.gradient));
            map.in_place.push((2, 3));
        }
        let inputs = vec![ok, factor, before, trained.gradient];
        let name = format!("update.{}.direction", trained.name);
        let outputs = self.shared.push(graph, map, inputs, &name)?;
        graph.info_mut(outputs[1]).class = Class::Optimizer;
        for blocks in blocks {
            blocks.store(graph, outputs[0], ok)?;
        }
        Ok(outputs[1])
    }

    /// Appends the map that moves the weight, where the step isn't skipped.
    fn apply(
        &self,
        graph: &mut Graph,
        (decays, master): Rule,
        trained: &Trained,
        direction: Tensor,
        factor: f64,
    ) -> Result<()> {
        let Shared { ok, scalars, options, .. } = *self.shared;
        let own = [trained.weight].into_iter().chain(trained.remainder);
        let inputs: Vec<Tensor> = [ok, scalars.lr, direction].into_iter().chain(own).collect();
        let lr = input(1);
        let kept = constant(1.0) - lr.clone() * constant(options.weight_decay);
        let before = master.value(3);
        let before = if decays { before * kept } else { before };
        let after = before - lr * constant(factor) * input(2);
        let (over, formulas): (Vec<usize>, Vec<Expr>) =
            master.written(self.shared.streams.weights, 3, after).into_iter().unzip();
        let formulas = formulas.into_iter().zip(&over);
        let formulas = formulas.map(|(new, &over)| input(0).select(new, input(over))).collect();
        let dtypes = over.iter().map(|&index| graph.dtype(inputs[index])).collect();
        let in_place = over.into_iter().enumerate().collect();
        let map = Map { in_place, ..Map::several(formulas, dtypes) };
        self.shared.push(graph, map, inputs, &format!("update.{}", trained.name))?;
        Ok(())
    }
}

/// Appends an op whose only output belongs to the optimizer.
fn append(graph: &mut Graph, op: impl Into<Op>, inputs: &[Tensor], name: &str) -> Result<Tensor> {
    let tensor = graph.one(op, inputs, name)?;
    graph.info_mut(tensor).class = Class::Optimizer;
    Ok(tensor)
}

/// Appends Newton–Schulz iterations on a matrix in bf16: with the same singular vectors, and singular values near 1.
fn orthogonalize(graph: &mut Graph, matrix: Tensor, name: &str) -> Result<Tensor> {
    let [rows, columns] = graph.ty(matrix).shape[..] else {
        return Err(crate::Error::Setting {
            key: "optimizer",
            problem: format!("Muon updates matrices, and `{name}` is {}", graph.ty(matrix)),
        });
    };
    let square = square_sum(graph, matrix, name)?;
    let norm = append(graph, Map::new(input(0).sqrt(), DType::BF16), &[square], name)?;
    let unit = Map::new(input(0) / input(1).max(constant(EPS)), DType::BF16);
    let mut x = append(graph, unit, &[matrix, norm], name)?;
    let [a, b, c] = COEFFICIENTS.map(constant);
    // The smaller of x·xᵀ and xᵀ·x: what multiplies x from that side.
    let tall = rows > columns;
    let gram = MatMul { transpose_lhs: tall, transpose_rhs: !tall, ..MatMul::new(DType::BF16) };
    let matmul = MatMul::new(DType::F32);
    for _ in 0..STEPS {
        let gram = append(graph, gram.clone(), &[x, x], name)?;
        let squared = append(graph, matmul.clone(), &[gram, gram], name)?;
        let factor = Map::new(b.clone() * input(0) + c.clone() * input(1), DType::BF16);
        let factor = append(graph, factor, &[gram, squared], name)?;
        let operands = if tall { [x, factor] } else { [factor, x] };
        let moved = append(graph, matmul.clone(), &operands, name)?;
        let next = Map::new(a.clone() * input(0) + input(1), DType::BF16);
        x = append(graph, next, &[x, moved], name)?;
    }
    Ok(x)
}
