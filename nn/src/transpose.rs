//! Transposing matrices.

/// Writes `from` with rows of `columns` transposed to the first columns of `to`, whose rows have `stride`, in tiles that
/// stay in the nearest cache.
pub(crate) fn transpose(from: &[f32], columns: usize, to: &mut [f32], stride: usize) {
    const TILE: usize = 16;
    let rows = from.len() / columns.max(1);
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for column in left..columns.min(left + TILE) {
                for row in top..rows.min(top + TILE) {
                    to[column * stride + row] = from[row * columns + column];
                }
            }
        }
    }
}
