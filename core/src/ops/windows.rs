//! Windows: which part of a tensor one launch binds, where a device can't bind all of it.

use std::ops::Range;

use crate::launch::{BINDING_ALIGNMENT, Limits, Place};
use crate::types::DType;

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Ranges of `rows` that a device can bind of tensors with this many elements a row, each beginning where a
/// window of every one of them may start. All rows where they fit.
pub(super) fn row_windows(limits: &Limits, rows: u64, tensors: &[(DType, u64)]) -> Vec<Range<u64>> {
    windows_with_vectors(limits, rows, tensors, &[])
}

/// As [`row_windows`], for launches that also read `vectors`, which have few elements a row. A vector that fits one binding
/// is bound whole, as by [`part`].
pub(super) fn windows_with_vectors(
    limits: &Limits,
    rows: u64,
    matrices: &[(DType, u64)],
    vectors: &[(DType, u64)],
) -> Vec<Range<u64>> {
    let held = |&(dtype, columns): &(DType, u64)| limits.binding_elements(dtype) / columns.max(1);
    let large = vectors.iter().filter(|&vector| rows > held(vector));
    let tensors: Vec<&(DType, u64)> = matrices.iter().chain(large).collect();
    // Each divides the alignment, a power of two, so the largest is a multiple of all.
    let granules = tensors.iter().map(|(dtype, columns)| {
        BINDING_ALIGNMENT / gcd(BINDING_ALIGNMENT, dtype.size() as u64 * columns)
    });
    let granule = granules.max().unwrap_or(1);
    let most = tensors.iter().map(|&tensor| held(tensor)).min().unwrap_or(u64::MAX);
    let mut step = rows.max(1);
    if step > most {
        step = (most / granule).max(1) * granule;
    }
    (0..rows.div_ceil(step)).map(|i| i * step..((i + 1) * step).min(rows)).collect()
}

/// What is bound of a vector for its elements `range`, and where they begin in it: all of it where that fits.
pub(super) fn part(limits: &Limits, vector: Place, range: Range<u64>) -> (Place, u64) {
    if vector.elements <= limits.binding_elements(vector.dtype) {
        return (vector, range.start);
    }
    (vector.window(range), 0)
}
