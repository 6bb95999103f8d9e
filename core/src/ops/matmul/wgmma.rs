//! Matmuls by warpgroups, straight from shared memory (Hopper's `wgmma`): which ones, and in what tiles.
//!
//! A workgroup fills a multiprocessor and makes tile after tile, so what counts is how many tiles the busiest one gets.
//! Times are clock cycles of a multiprocessor, about, and only compared.

use super::{Gemm, Matrices, Stored};
use crate::launch::{Boxed, CudaLimits, Launch, Place};

pub(super) const KERNEL: &str = "matmul_wgmma";
pub(super) const ENTRY: &str = "wgmma";
/// Three groups of four warps: one copies, two multiply.
pub(super) const THREADS: u32 = 384;

/// Rows and summed indices of a tile, and its columns.
pub(super) const TILE_M: u32 = 128;
pub(super) const TILE_K: u32 = 64;
const WIDTHS: [u32; 2] = [256, 128];

/// Columns from which on the sums of a matmul that goes on from others are made in wide tiles: fewer would leave too few
/// tiles where it has few rows.
const WIDE: usize = 4096;

/// Bytes of shared memory that hold tiles, and those of a stage's two barriers and of the one besides.
const STAGES_BYTES: u32 = 192 << 10;
const BARRIERS_BYTES: u32 = 16;
/// Rows of a box that a warp stores, and bytes of the boxes that all warps put ready.
const OUT_ROWS: u32 = 16;
const DESKS_BYTES: u32 = 32 << 10;
/// Columns of ones that rows of lhs are multiplied by where they are summed, and their bytes.
const ONES: u32 = 8;
const ONES_BYTES: u32 = ONES * 16 * 2;

/// Multiplications and additions of a cycle, in tiles of a width: narrow ones read more for each.
const RATES: [u64; 2] = [2048, 1792];
/// Bytes that a multiprocessor moves to memory and back in a cycle, where all do.
const MEMORY_RATE: u64 = 16;
/// Cycles until another kernel runs.
const NEXT_KERNEL: u64 = 5000;

/// How a matmul is cut up.
pub(super) struct Cut {
    pub(super) width: u32,
    /// Slices of K.
    pub(super) slices: u64,
}

/// Whether the copy engine takes a stack of matrices, whose stored rows begin at multiples of 16 bytes: each lies behind the
/// one before.
fn suits(stored: &Stored, [inner, outer]: [usize; 2], batch: usize) -> bool {
    stored.row >= inner as u64
        && (batch == 1
            || stored.stride.is_multiple_of(stored.row)
                && stored.stride >= stored.row * outer as u64)
}

/// Extents of what is stored, along rows first.
fn axes(stored: &Stored, rows: usize, columns: usize) -> [usize; 2] {
    if stored.transposed { [rows, columns] } else { [columns, rows] }
}

/// The cut of a matmul of 16-bit operands with the least time, where it keeps at least half of the multiprocessors busy.
/// K may be cut into `most_slices`. Of a matmul whose sums go on from others, columns alone decide.
pub(super) fn cut(matmul: &Gemm, multiprocessors: u32, most_slices: u64) -> Option<Cut> {
    let Gemm { lhs, rhs, in_order, .. } = matmul;
    let Matrices { batch, m, n, k } = matmul.extents;
    let taken = suits(lhs, axes(lhs, m, k), batch)
        && suits(rhs, axes(rhs, k, n), batch)
        && batch * m * k > 0;
    if lhs.place.dtype.size() != 2 || !taken {
        return None;
    }
    let [wide, narrow] = WIDTHS;
    if *in_order {
        let width = if n >= WIDE { wide } else { narrow };
        return (n >= narrow as usize).then_some(Cut { width, slices: 1 });
    }
    // Half a tile would be made for nothing.
    if m <= TILE_M as usize / 2 || n <= narrow as usize / 2 {
        return None;
    }
    let (m, n, k, all) = (m as u64, n as u64, k as u64, u64::from(multiprocessors.max(1)));
    let mut best: Option<(u64, u64, Cut)> = None;
    for (width, rate) in WIDTHS.into_iter().zip(RATES) {
        let area = u64::from(TILE_M * width);
        let tiles = batch as u64 * m.div_ceil(TILE_M.into()) * n.div_ceil(width.into());
        for slices in 1..=most_slices.clamp(1, all) {
            let slice = k.div_ceil(slices).next_multiple_of(TILE_K.into());
            let tiles = tiles * k.div_ceil(slice);
            // A tile is stored, in 16 bits or in 32; slices are read again.
            let tile = area * slice / rate + area * 2 / MEMORY_RATE;
            let sums = batch as u64 * m * n * slices * 4 / (MEMORY_RATE * all) + NEXT_KERNEL;
            let cycles = tiles.div_ceil(all) * tile + if slices > 1 { sums } else { 0 };
            if best.as_ref().is_none_or(|(least, _, _)| cycles < *least) {
                best = Some((cycles, tiles, Cut { width, slices }));
            }
        }
    }
    best.filter(|(_, tiles, _)| tiles * 2 >= all).map(|(_, _, cut)| cut)
}

