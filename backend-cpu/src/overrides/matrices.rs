//! Ops on the rows of a matrix, or on its blocks: norms, softmax, sums, embeddings, 8-bit storage.

use half::{bf16, f16};
use tightrope_core::ops::{
    Accumulate, Axes, Dequantize, DequantizeNf4, EmbeddingGrad, LayerNorm, Quantize, Reduce,
    RmsNorm, SquareSum,
};
use tightrope_core::{DType, Type};

use super::Scratch;
use crate::arena::View;
use crate::fast::norm::{self, ParameterGrads};
use crate::fast::vmath::{Storage, store_slice};
use crate::fast::{nf4, quant, rows};
use crate::isa::Isa;

/// # Safety
/// As [`super::run`].
pub unsafe fn layer_norm<T: Storage>(
    isa: Isa,
    op: &LayerNorm,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    if inputs[1].ty().dtype != inputs[0].ty().dtype || inputs[2].ty().dtype != inputs[0].ty().dtype
    {
        return false;
    }
    // SAFETY: passed on.
    unsafe {
        let [x, w, b] = [inputs[0], inputs[1], inputs[2]].map(|view| view.slice::<T>());
        let (mean, rstd) = (outputs[1].slice_mut(), outputs[2].slice_mut());
        norm::layer_norm(
            isa,
            x,
            w,
            Some(b),
            op.eps as f32,
            outputs[0].slice_mut::<T>(),
            mean,
            rstd,
        );
    }
    true
}

/// The elements of `input`, unless `output` has taken over its storage.
///
/// # Safety
/// As [`View::slice`].
unsafe fn apart<'a, T: Storage>(input: View<'a>, output: View<'a>) -> Option<&'a [T]> {
    // SAFETY: passed on; tensors share all of their storage or none.
    (input.ptr() != output.ptr()).then(|| unsafe { input.slice() })
}

/// # Safety
/// As [`super::run`].
pub unsafe fn layer_norm_grad<T: Storage>(
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    if inputs[1].ty().dtype != inputs[0].ty().dtype || inputs[4].ty().dtype != inputs[0].ty().dtype
    {
        return false;
    }
    // SAFETY: passed on.
    unsafe {
        let [x, w] = [inputs[0], inputs[1]].map(|view| view.slice::<T>());
        let dy = apart::<T>(inputs[4], outputs[0]);
        let (mean, rstd) = (inputs[2].slice(), inputs[3].slice());
        let grads = outputs.get(1).map(|weight| ParameterGrads {
            weight: weight.slice_mut(),
            bias: Some(outputs[2].slice_mut()),
            accumulate: false,
        });
        let dx = outputs[0].slice_mut::<T>();
        let (isa, sums) = (scratch.isa, scratch.floats());
        norm::layer_norm_backward(isa, x, w, mean, rstd, dy, dx, grads, sums);
    }
    true
}

/// Calls `$run::<T, W>` with weights of W: those of x, or f32 beside 16 bits, as a scale of 1 + w is. Another gives false. In
/// WebAssembly f32 beside 16 bits runs by the reference: a visitor of the page loads less.
macro_rules! by_weight {
    ($inputs:ident, $run:ident::<$x:ident>($($argument:expr),* $(,)?)) => {
        match $inputs[1].ty().dtype {
            dtype if dtype == $inputs[0].ty().dtype => $run::<$x, $x>($($argument),*),
            #[cfg(not(target_family = "wasm"))]
            DType::F32 => $run::<$x, f32>($($argument),*),
            _ => false,
        }
    };
}

/// # Safety
/// As [`super::run`].
pub unsafe fn rms_norm<T: Storage>(
    isa: Isa,
    op: &RmsNorm,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    // SAFETY: passed on.
    unsafe { by_weight!(inputs, rms_norm_of::<T>(isa, op, inputs, outputs)) }
}

