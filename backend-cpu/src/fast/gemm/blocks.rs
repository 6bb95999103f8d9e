//! The macro-loop: blocks of the output as tasks, slices of depth, panels, tiles.
//!
//! A task packs its part of both operands slice by slice. With one rhs panel held in L2, the lhs panels
//! pass by, each small enough for L1; every tile is finished (scaled, rounded, written) after the last
//! slice. Until then its sums wait in scratch, in f32.

use super::finish::{Sums, finish_avx2, prefetch, start_from_output};
use super::kernels::Kernel;
use super::pack::{Block, Panels, Side, pack};
use super::schedule::{ALIGN, Scratch, share, useful};
use super::tile::Tile;
use super::{Element, Gemm};

/// Most bytes of each operand's packed block where there are several slices: both are packed again for each.
const BLOCK_BYTES: usize = 1 << 20;

/// Most bytes of the packed blocks of a single slice. The rhs block is packed once and its panels pass by from
/// the shared cache, so that a wide one saves packing lhs again; the lhs block stays in L2.
const SINGLE_LHS_BYTES: usize = 384 << 10;
const SINGLE_RHS_BYTES: usize = 2560 << 10;

/// How a matmul is cut up. Slices depend on the depth alone, so that sums don't depend on threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Elements of depth per slice.
    slice: usize,
    slices: usize,
    /// Lanes per slice.
    lanes: usize,
    /// Rows and columns of a block, and how many blocks there are.
    block_rows: usize,
    row_blocks: usize,
    block_columns: usize,
    column_blocks: usize,
    workers: usize,
    /// Bytes of a worker's packed lhs block, packed rhs block, and sums.
    lhs_bytes: usize,
    rhs_bytes: usize,
    sums_bytes: usize,
}

