//! Sizes that kernels, their tables and packing share.

/// Rows of a tile of vector registers.
pub(super) const ROWS: usize = 8;

/// Rows of a register of AMX.
pub(super) const AMX_ROWS: usize = 16;

/// Neighbouring lanes of a vector that lie side by side in [`super::kernel::Panels::Rows`]: those of a register of AMX.
pub(super) const SIDE_BY_SIDE: usize = 16;
