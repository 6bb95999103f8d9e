//! Every op on every backend, held against the one definition each op has: its reference in core.
//!
//! | module | holds |
//! |---|---|
//! | [`cases`] | what is tried: core's cases, and more shapes and dtypes |
//! | [`tensor_cores`] | cases for tensor cores by `mma.sync` |
//! | [`warpgroups`] | cases for Hopper's tensor cores, by `wgmma` |
//! | [`values`] | what the inputs hold |
//! | [`reference`](mod@reference) | an interpreter that runs graphs through the references |
//! | [`gradcheck`] | symbolic gradients against central differences in f64 |
//! | [`tolerance`] | how far a backend may be from the reference |
//! | [`conformance`] | every case on a backend |
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
pub mod reference;
pub mod tensor_cores;
pub mod times;
pub mod tolerance;
pub mod values;
pub mod warpgroups;
