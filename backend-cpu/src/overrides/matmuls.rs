//! Matmuls, and the loss, which is three of them a chunk.

use half::{bf16, f16};
use tightrope_core::ops::{LinearCrossEntropy, LinearCrossEntropyGrad, MatMul, Matrices};
use tightrope_core::{DType, Type};

use super::{Scratch, by_storage};
use crate::arena::View;
use crate::fast::gemm::{self, Bias, Element, Gemm, Mat, MatMut};
use crate::fast::rows;
use crate::fast::vmath::Storage;

/// Scratch of a matmul, bytes.
pub fn matmul_scratch(op: &MatMul, lhs: &Type, rhs: &Type, threads: usize) -> usize {
    let Matrices { m, n, k, .. } = op.matrices(lhs, rhs);
    match (element(lhs.dtype), element(rhs.dtype)) {
        (Some(of_lhs), Some(of_rhs)) => gemm::scratch_bytes(m, n, k, of_lhs, of_rhs, threads),
        _ => 0,
    }
}

fn element(dtype: DType) -> Option<Element> {
    match dtype {
        DType::F32 => Some(Element::F32),
        DType::BF16 => Some(Element::Bf16),
        DType::F16 => Some(Element::F16),
        _ => None,
    }
}

/// # Safety
/// As [`super::run`].
pub unsafe fn matmul(
    op: &MatMul,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let (lhs, rhs, out) = (inputs[0], inputs[1], outputs[0]);
    let elements = [lhs.ty().dtype, rhs.ty().dtype, out.ty().dtype].map(element);
    let [Some(of_lhs), Some(of_rhs), Some(of_out)] = elements else { return false };
    let bias = op.bias.then(|| inputs[2]);
    let of_bias = bias.and_then(|bias| element(bias.ty().dtype));
    if bias.is_some() != of_bias.is_some() {
        return false;
    }
    let Matrices { batch, m, n, k } = op.matrices(lhs.ty(), rhs.ty());
    let operand = |view: View<'_>, of: Element, rows, columns, transposed, index: usize| {
        // SAFETY: matrix `index` of the stack is inside the tensor.
        let start = unsafe { view.ptr().add(index * rows * columns * of.size()) };
        if transposed {
            Mat::rows(start, of, rows).transposed()
        } else {
            Mat::rows(start, of, columns)
        }
    };
    for index in 0..batch {
        // SAFETY: as above.
        let start = unsafe { out.ptr().add(index * m * n * of_out.size()) };
        let matmul = Gemm {
            m,
            n,
            k,
            lhs: operand(lhs, of_lhs, m, k, op.transpose_lhs, index),
            rhs: operand(rhs, of_rhs, k, n, op.transpose_rhs, index),
            out: MatMut::rows(start, of_out, n),
            accumulate: op.accumulate,
            bias: bias.zip(of_bias).map(|(view, element)| Bias { ptr: view.ptr(), element }),
            scale: 1.0,
        };
        // SAFETY: the operands are tensors of the step, all apart; the sum's old value is the output's.
        unsafe { gemm::gemm(&matmul, scratch.threads, scratch.bytes) }
            .expect("the plan asked for the scratch");
    }
    true
}

/// Most rows of a loss at a time, whatever its chunk: bounds the logits. Even, so that the packed kernels' sums
/// of gradients have the bits of one matmul over all rows.
const LOSS_ROWS: usize = 1024;

/// Sizes of a loss over chunks of rows.
struct Chunks {
    rows: usize,
    columns: usize,
    padded: usize,
    chunk: usize,
    element: Element,
}

impl Chunks {
    fn new(op: &LinearCrossEntropy, x: &Type, w: &Type) -> Option<Self> {
        let same = x.dtype == w.dtype;
        Some(Self {
            rows: x.rows(),
            columns: x.last(),
            padded: w.shape[0],
            chunk: op.chunk.min(x.rows()).min(LOSS_ROWS),
            element: element(x.dtype).filter(|_| same)?,
        })
    }

    /// Bytes of the logits, their gradients where they're stored apart, the rows' losses, and the matmuls.
    fn parts(&self, made: Made, threads: usize) -> [usize; 4] {
        let Self { rows, columns, padded, chunk, element } = *self;
        let align = |bytes: usize| bytes.next_multiple_of(64);
        let apart = made != Made::Loss && element != Element::F32;
        // Gradients of logits meet the operands in their type.
        let matmuls =
            [(chunk, padded, columns), (chunk, columns, padded), (padded, columns, chunk)];
        let scratch = matmuls[..made as usize]
            .iter()
            .map(|&(m, n, k)| gemm::scratch_bytes(m, n, k, element, element, threads))
            .max();
        [
            align(4 * chunk * padded),
            if apart { align(element.size() * chunk * padded) } else { 0 },
            align(4 * rows),
            scratch.unwrap_or(0),
        ]
    }
}

/// What a loss makes, as the number of its matmuls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// The loss.
    Loss = 1,
    /// And the gradient of x.
    Slope = 2,
    /// And that of the head.
    Both = 3,
}

impl Made {
    /// What `op` makes.
    pub fn of(op: &LinearCrossEntropyGrad) -> Self {
        if op.weight { Self::Both } else { Self::Slope }
    }
}

/// Scratch of a loss, bytes.
pub fn loss_scratch(
    op: &LinearCrossEntropy,
    x: &Type,
    w: &Type,
    made: Made,
    threads: usize,
) -> usize {
    Chunks::new(op, x, w).map_or(0, |chunks| chunks.parts(made, threads).iter().sum())
}

