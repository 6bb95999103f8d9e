//! Core of Tightrope: nine words, and everything else is made of them.
//!
//! | word | meaning |
//! |---|---|
//! | [`Type`] | dtype and static shape of a tensor |
//! | [`Expr`] | a scalar formula: evaluated, differentiated, printed as WGSL or CUDA |
//! | [`Op`] | one family of work: type rule, gradient, cost, reference, test cases |
//! | [`Graph`] | an SSA list of ops over typed tensors |
//! | [`grad()`] | Graph → Graph: appends the backward pass |
//! | [`Plan`] | a flat list of steps plus the arena offset of every tensor |
//! | [`Launch`] | kernel name, grid, parameters |
//! | [`Backend`] | prepares a plan and replays it |
//! | [`Session`] | a plan, its buffers and the step counter |

#![forbid(unsafe_code)]

pub mod activation;
mod backend;
pub mod batch;
mod cancel;
pub mod conformance;
mod cost;
pub mod dialect;
mod error;
pub mod expr;
mod fuse;
mod grad;
pub mod graph;
pub mod launch;
mod link;
pub mod ops;
pub mod plan;
mod random;
mod ranks;
mod role;
mod session;
pub mod shards;
mod target;
mod tensor;
pub mod threads;
mod types;
mod variants;

pub use backend::{Backend, DeviceError, DeviceKind, HostMemory, Linked, Links, Reading, now};
pub use cancel::{Cancel, Cancelled};
pub use error::{Error, Result};
pub use expr::Expr;
pub use grad::{Wanted, add_gradient, grad};
pub use graph::{Class, Graph, Life, Node, Phase, Program, Role, Tensor, TensorInfo};
pub use launch::Launch;
pub use link::{Link, all_overlap, link};
pub use ops::{Op, Rule};
pub use plan::Plan;
pub use ranks::{Ranks, RanksError, Ticket};
#[cfg(not(target_family = "wasm"))]
pub use session::Wait;
pub use session::{NonFinite, Session, SessionError, split};
pub use shards::Shards;
pub use types::{DType, Type};
pub use variants::{KernelUse, Variants};
