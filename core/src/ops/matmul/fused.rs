//! Matmuls with an epilogue: ops next to them that became part of them.   M rows, N columns, K summed
//!
//!   matmul[m,n] = Σₖ lhs[m,k] · rhs[k,n]  (+ bias[n])  (+ out[m,n]), rounded as it is where it's stored
//!   mapped[m,n]  = formula(matmul[m,n], operand[m,n])
//!   lhs_sums[m]  = Σₖ lhs[m,k]
//!
//! Fusion makes them for devices whose kernels do all of it in one pass; others run the parts one after the other.

use serde::{Deserialize, Serialize};

use super::{Epilogue, Gemm, MatMul, Stored};
use crate::activation::gelu_tanh;
use crate::expr::{Expr, input};
use crate::launch::{Launched, Launches, Limits, Place};
use crate::ops::{Array, Case, Cost, Inferred, Map, Reduce, Rule, ensure, traffic, typed, unit};
use crate::types::{DType, Type};

/// A matmul with what is made of it. Inputs: those of `matmul`, then the operand where the formula reads one,
/// of the matmul's type. Outputs: what the formula makes where there's one, the matmul where it's kept or there's
/// no formula, the sums of lhs where asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FusedMatMul {
    /// The matmul.
    pub matmul: MatMul,
    /// Of an element of the matmul, input 0, and of the operand, input 1. It is stored as the matmul is.
    pub formula: Option<Expr>,
    /// The matmul is an output too, after what the formula makes of it.
    pub keeps_matmul: bool,
    /// Storage of the sums over K of each row of lhs, which is stored transposed: of a bias' gradient, which comes with
    /// that of its weight.
    pub lhs_sums: Option<DType>,
}

impl From<MatMul> for FusedMatMul {
    fn from(matmul: MatMul) -> Self {
        Self { matmul, formula: None, keeps_matmul: false, lhs_sums: None }
    }
}

impl FusedMatMul {
    /// Inputs of the matmul alone.
    fn own_inputs(&self) -> usize {
        2 + usize::from(self.matmul.bias) + usize::from(self.matmul.accumulate)
    }

    /// Whether the formula reads a second operand.
    fn reads_operand(&self) -> bool {
        self.formula.as_ref().is_some_and(|formula| formula.arity() > 1)
    }

    /// Position of the matmul among the outputs; without it, what the formula makes has its type and place.
    fn matmul_at(&self) -> usize {
        usize::from(self.keeps_matmul)
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        use DType::{BF16, F32};
        let (x, y) = (input(0), input(1));
        let activated = gelu_tanh(x.clone());
        let slope = activated.derivative(0).substitute(&|_| y.clone());
        let mut cases = vec![];
        for (m, n, k) in [(1, 1, 1), (5, 7, 3), (24, 40, 16)] {
            for (store, out) in [(F32, F32), (BF16, BF16)] {
                let linear = MatMul::linear(true, out);
                let mut inputs =
                    vec![unit(store, &[m, k]), unit(store, &[n, k]), unit(store, &[n])];
                for keeps_matmul in [true, false] {
                    let formula = Some(activated.clone());
                    let op = Self { formula, keeps_matmul, ..Self::from(linear.clone()) };
                    cases.push(Case::new(op, inputs.clone()));
                }
                inputs.push(unit(out, &[m, n]));
                let residual = Self { formula: Some(x.clone() + y.clone()), ..linear.into() };
                cases.push(Case::new(residual, inputs));
                let formula = Some(x.clone() * slope.clone());
                let op = Self { formula, ..MatMul::new(out).into() };
                let inputs = vec![unit(store, &[m, k]), unit(store, &[k, n]), unit(out, &[m, n])];
                cases.push(Case::new(op, inputs));
                for accumulate in [false, true] {
                    let matmul = MatMul { transpose_lhs: true, accumulate, ..MatMul::new(out) };
                    let mut inputs = vec![unit(store, &[k, m]), unit(store, &[k, n])];
                    inputs.extend(accumulate.then(|| unit(out, &[m, n])));
                    let op = Self { lhs_sums: Some(out), ..matmul.into() };
                    cases.push(Case::new(op, inputs));
                }
            }
        }
        cases
    }
}

