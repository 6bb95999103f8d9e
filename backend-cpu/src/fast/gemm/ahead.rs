//! Memory that is asked for while a tile is computed, line by line: many at once would make the tile wait for them.

use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T1, _mm_prefetch};

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Lanes of a tile between one part and the next.
pub(super) const LANES: usize = 16;

/// The parts that a tile of so many lanes asks for.
pub(super) fn parts(lanes: usize) -> usize {
    lanes.div_ceil(LANES)
}

/// Lines of rows that lie a fixed distance apart, of which some are asked for at a time.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Where the row begins, and how far the next one is.
    row: *const u8,
    step: isize,
    /// Lines of a row, and which of them comes next.
    of_row: usize,
    next: usize,
    /// Lines left, and how many are asked for at a time.
    left: usize,
    at_a_time: usize,
}

impl Lines {
    /// Asks for nothing.
    pub(super) const NONE: Self =
        Self { row: std::ptr::null(), step: 0, of_row: 0, next: 0, left: 0, at_a_time: 0 };

    /// Rows of `bytes`, of which none needs to exist, `step` bytes apart, in so many parts.
    pub(super) fn new(
        row: *const u8,
        rows: usize,
        bytes: usize,
        step: isize,
        parts: usize,
    ) -> Self {
        let of_row = (row.addr() % LINE + bytes).div_ceil(LINE);
        let left = rows * of_row;
        Self { row, step, of_row, next: 0, left, at_a_time: left.div_ceil(parts.max(1)) }
    }

    /// Asks for the next part.
    #[inline(always)]
    fn ask<const HINT: i32>(&mut self) {
        let count = self.at_a_time.min(self.left);
        self.left -= count;
        for _ in 0..count {
            // SAFETY: a hint; it never faults, and SSE is part of x86-64.
            unsafe { _mm_prefetch::<HINT>(self.row.wrapping_add(self.next * LINE).cast()) };
            self.next += 1;
            if self.next == self.of_row {
                (self.row, self.next) = (self.row.wrapping_offset(self.step), 0);
            }
        }
    }
}

/// What is asked for while tiles are computed.
pub(super) struct Ahead {
    /// The lhs block and the rhs panel that are packed next.
    pub(super) lhs: Lines,
    pub(super) rhs: Lines,
    /// Where the next tile's sums come from, or go.
    pub(super) sums: Lines,
}

impl Ahead {
    /// Asks for the next part of each.
    #[inline(always)]
    pub(super) fn ask(&mut self) {
        self.lhs.ask::<_MM_HINT_T1>();
        self.rhs.ask::<_MM_HINT_T1>();
        self.sums.ask::<_MM_HINT_ET0>();
    }
}
