//! Every op on every backend, held against the one definition each op has: its reference in core.
//!
//! | module | holds |
//! |---|---|
//! | [`cases`] | what is tried: core's cases, and more shapes and dtypes |
//! | [`tensor_cores`] | cases for tensor cores by `mma.sync` |
//! | [`warpgroups`] | cases for Hopper's tensor cores, by `wgmma` |
//! | [`gradcheck`] | symbolic gradients against central differences in f64 |
//! | [`conformance`] | every case on a backend; how one is run and compared is [core's](tightrope_core::conformance) |
//! | [`oracle`] | a backend made of the references |
//! | [`draw`] | which cases of a test that takes long are tried today |
//! | [`language`] | steps of language models, changed |
//! | [`late`] | a backend whose copies take as long as they may |
//! | [`parallel`] | work on all cores |
//! | [`times`] | how long planned steps take |

#![forbid(unsafe_code)]

pub mod cases;
pub mod conformance;
pub mod draw;
pub mod gradcheck;
pub mod language;
pub mod late;
pub mod oracle;
pub mod parallel;
pub mod tensor_cores;
pub mod times;
pub mod warpgroups;

pub use tightrope_core::conformance::{reference, tolerance, values};
