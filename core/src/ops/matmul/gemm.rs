//! Launches of matmuls: the part that every family with a matmul in it shares.

use std::ops::Range;
use std::sync::Arc;

use super::{Gemm, Matrices, Stored, wgmma};
use crate::dialect::{self, Dialect, Exact};
use crate::expr::input;
use crate::launch::{LAUNCHES_CUDA, Launch, Launches, Limits, Place};
use crate::ops::reduce;
use crate::types::DType;

impl Stored {
    /// `batch` matrices with rows of `columns` elements that fill a place.
    pub(crate) fn stack(place: Place, batch: usize, columns: usize) -> Self {
        let stride = place.elements / (batch as u64).max(1);
        Self { place, first: 0, row: columns as u64, stride, transposed: false }
    }

    /// Whether stored rows are columns.
    pub(crate) fn transposed(self, transposed: bool) -> Self {
        Self { transposed, ..self }
    }

    /// From element `first` on.
    pub(crate) fn from(self, first: u64) -> Self {
        Self { first: self.first + first, ..self }
    }

    fn fits(&self, limits: &Limits) -> bool {
        self.place.elements <= limits.binding_elements(self.place.dtype)
    }

    /// Stored rows that a binding holds, wherever it starts.
    fn rows_bound(&self, limits: &Limits) -> u64 {
        if self.fits(limits) {
            return u64::MAX;
        }
        let elements = limits.binding_elements(self.place.dtype);
        (elements.saturating_sub(self.place.granule()) / self.row).max(1)
    }

    /// Stored rows `rows` alone; what is bound is cut down to them where it's too large.
    fn rows(&self, rows: Range<u64>, limits: &Limits) -> Self {
        let start = self.first + rows.start * self.row;
        if self.fits(limits) {
            return Self { first: start, ..*self };
        }
        let aligned = start / self.place.granule() * self.place.granule();
        let end = (self.first + rows.end * self.row).min(self.place.elements);
        Self { place: self.place.window(aligned..end), first: start - aligned, ..*self }
    }

    /// Whether all stored rows begin at multiples of four elements.
    fn in_fours(&self) -> bool {
        self.in_multiples(4)
    }

    /// Whether all stored rows begin at multiples of so many elements.
    pub(super) fn in_multiples(&self, of: u64) -> bool {
        [self.first, self.row, self.stride].iter().all(|offset| offset.is_multiple_of(of))
    }
}

/// Ranges of `step` indices that cover an axis.
fn ranges(extent: usize, step: u64) -> impl Iterator<Item = Range<u64>> {
    let extent = extent as u64;
    let step = step.min(extent).max(1);
    (0..extent.div_ceil(step)).map(move |i| i * step..((i + 1) * step).min(extent))
}

/// Edge of the blocks that kernels compute with.
const BLOCK: u64 = 4;

/// Rows up to which reading rhs takes longest, and the shape of a workgroup's part then.
const NARROW_ROWS: usize = 4;
const NARROW_COLUMNS: u32 = 32;
const NARROW_THREADS: u32 = 64;

/// Workgroups that keep a GPU busy, the least extent of K worth a slice, and the most bytes that slices may take.
const ENOUGH_GROUPS: u64 = 256;
const SMALLEST_SLICE: u64 = 512;
const SLICE_BYTES: u64 = 16 << 20;

/// Rows of lhs that a processor which emulates a GPU reads a piece of, one after the other, before it begins anew for the next
/// tile: about as many as the pages that it finds without a search.
const NEAR_ROWS: u64 = 256;

/// Tiles of matmuls on tensor cores, by edge: the large one where that keeps a GPU busy. Their threads; the bytes along
/// summed indices, and those that move together.
const TENSOR_EDGES: [u32; 2] = [128, 64];
const TENSOR_THREADS: u32 = 128;
const TENSOR_K_BYTES: u32 = 64;
const TENSOR_CHUNK_BYTES: u64 = 16;

/// Threads of a workgroup that adds slices.
const ADD_THREADS: u32 = 64;

impl Gemm {
    /// A matmul and nothing more.
    pub fn new(lhs: Stored, rhs: Stored, out: Stored, extents: Matrices) -> Self {
        Self {
            lhs,
            rhs,
            out,
            bias: None,
            extents,
            accumulate: false,
            in_order: false,
            epilogue: None,
            lhs_sums: None,
        }
    }

