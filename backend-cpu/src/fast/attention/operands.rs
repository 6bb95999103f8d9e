//! How the operands of a tile's matmuls lie in memory, and what multiplies them.
//!
//! A lane is the room of an f32. It holds one element of depth ([`Floats`]), or two neighbours of depth in bf16 ([`Pairs`]), which
//! one instruction multiplies and adds to a sum in f32. So matmuls of both read the same panels, with lanes as their depth.
//!
//! ```text
//! left         (rows, lanes)               rows · panel
//! right        (lanes, width)              weights · right
//! panel        (lanes, PANEL)              PANEL rows, transposed
//! weights      (rows, columns) in f32, of which `by_rows` makes (rows, lanes) and `by_columns` (lanes, columns)
//! ```

use std::marker::PhantomData;

#[cfg(doc)]
use super::panel::PANEL;
use super::panel::{Left, load_rows, transpose_panel};
use crate::fast::vmath::{Simd, Storage};

/// One kind of operand.
pub(super) trait Operands {
    /// The instruction set.
    type Simd: Simd;

    /// Elements of depth in a lane.
    const DEPTH: usize;

    /// c + a·b, summed over the elements of each lane.
    ///
    /// # Safety
    /// As [`Simd::splat`] of [`Self::Simd`].
    unsafe fn multiply_add(a: Vector<Self>, b: Vector<Self>, c: Vector<Self>) -> Vector<Self>;

    /// `count` rows of `d` elements, `stride` apart in `from`, as a left operand with rows of `lanes` lanes, zero beyond d.
    fn left<T: Storage>(
        from: &[T],
        stride: usize,
        size: (usize, usize),
        to: &mut [f32],
        lanes: usize,
    );

    /// The same rows as a right operand, zero beyond column d. A lane that isn't full ends with zero.
    fn right<T: Storage>(
        from: &[T],
        stride: usize,
        size: (usize, usize),
        to: &mut [f32],
        width: usize,
    );

    /// The same rows, at most [`PANEL`], as a panel. `rows` has room for [`PANEL`] rows of `lanes` lanes.
    #[inline(always)]
    fn panel<T: Storage>(
        from: &[T],
        stride: usize,
        (count, d): (usize, usize),
        rows: &mut [f32],
        panel: &mut [f32],
        lanes: usize,
    ) {
        Self::left(from, stride, (count, d), rows, lanes);
        transpose_panel::<Self::Simd>(rows, count, lanes, panel);
    }

    /// The same rows as a left and as a right operand, in `to` of `count` · `width` lanes.
    fn both<'t, T: Storage>(
        from: &[T],
        stride: usize,
        size: (usize, usize),
        to: &'t mut [f32],
        width: usize,
    ) -> (&'t [f32], &'t [f32]);

    /// Weights of `count` rows, `row` apart, as a left operand whose depth is the columns. `room` may be used for it.
    fn by_rows<'w>(
        weights: &'w [f32],
        size: (usize, usize),
        row: usize,
        room: &'w mut [f32],
    ) -> Left<'w>;

    /// Makes one row of weights part of a left operand whose depth is the columns, in place.
    fn narrow(row: &mut [f32]);

    /// Makes weights of `count` rows, `row` apart, a left operand whose depth is the rows, in place: lane l of column c at
    /// `l · DEPTH · row + c`.
    fn by_columns(weights: &mut [f32], size: (usize, usize), row: usize);
}

type Vector<O> = <<O as Operands>::Simd as Simd>::Vector;

/// Operands in f32, whatever the storage.
pub(super) struct Floats<S>(PhantomData<S>);

impl<S: Simd> Operands for Floats<S> {
    type Simd = S;
    const DEPTH: usize = 1;

    #[inline(always)]
    unsafe fn multiply_add(a: S::Vector, b: S::Vector, c: S::Vector) -> S::Vector {
        // SAFETY: passed on.
        unsafe { S::vector_mul_add(a, b, c) }
    }

    #[inline(always)]
    fn left<T: Storage>(
        from: &[T],
        stride: usize,
        size: (usize, usize),
        to: &mut [f32],
        lanes: usize,
    ) {
        load_rows(from, stride, size, to, lanes);
    }

