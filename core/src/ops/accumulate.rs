//! A sum in the order of rows: what several ranks made, added up as one process would that makes one after the other.
//!
//!   out[c] = (sum[c] +) x[0,c] + x[1,c] + …
//!
//! Partial sums are f32 and in that order alone, so that the result has the same bits on every device that rounds as IEEE 754 says; a
//! [`super::Reduce`] adds in whatever fixed order is fast.

use serde::{Deserialize, Serialize};

use super::reduce::sum_in_order;
use super::windows::row_windows;
use super::{
    Array, Case, Cost, Inferred, Rule, Work, arity, convert, ensure, float, traffic, unit,
};
use crate::launch::{Launched, Launches, Limits, Place};
use crate::types::{DType, Type};

/// A sum over rows, in their order. Inputs: a sum (columns) where it is `begun`, and x (rows, columns), of one storage. Output: (columns),
/// written over the sum that it began with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accumulate {
    /// True if the first input is a sum that the rows are added to.
    pub begun: bool,
}

impl Accumulate {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for dtype in [DType::F32, DType::BF16] {
            for [rows, columns] in [[1, 1], [3, 7], [2, 64], [67, 129], [9, 4099]] {
                let x = unit(dtype, &[rows, columns]);
                cases.push(Case::new(Self { begun: false }, vec![x.clone()]));
                let sum = unit(dtype, &[columns]);
                cases.push(Case::new(Self { begun: true }, vec![sum, x]));
            }
        }
        cases
    }
}

impl Rule for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let (sum, x) = if self.begun {
            let [sum, x] = arity(inputs)?;
            (Some(sum), x)
        } else {
            let [x] = arity(inputs)?;
            (None, x)
        };
        float("x", x)?;
        let &[rows, columns] = &x.shape[..] else {
            return Err(format!("x {x} isn't rows of columns"));
        };
        ensure(rows > 0, || format!("x {x} has no row"))?;
        let out = Type::new(x.dtype, [columns]);
        ensure(sum.is_none_or(|sum| *sum == out), || format!("the sum isn't {out}"))?;
        Ok(vec![out])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.begun { vec![(0, 0)] } else { vec![] }
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let elements: usize = inputs.iter().map(|ty| ty.elements()).sum();
        Cost { flops: elements as u64, bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Work::on(&inputs[usize::from(self.begun)..])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let index = usize::from(self.begun);
        let x = Place::input(index, inputs[index]);
        let [rows, columns] = [inputs[index].shape[0] as u64, inputs[index].shape[1] as u64];
        let out = Place::output(0, outputs[0]);
        let windows = row_windows(limits, rows, &[(x.dtype, columns)]);
        // Between windows, a sum is kept as exactly as within one.
        let wide = windows.len() > 1 && out.dtype != DType::F32;
        let to = if wide { launches.scratch(DType::F32, columns) } else { out };
        if wide && self.begun {
            launches.push(convert(limits, out, to));
        }
        for rows in windows {
            let begun = self.begun || rows.start > 0;
            let x = x.window(rows.start * columns..rows.end * columns);
            sum_in_order(
                limits,
                &mut launches,
                (x, [1, rows.end - rows.start, columns]),
                1.0,
                to,
                begun,
            );
        }
        if wide {
            launches.push(convert(limits, to, out));
        }
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[usize::from(self.begun)], outputs[0]);
        let (rows, columns) = (x.ty().shape[0], out.len());
        for column in 0..columns {
            let begun = if self.begun { inputs[0].get(column) } else { -0.0 };
            let sum = (0..rows).fold(begun, |sum, row| sum + x.get(row * columns + column));
            out.set(column, sum);
        }
    }
}
