//! Matmuls of small tiles that lie in cache.

use super::operands::Operands;
use super::panel::Left;
use crate::fast::vmath::{LANES, Simd};

/// out (m, n) = left (m, k) · right (k, n), or += where `accumulate`, with k in lanes. Rows of `right` and
/// `out` are `right_row` and `out_row` apart; n is a multiple of [`LANES`].
///
/// Each element is a single chain of multiply-adds over k that starts from `out` where it
/// accumulates: splitting k over calls does not change a bit of the result.
// In a browser, which has one instruction set, all callers share it: its module is to be small.
#[cfg_attr(target_family = "wasm", inline(never))]
#[cfg_attr(not(target_family = "wasm"), inline(always))]
pub(super) fn multiply<O: Operands>(
    (m, n, k): (usize, usize, usize),
    left: Left,
    right: &[f32],
    right_row: usize,
    out: &mut [f32],
    out_row: usize,
    accumulate: bool,
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(n % LANES == 0, "tile width {n} is not a multiple of {LANES}");
    assert!((m - 1) * out_row + n <= out.len(), "tile exceeds the output");
    if k > 0 {
        assert!((m - 1) * left.row + (k - 1) * left.step < left.data.len(), "tile exceeds left");
        assert!((k - 1) * right_row + n <= right.len(), "tile exceeds right");
    }
    // Rows so that accumulators, one row of `right` and one broadcast fill the registers: 32 of
    // AVX-512, 16 elsewhere.
    let vector = O::Simd::WIDTH;
    let rows = match vector {
        16 => 8,
        8 => 6,
        _ => 4,
    };
    let mut j = 0;
    while j < n {
        let wide = n - j >= 2 * vector;
        let mut i = 0;
        while i < m {
            let height = if m - i >= rows {
                rows
            } else if m - i >= 4 {
                4
            } else {
                1
            };
            // SAFETY: rows i .. i + height and columns j .. j + 2 or 1 vectors are inside the
            // operands, as asserted above for the whole tile; the instruction set is the caller's.
            unsafe {
                let a = left.data.as_ptr().wrapping_add(i * left.row);
                let b = right.as_ptr().wrapping_add(j);
                let c = out.as_mut_ptr().add(i * out_row + j);
                let steps = [left.row, left.step, right_row, out_row];
                match (height, wide) {
                    (8, true) => block::<O, 8, 2>(k, a, b, c, steps, accumulate),
                    (6, true) => block::<O, 6, 2>(k, a, b, c, steps, accumulate),
                    (4, true) => block::<O, 4, 2>(k, a, b, c, steps, accumulate),
                    (_, true) => block::<O, 1, 2>(k, a, b, c, steps, accumulate),
                    (8, false) => block::<O, 8, 1>(k, a, b, c, steps, accumulate),
                    (6, false) => block::<O, 6, 1>(k, a, b, c, steps, accumulate),
                    (4, false) => block::<O, 4, 1>(k, a, b, c, steps, accumulate),
                    (_, false) => block::<O, 1, 1>(k, a, b, c, steps, accumulate),
                }
            }
            i += height;
        }
        j += if wide { 2 * vector } else { vector };
    }
}

/// The innermost matmul, M rows by N vectors held in registers over the whole of k.
///
/// # Safety
/// M rows and N vectors of each operand, k steps deep, are valid; the CPU has the
/// instructions of `O`.
#[inline(always)]
unsafe fn block<O: Operands, const M: usize, const N: usize>(
    k: usize,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    [a_row, a_step, b_row, c_row]: [usize; 4],
    accumulate: bool,
) {
    type S<O> = <O as Operands>::Simd;
    // SAFETY: every pointer below stays inside the M rows, N vectors and k steps of the contract.
    unsafe {
        let mut sums = [[S::<O>::splat(0.0); N]; M];
        if accumulate {
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = S::<O>::load(c.add(i * c_row + j * S::<O>::WIDTH));
                }
            }
        }
        for step in 0..k {
            let (a, b) = (a.add(step * a_step), b.add(step * b_row));
            let mut right = [S::<O>::splat(0.0); N];
            for (j, vector) in right.iter_mut().enumerate() {
                *vector = S::<O>::load(b.add(j * S::<O>::WIDTH));
            }
            for (i, row) in sums.iter_mut().enumerate() {
                let x = S::<O>::splat(*a.add(i * a_row));
                for (sum, &vector) in row.iter_mut().zip(&right) {
                    *sum = O::multiply_add(x, vector, *sum);
                }
            }
        }
        for (i, row) in sums.iter().enumerate() {
            for (j, &sum) in row.iter().enumerate() {
                S::<O>::store(c.add(i * c_row + j * S::<O>::WIDTH), sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::operands::Floats;
    use super::*;
    use crate::fast::vmath::dispatched;
    use crate::isa::Isa;

    #[inline(always)]
    fn multiply_body<S: Simd>(
        sizes: (usize, usize, usize),
        left: Left,
        right: &[f32],
        out: &mut [f32],
        accumulate: bool,
    ) {
        multiply::<Floats<S>>(sizes, left, right, sizes.1 + 3, out, sizes.1 + 1, accumulate);
    }
    dispatched!(fn multiply_on(
        sizes: (usize, usize, usize), left: Left<'_>, right: &[f32], out: &mut [f32], accumulate: bool,
    ) = multiply_body);

    fn values(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect()
    }

    #[test]
    fn tiles_multiply() {
        for isa in Isa::available() {
            for m in [1, 3, 6, 8, 13, 25] {
                for (n, k) in [(16, 1), (32, 7), (48, 64), (80, 0)] {
                    for transposed in [false, true] {
                        for accumulate in [false, true] {
                            let a = values(m * k + 1);
                            let b = values(k * (n + 3));
                            let before = values(m * (n + 1));
                            let mut c = before.clone();
                            let (row, step) = if transposed { (1, m) } else { (k, 1) };
                            let left = Left { data: &a, row, step };
                            multiply_on(isa, (m, n, k), left, &b, &mut c, accumulate);
                            for (at, (&x, &old)) in c.iter().zip(&before).enumerate() {
                                let (i, j) = (at / (n + 1), at % (n + 1));
                                let mut want = if accumulate { f64::from(old) } else { 0.0 };
                                for s in 0..k {
                                    want += f64::from(a[i * row + s * step])
                                        * f64::from(b[s * (n + 3) + j.min(n)]);
                                }
                                // The column between two rows of the output is not touched.
                                let want = if j == n { f64::from(old) } else { want };
                                assert!((f64::from(x) - want).abs() < 1e-4, "({m}, {n}, {k})");
                            }
                        }
                    }
                }
            }
        }
    }
}