    #[inline(always)]
    fn right<T: Storage>(
        from: &[T],
        stride: usize,
        size: (usize, usize),
        to: &mut [f32],
        width: usize,
    ) {
        load_rows(from, stride, size, to, width);
    }

    #[inline(always)]
    fn both<'t, T: Storage>(
        from: &[T],
        stride: usize,
        size: (usize, usize),
        to: &'t mut [f32],
        width: usize,
    ) -> (&'t [f32], &'t [f32]) {
        load_rows(from, stride, size, to, width);
        (to, to)
    }

    #[inline(always)]
    fn by_rows<'w>(
        weights: &'w [f32],
        _: (usize, usize),
        row: usize,
        _: &'w mut [f32],
    ) -> Left<'w> {
        Left { data: weights, row, step: 1 }
    }

    #[inline(always)]
    fn narrow(_: &mut [f32]) {}

    #[inline(always)]
    fn by_columns(_: &mut [f32], _: (usize, usize), _: usize) {}
}

#[cfg(target_arch = "x86_64")]
pub(super) use pairs::Pairs;

#[cfg(target_arch = "x86_64")]
mod pairs {
    use std::arch::x86_64::*;

    use half::bf16;

    use super::{Left, Operands};
    use crate::fast::vmath::{Avx512, LANES, Storage};

    /// Pairs of bf16, of tensors that are stored so. Weights are rounded to bf16.
    pub(in super::super) struct Pairs;

    impl Operands for Pairs {
        type Simd = Avx512;
        const DEPTH: usize = 2;

        #[inline(always)]
        unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the caller vouches for AVX-512 BF16, here and below; `__m512` and `__m512bh` are both 512 plain bits.
            unsafe {
                let pairs = |lanes: __m512| std::mem::transmute::<__m512, __m512bh>(lanes);
                _mm512_dpbf16_ps(c, pairs(a), pairs(b))
            }
        }

        #[inline(always)]
        fn left<T: Storage>(
            from: &[T],
            stride: usize,
            (count, d): (usize, usize),
            to: &mut [f32],
            lanes: usize,
        ) {
            let from: &[bf16] = bytemuck::cast_slice(from);
            for (r, row) in to.chunks_exact_mut(lanes).take(count).enumerate() {
                let row: &mut [bf16] = bytemuck::cast_slice_mut(row);
                let (values, padding) = row.split_at_mut(d);
                values.copy_from_slice(&from[r * stride..][..d]);
                padding.fill(bf16::ZERO);
            }
        }

        #[inline(always)]
        fn right<T: Storage>(
            from: &[T],
            stride: usize,
            (count, d): (usize, usize),
            to: &mut [f32],
            width: usize,
        ) {
            let from: &[bf16] = bytemuck::cast_slice(from);
            let bits = |x: bf16| u32::from(x.to_bits());
            for (pair, lanes) in to.chunks_exact_mut(width).take(count.div_ceil(2)).enumerate() {
                let (lanes, padding) = lanes.split_at_mut(d);
                let first = &from[2 * pair * stride..][..d];
                if 2 * pair + 1 < count {
                    let second = &from[(2 * pair + 1) * stride..][..d];
                    for ((lane, &a), &b) in lanes.iter_mut().zip(first).zip(second) {
                        *lane = f32::from_bits(bits(a) | bits(b) << 16);
                    }
                } else {
                    for (lane, &a) in lanes.iter_mut().zip(first) {
                        *lane = f32::from_bits(bits(a));
                    }
                }
                padding.fill(0.0);
            }
        }

