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
    /// Packed panel.
    pub(super) lhs: *const u32,
    /// Packed panel, `lanes × columns`.
    pub(super) rhs: *const u32,
    /// Sums, rows padded to the kernel's unit × columns.
    pub(super) sums: *mut f32,
    /// Add to `sums` instead of overwriting.
    pub(super) resume: bool,
}
