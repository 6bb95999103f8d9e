//! How a tile's operands are read, and the packing that prepares them.

use crate::fast::vmath::{LANES, Simd, Storage};

/// Keys in one packed panel: two of the widest vectors.
pub(super) const PANEL: usize = 2 * LANES;

/// A tile read as the left operand: lane k of row i at `i · row + k · step`, so that a transposed
/// tile costs nothing.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) step: usize,
}

/// Copies `count` rows of `d` elements, `stride` apart in `from`, into rows of `width` ≥ d in `to`, zero
/// beyond column d.
#[inline(always)]
pub(super) fn load_rows<T: Storage>(
    from: &[T],
    stride: usize,
    (count, d): (usize, usize),
    to: &mut [f32],
    width: usize,
) {
    for (r, row) in to.chunks_exact_mut(width).take(count).enumerate() {
        let (values, padding) = row.split_at_mut(d);
        T::load(&from[r * stride..][..d], values);
        padding.fill(0.0);
    }
}

/// Transposes `rows` (at most [`PANEL`] rows of `width`, a multiple of [`LANES`]; the missing ones
/// are zeroed first) into a panel (width, [`PANEL`]). `rows` has room for [`PANEL`] rows.
#[inline(always)]
pub(super) fn transpose_panel<S: Simd>(
    rows: &mut [f32],
    count: usize,
    width: usize,
    panel: &mut [f32],
) {
    let rows = &mut rows[..PANEL * width];
    rows[count * width..].fill(0.0);
    let panel = &mut panel[..PANEL * width];
    for r in (0..PANEL).step_by(LANES) {
        for c in (0..width).step_by(LANES) {
            // SAFETY: the block is rows r .. r + 16, columns c .. c + 16 of (PANEL, width) and its
            // mirror image in (width, PANEL), both of the lengths taken above.
            unsafe {
                let from = rows.as_ptr().add(r * width + c);
                let to = panel.as_mut_ptr().add(c * PANEL + r);
                S::transpose_16x16(from, width, to, PANEL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast::vmath::dispatched;
    use crate::isa::Isa;

    #[inline(always)]
    fn transpose_body<S: Simd>(rows: &mut [f32], count: usize, width: usize, panel: &mut [f32]) {
        transpose_panel::<S>(rows, count, width, panel);
    }
    dispatched!(fn transpose_on(
        rows: &mut [f32], count: usize, width: usize, panel: &mut [f32],
    ) = transpose_body);

    fn values(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect()
    }

    #[test]
    fn panels_transpose() {
        for isa in Isa::available() {
            for (count, width) in [(1, 16), (19, 48), (32, 64)] {
                let before = values(PANEL * width);
                let (mut rows, mut panel) = (before.clone(), vec![7.0; PANEL * width]);
                transpose_on(isa, &mut rows, count, width, &mut panel);
                for (at, &x) in panel.iter().enumerate() {
                    let (c, r) = (at / PANEL, at % PANEL);
                    let want = if r < count { before[r * width + c] } else { 0.0 };
                    assert_eq!(x, want, "row {r}, column {c}, {}", isa.name());
                }
            }
        }
    }
}