impl Layout {
    /// For an m×k · k×n matmul with m, n ≥ 1.
    pub(super) fn new(kernel: &Kernel, m: usize, n: usize, k: usize, threads: usize) -> Self {
        let threads = useful(threads, m, n, k);
        let all_lanes = kernel.lanes(k.max(1));
        let slices = all_lanes.div_ceil(kernel.slice);
        let lanes = all_lanes.div_ceil(slices).next_multiple_of(kernel.lane_unit);
        let slices = all_lanes.div_ceil(lanes);
        let (lhs_bytes, rhs_bytes) = match slices {
            1 => (SINGLE_LHS_BYTES, SINGLE_RHS_BYTES),
            _ => (BLOCK_BYTES, BLOCK_BYTES),
        };
        let blocks = |count: usize, bytes: usize| count.div_ceil(bytes / (4 * lanes));
        let (mut row_blocks, mut column_blocks) = (blocks(m, lhs_bytes), blocks(n, rhs_bytes));
        let rows = |blocks: usize| m.div_ceil(blocks).next_multiple_of(kernel.rows);
        let columns = |blocks: usize| n.div_ceil(blocks).next_multiple_of(kernel.columns());
        // Few tasks must come out even on the threads; with many, the last round matters little.
        while !(row_blocks * column_blocks).is_multiple_of(threads)
            && row_blocks * column_blocks < 8 * threads
        {
            let (r, c) = (rows(row_blocks), columns(column_blocks));
            if r <= kernel.rows && c <= kernel.columns() {
                break;
            }
            if r > kernel.rows && (r >= c || c <= kernel.columns()) {
                row_blocks += 1;
            } else {
                column_blocks += 1;
            }
        }
        let (block_rows, block_columns) = (rows(row_blocks), columns(column_blocks));
        let (row_blocks, column_blocks) = (m.div_ceil(block_rows), n.div_ceil(block_columns));
        // A matmul smaller than its block needs room for its own size, up to the vector's width.
        let padded_rows = block_rows.min(kernel.padded_rows(m));
        let padded_columns = block_columns.min(n.next_multiple_of(kernel.vector));
        let sums = if slices > 1 {
            padded_rows * padded_columns
        } else {
            padded_rows.min(kernel.rows) * padded_columns.min(kernel.columns())
        };
        let bytes = |lanes: usize| (4 * lanes).next_multiple_of(ALIGN);
        Self {
            slice: lanes * kernel.per_lane,
            slices,
            lanes,
            block_rows,
            row_blocks,
            block_columns,
            column_blocks,
            workers: threads.min(row_blocks * column_blocks),
            lhs_bytes: bytes(padded_rows * lanes),
            rhs_bytes: bytes(padded_columns * lanes),
            sums_bytes: bytes(sums),
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
    let job = Job { kernel, layout, matmul: Shared(&matmul), goes_on };
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
        let wide = kernel.is_wide();
        // With a single slice, a block packed for the last task may serve this one.
        let (mut packed_row, mut packed_column) = (None, None);
        while let Some(task) = next() {
            let (column, row) = (task / layout.row_blocks, task % layout.row_blocks);
            let (i, j) = (row * layout.block_rows, column * layout.block_columns);
            let rows = layout.block_rows.min(matmul.m - i);
            let columns = layout.block_columns.min(matmul.n - j);
            for slice in 0..layout.slices {
                let start = slice * layout.slice;
                let depth = layout.slice.min(matmul.k - start);
                let (lanes, last) = (kernel.lanes(depth), slice + 1 == layout.slices);
                // SAFETY: the blocks lie inside the operands, and their panels fit the scratch.
                unsafe {
                    if layout.slices > 1 || packed_column != Some(column) {
                        let (width, unit) = (kernel.columns(), kernel.vector);
                        let block = Block {
                            first: j,
                            count: columns,
                            start,
                            depth,
                            lanes,
                            width,
                            unit,
                            wide,
                        };
                        pack(Side::columns(matmul.rhs), kernel.per_lane, block, Panels::Lanes, rhs);
                    }
                    if layout.slices > 1 || packed_row != Some(row) {
                        let (width, unit) = (kernel.rows, kernel.row_unit);
                        let block =
                            Block { first: i, count: rows, start, depth, lanes, width, unit, wide };
                        pack(Side::rows(matmul.lhs), kernel.per_lane, block, kernel.lhs, lhs);
                    }
                    let area = Area { i, j, rows, columns, depth, resume: slice > 0, last };
                    self.tiles(area, lhs, rhs, sums);
                }
                (packed_row, packed_column) = (Some(row), Some(column));
            }
        }
    }

    /// Adds one slice's matmul to every tile of a block, and finishes the tiles after the last.
    ///
    /// # Safety
    ///
    /// As `work`; `lhs` and `rhs` hold the packed slice, `sums` the sums so far.
    unsafe fn tiles(&self, area: Area, lhs: *const u32, rhs: *const u32, sums: *mut f32) {
        let kernel = self.kernel;
        let lanes = kernel.lanes(area.depth);
        debug_assert!(lanes <= self.layout.lanes);
        let mut sums_at = 0;
        for j in (0..area.columns).step_by(kernel.columns()) {
            let columns = kernel.columns().min(area.columns - j);
            let vectors = columns.div_ceil(kernel.vector);
            for i in (0..area.rows).step_by(kernel.rows) {
                let rows = kernel.rows.min(area.rows - i);
                let padded_rows = kernel.padded_rows(rows);
                // SAFETY: panels start at their vectors times the lanes; the sums of tiles follow each
                // other where there are several slices, and share a place otherwise.
                unsafe {
                    let stride = vectors * kernel.vector;
                    let tile = Tile {
                        lanes,
                        rows,
                        vectors,
                        lhs: lhs.add(i * lanes),
                        rhs: rhs.add(j * lanes),
                        sums: sums.add(sums_at),
                        resume: area.resume || self.goes_on,
                    };
                    let done = Sums {
                        ptr: tile.sums,
                        stride,
                        row: area.i + i,
                        column: area.j + j,
                        rows,
                        columns,
                    };
                    if self.goes_on && !area.resume {
                        start_from_output(self.matmul.0, done, padded_rows, tile.sums);
                    } else if area.last {
                        prefetch(self.matmul.0, done);
                    }
                    kernel.run(&tile);
                    if area.last {
                        finish_avx2(self.matmul.0, done);
                    }
                    if self.layout.slices > 1 {
                        sums_at += padded_rows * stride;
                    }
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
    depth: usize,
    resume: bool,
    last: bool,
}
