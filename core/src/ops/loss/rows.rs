//! The loss of each row by itself, for sums that don't depend on which rows a pass has.

use serde::{Deserialize, Serialize};

use super::{Chunks, LinearCrossEntropy};
use crate::launch::{Launched, Launches, Limits};
use crate::ops::{Array, Case, Cost, Indices, Inferred, Rule, arity};
use crate::types::{DType, Type};

/// The terms of [`LinearCrossEntropy`]'s mean. Inputs: as there. Output: the loss of each row (R), f32, 0 where the row doesn't count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearCrossEntropyRows(pub LinearCrossEntropy);

impl LinearCrossEntropyRows {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let samples = [DType::F32, DType::BF16].into_iter().flat_map(LinearCrossEntropy::samples);
        samples.map(|(loss, inputs)| Case::new(Self(loss), inputs)).collect()
    }
}

impl Rule for LinearCrossEntropyRows {
    fn name(&self) -> &'static str {
        "linear_cross_entropy_rows"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x, w, targets] = arity(inputs)?;
        self.0.check(x, w, targets)?;
        Ok(vec![Type::new(x.dtype.statistics(), [x.rows()])])
    }

    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        self.0.indices(inputs)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        self.0.cost(inputs, outputs)
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let chunks = Chunks::new(&self.0, limits, inputs, outputs);
        let mut launches = Launches::new();
        let scratch = chunks.scratch(&mut launches, chunks.loss);
        chunks.append_rows(&scratch, &mut launches);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        for r in 0..inputs[2].len() {
            let (logits, normaliser, target) = self.0.row(inputs, r);
            let loss = usize::try_from(target).map_or(0.0, |target| normaliser - logits[target]);
            outputs[0].set(r, loss);
        }
    }
}
