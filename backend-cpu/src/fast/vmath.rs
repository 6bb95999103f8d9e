//! Vector arithmetic shared by the fast paths: run-time choice of instruction set, storage
//! conversions, elementary functions, and the fixed split of work over threads.
//!
//! A hot loop is written once, as an `#[inline(always)]` function generic over [`Simd`], and
//! instantiated for each instruction set by `dispatched!`. Every element is computed alone and
//! every sum has an order that depends on the shape only, so results repeat bit for bit and do not
//! depend on the number of threads. They may differ between instruction sets (fused or separate
//! multiply and add).

mod functions;
pub(crate) mod parallel;
pub(crate) mod reduce;
mod simd;
mod slices;
mod storage;
#[cfg(test)]
mod tests;

pub use functions::{cos, erf, exp, ln, pow, sigmoid, sin, sin_cos, tanh};
#[cfg(target_arch = "x86_64")]
pub use simd::{Avx2, Avx512};
pub(crate) use simd::{LANES, dispatched};
pub use simd::{Portable, Simd};
pub use slices::{
    cos_slice, erf_slice, exp_slice, ln_slice, load_slice, pow_slice, sigmoid_slice, sin_slice,
    store_slice, tanh_slice,
};
pub use storage::{Storage, prefetch};
