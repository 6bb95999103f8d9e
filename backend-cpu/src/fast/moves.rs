//! Moving elements without changing them: strided reorderings, and columns of rows.

use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block};

/// `to` in row-major order over `axes`, each an extent and the stride of `from` along it, outermost first. A stride of 0
/// repeats.
///
/// # Panics
/// If `to` has another number of elements than the extents say, or a stride leads out of `from`.
pub fn strided<T: Copy + Send + Sync>(from: &[T], axes: &[(usize, usize)], to: &mut [T]) {
    assert_eq!(to.len(), axes.iter().map(|axis| axis.0).product(), "{axes:?}");
    // A last axis of one element would make a row of each element.
    let longer = axes.iter().rposition(|&(extent, _)| extent != 1);
    let axes = &axes[..longer.map_or(0, |last| last + 1)];
    let Some((&(columns, step), outer)) = axes.split_last() else {
        to.copy_from_slice(&from[..1]);
        return;
    };
    let Some(rows) = to.len().checked_div(columns) else { return };
    let to = Disjoint::new(to);
    for_each_block(rows, block_rows(columns), |block| {
        // SAFETY: blocks of rows do not overlap.
        let to = unsafe { to.part(block.start * columns, block.len() * columns) };
        for (row, to) in block.zip(to.chunks_exact_mut(columns)) {
            let (mut rest, mut first) = (row, 0);
            for &(extent, stride) in outer.iter().rev() {
                first += rest % extent * stride;
                rest /= extent;
            }
            match step {
                1 => to.copy_from_slice(&from[first..first + columns]),
                0 => to.fill(from[first]),
                _ => {
                    let column = from[first..].iter().step_by(step);
                    to.iter_mut().zip(column).for_each(|(to, from)| *to = *from);
                }
            }
        }
    });
}

/// Rows of a matrix, of which some columns are moved.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// Elements of a row.
    pub row: usize,
    /// First column that is moved.
    pub first: usize,
}

/// Copies `count` columns of every row of `from` to columns of the same row of `to`; the others of `to` stay.
///
/// # Panics
/// If the rows are not as many, or the columns are not within them.
pub fn columns<T: Copy + Send + Sync>(
    from: (&[T], Columns),
    to: (&mut [T], Columns),
    count: usize,
) {
    let ((from, at), (to, place)) = (from, to);
    assert!(at.first + count <= at.row && place.first + count <= place.row, "{at:?} {place:?}");
    assert_eq!(from.len() * place.row, to.len() * at.row, "{at:?} {place:?}");
    let Some(rows) = from.len().checked_div(at.row) else { return };
    let to = Disjoint::new(to);
    for_each_block(rows, block_rows(count), |block| {
        for row in block {
            // SAFETY: rows do not overlap, and each is in one block.
            let to = unsafe { to.part(row * place.row + place.first, count) };
            to.copy_from_slice(&from[row * at.row + at.first..][..count]);
        }
    });
}
