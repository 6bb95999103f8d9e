//! The path for CPUs without an own kernel: fixed blocks of the output through the `gemm` crate.
//!
//! Blocks are cut by shape alone and each is one single-threaded call per slice of depth, so that what
//! the crate decides from a call's shape can't depend on the number of threads. 16-bit operands are
//! widened to f32 a block at a time.

use super::finish::{Sums, finish, read};
use super::schedule::{ALIGN, Scratch, share, useful};
use super::{Element, Gemm, Mat};

/// Rows and columns of a block, and depth of a slice.
const BLOCK: usize = 384;

/// How a matmul is cut up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    row_blocks: usize,
    column_blocks: usize,
    workers: usize,
    /// Bytes of a worker's widened lhs block, widened rhs block, and sums.
    lhs_bytes: usize,
    rhs_bytes: usize,
    sums_bytes: usize,
}

impl Layout {
    /// For an m×k · k×n matmul with m, n ≥ 1.
    pub(super) fn new(m: usize, n: usize, k: usize, threads: usize) -> Self {
        let (row_blocks, column_blocks) = (m.div_ceil(BLOCK), n.div_ceil(BLOCK));
        let bytes = |a: usize, b: usize| (4 * a.min(BLOCK) * b.min(BLOCK)).next_multiple_of(ALIGN);
        Self {
            row_blocks,
            column_blocks,
            workers: useful(threads, m, n, k).min(row_blocks * column_blocks),
            lhs_bytes: bytes(m, k),
            rhs_bytes: bytes(k, n),
            sums_bytes: bytes(m, n),
        }
    }

    fn worker_bytes(&self) -> usize {
        self.lhs_bytes + self.rhs_bytes + self.sums_bytes
    }

    /// Bytes for all workers, and to align their start.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.workers * self.worker_bytes() + ALIGN
    }
}

/// # Safety
///
/// The contract of `gemm` for `matmul`; m, n ≥ 1; `scratch` has the layout's bytes.
pub(super) unsafe fn run(matmul: &Gemm, threads: usize, scratch: &mut [u8]) {
    let layout = Layout::new(matmul.m, matmul.n, matmul.k, threads);
    let scratch = Scratch::new(scratch);
    let job = Job { matmul, layout };
    share(layout.workers, layout.row_blocks * layout.column_blocks, |worker, next| {
        // SAFETY: `scratch` has a part for each of the layout's workers.
        let part = unsafe { scratch.part(worker, layout.worker_bytes()) };
        while let Some(task) = next() {
            // SAFETY: each task is handed out once.
            unsafe { job.block(task, part) };
        }
    });
}

struct Job<'a> {
    matmul: &'a Gemm,
    layout: Layout,
}

// SAFETY: threads read the operands and write disjoint blocks of the output, as `gemm`'s contract allows.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    /// # Safety
    ///
    /// As [`run`]; `scratch` points to one worker's bytes, and no other thread has the same task.
    unsafe fn block(&self, task: usize, scratch: *mut u8) {
        let (matmul, layout) = (self.matmul, &self.layout);
        let i = task % layout.row_blocks * BLOCK;
        let j = task / layout.row_blocks * BLOCK;
        let (rows, columns) = (BLOCK.min(matmul.m - i), BLOCK.min(matmul.n - j));
        // SAFETY: a worker's bytes are these three parts; blocks lie inside the operands; the crate reads
        // and writes the matrices described, the first slice without reading the sums.
        unsafe {
            let rhs_at = scratch.add(layout.lhs_bytes);
            let sums: *mut f32 = rhs_at.add(layout.rhs_bytes).cast();
            for start in (0..matmul.k.max(1)).step_by(BLOCK) {
                let depth = BLOCK.min(matmul.k - start);
                let lhs = widen(matmul.lhs, (i, start), (rows, depth), scratch.cast());
                let rhs = widen(matmul.rhs, (start, j), (depth, columns), rhs_at.cast());
                ::gemm::gemm(
                    rows,
                    columns,
                    depth,
                    sums,
                    1,
                    columns as isize,
                    start > 0,
                    lhs.ptr.cast::<f32>(),
                    lhs.col_stride,
                    lhs.row_stride,
                    rhs.ptr.cast::<f32>(),
                    rhs.col_stride,
                    rhs.row_stride,
                    1.0,
                    1.0,
                    false,
                    false,
                    false,
                    ::gemm::Parallelism::None,
                );
            }
            let done = Sums { ptr: sums, stride: columns, row: i, column: j, rows, columns };
            finish(matmul, done);
        }
    }
}

/// The block of `mat` from `(i, j)` on as f32: where it is if it can be used as it is, else widened into `to`.
///
/// # Safety
///
/// The block must lie inside the matrix, and `to` have room for it.
unsafe fn widen(
    mat: Mat,
    (i, j): (usize, usize),
    (rows, columns): (usize, usize),
    to: *mut f32,
) -> Mat {
    let size = mat.element.size() as isize;
    let at = |r: usize, c: usize| {
        let elements = r as isize * mat.row_stride + c as isize * mat.col_stride;
        mat.ptr.wrapping_offset(elements * size)
    };
    let ptr = at(i, j);
    if mat.element == Element::F32 && ptr.cast::<f32>().is_aligned() {
        return Mat { ptr, ..mat };
    }
    // Keep the operand's own order, so that reads are contiguous.
    let (outer, inner) = if mat.row_stride == 1 { (columns, rows) } else { (rows, columns) };
    for o in 0..outer {
        for n in 0..inner {
            let (r, c) = if mat.row_stride == 1 { (n, o) } else { (o, n) };
            // SAFETY: inside the block, and inside `to`.
            unsafe { to.add(o * inner + n).write(read(at(i + r, j + c), mat.element)) };
        }
    }
    let wide = Mat::rows(to.cast::<u8>(), Element::F32, inner);
    if mat.row_stride == 1 { wide.transposed() } else { wide }
}