impl Rule for FusedMatMul {
    fn name(&self) -> &'static str {
        "fused_matmul"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let Self { matmul, formula, keeps_matmul, lhs_sums } = self;
        let expected = self.own_inputs() + usize::from(self.reads_operand());
        ensure(inputs.len() == expected, || {
            format!("takes {expected} inputs, got {}", inputs.len())
        })?;
        let (own, operand) = inputs.split_at(self.own_inputs());
        let mut outputs = matmul.infer(own)?;
        ensure(formula.is_none() || !matmul.accumulate, || {
            "a matmul that is added to another is no formula's".into()
        })?;
        ensure(formula.is_some() || !keeps_matmul, || {
            "without a formula the matmul is kept already".into()
        })?;
        ensure(lhs_sums.is_none() || matmul.transpose_lhs && !matmul.batch, || {
            "sums of lhs are those of one matrix that is stored transposed".into()
        })?;
        for ty in operand {
            typed("the formula's operand", ty, &outputs[0])?;
        }
        if *keeps_matmul {
            outputs.push(outputs[0].clone());
        }
        outputs.extend(lhs_sums.map(|dtype| Type::new(dtype, [inputs[0].last()])));
        Ok(outputs)
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        self.matmul.overwrites()
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.matmul.retype(with);
        self.lhs_sums = self.lhs_sums.map(with);
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let steps = self.formula.as_ref().map_or(0, Expr::steps) * outputs[0].elements();
        let sums = if self.lhs_sums.is_some() { inputs[0].elements() } else { 0 };
        let matmul = self.matmul.cost(inputs, outputs);
        Cost { flops: matmul.flops + (steps + sums) as u64, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let output = |index: usize| Place::output(index, outputs[index]);
        let (mapped, matmul) = (output(0), output(self.matmul_at()));
        let operand = self.reads_operand().then(|| {
            let index = self.own_inputs();
            Place::input(index, inputs[index])
        });
        let sums = self.lhs_sums.map(|_| output(outputs.len() - 1));
        let whole = self.matmul.matmul(inputs, mapped);
        // What is larger than a launch can bind is cut, and its parts would finish what isn't complete.
        if limits.cuda().epilogues && whole.fits(limits) {
            let like_out = |place| Stored { place, ..whole.out };
            let epilogue = self.formula.clone().map(|formula| Epilogue {
                formula,
                operand: operand.map(like_out),
                matmul: self.keeps_matmul.then(|| like_out(matmul)),
            });
            let whole = Gemm { epilogue, lhs_sums: sums, ..whole };
            whole.push(limits, &mut launches);
            return Ok(launches);
        }
        self.matmul.push(limits, &mut launches, inputs, matmul);
        if let Some(formula) = &self.formula {
            let map = Map::new(formula.clone(), mapped.dtype);
            map.push_elementwise(limits, &mut launches, matmul, operand, mapped);
        }
        if let Some(sums) = sums {
            let reduce = Reduce::to_suffix(vec![inputs[0].last()], sums.dtype);
            reduce.push(limits, &mut launches, (Place::input(0, inputs[0]), inputs[0]), sums);
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (own, operand) = inputs.split_at(self.own_inputs());
        let matmul = outputs[self.matmul_at()];
        self.matmul.reference(own, &[matmul]);
        if let Some(formula) = &self.formula {
            for index in 0..matmul.len() {
                let mut values = vec![matmul.get(index)];
                values.extend(operand.iter().map(|operand| operand.get(index)));
                let no_draw = |_| unreachable!("fusion leaves out what draws random numbers");
                outputs[0].set(index, formula.eval(&values, &no_draw));
            }
        }
        if self.lhs_sums.is_some() {
            let (lhs, sums) = (inputs[0], outputs[outputs.len() - 1]);
            for row in 0..sums.len() {
                let column = (row..lhs.len()).step_by(sums.len());
                sums.set(row, column.map(|index| lhs.get(index)).sum());
            }
        }
    }
}
