//! Layer norm and RMS norm over the last axis.   R leading axes flattened, C last axis
//!
//!   layer: mean[r] = Σ x[r,c]/C, rstd[r] = 1/√(Σ (x[r,c] − mean[r])²/C + eps),
//!          y[r,c] = (x[r,c] − mean[r])·rstd[r]·w[c] + b[c]            (Ba et al. 2016)
//!   RMS:   rstd[r] = 1/√(Σ x[r,c]²/C + eps), y[r,c] = x[r,c]·rstd[r]·w[c]   (Zhang and Sennrich 2019)

mod launches;

use serde::{Deserialize, Serialize};

use super::{
    Array, Case, Cost, Inferred, Op, Rule, arity, ensure, float, shaped, traffic, typed, unit,
};
use crate::error::Result;
use crate::launch::{Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};
use launches::{Entries, Operands, Rows};

/// Layer norm. Inputs: x (…, C), w (C), b (C). Outputs: y like x, mean (R), rstd (R).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f64,
}

/// Gradient of [`LayerNorm`]. Inputs: x, w, mean, rstd, dy, and where `residual` what is added to dx. Outputs: dx, and where
/// `weights` dw and db.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNormGrad {
    /// Whether the weights' gradients are made; those of frozen weights aren't.
    pub weights: bool,
    /// Whether the gradient of x that came past the norm is added to dx.
    pub residual: bool,
}

/// RMS norm. Inputs: x (…, C), w (C). Outputs: y like x, rstd (R).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f64,
}

/// Gradient of [`RmsNorm`]. Inputs: x, w, rstd, dy, and where `residual` what is added to dx. Outputs: dx, and where
/// `weights` dw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNormGrad {
    /// Whether the weight's gradient is made; that of a frozen weight isn't.
    pub weights: bool,
    /// Whether the gradient of x that came past the norm is added to dx.
    pub residual: bool,
}

fn sizes() -> [[usize; 2]; 7] {
    [[1, 1], [4, 768], [3, 257], [70, 5], [2, 31], [131, 12], [5, 2052]]
}

/// Those of gradients: with one of strips of rows that a kernel may add up in parts.
fn sizes_of_gradients() -> impl Iterator<Item = [usize; 2]> {
    sizes().into_iter().chain([[330, 68]])
}

fn statistics(x: &Type) -> Type {
    Type::new(x.dtype.statistics(), [x.rows()])
}

fn check(x: &Type, weights: &[&Type]) -> std::result::Result<(), String> {
    float("x", x)?;
    ensure(!x.shape.is_empty(), || "x needs an axis".into())?;
    for ty in weights {
        float("a weight", ty)?;
        shaped("a weight", ty, &[x.last()])?;
    }
    Ok(())
}

fn check_grad(x: &Type, w: &Type, dy: &Type, stats: &[&Type]) -> std::result::Result<(), String> {
    check(x, &[w])?;
    typed("dy", dy, x)?;
    stats.iter().try_for_each(|ty| typed("a statistic", ty, &statistics(x)))
}

/// Appends the gradient of a norm; those that it doesn't make are `None`.
fn push_grad(
    graph: &mut dyn Tape,
    node: &Node,
    op: impl Into<Op>,
    inputs: &[Tensor],
) -> Result<Vec<Option<Tensor>>> {
    let name = format!("grad.{}", graph.info(node.outputs[0]).name);
    let mut grads: Vec<_> = graph.push(op, inputs, &name)?.into_iter().map(Some).collect();
    grads.resize(node.inputs.len(), None);
    Ok(grads)
}

impl LayerNorm {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for shape in sizes() {
            for dtype in [DType::F32, DType::BF16] {
                let w = unit(dtype, &shape[1..]);
                cases.push(Case::new(Self { eps: 1e-5 }, vec![unit(dtype, &shape), w.clone(), w]));
            }
        }
        cases
    }
}

