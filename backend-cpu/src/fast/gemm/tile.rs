//! What a kernel is asked for.

/// One tile to compute.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Depth, in lanes, padded to the kernel's unit.
    pub(super) lanes: usize,
    /// Rows wanted, 1 to those of a full tile; others are left undefined.
    pub(super) rows: usize,
    /// Columns, in vectors: 1 to those of a full tile.
    pub(super) vectors: usize,
    /// Packed panel, or a full tile's rows where they are in the matrix, lane beside lane.
    pub(super) lhs: *const u8,
    /// Bytes from one row to the next in the matrix; none in a panel.
    pub(super) lhs_step: Option<isize>,
    /// Packed panel, `lanes × columns`.
    pub(super) rhs: *const u32,
    /// Sums, rows padded to the kernel's unit × columns; need no more alignment than a byte.
    pub(super) sums: *mut f32,
    /// f32 from one row of sums to the next: the columns, but for kernels that take others.
    pub(super) stride: isize,
    /// Add to `sums` instead of overwriting.
    pub(super) resume: bool,
}

impl Tile {
    /// Where row `i` of the sums begins.
    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> *mut f32 {
        self.sums.wrapping_offset(i as isize * self.stride)
    }
}
