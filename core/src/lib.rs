//! Core of Tightrope: nine words, and everything else is made of them.
//!
//! | word | meaning |
//! |---|---|
//! | [`Type`] | dtype and static shape of a tensor |
//! | [`Expr`] | a scalar formula: evaluated, differentiated, printed as WGSL or CUDA |
//! | [`Op`] | one family of work: type rule, gradient, cost, reference, test cases |
//! | [`Graph`] | an SSA list of ops over typed tensors |
//! | [`grad()`] | Graph → Graph: appends the backward pass |

#![forbid(unsafe_code)]

mod error;
pub mod expr;
mod grad;
pub mod graph;
pub mod ops;
mod types;

pub use error::{Error, Result};
pub use expr::Expr;
pub use grad::grad;
pub use graph::{Class, Graph, Life, Node, Phase, Program, Tensor, TensorInfo};
pub use ops::{Op, Rule};
pub use types::{DType, Type};