/// # Safety
/// As [`super::run`].
unsafe fn rms_norm_of<T: Storage, W: Storage>(
    isa: Isa,
    op: &RmsNorm,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    // SAFETY: passed on.
    unsafe {
        let (x, w) = (inputs[0].slice::<T>(), inputs[1].slice::<W>());
        norm::rms_norm(
            isa,
            x,
            w,
            op.eps as f32,
            outputs[0].slice_mut::<T>(),
            outputs[1].slice_mut(),
        );
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn rms_norm_grad<T: Storage>(
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    // SAFETY: passed on.
    unsafe { by_weight!(inputs, rms_norm_grad_of::<T>(inputs, outputs, scratch)) }
}

/// # Safety
/// As [`super::run`].
unsafe fn rms_norm_grad_of<T: Storage, W: Storage>(
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    if inputs[3].ty().dtype != inputs[0].ty().dtype {
        return false;
    }
    // SAFETY: passed on.
    unsafe {
        let (x, w) = (inputs[0].slice::<T>(), inputs[1].slice::<W>());
        let dy = apart::<T>(inputs[3], outputs[0]);
        let grads = outputs.get(1).map(|weight| ParameterGrads {
            weight: weight.slice_mut(),
            bias: None,
            accumulate: false,
        });
        let dx = outputs[0].slice_mut::<T>();
        let (isa, sums) = (scratch.isa, scratch.floats());
        norm::rms_norm_backward(isa, x, w, inputs[2].slice(), dy, dx, grads, sums);
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn softmax<T: Storage>(isa: Isa, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    // SAFETY: passed on.
    unsafe {
        let columns = inputs[0].ty().last();
        rows::softmax(isa, inputs[0].slice::<T>(), columns, outputs[0].slice_mut::<T>());
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn softmax_grad<T: Storage>(
    isa: Isa,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    if inputs[0].ty().dtype != inputs[1].ty().dtype {
        return false;
    }
    // SAFETY: passed on.
    unsafe {
        let [y, dy] = [inputs[0], inputs[1]].map(|view| view.slice::<T>());
        rows::softmax_backward(isa, y, dy, inputs[0].ty().last(), outputs[0].slice_mut::<T>());
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn cross_entropy<T: Storage>(
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    // SAFETY: passed on.
    let (logits, labels, loss, accuracy) = unsafe {
        let [loss, accuracy] = [outputs[0], outputs[1]].map(|view| view.slice_mut::<f32>());
        (inputs[0].slice::<T>(), inputs[1].slice::<i32>(), loss, accuracy)
    };
    let (isa, classes) = (scratch.isa, inputs[0].ty().last());
    let losses = &mut scratch.floats()[..labels.len()];
    rows::cross_entropy(isa, logits, labels, classes, losses, None).expect("labels were checked");
    let counted = rows::counted(labels);
    loss[0] = (losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / counted) as f32;
    let hits = rows::hits(logits, labels, classes).filter(|&hit| hit).count();
    accuracy[0] = (hits as f64 / counted) as f32;
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn cross_entropy_rows<T: Storage>(
    isa: Isa,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    // SAFETY: passed on.
    let (logits, labels, scores) = unsafe {
        (inputs[0].slice::<T>(), inputs[1].slice::<i32>(), outputs[0].slice_mut::<f32>())
    };
    let classes = inputs[0].ty().last();
    let (losses, hits) = scores.split_at_mut(labels.len());
    rows::cross_entropy(isa, logits, labels, classes, losses, None).expect("labels were checked");
    for (hit, row) in hits.iter_mut().zip(rows::hits(logits, labels, classes)) {
        *hit = f32::from(u8::from(row));
    }
    true
}

/// # Safety
/// As [`super::run`]; the output may take over the logits' storage.
pub unsafe fn cross_entropy_grad<T: Storage>(
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    // SAFETY: passed on; in place there is only the output's slice.
    let (labels, dloss, dlogits) = unsafe {
        (inputs[1].slice::<i32>(), inputs[2].slice::<f32>()[0], outputs[0].slice_mut::<T>())
    };
    let (isa, classes) = (scratch.isa, inputs[0].ty().last());
    let losses = &mut scratch.floats()[..labels.len()];
    let scale = (f64::from(dloss) / rows::counted(labels)) as f32;
    // SAFETY: as above.
    let done = match unsafe { apart::<T>(inputs[0], outputs[0]) } {
        Some(x) => rows::cross_entropy_grad(
            isa,
            x,
            labels,
            classes,
            rows::Slope { scale, cap: None },
            losses,
            None,
            dlogits,
        ),
        None => rows::cross_entropy_in_place(isa, dlogits, labels, classes, scale, losses, None),
    };
    done.expect("labels were checked");
    true
}

/// Scratch of a sum, f32s: the sums before they're rounded to a shorter type, and partial ones.
pub fn reduce_scratch(op: &Reduce, x: &Type, out: &Type) -> usize {
    let sums = if out.dtype == DType::F32 { 0 } else { out.elements() };
    let [_, summed, inner] = op.extents(x);
    sums + if of_rows(op, inner) { 0 } else { rows::column_sums_scratch(summed, inner) }
}

/// Whether what is summed is neighbours, of which each row has a sum.
fn of_rows(op: &Reduce, inner: usize) -> bool {
    inner == 1 && !matches!(op.axes, Axes::ToSuffix(_))
}

/// # Safety
/// As [`super::run`].
pub unsafe fn reduce<T: Storage>(
    op: &Reduce,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let (view, isa, scratch) = (outputs[0], scratch.isa, scratch.floats());
    // SAFETY: passed on.
    unsafe {
        let x = inputs[0].slice::<T>();
        if view.ty().dtype == DType::F32 {
            sum(isa, op, inputs[0].ty(), x, view.slice_mut::<f32>(), scratch);
            return true;
        }
        let (sums, scratch) = scratch.split_at_mut(view.ty().elements());
        sum(isa, op, inputs[0].ty(), x, sums, scratch);
        match view.ty().dtype {
            DType::BF16 => store_slice(isa, sums, view.slice_mut::<bf16>()),
            DType::F16 => store_slice(isa, sums, view.slice_mut::<f16>()),
            _ => return false,
        }
    }
    true
}

fn sum<T: Storage>(
    isa: Isa,
    op: &Reduce,
    ty: &Type,
    x: &[T],
    out: &mut [f32],
    scratch: &mut [f32],
) {
    let [_, summed, inner] = op.extents(ty);
    if of_rows(op, inner) {
        rows::row_sums(isa, x, out);
    } else if inner > 0 {
        let matrices = x.chunks(summed.max(1) * inner).zip(out.chunks_mut(inner));
        matrices.for_each(|(x, out)| rows::column_sums(isa, x, out, false, scratch));
    }
    if op.scale != 1.0 {
        out.iter_mut().for_each(|sum| *sum *= op.scale as f32);
    }
}

/// # Safety
/// As [`super::run`].
pub unsafe fn square_sum<T: Storage>(isa: Isa, x: &View<'_>, sums: &View<'_>, slot: usize) -> bool {
    // SAFETY: passed on; the sums are read and written through the output alone.
    let (x, sums) = unsafe { (x.slice::<T>(), sums.slice_mut::<f32>()) };
    let own = &mut sums[slot..][..SquareSum::blocks(x.len())];
    rows::block_square_sums(isa, x, SquareSum::BLOCK, own);
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn accumulate<T: Storage>(
    isa: Isa,
    op: &Accumulate,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    let x = &inputs[usize::from(op.begun)];
    // SAFETY: passed on; a sum that is begun is read and written through the output alone.
    let (x, sums) = unsafe { (x.slice::<T>(), outputs[0].slice_mut::<T>()) };
    rows::accumulate(isa, x, sums, op.begun);
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn gather<T: Storage>(isa: Isa, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    // SAFETY: passed on.
    unsafe {
        let (table, ids) = (inputs[0].slice::<T>(), inputs[1].slice::<i32>());
        let columns = inputs[0].ty().last();
        rows::gather(isa, table, ids, columns, outputs[0].slice_mut::<T>())
            .expect("ids were checked");
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn scatter<T: Storage>(
    op: &EmbeddingGrad,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    // SAFETY: passed on; the sums are read and written through the output alone.
    unsafe {
        match op.dtype {
            DType::F32 => {
                let (ids, dy) = (inputs[0].slice::<i32>(), inputs[1].slice::<T>());
                let table = outputs[0].slice_mut::<f32>();
                if !op.accumulate {
                    table.fill(0.0);
                }
                let columns = inputs[1].ty().last();
                rows::scatter_add(scratch.isa, dy, ids, columns, table).expect("ids were checked");
                true
            }
            DType::BF16 => scatter_rounded::<T, bf16>(op, inputs, outputs, scratch),
            DType::F16 => scatter_rounded::<T, f16>(op, inputs, outputs, scratch),
            _ => false,
        }
    }
}

/// # Safety
/// As [`super::run`].
unsafe fn scatter_rounded<T: Storage, Y: Storage>(
    op: &EmbeddingGrad,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    // SAFETY: passed on; the sums are read and written through the output alone.
    let (ids, dy, table) =
        unsafe { (inputs[0].slice::<i32>(), inputs[1].slice::<T>(), outputs[0].slice_mut::<Y>()) };
    if !op.accumulate {
        table.fill(Y::from_f32(0.0));
    }
    let order = bytemuck::cast_slice_mut(&mut scratch.bytes[..scatter_scratch(op, inputs[0].ty())]);
    rows::scatter_add_rounded(scratch.isa, dy, ids, inputs[1].ty().last(), order, table)
        .expect("ids were checked");
    true
}

/// Scratch of [`scatter`], bytes: the order of ids, of sums that are rounded.
pub fn scatter_scratch(op: &EmbeddingGrad, ids: &Type) -> usize {
    if op.dtype.size() == 2 { 4 * ids.elements() } else { 0 }
}

/// # Safety
/// As [`super::run`].
pub unsafe fn quantize<T: Storage>(
    isa: Isa,
    op: &Quantize,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    // SAFETY: passed on; quantized values and scales are written through the outputs alone.
    unsafe {
        if op.update && inputs[3].slice::<f32>()[0] == 0.0 {
            return true;
        }
        let (quantized, scales) = (outputs[0].slice_mut::<u8>(), outputs[1].slice_mut::<f32>());
        quant::quantize(isa, op.codebook, op.block, inputs[0].slice::<T>(), quantized, scales);
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn dequantize_nf4<T: Storage>(
    op: &DequantizeNf4,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    // SAFETY: passed on.
    unsafe {
        let (bytes, scales) = (inputs[0].slice::<u8>(), inputs[1].slice::<f32>());
        nf4::dequantize(op.block, bytes, scales, outputs[0].slice_mut::<T>());
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn dequantize<T: Storage>(
    isa: Isa,
    op: &Dequantize,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
) -> bool {
    // SAFETY: passed on.
    unsafe {
        let (quantized, scales) = (inputs[0].slice::<u8>(), inputs[1].slice::<f32>());
        quant::dequantize(
            isa,
            op.codebook,
            op.block,
            quantized,
            scales,
            outputs[0].slice_mut::<T>(),
        );
    }
    true
}
