//! Ops that move elements without changing them, and patches of images.

use tightrope_core::Type;
use tightrope_core::ops::{Concat, Expand, Permute, Slice, SliceGrad, Unfold, UnfoldGrad};

use crate::arena::View;
use crate::fast::moves::{self, Columns};
use crate::fast::unfold;
use crate::fast::vmath::Storage;

/// Calls `$run::<T>` with whole numbers of the size of the dtype's elements, or gives false.
macro_rules! by_size {
    ($view:expr, $run:ident($($argument:expr),* $(,)?)) => {
        match $view.ty().dtype.size() {
            4 => $run::<u32>($($argument),*),
            2 => $run::<u16>($($argument),*),
            1 => $run::<u8>($($argument),*),
            _ => return false,
        }
    };
}

/// A reordering: each output axis's extent, and the input's stride along it.
///
/// # Safety
/// As [`super::run`].
unsafe fn strided<T: bytemuck::Pod + Send + Sync>(
    x: &View<'_>,
    out: &View<'_>,
    axes: &[(usize, usize)],
) {
    // SAFETY: passed on.
    unsafe { moves::strided(x.slice::<T>(), axes, out.slice_mut::<T>()) }
}

/// # Safety
/// As [`super::run`].
pub unsafe fn permute(op: &Permute, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let joined = op.joined(inputs[0].ty());
    let axes: Vec<_> =
        joined.into_iter().map(|(n, stride)| (n as usize, stride as usize)).collect();
    // SAFETY: passed on.
    unsafe { by_size!(inputs[0], strided(&inputs[0], &outputs[0], &axes)) }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn expand(op: &Expand, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let (outer, inner) = op.around(inputs[0].ty());
    let axes = [(outer, inner), (op.extent, 0), (inner, 1)];
    // SAFETY: passed on.
    unsafe { by_size!(inputs[0], strided(&inputs[0], &outputs[0], &axes)) }
    true
}

/// # Safety
/// As [`super::run`]; the output may take over the input's storage.
pub unsafe fn reshape(inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let (x, out) = (&inputs[0], &outputs[0]);
    let axes = [(out.ty().elements(), 1)];
    if !x.same_place(out) {
        // SAFETY: passed on.
        unsafe { by_size!(x, strided(x, out, &axes)) }
    }
    true
}

/// Elements of a row where `axis` and those after it are one.
fn row(ty: &Type, axis: usize) -> usize {
    ty.shape[axis..].iter().product()
}

/// Copies `count` columns from some on to some on.
///
/// # Safety
/// As [`super::run`].
unsafe fn columns<T: bytemuck::Pod + Send + Sync>(
    (x, from): (&View<'_>, Columns),
    (out, to): (&View<'_>, Columns),
    count: usize,
) {
    // SAFETY: passed on.
    unsafe { moves::columns((x.slice::<T>(), from), (out.slice_mut::<T>(), to), count) }
}

/// # Safety
/// As [`super::run`].
pub unsafe fn slice(op: &Slice, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let (x, out) = (&inputs[0], &outputs[0]);
    let (width, count) = (row(x.ty(), op.axis), row(out.ty(), op.axis));
    let from = Columns { row: width, first: op.start * (count / op.len) };
    let to = Columns { row: count, first: 0 };
    // SAFETY: passed on.
    unsafe { by_size!(x, columns((x, from), (out, to), count)) }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn slice_grad(op: &SliceGrad, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let (x, out) = (&inputs[0], &outputs[0]);
    let (count, width) = (row(x.ty(), op.axis), row(out.ty(), op.axis));
    let from = Columns { row: count, first: 0 };
    let to = Columns { row: width, first: op.start * (width / op.extent) };
    // SAFETY: passed on; no reference to the output is alive yet.
    unsafe {
        out.ptr().write_bytes(0, out.ty().bytes());
        by_size!(x, columns((x, from), (out, to), count))
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn concat(op: &Concat, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let out = &outputs[0];
    let width = row(out.ty(), op.axis);
    let mut first = 0;
    for x in inputs {
        let count = row(x.ty(), op.axis);
        let from = Columns { row: count, first: 0 };
        // SAFETY: passed on.
        unsafe { by_size!(x, columns((x, from), (out, Columns { row: width, first }), count)) }
        first += count;
    }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn unfold<T: Storage>(op: &Unfold, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let Ok(extents) = op.extents(inputs[0].ty()) else { return false };
    // SAFETY: passed on.
    unsafe { unfold::unfold(op, &extents, inputs[0].slice::<T>(), outputs[0].slice_mut::<T>()) }
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn fold<T: Storage>(op: &UnfoldGrad, inputs: &[View<'_>], outputs: &[View<'_>]) -> bool {
    let Ok(extents) = op.extents(inputs[0].ty()) else { return false };
    let (dy, dx) = (&inputs[0], &outputs[0]);
    // SAFETY: passed on.
    unsafe { unfold::fold(&op.unfold, &extents, dy.slice::<T>(), dx.slice_mut::<T>()) }
    true
}
