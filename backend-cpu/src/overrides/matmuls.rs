//! Matmuls, and the loss, which is three of them a chunk.

use std::ops::Range;

use half::{bf16, f16};
use tightrope_core::ops::{
    LinearCrossEntropy, LinearCrossEntropyGrad, LinearDistillation, LinearDistillationGrad, MatMul,
    Matrices, Op,
};
use tightrope_core::{DType, Type};

use super::{Scratch, by_storage};
use crate::arena::View;
use crate::fast::gemm::{self, Bias, Element, Gemm, Mat, MatMut, Sizes};
use crate::fast::rows;
use crate::fast::vmath::{Storage, store_slice};
use crate::isa::Level;

/// Why a matmul has its scratch: [`Cpu::prepare`](crate::Cpu) refuses a plan that has less of it than [`super::scratch_bytes`].
const CHECKED: &str = "the scratch was checked when the plan was prepared";

/// Scratch of a matmul, bytes.
pub fn matmul_scratch(op: &MatMul, lhs: &Type, rhs: &Type, level: Level, threads: usize) -> usize {
    let Matrices { m, n, k, .. } = op.matrices(lhs, rhs);
    match (element(lhs.dtype), element(rhs.dtype)) {
        (Some(of_lhs), Some(of_rhs)) => {
            gemm::scratch_bytes(level, Sizes { m, n, k }, of_lhs, of_rhs, threads)
        }
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
        unsafe { gemm::gemm(scratch.isa, &matmul, scratch.threads, scratch.bytes) }.expect(CHECKED);
    }
    true
}

/// Most rows of a loss at a time, whatever its chunk: bounds the logits. A multiple of 32, so that the packed kernels' sums
/// of gradients have the bits of one matmul over all rows.
const LOSS_ROWS: usize = 1024;

/// Sizes of a loss over chunks of rows.
struct Chunks {
    rows: usize,
    columns: usize,
    padded: usize,
    chunk: usize,
    element: Element,
    capped: bool,
    /// Columns of a teacher's x and of its head.
    teacher: Option<[usize; 2]>,
}

impl Chunks {
    fn new(op: &LinearCrossEntropy, inputs: &[&Type], taught: bool) -> Option<Self> {
        let (x, w) = (inputs[0], inputs[1]);
        let teacher = taught.then(|| (inputs[3], inputs[4]));
        let mut others = [Some(w), teacher.map(|(x, _)| x), teacher.map(|(_, w)| w)].into_iter();
        let same = others.all(|ty| ty.is_none_or(|ty| ty.dtype == x.dtype));
        Some(Self {
            rows: x.rows(),
            columns: x.last(),
            padded: w.shape[0],
            chunk: op.chunk.min(x.rows()).min(LOSS_ROWS),
            element: element(x.dtype).filter(|_| same)?,
            capped: op.cap.is_some(),
            teacher: teacher.map(|(x, w)| [x.last(), w.shape[0]]),
        })
    }

