//! The macro-loop: blocks of the output as tasks, slices of depth, panels, tiles.
//!
//! A task packs its part of lhs, slice by slice, and rhs panel by panel: while the lhs panels pass by one of rhs, which L2 holds,
//! the memory that the next is made of is asked for. So packing reads from L2 and writes to it. Where lhs is cut into blocks that
//! all meet the same rhs, its panels are kept instead. Whole tiles of bf16 read rows of lhs that are contiguous in the matrix
//! itself: a broadcast takes one lane at a time, wherever it is.
//!
//! Every tile is finished (scaled, rounded, written) after the last slice. Until then its sums wait in scratch, in f32; those of a
//! single slice are in the output from the beginning where that is what they end as.

use std::ops::Range;

use super::ahead::{Ahead, Lines, parts};
use super::finish::{Sums, at, lines, start_from_output};
use super::kernel::{Kernel, Panels};
use super::layout::Layout;
use super::pack::{Block, Side, pack};
use super::schedule::{Scratch, share};
use super::tile::Tile;
use super::{Element, Gemm};

/// # Safety
///
/// The contract of `gemm` for `matmul`; the CPU supports `kernel`, which is a bf16 one only for two
/// bf16 operands; m, n ≥ 1; `scratch` has the layout's bytes.
pub(super) unsafe fn run(kernel: &Kernel, matmul: &Gemm, threads: usize, scratch: &mut [u8]) {
    let layout = Layout::new(kernel, matmul.m, matmul.n, matmul.k, threads);
    let scratch = Scratch::new(scratch);
    // A plain sum goes on from what the output holds, so that a matmul taken in parts along k, with
    // parts of whole lanes, has the bits of the whole.
    let plain = matmul.bias.is_none() && matmul.scale == 1.0;
    let goes_on = matmul.accumulate && plain && matmul.out.element == Element::F32;
    let matmul = Gemm { accumulate: matmul.accumulate && !goes_on, ..*matmul };
    let in_output = kernel.any_stride
        && layout.slices == 1
        && plain
        && !matmul.accumulate
        && matmul.out.element == Element::F32
        && matmul.out.col_stride == 1;
    let job = Job { kernel, layout, matmul: Shared(&matmul), goes_on, in_output };
    share(layout.workers, layout.row_blocks * layout.column_blocks, |worker, next| {
        // SAFETY: `scratch` has a part for each of the layout's workers, and each task is handed out once.
        unsafe {
            let scratch = scratch.part(worker, layout.worker_bytes());
            kernel.within(|| job.work(scratch, next));
        }
    });
}

/// A matmul that several threads read.
struct Shared<'a>(&'a Gemm);

// SAFETY: threads read the operands and write disjoint blocks of the output, as `gemm`'s contract allows.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

struct Job<'a> {
    kernel: &'a Kernel,
    layout: Layout,
    matmul: Shared<'a>,
    /// Sums start from the output, which is f32.
    goes_on: bool,
    /// The only slice's sums of whole tiles are what the output ends as, so that it holds them.
    in_output: bool,
}