        #[inline(always)]
        fn both<'t, T: Storage>(
            from: &[T],
            stride: usize,
            size: (usize, usize),
            to: &'t mut [f32],
            width: usize,
        ) -> (&'t [f32], &'t [f32]) {
            let (left, right) = to.split_at_mut(to.len() / 2);
            Self::left(from, stride, size, left, width / 2);
            Self::right(from, stride, size, right, width);
            (left, right)
        }

        #[inline(always)]
        fn by_rows<'w>(
            weights: &'w [f32],
            (count, columns): (usize, usize),
            row: usize,
            room: &'w mut [f32],
        ) -> Left<'w> {
            for r in 0..count {
                let (from, to) = (&weights[r * row..][..columns], &mut room[r * row..][..columns]);
                // SAFETY: both are `columns` long.
                unsafe { narrow(from.as_ptr(), to.as_mut_ptr(), columns) };
            }
            Left { data: room, row, step: 1 }
        }

        #[inline(always)]
        fn narrow(row: &mut [f32]) {
            let (at, columns) = (row.as_mut_ptr(), row.len());
            // SAFETY: it reads and writes this row.
            unsafe { narrow(at, at, columns) };
        }

        #[inline(always)]
        fn by_columns(weights: &mut [f32], (count, columns): (usize, usize), row: usize) {
            // Words 0, 16, 1, 17, … of two vectors of 16 words.
            const ORDER: [u16; 32] = {
                let mut order = [0; 32];
                let mut lane = 0;
                while lane < LANES {
                    (order[2 * lane], order[2 * lane + 1]) = (lane as u16, (LANES + lane) as u16);
                    lane += 1;
                }
                order
            };
            for r in (0..count).step_by(2) {
                let rows = &mut weights[r * row..];
                assert!(columns <= row && columns.is_multiple_of(LANES) && columns <= rows.len());
                let second = r + 1 < count;
                assert!(!second || row + columns <= rows.len());
                for c in (0..columns).step_by(LANES) {
                    // SAFETY: `columns` lanes from the start of one row or both lie in `rows`, as asserted.
                    unsafe {
                        let at = rows.as_mut_ptr().add(c);
                        let low = _mm512_loadu_ps(at);
                        let high =
                            if second { _mm512_loadu_ps(at.add(row)) } else { _mm512_setzero_ps() };
                        let words = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(
                            high, low,
                        ));
                        let order = _mm512_loadu_epi16(ORDER.as_ptr().cast());
                        let lanes = _mm512_permutexvar_epi16(order, words);
                        _mm512_storeu_ps(at, _mm512_castsi512_ps(lanes));
                    }
                }
            }
        }
    }

    /// Rounds `columns` values to pairs; both may be the same.
    ///
    /// # Safety
    /// As [`Operands::multiply_add`]; `from` and `to` are valid for `columns` f32, a multiple of [`LANES`].
    #[inline(always)]
    unsafe fn narrow(from: *const f32, to: *mut f32, columns: usize) {
        for c in (0..columns).step_by(2 * LANES) {
            // SAFETY: the caller vouches for the columns. What is written lies before what is read next.
            unsafe {
                let low = _mm512_loadu_ps(from.add(c));
                let full = c + LANES < columns;
                let high =
                    if full { _mm512_loadu_ps(from.add(c + LANES)) } else { _mm512_setzero_ps() };
                let words = std::mem::transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_ps(to.add(c / 2), words);
            }
        }
    }
}

/// `operated!(fn name<T>(a: A) = body)` defines `name(isa, a)`, which runs `body::<O, T>(a)` with the operands of tensors of `T`,
/// compiled for the instruction set `isa`. As for `dispatched!`, all of `body` must be inlined.
macro_rules! operated {
    (fn $name:ident<$T:ident>($($arg:ident: $type:ty),* $(,)?) = $body:ident) => {
        #[expect(clippy::too_many_arguments, reason = "kernels take the dimensions one by one")]
        fn $name<$T: $crate::fast::vmath::Storage>(isa: $crate::isa::Isa, $($arg: $type),*) {
            #[expect(clippy::too_many_arguments, reason = "as above")]
            #[inline(always)]
            fn floats<S: $crate::fast::vmath::Simd, $T: $crate::fast::vmath::Storage>($($arg: $type),*) {
                $body::<$crate::fast::attention::operands::Floats<S>, $T>($($arg),*)
            }
            $crate::fast::vmath::dispatched!(fn floats_on<$T>($($arg: $type),*) = floats);
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
            #[expect(clippy::too_many_arguments, reason = "as above")]
            fn pairs<$T: $crate::fast::vmath::Storage>($($arg: $type),*) {
                $body::<$crate::fast::attention::operands::Pairs, $T>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            if $crate::fast::attention::depth::<$T>(isa.level()) == 2 {
                // SAFETY: an `Isa` that multiplies pairs is proof of every feature enabled above.
                return unsafe { pairs($($arg),*) };
            }
            floats_on(isa, $($arg),*)
        }
    };
}
pub(super) use operated;
