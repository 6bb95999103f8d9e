//! Losses of a head with their gradients: what all such ops share, and cross-entropy's.

use serde::{Deserialize, Serialize};

use super::{Chunks, LinearCrossEntropy, counted, logits};
use crate::launch::{Launched, Launches, Limits, Place};
use crate::ops::{
    Array, Case, Cost, Indices, Inferred, Op, Rule, Sample, Work, ensure, traffic, typed, unit,
};
use crate::types::{DType, Type};

/// Loss and its gradients in one pass over the logits. Inputs: x, w, targets, gradient of the loss (1), and
/// where `accumulate` the gradient of w to add to. Outputs: loss (1), dx, and where `weight` dw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearCrossEntropyGrad {
    /// The loss.
    pub loss: LinearCrossEntropy,
    /// Whether dw is made; that of a frozen head isn't.
    pub weight: bool,
    /// dw is added to the last input, in place.
    pub accumulate: bool,
}

/// Cases of a loss with its gradients, from its own.
pub(in crate::ops) fn gradient_cases<L: Clone, O: Into<Op>>(
    samples: fn(DType) -> Vec<(L, Vec<Sample>)>,
    op: impl Fn(L, bool, bool) -> O,
) -> Vec<Case> {
    let mut cases = vec![];
    for (loss, mut inputs) in [DType::F32, DType::BF16].into_iter().flat_map(samples) {
        inputs.push(unit(DType::F32, &[1]));
        for weight in [true, false] {
            cases.push(Case::new(op(loss.clone(), weight, false), inputs.clone()));
        }
        inputs.push(unit(DType::F32, &inputs[1].ty.shape));
        cases.push(Case::new(op(loss, true, true), inputs));
    }
    cases
}

/// Outputs of a loss with its gradients: the loss's, of so many inputs, then dx, and where `weight` dw.
pub(in crate::ops) fn gradient_types(
    loss: &impl Rule,
    taken: usize,
    inputs: &[&Type],
    weight: bool,
    accumulate: bool,
) -> Inferred {
    ensure(weight || !accumulate, || "adds to a gradient that isn't made".into())?;
    let expected = taken + 1 + usize::from(accumulate);
    ensure(inputs.len() == expected, || format!("takes {expected} inputs, got {}", inputs.len()))?;
    let mut made = loss.infer(&inputs[..taken])?;
    typed("the gradient of the loss", inputs[taken], &made[0])?;
    made.push(inputs[0].clone());
    made.extend(weight.then(|| inputs[1].with_dtype(made[0].dtype)));
    Ok(made)
}

/// Sets dx and dw from the gradients of each row's logits, of which a row that doesn't count has none.
pub(in crate::ops) fn set_gradients(
    inputs: &[Array<'_>],
    dx: &Array<'_>,
    dw: Option<&Array<'_>>,
    accumulate: bool,
    mut of_logits: impl FnMut(usize) -> Vec<f64>,
) {
    let columns = inputs[0].ty().last();
    let (x, w) = (inputs[0].values(), inputs[1].values());
    let mut sum = vec![0.0; w.len()];
    for r in 0..inputs[2].len() {
        let (row, mut drow) = (&x[r * columns..][..columns], vec![0.0; columns]);
        for (v, dlogit) in of_logits(r).into_iter().enumerate() {
            let (of_head, sums) =
                (&w[v * columns..][..columns], &mut sum[v * columns..][..columns]);
            for c in 0..columns {
                drow[c] += dlogit * of_head[c];
                sums[c] += dlogit * row[c];
            }
        }
        drow.iter().enumerate().for_each(|(c, &value)| dx.set(r * columns + c, value));
    }
    let Some(dw) = dw else { return };
    for (index, &value) in sum.iter().enumerate() {
        let before = if accumulate { dw.get(index) } else { 0.0 };
        dw.set(index, before + value);
    }
}

impl LinearCrossEntropyGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        gradient_cases(LinearCrossEntropy::samples, |loss, weight, accumulate| Self {
            loss,
            weight,
            accumulate,
        })
    }
}

impl Rule for LinearCrossEntropyGrad {
    fn name(&self) -> &'static str {
        "linear_cross_entropy_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        gradient_types(&self.loss, 3, inputs, self.weight, self.accumulate)
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.accumulate { vec![(2, 4)] } else { vec![] }
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(1, 0)]
    }

    fn indices(&self, _inputs: &[&Type]) -> Vec<Indices> {
        vec![Indices { input: 2, end: self.loss.vocab, negative: true }]
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let matmuls = if self.weight { 3 } else { 2 };
        let flops = matmuls * 2 * (inputs[0].elements() * inputs[1].shape[0]) as u64;
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        logits(inputs[0], inputs[1])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let chunks = Chunks::new(&self.loss, limits, inputs, outputs);
        let (dloss, dx) = (Place::input(3, inputs[3]), Place::output(1, outputs[1]));
        let dw = outputs.get(2).map(|dw| Place::output(2, dw));
        let columns = chunks.columns_of(dx);
        let mut launches = Launches::new();
        launches.by_rows(limits, dx, columns, false, |launches, dx| {
            let chunks = Chunks { grad: Some((dloss, dx, dw, self.accumulate)), ..chunks };
            chunks.append(launches);
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let counted = counted(&inputs[2]);
        let dloss = inputs[3].get(0) / counted;
        let mut total = 0.0;
        let of_logits = |r| {
            let (logits, normaliser, target) = self.loss.row(inputs, r);
            let Ok(target) = usize::try_from(target) else { return vec![] };
            total += normaliser - logits[target];
            let dlogit = |(v, logit): (usize, &f64)| {
                let hit = f64::from(u8::from(v == target));
                let slope = self.loss.cap.map_or(1.0, |cap| 1.0 - (logit / cap).powi(2));
                slope * ((logit - normaliser).exp() - hit) * dloss
            };
            logits.iter().enumerate().map(dlogit).collect()
        };
        set_gradients(inputs, &outputs[1], outputs.get(2), self.accumulate, of_logits);
        outputs[0].set(0, total / counted);
    }
}