    /// Rows of each piece: whole chunks, then those that are left.
    fn pieces(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, chunk) = (self.rows, self.chunk.max(1));
        (0..rows).step_by(chunk).map(move |start| start..rows.min(start + chunk))
    }

    /// Lengths that a piece may have, of which one may be 0.
    fn lengths(&self) -> [usize; 2] {
        [self.chunk, self.rows % self.chunk.max(1)]
    }

    /// Sizes of the matmuls of a piece of `count` rows: of the logits, of the gradient of x, of that of the head, and of a
    /// teacher's logits.
    fn matmuls(&self, count: usize) -> ([Sizes; 3], Option<Sizes>) {
        let Self { columns, padded, .. } = *self;
        let logits = Sizes { m: count, n: padded, k: columns };
        let dx = Sizes { m: count, n: columns, k: padded };
        let dw = Sizes { m: padded, n: columns, k: count };
        let of_teacher = |[columns, padded]: [usize; 2]| Sizes { m: count, n: padded, k: columns };
        ([logits, dx, dw], self.teacher.map(of_teacher))
    }

    /// Scratch of the matmuls, bytes: the largest need of any piece, which needn't be that of a whole chunk.
    fn matmuls_scratch(&self, made: Made, level: Level, threads: usize) -> usize {
        let all = self.lengths().into_iter().flat_map(|count| self.of_length(count, made));
        let need = |sizes| gemm::scratch_bytes(level, sizes, self.element, self.element, threads);
        all.map(need).max().unwrap_or(0)
    }

    /// Sizes of the matmuls of a piece of `count` rows that are computed for what is made.
    fn of_length(&self, count: usize, made: Made) -> impl Iterator<Item = Sizes> + use<> {
        let (own, of_teacher) = self.matmuls(count);
        own.into_iter().take(made as usize).chain(of_teacher)
    }

    /// Bytes of the logits, a teacher's, the gradients where they're stored apart, the rows' losses, and the matmuls.
    fn parts(&self, made: Made, level: Level, threads: usize) -> [usize; 5] {
        let Self { rows, padded, chunk, element, .. } = *self;
        let align = |bytes: usize| bytes.next_multiple_of(64);
        // Gradients of logits meet the operands in their type, and where logits are capped their slopes. Distillation's take the
        // logits' place before.
        let slopes = self.capped && self.teacher.is_none();
        let apart = made != Made::Loss && (element != Element::F32 || slopes);
        [
            align(4 * chunk * padded),
            self.teacher.map_or(0, |[_, padded]| align(4 * chunk * padded)),
            if apart { align(element.size() * chunk * padded) } else { 0 },
            align(4 * rows * if self.teacher.is_some() { 2 } else { 1 }),
            self.matmuls_scratch(made, level, threads),
        ]
    }
}

/// What a loss makes, as the number of its matmuls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// The loss.
    Loss = 1,
    /// And the gradient of x.
    Slope = 2,
    /// And that of the head.
    Both = 3,
}

impl Made {
    /// Outputs of `op`: the gradient of the head is made only where the head is trained.
    fn by(op: &Op) -> Self {
        match op {
            Op::LinearCrossEntropyGrad(LinearCrossEntropyGrad { weight, .. })
            | Op::LinearDistillationGrad(LinearDistillationGrad { weight, .. }) => {
                if *weight {
                    Self::Both
                } else {
                    Self::Slope
                }
            }
            _ => Self::Loss,
        }
    }
}

/// Scratch of a loss, bytes.
pub fn loss_scratch(op: &Op, inputs: &[&Type], level: Level, threads: usize) -> usize {
    let distillation = distillation_of(op);
    let chunks = op.loss().and_then(|loss| Chunks::new(loss, inputs, distillation.is_some()));
    chunks.map_or(0, |chunks| chunks.parts(Made::by(op), level, threads).iter().sum())
}

/// Scratch that a loss fills in each of its pieces, bytes.
#[cfg(test)]
pub fn needs_of_pieces(op: &Op, inputs: &[&Type], level: Level, threads: usize) -> Vec<usize> {
    let Some(chunks) =
        op.loss().and_then(|loss| Chunks::new(loss, inputs, distillation_of(op).is_some()))
    else {
        return vec![];
    };
    let made = Made::by(op);
    let [parts @ .., _] = chunks.parts(made, level, threads);
    let need = |piece: Range<usize>| {
        let matmuls = chunks.of_length(piece.len(), made);
        let needs = matmuls.map(|sizes| {
            gemm::scratch_bytes(level, sizes, chunks.element, chunks.element, threads)
        });
        parts.iter().sum::<usize>() + needs.max().unwrap_or(0)
    };
    chunks.pieces().map(need).collect()
}

