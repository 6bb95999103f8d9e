//! Matmuls.   M rows, N columns, K summed
//!
//!   out[m,n] = Σₖ lhs[m,k] · rhs[k,n]  (+ bias[n])  (+ out[m,n])
//!
//! Either operand may be stored transposed. Without `batch` all leading axes of an operand are its rows;
//! with it, both operands have the same leading axes and every pair of matrices is multiplied.

use serde::{Deserialize, Serialize};

use super::{Array, Case, Cost, Inferred, Rule, ensure, float, shaped, traffic, unit};
use crate::error::Result;
use crate::launch::{Launched, Launches, Limits, Place};
use crate::ops::{Node, Reduce, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

mod fused;
mod gemm;
mod wgmma;

pub use fused::FusedMatMul;

pub use crate::launch::{Epilogue, Gemm, Matrices, Stored};

/// Matmul of two matrices or of two stacks of them. Inputs: lhs, rhs, bias where `bias`, the tensor to
/// add to where `accumulate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatMul {
    /// `lhs` is stored (…, K, M).
    pub transpose_lhs: bool,
    /// `rhs` is stored (…, N, K).
    pub transpose_rhs: bool,
    /// Leading axes are a stack of matrices, not rows.
    pub batch: bool,
    /// A row of N is added to every row.
    pub bias: bool,
    /// The matmul is added to the last input, in place.
    pub accumulate: bool,
    /// Storage of the output.
    pub dtype: DType,
}

impl MatMul {
    /// `lhs · rhs`, both stored as they are.
    pub fn new(dtype: DType) -> Self {
        Self {
            transpose_lhs: false,
            transpose_rhs: false,
            batch: false,
            bias: false,
            accumulate: false,
            dtype,
        }
    }

    /// A linear layer: x (…, K) times a weight stored (N, K), plus a bias (N) where asked for.
    pub fn linear(bias: bool, dtype: DType) -> Self {
        Self { transpose_rhs: true, bias, ..Self::new(dtype) }
    }

    /// Extents of this matmul for operands of the given types.
    pub fn matrices(&self, lhs: &Type, rhs: &Type) -> Matrices {
        let split = |ty: &Type| {
            let columns = ty.last();
            if self.batch && ty.shape.len() >= 2 {
                let rows = ty.shape[ty.shape.len() - 2];
                (ty.elements() / (rows * columns).max(1), rows, columns)
            } else {
                (1, ty.rows(), columns)
            }
        };
        let (batch, mut m, mut k) = split(lhs);
        if self.transpose_lhs {
            (m, k) = (k, m);
        }
        let (_, rows, columns) = split(rhs);
        Matrices { batch, m, n: if self.transpose_rhs { rows } else { columns }, k }
    }

    /// The matmul of these inputs, stored at `out`.
    fn matmul(&self, inputs: &[&Type], out: Place) -> Gemm {
        let extents = self.matrices(inputs[0], inputs[1]);
        let Matrices { batch, n, .. } = extents;
        let operand = |index: usize, transposed| {
            let place = Place::input(index, inputs[index]);
            Stored::stack(place, batch, inputs[index].last()).transposed(transposed)
        };
        Gemm {
            bias: self.bias.then(|| Place::input(2, inputs[2])),
            accumulate: self.accumulate,
            ..Gemm::new(
                operand(0, self.transpose_lhs),
                operand(1, self.transpose_rhs),
                Stored::stack(out, batch, n),
                extents,
            )
        }
    }

    /// Appends the launches that store the matmul of these inputs at `out`.
    fn push(&self, limits: &Limits, launches: &mut Launches, inputs: &[&Type], out: Place) {
        let n = self.matrices(inputs[0], inputs[1]).n as u64;
        let columns = (!self.matmul(inputs, out).cuts_sum(limits)).then_some(n);
        launches.by_rows(limits, out, columns, self.accumulate, |launches, out| {
            self.matmul(inputs, out).push(limits, launches);
        });
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        use DType::{BF16, F16, F32};
        let mut cases = vec![];
        for (m, n, k) in
            [(1, 1, 1), (3, 5, 7), (17, 33, 65), (64, 48, 32), (2, 129, 31), (130, 1, 19)]
        {
            for (transpose_lhs, transpose_rhs) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let lhs = if transpose_lhs { [k, m] } else { [m, k] };
                let rhs = if transpose_rhs { [n, k] } else { [k, n] };
                for (store, out) in [(F32, F32), (BF16, F32), (BF16, BF16), (F16, F16)] {
                    let op = Self { transpose_lhs, transpose_rhs, ..Self::new(out) };
                    cases.push(Case::new(op.clone(), vec![unit(store, &lhs), unit(store, &rhs)]));
                    cases.push(Case::new(
                        Self { accumulate: true, bias: true, ..op },
                        vec![
                            unit(store, &lhs),
                            unit(store, &rhs),
                            unit(store, &[n]),
                            unit(out, &[m, n]),
                        ],
                    ));
                }
            }
        }
        cases.push(Case::new(
            Self::linear(true, F32),
            vec![unit(F32, &[2, 3, 5]), unit(F32, &[4, 5]), unit(F32, &[4])],
        ));
        // One tile whose sum is long enough to be cut into slices.
        for store in [F32, F16] {
            let inputs = vec![unit(store, &[6, 1031]), unit(store, &[1031, 3])];
            cases.push(Case::new(Self::new(F32), inputs));
        }
        for (transpose_lhs, transpose_rhs) in [(false, true), (true, false)] {
            let op = Self { batch: true, transpose_lhs, transpose_rhs, ..Self::new(F32) };
            cases.push(Case::new(op, vec![unit(F32, &[2, 3, 6, 6]), unit(F32, &[2, 3, 6, 6])]));
        }
        cases.push(Case::new(
            Self { transpose_lhs: true, ..Self::new(F32) },
            vec![unit(BF16, &[2, 9, 5]), unit(BF16, &[2, 9, 3])],
        ));
        cases
    }
}