    /// Whether one launch can bind all of each matrix.
    pub(super) fn fits(&self, limits: &Limits) -> bool {
        [&self.lhs, &self.rhs, &self.out].iter().all(|stored| stored.fits(limits))
    }

    /// Indices of K that a launch sums.
    fn step_k(&self, limits: &Limits) -> u64 {
        let lhs = if self.lhs.transposed { self.lhs.rows_bound(limits) } else { u64::MAX };
        let rhs = if self.rhs.transposed { u64::MAX } else { self.rhs.rows_bound(limits) };
        let far = self.lhs.transposed && self.out.place.dtype == DType::F32;
        let near = if far && !limits.tile.shares() { NEAR_ROWS } else { u64::MAX };
        let step = lhs.min(rhs).min(near);
        if step > BLOCK { step / BLOCK * BLOCK } else { step }
    }

    /// Whether several launches add to the same sums.
    pub(crate) fn cuts_sum(&self, limits: &Limits) -> bool {
        self.out.place.dtype != DType::F32 && self.step_k(limits) < self.extents.k as u64
    }

    /// Whether tensor cores multiply the operands: both are stored in the same 16 bits, or in f32 that may be rounded to
    /// TF32, in rows that move 16 bytes at a time.
    fn suits_tensor_cores(&self, limits: &Limits) -> bool {
        let Matrices { m, n, k, .. } = self.extents;
        let inner =
            [if self.lhs.transposed { m } else { k }, if self.rhs.transposed { k } else { n }];
        let dtype = self.lhs.place.dtype;
        let chunk = TENSOR_CHUNK_BYTES / dtype.size() as u64;
        LAUNCHES_CUDA
            && !limits.cuda().plain_matmuls
            && (limits.cuda().tensor_cores.contains(&dtype)
                || limits.cuda().tf32 && dtype == DType::F32)
            && self.rhs.place.dtype == dtype
            && [self.lhs, self.rhs].iter().all(|stored| stored.in_multiples(chunk))
            && inner.iter().all(|&extent| (extent as u64).is_multiple_of(chunk))
    }

    /// Slices of K that are worth it, and for whose sums there's room.
    fn most_slices(&self, limits: &Limits) -> u64 {
        let Matrices { batch, m, n, k } = self.extents;
        let bytes = (batch * m * n) as u64 * DType::F32.size() as u64;
        let room = SLICE_BYTES.min(limits.binding_bytes) / bytes.max(1);
        if self.in_order { 1 } else { room.min(k as u64 / SMALLEST_SLICE) }
    }

    /// Appends the launches, each of which says which matmul it's all or a part of.
    pub(crate) fn push(&self, limits: &Limits, launches: &mut Launches) {
        let Matrices { batch, m, n, k } = self.extents;
        if batch > 1 && !self.fits(limits) {
            for matrix in 0..batch as u64 {
                let one = |stored: Stored| stored.from(matrix * stored.stride);
                let (lhs, rhs, out) = (one(self.lhs), one(self.rhs), one(self.out));
                let extents = Matrices { batch: 1, ..self.extents };
                Self { lhs, rhs, out, extents, ..self.clone() }.push(limits, launches);
            }
            return;
        }
        let first = launches.list.len();
        let rows_of_lhs = if self.lhs.transposed { u64::MAX } else { self.lhs.rows_bound(limits) };
        let step_m = self.out.rows_bound(limits).min(rows_of_lhs);
        let step_n = if self.rhs.transposed { self.rhs.rows_bound(limits) } else { u64::MAX };
        let step_n = if step_n > BLOCK { step_n / BLOCK * BLOCK } else { step_n };
        for columns in ranges(n, step_n) {
            for rows in ranges(m, step_m) {
                for sum in ranges(k, self.step_k(limits)) {
                    self.part(&rows, &columns, &sum, limits).push_whole(limits, launches);
                }
                if k == 0 {
                    self.part(&rows, &columns, &(0..0), limits).push_whole(limits, launches);
                }
            }
        }
        let whole = Arc::new(self.clone());
        for launch in &mut launches.list[first..] {
            launch.matmul = Some(whole.clone());
        }
    }