/// Adds what the kernel needs besides to the launch of a matmul.
pub(super) fn with_boxes(
    launch: Launch,
    matmul: &Gemm,
    width: u32,
    limits: &CudaLimits,
    multiprocessors: u32,
) -> Launch {
    let Gemm { lhs, rhs, .. } = matmul;
    let Matrices { batch, m, n, k } = matmul.extents;
    let stage = (TILE_M + width) * Boxed::ROW_BYTES;
    let stages = STAGES_BYTES / stage;
    let cluster = if limits.clusters { cluster(m, multiprocessors) } else { 1 };
    let boxed = |name, stored: &Stored, [inner, outer]: [usize; 2], across: u32| {
        let along_k = if name == LHS { !stored.transposed } else { stored.transposed };
        // One matrix alone says nothing of the next.
        let stride = if batch > 1 { stored.stride } else { stored.row * outer as u64 };
        Boxed {
            name,
            place: stored.place,
            first: stored.first,
            extents: [inner, outer, batch].map(|extent| extent as u64),
            strides: [stored.row, stride],
            edges: [TILE_K, if along_k { across } else { TILE_K }, 1],
        }
    };
    let mut boxes = vec![
        boxed(LHS, lhs, axes(lhs, m, k), TILE_M),
        boxed(RHS, rhs, axes(rhs, k, n), width / cluster),
    ];
    let out_boxed = stores_boxes(matmul);
    if out_boxed {
        let kept = matmul.epilogue.as_ref().and_then(|epilogue| epilogue.matmul);
        let outputs = [("out_tiles", Some(matmul.out)), ("product_tiles", kept)];
        let outputs = outputs.iter().filter_map(|(name, out)| Some((*name, out.as_ref()?)));
        boxes.extend(outputs.map(|(name, out)| {
            let boxed = boxed(name, out, [n, m], 0);
            Boxed { edges: [TILE_K, OUT_ROWS, 1], ..boxed }
        }));
    }
    let ones = if matmul.lhs_sums.is_some() { ONES_BYTES } else { 0 };
    let desks = if out_boxed { DESKS_BYTES } else { 0 };
    // Others read a bias at most, and cases of theirs are smaller without it.
    let reads_beside = out_boxed && matmul.epilogue.is_some();
    let shared_bytes = stages * (stage + BARRIERS_BYTES) + BARRIERS_BYTES + desks + ones;
    launch
        .constant("STAGES", stages)
        .constant("OUT_BOXED", out_boxed)
        .constant("WHOLE_N", reads_beside && n.is_multiple_of(width as usize))
        .clustered(cluster)
        .persistent(multiprocessors, shared_bytes, boxes)
}

/// Blocks that bring columns of rhs to each other: neighbours, whose tiles lie one below the other.
fn cluster(m: usize, multiprocessors: u32) -> u32 {
    const PAIR: u32 = 2;
    let pairs = m.div_ceil(TILE_M as usize).is_multiple_of(PAIR as usize);
    if pairs && multiprocessors.is_multiple_of(PAIR) { PAIR } else { 1 }
}

