//! Blocks, slices of depth and tasks of a matmul, and the scratch that they need.

use super::kernel::Kernel;
use super::schedule::{ALIGN, useful};

/// Most bytes of the packed lhs block: its panels pass by in order, from L2 or the shared cache.
const LHS_BYTES: usize = 1 << 20;

/// Most bytes that the columns of a block would take if they were packed at once, where there are several slices: bounds the sums.
const RHS_BYTES: usize = 1 << 20;

/// Most bytes of the packed blocks where rhs is kept for several blocks of rows. Its panels pass by from the shared cache, so that
/// a wide one saves packing lhs again; the lhs block stays in L2.
const KEPT_LHS_BYTES: usize = 384 << 10;
const KEPT_RHS_BYTES: usize = 2560 << 10;

/// Most panels of rhs in a task whose lhs block serves the next one too.
const TASK_PANELS: usize = 8;

/// Blocks and slices of a matmul. Slices depend on the depth alone, so that sums don't depend on threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Elements of depth per slice.
    pub(super) slice: usize,
    pub(super) slices: usize,
    /// Lanes per slice.
    pub(super) lanes: usize,
    /// `true` if a task packs all panels of its rhs block, which the next task may use; `false` if it packs one after the other.
    pub(super) keeps_rhs: bool,
    /// Rows and columns of a block, and how many blocks there are.
    pub(super) block_rows: usize,
    pub(super) row_blocks: usize,
    pub(super) block_columns: usize,
    pub(super) column_blocks: usize,
    pub(super) workers: usize,
    /// Bytes of a worker's packed lhs block, packed rhs block or panel, and sums.
    pub(super) lhs_bytes: usize,
    pub(super) rhs_bytes: usize,
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
        let blocks = |count: usize, bytes: usize| count.div_ceil(bytes / (4 * lanes));
        // Several slices leave nothing of rhs to keep, and one block of rows needs each panel once. Small operands are kept: both are
        // in L2 anyway.
        let small = blocks(m + n, LHS_BYTES) == 1;
        let keeps_rhs = slices == 1 && (small || blocks(m, LHS_BYTES) > 1);
        let (mut row_blocks, mut column_blocks) = if keeps_rhs {
            (blocks(m, KEPT_LHS_BYTES), blocks(n, KEPT_RHS_BYTES))
        } else if slices > 1 {
            (blocks(m, LHS_BYTES), blocks(n, RHS_BYTES))
        } else {
            // Each thread packs all of the other operand: the smaller one, and rhs of equals, as its panels are quicker packed.
            let panels = n.div_ceil(kernel.columns());
            let row_blocks = if n <= m { threads } else { 1 };
            let of_task = (panels * row_blocks / (4 * threads)).clamp(1, TASK_PANELS);
            (row_blocks, panels.div_ceil(of_task))
        };
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
        let packed_columns =
            if keeps_rhs { padded_columns } else { padded_columns.min(kernel.columns()) };
        Self {
            slice: lanes * kernel.per_lane,
            slices,
            lanes,
            keeps_rhs,
            block_rows,
            row_blocks,
            block_columns,
            column_blocks,
            workers: threads.min(row_blocks * column_blocks),
            lhs_bytes: bytes(padded_rows * lanes),
            rhs_bytes: bytes(packed_columns * lanes),
            sums_bytes: bytes(sums),
        }
    }

    pub(super) fn worker_bytes(&self) -> usize {
        self.lhs_bytes + self.rhs_bytes + self.sums_bytes
    }

    /// Bytes for all workers, and to align their start.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.workers * self.worker_bytes() + ALIGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::fast::gemm::Element;
    use crate::isa::Level;

    /// Bytes that a worker fills of its packed lhs block, its packed rhs block or panel, and its sums, at most, as
    /// [`blocks`](super::super::blocks) fills them.
    fn filled(kernel: &Kernel, layout: &Layout, (m, n, k): (usize, usize, usize)) -> [usize; 3] {
        let mut most = [0; 3];
        for row in 0..layout.row_blocks {
            let rows = layout.block_rows.min(m - row * layout.block_rows);
            for column in 0..layout.column_blocks {
                let columns = layout.block_columns.min(n - column * layout.block_columns);
                for slice in 0..layout.slices {
                    let depth = layout.slice.min(k - slice * layout.slice);
                    let lanes = kernel.lanes(depth);
                    assert!(lanes <= layout.lanes, "{lanes} lanes of {}", layout.lanes);
                    let panel = kernel.columns().min(columns);
                    let packed = if layout.keeps_rhs { columns } else { panel };
                    // Tiles are padded one by one.
                    let tiles = |count: usize, full: usize, padded: &dyn Fn(usize) -> usize| {
                        let rest = padded(count % full);
                        (count / full * padded(full) + rest, padded(full.min(count)))
                    };
                    let width = |columns: usize| columns.next_multiple_of(kernel.vector);
                    let (all_rows, tile_rows) =
                        tiles(rows, kernel.rows, &|rows| kernel.padded_rows(rows));
                    let (all_columns, tile_columns) = tiles(columns, kernel.columns(), &width);
                    let sums = match layout.slices {
                        1 => tile_rows * tile_columns,
                        _ => all_rows * all_columns,
                    };
                    let own = [all_rows * lanes, width(packed) * lanes, sums];
                    most = std::array::from_fn(|part| most[part].max(4 * own[part]));
                }
            }
        }
        most
    }

    #[test]
    fn workers_keep_to_their_scratch_on_every_instruction_set() {
        let mut draws = Draws::new(1);
        for _ in 0..4000 {
            let size = |draws: &mut Draws| {
                let most = draws.one_of(&[9, 70, 1100, 3000, 51_000]);
                draws.up_to(most)
            };
            let (m, n, k) = (size(&mut draws), size(&mut draws), size(&mut draws));
            let (threads, level) = (draws.up_to(17), draws.one_of(&Level::ALL));
            let element = draws.one_of(&[Element::F32, Element::Bf16, Element::F16]);
            let Some(kernel) = Kernel::of(level, element, element) else { continue };
            let layout = Layout::new(kernel, m, n, k, threads);
            let room = [layout.lhs_bytes, layout.rhs_bytes, layout.sums_bytes];
            let filled = filled(kernel, &layout, (m, n, k));
            let what = format!("{m}×{k} · {k}×{n} by {} on {threads} threads", kernel.name);
            assert!(
                (0..3).all(|part| filled[part] <= room[part]),
                "{filled:?} of {room:?}: {what}"
            );
            assert!((1..=threads).contains(&layout.workers), "{} workers: {what}", layout.workers);
        }
    }
}