impl Job<'_> {
    /// Does tasks until there are none.
    ///
    /// # Safety
    ///
    /// As [`run`]; `scratch` points to one worker's bytes, and no other thread has the same tasks.
    unsafe fn work(&self, scratch: *mut u8, next: &dyn Fn() -> Option<usize>) {
        let (kernel, layout, matmul) = (self.kernel, &self.layout, self.matmul.0);
        // SAFETY: a worker's bytes are these three parts.
        let (lhs, rhs, sums) = unsafe {
            let rhs = scratch.add(layout.lhs_bytes);
            (scratch.cast(), rhs.cast(), rhs.add(layout.rhs_bytes).cast())
        };
        // With a single slice, a block packed for the last task may serve this one.
        let (mut packed_row, mut packed_column) = (None, None);
        while let Some(task) = next() {
            let (row, column) = if layout.keeps_rhs {
                (task % layout.row_blocks, task / layout.row_blocks)
            } else {
                (task / layout.column_blocks, task % layout.column_blocks)
            };
            let (i, j) = (row * layout.block_rows, column * layout.block_columns);
            let rows = layout.block_rows.min(matmul.m - i);
            let columns = layout.block_columns.min(matmul.n - j);
            for slice in 0..layout.slices {
                let start = slice * layout.slice;
                let depth = layout.slice.min(matmul.k - start);
                let last = slice + 1 == layout.slices;
                // SAFETY: the blocks lie inside the operands, and their panels fit the scratch.
                unsafe {
                    if layout.slices > 1 || packed_row != Some(row) {
                        let (width, unit) = (kernel.rows, kernel.row_unit);
                        let read = self.lhs_step(depth).map_or(0, |_| rows / width * width);
                        let depth = start..start + depth;
                        let block = self.block(i + read..i + rows, depth, width, unit);
                        pack(Side::rows(matmul.lhs), kernel.per_lane, block, kernel.lhs, lhs);
                    }
                    let packs_rhs = !layout.keeps_rhs || packed_column != Some(column);
                    let resume = slice > 0;
                    let area = Area { i, j, rows, columns, start, depth, packs_rhs, resume, last };
                    let next = if slice + 1 < layout.slices {
                        let start = start + depth;
                        Some((i..i + rows, start..matmul.k.min(start + layout.slice)))
                    } else if layout.keeps_rhs && i + rows < matmul.m {
                        Some((i + rows..matmul.m.min(i + rows + layout.block_rows), 0..matmul.k))
                    } else {
                        None
                    };
                    let tiles = rows.div_ceil(kernel.rows) * columns.div_ceil(kernel.columns());
                    let next_lhs = next.map_or(Lines::NONE, |(rows, depth)| {
                        let block = self.block(rows, depth, kernel.rows, kernel.row_unit);
                        Side::rows(matmul.lhs).lines(block, tiles * parts(kernel.lanes(area.depth)))
                    });
                    self.tiles(area, next_lhs, lhs, rhs, sums);
                }
                (packed_row, packed_column) = (Some(row), Some(column));
            }
        }
    }

    /// Bytes from one row of lhs to the next, where whole tiles read them in the matrix: lanes of this depth lie side by side there,
    /// and rows not at the same place of each page, where the first-level cache would hold all in one set.
    fn lhs_step(&self, depth: usize) -> Option<isize> {
        const PAGE: isize = 4096;
        let (kernel, lhs) = (self.kernel, &self.matmul.0.lhs);
        let step = lhs.row_stride * lhs.element.size() as isize;
        let whole = lhs.col_stride == 1 && depth.is_multiple_of(kernel.per_lane);
        (kernel.reads_lhs && whole && step % PAGE != 0).then_some(step)
    }

    /// What to pack of an operand.
    fn block(
        &self,
        vectors: Range<usize>,
        depth: Range<usize>,
        width: usize,
        unit: usize,
    ) -> Block {
        let lanes = self.kernel.lanes(depth.len());
        debug_assert!(lanes <= self.layout.lanes);
        Block {
            first: vectors.start,
            count: vectors.len(),
            start: depth.start,
            depth: depth.len(),
            lanes,
            width,
            unit,
            wide: self.kernel.is_wide(),
        }
    }

    /// Adds one slice's matmul to every tile of a block, and finishes the tiles after the last.
    ///
    /// # Safety
    ///
    /// As `work`; `lhs` holds the packed slice, `rhs` the room for its panels, and these too unless the area packs them; `sums`
    /// the sums so far.
    unsafe fn tiles(
        &self,
        area: Area,
        next_lhs: Lines,
        lhs: *const u32,
        rhs: *mut u32,
        sums: *mut f32,
    ) {
        let (kernel, matmul) = (self.kernel, self.matmul.0);
        let lanes = kernel.lanes(area.depth);
        let side = Side::columns(matmul.rhs);
        let lhs_side = Side::rows(matmul.lhs);
        let lhs_step = self.lhs_step(area.depth);
        let panel_at = |j: usize, start: usize| {
            let first = area.j + j;
            let columns = kernel.columns().min(matmul.n - first);
            let depth = start..matmul.k.min(start + self.layout.slice);
            self.block(first..first + columns, depth, kernel.columns(), kernel.vector)
        };
        let mut ahead = Ahead { lhs: next_lhs, rhs: Lines::NONE, sums: Lines::NONE };
        let mut sums_at = 0;
        for j in (0..area.columns).step_by(kernel.columns()) {
            let columns = kernel.columns().min(area.columns - j);
            let vectors = columns.div_ceil(kernel.vector);
            let rhs = if self.layout.keeps_rhs { rhs.wrapping_add(j * lanes) } else { rhs };
            let next = j + kernel.columns();
            ahead.rhs = Lines::NONE;
            if area.packs_rhs {
                // SAFETY: the panel's columns lie inside the operand, and it fits its room.
                unsafe { pack(side, kernel.per_lane, panel_at(j, area.start), Panels::Lanes, rhs) };
                let parts = area.rows.div_ceil(kernel.rows) * parts(lanes);
                // The next panel is this task's, or most likely the next one's.
                if next >= area.columns && !area.last {
                    ahead.rhs = side.lines(panel_at(0, area.start + area.depth), parts);
                } else if area.j + next < matmul.n {
                    ahead.rhs = side.lines(panel_at(next, area.start), parts);
                }
            }
            for i in (0..area.rows).step_by(kernel.rows) {
                let rows = kernel.rows.min(area.rows - i);
                let padded_rows = kernel.padded_rows(rows);
                let stride = vectors * kernel.vector;
                // The sums of tiles follow each other where there are several slices, and share a place otherwise.
                let own = sums.wrapping_add(sums_at);
                let done =
                    Sums { ptr: own, stride, row: area.i + i, column: area.j + j, rows, columns };
                let in_output = self.in_output && rows == kernel.rows && columns == stride;
                let (sums, stride) = if in_output {
                    (at(matmul, done.row, done.column).cast(), matmul.out.row_stride)
                } else {
                    (own, stride as isize)
                };
                let resume = area.resume || self.goes_on;
                let (lhs, lhs_step) = match lhs_step {
                    Some(step) if rows == kernel.rows => {
                        (lhs_side.offset(area.i + i, area.start), Some(step))
                    }
                    // The rows that don't fill a tile are all that is packed.
                    Some(_) => (lhs.cast(), None),
                    None => (lhs.wrapping_add(i * lanes).cast(), None),
                };
                let tile = Tile { lanes, rows, vectors, lhs, lhs_step, rhs, sums, stride, resume };
                let parts = parts(lanes);
                ahead.sums = if in_output || area.last {
                    let next = match i + kernel.rows < area.rows {
                        true => Sums { row: done.row + kernel.rows, ..done },
                        false => Sums { row: area.i, column: done.column + columns, ..done },
                    };
                    lines(matmul, next, parts)
                } else if area.resume {
                    let bytes = 4 * padded_rows * done.stride;
                    Lines::new(own.cast::<u8>().wrapping_add(bytes), 1, bytes, 0, parts)
                } else {
                    Lines::NONE
                };
                // SAFETY: the panels and sums of the tile, as the caller vouches for those of the block; the tile lies inside
                // the output.
                unsafe {
                    if self.goes_on && !area.resume && !in_output {
                        start_from_output(matmul, done, padded_rows, own);
                    }
                    kernel.run(&tile, &mut ahead);
                    if area.last && !in_output {
                        kernel.finish(matmul, done);
                    }
                }
                if self.layout.slices > 1 {
                    sums_at += padded_rows * done.stride;
                }
            }
        }
    }
}

/// A block of the output and the slice being added to it.
#[derive(Clone, Copy)]
struct Area {
    i: usize,
    j: usize,
    rows: usize,
    columns: usize,
    /// The slice's first depth, and how much it is.
    start: usize,
    depth: usize,
    packs_rhs: bool,
    resume: bool,
    last: bool,
}