/// What a loss reads and writes; gradients where they're wanted.
struct Pass<'a> {
    op: &'a LinearCrossEntropy,
    inputs: &'a [View<'a>],
    loss: View<'a>,
    made: Made,
    gradients: Option<Gradients<'a>>,
}

struct Gradients<'a> {
    dloss: View<'a>,
    dx: View<'a>,
    /// Where the gradient of the head goes, unless it's frozen.
    dw: Option<View<'a>>,
    accumulate: bool,
}

/// # Safety
/// As [`super::run`].
pub unsafe fn loss(
    op: &LinearCrossEntropy,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let pass = Pass { op, inputs, loss: outputs[0], made: Made::Loss, gradients: None };
    // SAFETY: passed on.
    unsafe { by_storage!(inputs[0].ty().dtype, false, chunked(&pass, scratch)) }
}

/// # Safety
/// As [`super::run`].
pub unsafe fn loss_grad(
    op: &LinearCrossEntropyGrad,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let gradients = Gradients {
        dloss: inputs[3],
        dx: outputs[1],
        dw: outputs.get(2).copied(),
        accumulate: op.accumulate,
    };
    let (made, gradients) = (Made::of(op), Some(gradients));
    let pass = Pass { op: &op.loss, inputs, loss: outputs[0], made, gradients };
    // SAFETY: passed on.
    unsafe { by_storage!(inputs[0].ty().dtype, false, chunked(&pass, scratch)) }
}

/// # Safety
/// As [`super::run`].
unsafe fn chunked<T: Storage>(pass: &Pass<'_>, scratch: Scratch<'_>) -> bool {
    let (x, w) = (pass.inputs[0], pass.inputs[1]);
    let Some(chunks) = Chunks::new(pass.op, x.ty(), w.ty()) else { return false };
    let Chunks { rows, columns, padded, chunk, element } = chunks;
    let [logits, dlogits, losses, _] = chunks.parts(pass.made, scratch.threads);
    let (logits, rest) = scratch.bytes.split_at_mut(logits);
    let (dlogits, rest) = rest.split_at_mut(dlogits);
    let (losses, matmuls) = rest.split_at_mut(losses);
    let logits: &mut [f32] = bytemuck::cast_slice_mut(logits);
    let losses: &mut [f32] = &mut bytemuck::cast_slice_mut(losses)[..rows];
    // SAFETY: inputs aren't written by this op.
    let targets = unsafe { pass.inputs[2].slice::<i32>() };
    let counted = targets.iter().filter(|&&target| target >= 0).count().max(1) as f32;
    // SAFETY: as above.
    let scale = pass.gradients.as_ref().map(|g| unsafe { g.dloss.slice::<f32>()[0] } / counted);
    let mut multiply = |matmul: Gemm| {
        // SAFETY: operands and outputs are tensors of the step or parts of its scratch, all apart.
        unsafe { gemm::gemm(&matmul, scratch.threads, matmuls) }
            .expect("the plan asked for the scratch");
    };
    for start in (0..rows).step_by(chunk.max(1)) {
        let count = chunk.min(rows - start);
        let targets = &targets[start..start + count];
        let row = |view: View<'_>| view.ptr().wrapping_add(start * columns * element.size());
        let x_rows = Mat::rows(row(x), element, columns);
        let head = Mat::rows(w.ptr(), element, columns);
        let logits = &mut logits[..count * padded];
        let matmul = |m, n, k, lhs, rhs, out, accumulate| Gemm {
            m,
            n,
            k,
            lhs,
            rhs,
            out,
            accumulate,
            bias: None,
            scale: 1.0,
        };
        let out = MatMut::rows(logits.as_mut_ptr().cast(), Element::F32, padded);
        multiply(matmul(count, padded, columns, x_rows, head.transposed(), out, false));
        let losses = &mut losses[start..start + count];
        let vocab = pass.op.vocab;
        let Some((gradients, scale)) = pass.gradients.as_ref().zip(scale) else {
            rows::cross_entropy(logits, targets, vocab, losses, None).expect("ids were checked");
            continue;
        };
        let slopes = if element == Element::F32 {
            rows::cross_entropy_in_place(logits, targets, vocab, scale, losses, None)
                .expect("ids were checked");
            logits.as_ptr().cast()
        } else {
            let dlogits: &mut [T] = &mut bytemuck::cast_slice_mut(dlogits)[..count * padded];
            rows::cross_entropy_grad(logits, targets, vocab, scale, losses, None, dlogits)
                .expect("ids were checked");
            dlogits.as_ptr().cast()
        };
        let slopes = Mat::rows(slopes, element, padded);
        if let Some(dw) = gradients.dw {
            let dw = MatMut::rows(dw.ptr(), Element::F32, columns);
            let add = gradients.accumulate || start > 0;
            multiply(matmul(padded, columns, count, slopes.transposed(), x_rows, dw, add));
        }
        // Last, since dx may have taken over the rows of x.
        let dx = MatMut::rows(row(gradients.dx), element, columns);
        multiply(matmul(count, columns, padded, slopes, head, dx, false));
    }
    // Rows are summed apart from chunks, so that the loss doesn't depend on them.
    let total: f64 = losses.iter().map(|&loss| f64::from(loss)).sum();
    // SAFETY: this op alone writes its output.
    unsafe { pass.loss.slice_mut::<f32>()[0] = (total / f64::from(counted)) as f32 };
    true
}