impl Rule for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let expected = 2 + usize::from(self.bias) + usize::from(self.accumulate);
        ensure(inputs.len() == expected, || {
            format!("takes {expected} inputs, got {}", inputs.len())
        })?;
        let (lhs, rhs) = (inputs[0], inputs[1]);
        for ty in inputs {
            float("an operand", ty)?;
        }
        ensure(lhs.shape.len() >= 2 && rhs.shape.len() >= 2, || {
            "operands need two axes or more".into()
        })?;
        if self.batch {
            let leading = |ty: &Type| ty.shape[..ty.shape.len() - 2].to_vec();
            ensure(leading(lhs) == leading(rhs), || {
                "leading axes of a batched matmul differ".into()
            })?;
        }
        let Matrices { m, n, k, .. } = self.matrices(lhs, rhs);
        let other = if self.transpose_rhs {
            rhs.last()
        } else if self.batch {
            rhs.shape[rhs.shape.len() - 2]
        } else {
            rhs.rows()
        };
        ensure(k == other, || {
            format!("summed extents differ: {k} on the left, {other} on the right")
        })?;
        let mut shape = match (self.batch, self.transpose_lhs) {
            (true, _) => [&lhs.shape[..lhs.shape.len() - 2], &[m][..]].concat(),
            (false, true) => vec![m],
            (false, false) => lhs.shape[..lhs.shape.len() - 1].to_vec(),
        };
        shape.push(n);
        if self.bias {
            shaped("the bias", inputs[2], &[n])?;
        }
        Ok(vec![Type::new(self.dtype, shape)])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.accumulate { vec![(0, 2 + usize::from(self.bias))] } else { vec![] }
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.dtype = with(self.dtype);
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        if self.accumulate && wanted.last() == Some(&true) {
            return Err(crate::Error::NoGradient {
                op: self.name(),
                name: graph.info(node.outputs[0]).name.clone(),
                input: node.inputs.len() - 1,
            });
        }
        let mut grads = vec![None; node.inputs.len()];
        let Some(dy) = outputs[0] else { return Ok(grads) };
        let (lhs, rhs) = (node.inputs[0], node.inputs[1]);
        let name = |graph: &dyn Tape, tensor| format!("grad.{}", graph.info(tensor).name);
        let matmul = |transpose_lhs, transpose_rhs, dtype| Self {
            transpose_lhs,
            transpose_rhs,
            batch: self.batch,
            ..Self::new(dtype)
        };
        // That of rhs first: where rhs is a weight, it's the last to read lhs, whose place the large gradient of
        // lhs can then take.
        if wanted[1] {
            let dtype = graph.grad_dtype(rhs);
            let label = name(graph, rhs);
            grads[1] = Some(if self.transpose_rhs {
                graph.one(matmul(true, self.transpose_lhs, dtype), &[dy, lhs], &label)?
            } else {
                graph.one(matmul(!self.transpose_lhs, false, dtype), &[lhs, dy], &label)?
            });
        }
        if wanted[0] {
            let dtype = graph.grad_dtype(lhs);
            let label = name(graph, lhs);
            // dLhs = dOut · rhsᵀ, itself transposed where lhs is stored transposed.
            grads[0] = Some(if self.transpose_lhs {
                graph.one(matmul(self.transpose_rhs, true, dtype), &[rhs, dy], &label)?
            } else {
                graph.one(matmul(false, !self.transpose_rhs, dtype), &[dy, rhs], &label)?
            });
        }
        if self.bias && wanted[2] {
            let bias = node.inputs[2];
            let reduce = Reduce::to_suffix(graph.ty(bias).shape.clone(), graph.grad_dtype(bias));
            let label = name(graph, bias);
            grads[2] = Some(graph.one(reduce, &[dy], &label)?);
        }
        Ok(grads)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let Matrices { batch, m, n, k } = self.matrices(inputs[0], inputs[1]);
        Cost { flops: 2 * (batch * m * n * k) as u64, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        self.push(limits, &mut launches, inputs, Place::output(0, outputs[0]));
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let Matrices { batch, m, n, k } = self.matrices(inputs[0].ty(), inputs[1].ty());
        let (lhs, rhs, out) = (inputs[0].values(), inputs[1].values(), outputs[0]);
        let bias = self.bias.then(|| inputs[2].values());
        let mut sums = vec![0.0; n];
        for b in 0..batch {
            for i in 0..m {
                sums.fill(0.0);
                for l in 0..k {
                    let left = if self.transpose_lhs { l * m + i } else { i * k + l };
                    let left = lhs[b * m * k + left];
                    let rhs = &rhs[b * k * n..][..k * n];
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum += left * rhs[if self.transpose_rhs { j * k + l } else { l * n + j }];
                    }
                }
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum += bias.as_ref().map_or(0.0, |bias| bias[j]);
                    let at = (b * m + i) * n + j;
                    out.set(at, if self.accumulate { *sum + out.get(at) } else { *sum });
                }
            }
        }
    }
}
