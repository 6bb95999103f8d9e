//! The elementary functions and the storage conversions over slices.

use super::{Simd, Storage, dispatched, functions};
use crate::isa::Isa;

/// Defines, for a function `f` of one f32, `f_slice` and the body that is instantiated for it.
macro_rules! slice_functions {
    ($($function:ident, $body:ident, $dispatch:ident, $public:ident;)*) => {$(
        #[inline(always)]
        fn $body<S: Simd>(from: &[f32], to: &mut [f32]) {
            for (y, &x) in to.iter_mut().zip(from) {
                *y = functions::$function::<S>(x);
            }
        }
        dispatched!(pub(super) fn $dispatch(from: &[f32], to: &mut [f32]) = $body);

        #[doc = concat!("`to[i] = ", stringify!($function), "(from[i])`; accuracy and special \
            values as [`", stringify!($function), "`](super::", stringify!($function), "()).")]
        ///
        /// # Panics
        /// If the lengths differ.
        pub fn $public(isa: Isa, from: &[f32], to: &mut [f32]) {
            assert_eq!(from.len(), to.len(), "source and destination differ in length");
            $dispatch(isa, from, to);
        }
    )*};
}

slice_functions! {
    exp, exp_body, exp_on, exp_slice;
    ln, ln_body, ln_on, ln_slice;
    tanh, tanh_body, tanh_on, tanh_slice;
    sigmoid, sigmoid_body, sigmoid_on, sigmoid_slice;
    erf, erf_body, erf_on, erf_slice;
    sin, sin_body, sin_on, sin_slice;
    cos, cos_body, cos_on, cos_slice;
}

#[inline(always)]
fn pow_body<S: Simd>(base: &[f32], exponent: &[f32], to: &mut [f32]) {
    for ((y, &x), &e) in to.iter_mut().zip(base).zip(exponent) {
        *y = functions::pow::<S>(x, e);
    }
}
dispatched!(pub(super) fn pow_on(base: &[f32], exponent: &[f32], to: &mut [f32]) = pow_body);

/// `to[i] = base[i]` to the power `exponent[i]`; accuracy and special values as
/// [`pow`](super::pow()).
///
/// # Panics
/// If the lengths differ.
pub fn pow_slice(isa: Isa, base: &[f32], exponent: &[f32], to: &mut [f32]) {
    assert_eq!(base.len(), to.len(), "base and destination differ in length");
    assert_eq!(exponent.len(), to.len(), "exponent and destination differ in length");
    pow_on(isa, base, exponent, to);
}

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "S is the instruction set that the loop is compiled for"
)]
#[inline(always)]
fn load_body<S: Simd, T: Storage>(from: &[T], to: &mut [f32]) {
    T::load(from, to);
}
dispatched!(pub(super) fn load_on<T>(from: &[T], to: &mut [f32]) = load_body);

/// Converts storage to f32, exactly.
///
/// # Panics
/// If the lengths differ.
pub fn load_slice<T: Storage>(isa: Isa, from: &[T], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "source and destination differ in length");
    load_on(isa, from, to);
}

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "S is the instruction set that the loop is compiled for"
)]
#[inline(always)]
fn store_body<S: Simd, T: Storage>(from: &[f32], to: &mut [T]) {
    T::store(from, to);
}
dispatched!(pub(super) fn store_on<T>(from: &[f32], to: &mut [T]) = store_body);

/// Converts f32 to storage, rounding to nearest, ties to even.
///
/// # Panics
/// If the lengths differ.
pub fn store_slice<T: Storage>(isa: Isa, from: &[f32], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "source and destination differ in length");
    store_on(isa, from, to);
}