    /// The matmul of some rows, columns and summed indices.
    fn part(
        &self,
        rows: &Range<u64>,
        columns: &Range<u64>,
        sum: &Range<u64>,
        limits: &Limits,
    ) -> Part {
        let cut = |stored: &Stored, down: &Range<u64>, across: &Range<u64>| {
            let (kept, inner) = if stored.transposed { (across, down) } else { (down, across) };
            stored.rows(kept.clone(), limits).from(inner.start)
        };
        let len = |range: &Range<u64>| (range.end - range.start) as usize;
        let extents = Matrices { m: len(rows), n: len(columns), k: len(sum), ..self.extents };
        let complete = sum.end == self.extents.k as u64;
        Part {
            matmul: Self {
                lhs: cut(&self.lhs, rows, sum),
                rhs: cut(&self.rhs, sum, columns),
                out: cut(&self.out, rows, columns),
                bias: self.bias.filter(|_| complete),
                extents,
                accumulate: self.accumulate || sum.start > 0,
                epilogue: self.epilogue.clone().filter(|_| complete),
                ..self.clone()
            },
            first_column: columns.start,
        }
    }
}

/// A matmul whose operands all fit a binding.
struct Part {
    matmul: Gemm,
    /// Its first column among those of the bias.
    first_column: u64,
}

/// A kernel and the shape of its tiles.
struct Shape {
    kernel: &'static str,
    entry: &'static str,
    threads: u32,
    /// Threads of a subgroup where they work together, else 1.
    subgroup: u32,
    tile: [u32; 3],
    own: [u32; 2],
    /// Slices of K, where they were chosen with the tile, and the most workgroups that run then.
    slices: Option<(u64, u32)>,
}

impl Shape {
    fn new(limits: &Limits, matmul: &Gemm) -> Self {
        let &Gemm { lhs, rhs, in_order, .. } = matmul;
        let Matrices { batch, m, n, .. } = matmul.extents;
        if m <= NARROW_ROWS && NARROW_THREADS <= limits.workgroup && !in_order {
            return Self {
                kernel: "matmul",
                entry: "narrow",
                threads: NARROW_THREADS,
                subgroup: 1,
                tile: [BLOCK as u32, NARROW_COLUMNS, BLOCK as u32],
                own: [BLOCK as u32; 2],
                slices: None,
            };
        }
        if matmul.suits_tensor_cores(limits) {
            let cut = |all| Some((wgmma::cut(matmul, all, matmul.most_slices(limits))?, all));
            if let Some((cut, all)) = limits.cuda().wgmma.and_then(cut) {
                return Self {
                    kernel: wgmma::KERNEL,
                    entry: wgmma::ENTRY,
                    threads: wgmma::THREADS,
                    subgroup: 1,
                    tile: [wgmma::TILE_M, cut.width, wgmma::TILE_K],
                    own: [BLOCK as u32; 2],
                    slices: Some((cut.slices, all)),
                };
            }
            let tiles = |edge: u32| batch * m.div_ceil(edge as usize) * n.div_ceil(edge as usize);
            let [large, small] = TENSOR_EDGES;
            let edge = if tiles(large) as u64 >= ENOUGH_GROUPS { large } else { small };
            return Self {
                kernel: "matmul_mma",
                entry: "mma",
                threads: TENSOR_THREADS,
                subgroup: 1,
                tile: [edge, edge, TENSOR_K_BYTES / lhs.place.dtype.size() as u32],
                own: [BLOCK as u32; 2],
                slices: None,
            };
        }
        let halves = [lhs, rhs].iter().all(|stored| stored.place.dtype == DType::F16);
        let subgroup = limits.webgpu().subgroup_threads();
        let together = limits.webgpu().cooperative.filter(|tile| {
            halves
                && limits.webgpu().native_f16
                && !in_order
                && tile.threads() * subgroup <= limits.workgroup
        });
        let alone = (limits.tile, limits.tile.threads(), limits.tile.subgroup());
        let (tile, threads, subgroup) =
            together.map_or(alone, |tile| (tile, tile.threads() * subgroup, subgroup));
        Self {
            kernel: "matmul",
            entry: tile.entry,
            threads,
            subgroup,
            tile: [tile.m, tile.n, tile.k],
            own: [tile.thread_m, tile.thread_n],
            slices: None,
        }
    }
}

impl Shape {
    /// Whether the kernel sums lhs too: tensor cores do where they don't round it.
    fn sums_lhs(&self, matmul: &Gemm) -> bool {
        ["mma", wgmma::ENTRY].contains(&self.entry) && matmul.lhs.place.dtype != DType::F32
    }
}