/// Whether the copy engine stores the output: 16 bits, in rows that begin at multiples of 16 bytes and have whole ones.
fn stores_boxes(matmul: &Gemm) -> bool {
    let Matrices { batch, m, n, .. } = matmul.extents;
    let Gemm { out, .. } = matmul;
    let whole = out.in_multiples(8) && n.is_multiple_of(8);
    out.place.dtype.size() == 2 && whole && suits(out, [n, m], batch)
}

/// Most tiles that are made in slices of K which the kernel adds up: it has counters for so many.
pub(super) const MOST_SLICED: usize = 1024;

/// Sums that a tile leaves of a slice.
pub(super) fn sums_of_tile(matmul: &Gemm, width: u32) -> u64 {
    let ones = if matmul.lhs_sums.is_some() { ONES } else { 0 };
    u64::from(TILE_M * (width + ones))
}

/// Adds where the kernel leaves slices of K that it adds up, where it does.
pub(super) fn with_slices(launch: Launch, matmul: &Gemm, sums: Option<Place>) -> Launch {
    launch.constant("SLICED", sums.is_some()).constant("MOST_SLICED", MOST_SLICED as u64).bind_four(
        "slices",
        sums.unwrap_or(matmul.rhs.place),
        true,
    )
}

const LHS: &str = "lhs_tiles";
const RHS: &str = "rhs_tiles";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DType, Type};

    /// Multiprocessors of an H100.
    const ALL: u32 = 132;

    fn matmul(batch: usize, [m, n, k]: [usize; 3]) -> Gemm {
        let place = |dtype, [rows, columns]: [usize; 2]| {
            let place = Place::input(0, &Type::new(dtype, [batch, rows, columns]));
            Stored::stack(place, batch, columns)
        };
        let (lhs, rhs) = (place(DType::BF16, [m, k]), place(DType::BF16, [k, n]));
        Gemm::new(lhs, rhs, place(DType::F32, [m, n]), Matrices { batch, m, n, k })
    }

    fn cut_of(extents: [usize; 3]) -> Option<(u32, u64)> {
        cut(&matmul(1, extents), ALL, 16).map(|cut| (cut.width, cut.slices))
    }

    #[test]
    fn tiles_and_slices_fill_the_multiprocessors() {
        // Wide tiles where there are many of them.
        assert_eq!(cut_of([8192, 8192, 8192]), Some((256, 1)));
        // The gradient of a weight has few tiles and long sums.
        let (_, slices) = cut_of([768, 768, 16384]).expect("worth it");
        assert!(slices > 1, "{slices}");
        // Small matmuls and thin ones leave most of them idle.
        assert_eq!(cut_of([512, 512, 512]), None);
        assert_eq!(cut_of([64, 65536, 4096]), None);
        assert_eq!(cut_of([8192, 8192, 0]), None);
    }

    #[test]
    fn sums_that_go_on_from_others_are_cut_alike_for_any_rows_and_parts_of_k() {
        for (n, width) in [(768, 128), (50304, 256)] {
            for (m, k) in [(1, 64), (100, 4096), (65536, 8)] {
                let matmul = Gemm { in_order: true, ..matmul(1, [m, n, k]) };
                let cut = cut(&matmul, ALL, 1).expect("all of them");
                assert_eq!((cut.width, cut.slices), (width, 1));
            }
        }
    }

    #[test]
    fn the_copy_engine_takes_matrices_that_lie_behind_each_other() {
        let whole = matmul(2, [512, 8192, 512]);
        assert!(cut(&whole, ALL, 1).is_some());
        let woven = Stored { row: 1024, stride: 512, ..whole.lhs };
        assert!(cut(&Gemm { lhs: woven, ..whole.clone() }, ALL, 1).is_none());
        let wide = Gemm { lhs: Stored { place: whole.out.place, ..whole.lhs }, ..whole };
        assert!(cut(&wide, ALL, 1).is_none(), "f32");
    }
}