impl Rule for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x, w, b] = arity(inputs)?;
        check(x, &[w, b])?;
        Ok(vec![x.clone(), statistics(x), statistics(x)])
    }

    fn differentiable(&self) -> usize {
        1
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(dy) = outputs[0] else { return Ok(vec![None; 3]) };
        let inputs = [node.inputs[0], node.inputs[1], node.outputs[1], node.outputs[2], dy];
        let op = LayerNormGrad { weights: wanted[1] || wanted[2], residual: false };
        push_grad(graph, node, op, &inputs)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: 8 * inputs[0].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let input = |index: usize| Place::input(index, inputs[index]);
        let output = |index: usize| Place::output(index, outputs[index]);
        let (x, rstd) = (input(0), output(2));
        let operands = Operands {
            x,
            dy: x,
            w: input(1),
            b: input(2),
            mean: output(1),
            rstd,
            residual: None,
            all: None,
        };
        let rows = Rows::new(limits, inputs[0]);
        rows.push(&mut launches, "layer_forward", self.eps, &operands, output(0));
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let [x, w, b] = [inputs[0], inputs[1], inputs[2]];
        let columns = x.ty().last();
        for r in 0..x.ty().rows() {
            let at = |c| r * columns + c;
            let n = columns as f64;
            let mean = (0..columns).map(|c| x.get(at(c))).sum::<f64>() / n;
            let variance = (0..columns).map(|c| (x.get(at(c)) - mean).powi(2)).sum::<f64>() / n;
            let rstd = 1.0 / (variance + self.eps).sqrt();
            for c in 0..columns {
                outputs[0].set(at(c), (x.get(at(c)) - mean) * rstd * w.get(c) + b.get(c));
            }
            outputs[1].set(r, mean);
            outputs[2].set(r, rstd);
        }
    }
}

impl LayerNormGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for shape in sizes_of_gradients() {
            for dtype in [DType::F32, DType::BF16] {
                let stat = super::range(DType::F32, &shape[..1], 0.5, 1.5);
                let x = unit(dtype, &shape);
                let w = unit(dtype, &shape[1..]);
                let inputs = vec![x.clone(), w, stat.clone(), stat, x.clone()];
                for weights in [true, false] {
                    cases.push(Case::new(Self { weights, residual: false }, inputs.clone()));
                }
                let inputs = [inputs, vec![x]].concat();
                cases.push(Case::new(Self { weights: true, residual: true }, inputs));
            }
        }
        cases
    }
}

impl Rule for LayerNormGrad {
    fn name(&self) -> &'static str {
        "layer_norm_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let (own, residual) =
            inputs.split_at(inputs.len().saturating_sub(usize::from(self.residual)));
        let [x, w, mean, rstd, dy] = arity(own)?;
        check_grad(x, w, dy, &[mean, rstd])?;
        residual.iter().try_for_each(|ty| typed("what is added to dx", ty, x))?;
        let dw = w.with_dtype(w.dtype.statistics());
        Ok(if self.weights { vec![x.clone(), dw.clone(), dw] } else { vec![x.clone()] })
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(0, 4)]
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost {
            flops: if self.weights { 14 } else { 10 } * inputs[0].elements() as u64,
            bytes: traffic(inputs, outputs),
        }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let input = |index: usize| Place::input(index, inputs[index]);
        let output = |index: usize| Place::output(index, outputs[index]);
        let (x, w, mean, rstd, dy) = (input(0), input(1), input(2), input(3), input(4));
        let residual = self.residual.then(|| input(5));
        let operands = Operands { x, dy, w, b: w, mean, rstd, residual, all: None };
        let rows = Rows::new(limits, inputs[0]);
        let weights = self.weights.then(|| (output(1), Some(output(2))));
        let entries =
            Entries { rows: "layer_backward", weights: "layer_weights", both: "layer_gradients" };
        rows.push_gradients(&mut launches, &entries, &operands, output(0), weights);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let [x, w, mean, rstd, dy] = [inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]];
        let residual = |at: usize| if self.residual { inputs[5].get(at) } else { 0.0 };
        let columns = x.ty().last();
        let (mut dw, mut db) = (vec![0.0; columns], vec![0.0; columns]);
        for r in 0..x.ty().rows() {
            let at = |c| r * columns + c;
            let normal = |c| (x.get(at(c)) - mean.get(r)) * rstd.get(r);
            let n = columns as f64;
            let slope = |c: usize| dy.get(at(c)) * w.get(c);
            let mean_slope = (0..columns).map(slope).sum::<f64>() / n;
            let mean_product = (0..columns).map(|c| slope(c) * normal(c)).sum::<f64>() / n;
            for c in 0..columns {
                dw[c] += dy.get(at(c)) * normal(c);
                db[c] += dy.get(at(c));
                let dx = rstd.get(r) * (slope(c) - mean_slope - normal(c) * mean_product);
                outputs[0].set(at(c), dx + residual(at(c)));
            }
        }
        for c in (0..columns).filter(|_| self.weights) {
            outputs[1].set(c, dw[c]);
            outputs[2].set(c, db[c]);
        }
    }
}

impl RmsNorm {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for shape in sizes() {
            for dtype in [DType::F32, DType::BF16] {
                let inputs = vec![unit(dtype, &shape), unit(dtype, &shape[1..])];
                cases.push(Case::new(Self { eps: 1e-6 }, inputs));
            }
        }
        cases
    }
}