impl Part {
    fn push_whole(&self, limits: &Limits, launches: &mut Launches) {
        let Matrices { batch, m, n, k } = self.matmul.extents;
        let shape = Shape::new(limits, &self.matmul);
        if let Some(sums) = self.matmul.lhs_sums.filter(|_| !shape.sums_lhs(&self.matmul)) {
            sum_columns_of(limits, launches, self.matmul.lhs.place, m, sums);
            let matmul = Gemm { lhs_sums: None, ..self.matmul.clone() };
            return Self { matmul, ..*self }.push_whole(limits, launches);
        }
        let outputs = (batch * m * n) as u64;
        let tiles = batch * m.div_ceil(shape.tile[0] as usize) * n.div_ceil(shape.tile[1] as usize);
        let staged = matches!(shape.entry, "tiled" | "mma" | "cooperative");
        let slices = if let Some((slices, _)) = shape.slices {
            slices
        } else if staged {
            (ENOUGH_GROUPS / (tiles as u64).max(1)).min(self.matmul.most_slices(limits))
        } else {
            1
        };
        if slices < 2 {
            return launches.push(self.launch(limits, &shape, k as u64, 1, None));
        }
        let slice = (k as u64).div_ceil(slices).next_multiple_of(shape.tile[2].into());
        let slices = (k as u64).div_ceil(slice);
        if shape.slices.is_some() && tiles <= wgmma::MOST_SLICED {
            let sums = slices * tiles as u64 * wgmma::sums_of_tile(&self.matmul, shape.tile[1]);
            let sums = launches.scratch(DType::F32, sums);
            return launches.push(self.launch(limits, &shape, slice, slices, Some(sums)));
        }
        let sums = Stored::stack(
            launches.scratch(DType::F32, slices * outputs),
            slices as usize * batch,
            n,
        );
        let lhs_sums = self.matmul.lhs_sums;
        let parts = lhs_sums.map(|_| launches.scratch(DType::F32, slices * m as u64));
        let apart = Gemm {
            out: sums,
            bias: None,
            accumulate: false,
            epilogue: None,
            lhs_sums: parts,
            ..self.matmul.clone()
        };
        let apart = Self { matmul: apart, first_column: 0 };
        launches.push(apart.launch(limits, &shape, slice, slices, None));
        let added = Gemm { lhs: sums, rhs: sums, lhs_sums: None, ..self.matmul.clone() };
        let blocks = (batch * m) as u64 * (n as u64).div_ceil(BLOCK);
        let threads = ADD_THREADS.min(limits.workgroup);
        let adds = Shape { kernel: "matmul", entry: "add_slices", threads, ..shape };
        let groups = blocks.div_ceil(threads.into());
        let added = Self { matmul: added, first_column: self.first_column };
        let launch = added.with_groups(limits, &adds, groups, slices);
        launches.push(launch.costing(slices * outputs));
        if let Some((parts, sums)) = parts.zip(lhs_sums) {
            sum_columns_of(limits, launches, parts, m, sums);
        }
    }

    /// One launch, that sums `slice` of K a workgroup. With `sums` of all slices, who comes last adds them up.
    fn launch(
        &self,
        limits: &Limits,
        shape: &Shape,
        slice: u64,
        slices: u64,
        sums: Option<Place>,
    ) -> Launch {
        let Matrices { batch, m, n, k } = self.matmul.extents;
        let tiles_m = m.div_ceil(shape.tile[0] as usize) as u64;
        let tiles_n = n.div_ceil(shape.tile[1] as usize) as u64;
        let groups = tiles_m * tiles_n * batch as u64 * slices;
        let mut launch = self.with_groups(limits, shape, groups, slice);
        if let Some((_, all)) = shape.slices {
            launch = wgmma::with_boxes(launch, &self.matmul, shape.tile[1], &limits.cuda(), all);
            launch = wgmma::with_slices(launch, &self.matmul, sums);
        }
        launch.costing(2 * (batch * m * n * k) as u64)
    }

