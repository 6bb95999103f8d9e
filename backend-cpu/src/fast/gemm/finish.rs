//! From f32 sums to the output: `out = round(scale·sum + bias (+ out))`, rounded to nearest even.
//!
//! The vector and the plain version do the same operations in the same order, and no multiply-add is fused,
//! so that an element's bits don't depend on where a block's edge falls.

use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
use super::ahead::Lines;
use super::{Element, Gemm};

#[cfg(target_arch = "x86_64")]
mod vectors;

#[cfg(target_arch = "x86_64")]
pub(super) use vectors::{finish_avx2, finish_avx512};

/// Sums of a rectangle of the output.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// Sum (0, 0); rows are `stride` apart.
    pub(super) ptr: *const f32,
    /// f32 from one row to the next.
    pub(super) stride: usize,
    /// First row in the output.
    pub(super) row: usize,
    /// First column in the output.
    pub(super) column: usize,
    /// Rows.
    pub(super) rows: usize,
    /// Columns.
    pub(super) columns: usize,
}

/// Writes `sums` to the output of `matmul`, on any CPU.
///
/// # Safety
///
/// The rectangle must lie inside the output, no other thread may touch it, and the matmul's pointers must
/// hold to the contract of `gemm`.
pub(super) unsafe fn finish(matmul: &Gemm, sums: Sums) {
    for i in 0..sums.rows {
        for j in 0..sums.columns {
            // SAFETY: inside the rectangle.
            unsafe {
                let mut value = *sums.ptr.add(i * sums.stride + j) * matmul.scale;
                if let Some(bias) = matmul.bias {
                    let at = (sums.column + j) * bias.element.size();
                    value += read(bias.ptr.add(at), bias.element);
                }
                let out = at(matmul, sums.row + i, sums.column + j);
                if matmul.accumulate {
                    value += read(out, matmul.out.element);
                }
                write(out, matmul.out.element, value);
            }
        }
    }
}

/// Sets the sums of a tile to the output's f32 elements, and to 0 where the tile is padded.
///
/// # Safety
///
/// As [`finish`]; `to` holds `padded_rows` rows of `sums.stride`.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn start_from_output(
    matmul: &Gemm,
    sums: Sums,
    padded_rows: usize,
    to: *mut f32,
) {
    // SAFETY: elements inside the output and the tile, by the caller's promise.
    unsafe {
        to.write_bytes(0, padded_rows * sums.stride);
        for i in 0..sums.rows {
            let row = to.add(i * sums.stride);
            if matmul.out.col_stride == 1 {
                let from = at(matmul, sums.row + i, sums.column).cast::<f32>();
                // Bytes, as the output may be unaligned.
                row.cast::<u8>().copy_from_nonoverlapping(from.cast(), 4 * sums.columns);
                continue;
            }
            for j in 0..sums.columns {
                *row.add(j) = read(at(matmul, sums.row + i, sums.column + j), Element::F32);
            }
        }
    }
}

/// Address of element (i, j) of the output.
pub(super) fn at(matmul: &Gemm, i: usize, j: usize) -> *mut u8 {
    let out = &matmul.out;
    let elements = i as isize * out.row_stride + j as isize * out.col_stride;
    out.ptr.wrapping_offset(elements * out.element.size() as isize)
}

/// # Safety
///
/// An element must be readable at `ptr`.
pub(super) unsafe fn read(ptr: *const u8, element: Element) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match element {
            Element::F32 => ptr.cast::<f32>().read_unaligned(),
            Element::Bf16 => bf16::from_bits(ptr.cast::<u16>().read_unaligned()).to_f32(),
            Element::F16 => f16::from_bits(ptr.cast::<u16>().read_unaligned()).to_f32(),
        }
    }
}

/// # Safety
///
/// An element must be writable at `ptr`.
unsafe fn write(ptr: *mut u8, element: Element, value: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match element {
            Element::F32 => ptr.cast::<f32>().write_unaligned(value),
            Element::Bf16 => {
                ptr.cast::<u16>().write_unaligned(bf16::from_f32(value).to_bits());
            }
            Element::F16 => ptr.cast::<u16>().write_unaligned(f16::from_f32(value).to_bits()),
        }
    }
}

/// The memory of a rectangle of the output, to be asked for in so many parts before its stores wait for it; nothing where its rows
/// aren't contiguous.
#[cfg(target_arch = "x86_64")]
pub(super) fn lines(matmul: &Gemm, sums: Sums, parts: usize) -> Lines {
    let out = &matmul.out;
    if out.col_stride != 1 {
        return Lines::NONE;
    }
    let size = out.element.size();
    let step = out.row_stride * size as isize;
    Lines::new(at(matmul, sums.row, sums.column), sums.rows, sums.columns * size, step, parts)
}