impl Rule for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x, w] = arity(inputs)?;
        check(x, &[w])?;
        Ok(vec![x.clone(), statistics(x)])
    }

    fn differentiable(&self) -> usize {
        1
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(dy) = outputs[0] else { return Ok(vec![None; 2]) };
        let inputs = [node.inputs[0], node.inputs[1], node.outputs[1], dy];
        push_grad(graph, node, RmsNormGrad { weights: wanted[1], residual: false }, &inputs)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: 4 * inputs[0].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let input = |index: usize| Place::input(index, inputs[index]);
        let output = |index: usize| Place::output(index, outputs[index]);
        let (x, w, rstd) = (input(0), input(1), output(1));
        let operands = Operands { x, dy: x, w, b: w, mean: rstd, rstd, residual: None, all: None };
        let rows = Rows::new(limits, inputs[0]);
        rows.push(&mut launches, "rms_forward", self.eps, &operands, output(0));
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let [x, w] = [inputs[0], inputs[1]];
        let columns = x.ty().last();
        for r in 0..x.ty().rows() {
            let at = |c| r * columns + c;
            let square = (0..columns).map(|c| x.get(at(c)).powi(2)).sum::<f64>() / columns as f64;
            let rstd = 1.0 / (square + self.eps).sqrt();
            for c in 0..columns {
                outputs[0].set(at(c), x.get(at(c)) * rstd * w.get(c));
            }
            outputs[1].set(r, rstd);
        }
    }
}

impl RmsNormGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for shape in sizes_of_gradients() {
            for dtype in [DType::F32, DType::BF16] {
                let rstd = super::range(DType::F32, &shape[..1], 0.5, 1.5);
                let x = unit(dtype, &shape);
                let inputs = vec![x.clone(), unit(dtype, &shape[1..]), rstd, x.clone()];
                for weights in [true, false] {
                    cases.push(Case::new(Self { weights, residual: false }, inputs.clone()));
                }
                let inputs = [inputs, vec![x]].concat();
                cases.push(Case::new(Self { weights: true, residual: true }, inputs));
            }
        }
        cases
    }
}

impl Rule for RmsNormGrad {
    fn name(&self) -> &'static str {
        "rms_norm_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let (own, residual) =
            inputs.split_at(inputs.len().saturating_sub(usize::from(self.residual)));
        let [x, w, rstd, dy] = arity(own)?;
        check_grad(x, w, dy, &[rstd])?;
        residual.iter().try_for_each(|ty| typed("what is added to dx", ty, x))?;
        let dw = w.with_dtype(w.dtype.statistics());
        Ok(if self.weights { vec![x.clone(), dw] } else { vec![x.clone()] })
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(0, 3)]
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost {
            flops: if self.weights { 10 } else { 8 } * inputs[0].elements() as u64,
            bytes: traffic(inputs, outputs),
        }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let input = |index: usize| Place::input(index, inputs[index]);
        let output = |index: usize| Place::output(index, outputs[index]);
        let (x, w, rstd, dy) = (input(0), input(1), input(2), input(3));
        let residual = self.residual.then(|| input(4));
        let operands = Operands { x, dy, w, b: w, mean: rstd, rstd, residual, all: None };
        let rows = Rows::new(limits, inputs[0]);
        let weights = self.weights.then(|| (output(1), None));
        let entries =
            Entries { rows: "rms_backward", weights: "rms_weights", both: "rms_gradients" };
        rows.push_gradients(&mut launches, &entries, &operands, output(0), weights);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let [x, w, rstd, dy] = [inputs[0], inputs[1], inputs[2], inputs[3]];
        let residual = |at: usize| if self.residual { inputs[4].get(at) } else { 0.0 };
        let columns = x.ty().last();
        let mut dw = vec![0.0; columns];
        for r in 0..x.ty().rows() {
            let at = |c| r * columns + c;
            let normal = |c| x.get(at(c)) * rstd.get(r);
            let slope = |c: usize| dy.get(at(c)) * w.get(c);
            let mean_product =
                (0..columns).map(|c| slope(c) * normal(c)).sum::<f64>() / columns as f64;
            for (c, sum) in dw.iter_mut().enumerate() {
                *sum += dy.get(at(c)) * normal(c);
                let dx = rstd.get(r) * (slope(c) - normal(c) * mean_product);
                outputs[0].set(at(c), dx + residual(at(c)));
            }
        }
        for c in (0..columns).filter(|_| self.weights) {
            outputs[1].set(c, dw[c]);
        }
    }
}