    fn with_groups(&self, limits: &Limits, shape: &Shape, groups: u64, slice: u64) -> Launch {
        let Gemm { lhs, rhs, out, bias, extents, accumulate, .. } = self.matmul;
        let Matrices { batch, m, n, k } = extents;
        let whole_columns = n.is_multiple_of(BLOCK as usize);
        let bias_in_fours = whole_columns && self.first_column.is_multiple_of(BLOCK);
        // The next matrix of a stack of one is nowhere, and may be farther than kernels count.
        let next = |stored: &Stored, matrices: u64| if matrices > 1 { stored.stride } else { 0 };
        let (matrices, sums) =
            (batch as u64, batch as u64 * k.div_ceil(slice.max(1) as usize) as u64);
        // What a kernel names and doesn't read is bound as rhs, which takes no further binding.
        let (bias_place, bias_fours) =
            bias.map_or((rhs.place, rhs.in_fours()), |place| (place, bias_in_fours));
        let launch = Launch::new(shape.kernel, shape.entry, shape.threads, groups)
            .constant("TILE_M", shape.tile[0])
            .constant("TILE_N", shape.tile[1])
            .constant("TILE_K", shape.tile[2])
            .constant("THREAD_M", shape.own[0])
            .constant("THREAD_N", shape.own[1])
            .constant("SUBGROUP", shape.subgroup)
            .constant("LHS_TRANSPOSED", lhs.transposed)
            .constant("RHS_TRANSPOSED", rhs.transposed)
            .constant("LHS_FOUR", lhs.in_fours())
            .constant("RHS_FOUR", rhs.in_fours())
            .constant("WHOLE_K", k.is_multiple_of(BLOCK as usize))
            .constant("BIAS", bias.is_some())
            .constant("ACCUMULATE", accumulate)
            .param("batch", batch as u64)
            .param("m", m as u64)
            .param("n", n as u64)
            .param("k", k as u64)
            .param("slice", slice)
            .param("tiles_m", m.div_ceil(shape.tile[0] as usize) as u64)
            .param("tiles_n", n.div_ceil(shape.tile[1] as usize) as u64)
            .param("lhs_first", lhs.first)
            .param("lhs_row", lhs.row)
            .param("lhs_stride", next(&lhs, matrices))
            .param("rhs_first", rhs.first)
            .param("rhs_row", rhs.row)
            .param("rhs_stride", next(&rhs, matrices))
            .param("out_first", out.first)
            .param("out_row", out.row)
            .param("out_stride", next(&out, sums))
            .param("bias_first", self.first_column)
            .bind_four("lhs", lhs.place, lhs.in_fours())
            .bind_four("rhs", rhs.place, rhs.in_fours())
            .bind_four("bias", bias_place, bias_fours)
            .bind_four("out", out.place, out.in_fours() && whole_columns);
        match limits.dialect() {
            Dialect::Wgsl => launch,
            Dialect::Cuda => self.with_epilogue(launch, out.in_fours() && whole_columns),
        }
    }

    /// Adds what kernels of the language with epilogues name: `out` stands for what there isn't.
    fn with_epilogue(&self, mut launch: Launch, in_fours: bool) -> Launch {
        let Gemm { out, epilogue, lhs_sums, .. } = &self.matmul;
        let operand = epilogue.as_ref().and_then(|epilogue| epilogue.operand);
        let matmul = epilogue.as_ref().and_then(|epilogue| epilogue.matmul);
        let place = |stored: Option<Stored>| stored.map_or(out.place, |stored| stored.place);
        let formula = epilogue.as_ref().map_or(input(0), |epilogue| epilogue.formula.clone());
        let exact = Exact::of([out.place.dtype]);
        launch.generated =
            dialect::print_function("tr_epilogue", 2, &formula, exact, Dialect::Cuda);
        launch
            .constant("EPILOGUE", epilogue.is_some())
            .constant("BESIDE", operand.is_some())
            .constant("KEEPS_PRODUCT", matmul.is_some())
            .constant("SUMS_LHS", lhs_sums.is_some())
            .bind_four("beside", place(operand), in_fours)
            .bind_four("product", place(matmul), in_fours)
            .bind("lhs_sums", lhs_sums.unwrap_or(out.place))
    }
}

/// Appends the launches that leave the sums of each of `columns` columns of `matrix` in `sums`.
fn sum_columns_of(
    limits: &Limits,
    launches: &mut Launches,
    matrix: Place,
    columns: usize,
    sums: Place,
) {
    let columns = columns as u64;
    let extents = [1, matrix.elements / columns.max(1), columns];
    reduce::sum(limits, launches, matrix, extents, 1.0, sums);
}