/// The op as distillation, where it is.
fn distillation_of(op: &Op) -> Option<&LinearDistillation> {
    match op {
        Op::LinearDistillation(op) => Some(op),
        Op::LinearDistillationGrad(op) => Some(&op.loss),
        _ => None,
    }
}

/// What a loss reads and writes; gradients where they're wanted.
struct Pass<'a> {
    op: &'a LinearCrossEntropy,
    teacher: Option<&'a LinearDistillation>,
    inputs: &'a [View<'a>],
    /// The loss, or that of each row, and where a teacher is its parts.
    figures: &'a [View<'a>],
    /// Gives the loss of each row in place of their mean.
    by_row: bool,
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
    op: &Op,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let teacher = distillation_of(op);
    let Some(loss) = op.loss() else { return false };
    let accumulates = match op {
        Op::LinearCrossEntropyGrad(op) => Some(op.accumulate),
        Op::LinearDistillationGrad(op) => Some(op.accumulate),
        _ => None,
    };
    let (read, figures) = if teacher.is_some() { (5, 2) } else { (3, 1) };
    let gradients = accumulates.map(|accumulate| Gradients {
        dloss: inputs[read],
        dx: outputs[figures],
        dw: outputs.get(figures + 1).copied(),
        accumulate,
    });
    let made = Made::by(op);
    let figures = &outputs[..figures];
    let by_row = matches!(op, Op::LinearCrossEntropyRows(_));
    let pass = Pass { op: loss, teacher, inputs, figures, by_row, made, gradients };
    // SAFETY: passed on.
    unsafe { by_storage!(inputs[0].ty().dtype, false, chunked(&pass, scratch)) }
}

/// # Safety
/// As [`super::run`].
unsafe fn chunked<T: Storage>(pass: &Pass<'_>, scratch: Scratch<'_>) -> bool {
    let (x, w) = (pass.inputs[0], pass.inputs[1]);
    let types: Vec<&Type> = pass.inputs.iter().map(View::ty).collect();
    let Some(chunks) = Chunks::new(pass.op, &types, pass.teacher.is_some()) else { return false };
    let Chunks { rows, columns, padded, element, capped, teacher, .. } = chunks;
    let Scratch { isa, threads, .. } = scratch;
    let [logits, taught, dlogits, losses, _] = chunks.parts(pass.made, isa.level(), threads);
    let (logits, rest) = scratch.bytes.split_at_mut(logits);
    let (taught, rest) = rest.split_at_mut(taught);
    let (dlogits, rest) = rest.split_at_mut(dlogits);
    let (losses, matmuls) = rest.split_at_mut(losses);
    let logits: &mut [f32] = bytemuck::cast_slice_mut(logits);
    let taught: &mut [f32] = bytemuck::cast_slice_mut(taught);
    let (losses, softs) = bytemuck::cast_slice_mut::<_, f32>(losses).split_at_mut(rows);
    // SAFETY: inputs aren't written by this op.
    let targets = unsafe { pass.inputs[2].slice::<i32>() };
    let counted = targets.iter().filter(|&&target| target >= 0).count().max(1) as f32;
    // SAFETY: as above.
    let scale = pass.gradients.as_ref().map(|g| unsafe { g.dloss.slice::<f32>()[0] } / counted);
    let mut multiply = |matmul: Gemm| {
        // SAFETY: operands and outputs are tensors of the step or parts of its scratch, all apart.
        unsafe { gemm::gemm(isa, &matmul, threads, matmuls) }.expect(CHECKED);
    };
    for piece in chunks.pieces() {
        let (start, count) = (piece.start, piece.len());
        let ([of_logits, of_dx, of_dw], of_taught) = chunks.matmuls(count);
        let targets = &targets[start..start + count];
        let row = |view: View<'_>, columns: usize| {
            view.ptr().wrapping_add(start * columns * element.size())
        };
        let x_rows = Mat::rows(row(x, columns), element, columns);
        let head = Mat::rows(w.ptr(), element, columns);
        let logits = &mut logits[..count * padded];
        let matmul = |Sizes { m, n, k }, lhs, rhs, out, accumulate| Gemm {
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
        multiply(matmul(of_logits, x_rows, head.transposed(), out, false));
        let cap = pass.op.cap.map(|cap| cap as f32);
        if let Some(cap) = cap {
            rows::cap_logits(isa, logits, padded, cap);
        }
        let losses = &mut losses[start..start + count];
        let vocab = pass.op.vocab;
        let slope = scale.map(|scale| rows::Slope { scale, cap });
        if let Some(((op, sizes), [columns, padded])) = pass.teacher.zip(of_taught).zip(teacher) {
            let taught = &mut taught[..count * padded];
            let [x, w] = [row(pass.inputs[3], columns), pass.inputs[4].ptr()]
                .map(|from| Mat::rows(from, element, columns));
            let out = MatMut::rows(taught.as_mut_ptr().cast(), Element::F32, padded);
            multiply(matmul(sizes, x, w.transposed(), out, false));
            if let Some(cap) = op.teacher_cap {
                rows::cap_logits(isa, taught, padded, cap as f32);
            }
            let [temperature, share] = [op.temperature, op.share].map(|number| number as f32);
            let soft = rows::Soft { vocab, taught: op.taught, temperature, share };
            let both = [losses, &mut softs[start..start + count]];
            rows::distil(isa, logits, taught, targets, soft, slope, both)
                .expect("ids were checked");
        } else if slope.is_none() {
            rows::cross_entropy(isa, logits, targets, vocab, losses, None)
                .expect("ids were checked");
        } else if let Some(slope) = slope {
            if element == Element::F32 && !capped {
                rows::cross_entropy_in_place(
                    isa,
                    logits,
                    targets,
                    vocab,
                    slope.scale,
                    losses,
                    None,
                )
                .expect("ids were checked");
            } else {
                let dlogits: &mut [T] = &mut bytemuck::cast_slice_mut(dlogits)[..count * padded];
                rows::cross_entropy_grad(isa, logits, targets, vocab, slope, losses, None, dlogits)
                    .expect("ids were checked");
            }
        }
        let Some(gradients) = &pass.gradients else { continue };
        let slopes = if dlogits.is_empty() {
            logits.as_ptr().cast()
        } else {
            let dlogits: &mut [T] = &mut bytemuck::cast_slice_mut(dlogits)[..count * padded];
            if teacher.is_some() {
                store_slice(isa, logits, dlogits);
            }
            dlogits.as_ptr().cast()
        };
        let slopes = Mat::rows(slopes, element, padded);
        if let Some(dw) = gradients.dw {
            let dw = MatMut::rows(dw.ptr(), Element::F32, columns);
            let add = gradients.accumulate || start > 0;
            multiply(matmul(of_dw, slopes.transposed(), x_rows, dw, add));
        }
        // Last, since dx may have taken over the rows of x.
        let dx = MatMut::rows(row(gradients.dx, columns), element, columns);
        multiply(matmul(of_dx, slopes, head, dx, false));
    }
    // Rows are summed apart from chunks, so that the loss doesn't depend on them.
    let mean = |losses: &[f32]| -> f64 {
        losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / f64::from(counted)
    };
    let hard = mean(losses);
    // SAFETY: this op alone writes its outputs.
    unsafe {
        if pass.by_row {
            pass.figures[0].slice_mut::<f32>().copy_from_slice(losses);
            return true;
        }
        let Some(op) = pass.teacher else {
            pass.figures[0].slice_mut::<f32>()[0] = hard as f32;
            return true;
        };
        let soft = mean(&softs[..rows]);
        pass.figures[0].slice_mut::<f32>()[0] = op.of([hard, soft]) as f32;
        pass.figures[1].slice_mut::<f32>().copy_from_slice(&[hard as f32, soft as f32]);
    }
    true
}
