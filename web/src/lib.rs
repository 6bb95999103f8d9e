//! Tightrope in a browser tab.
//!
//! | module | does |
//! |---|---|
//! | [`setup`] | the page's setup as the settings of a run, and back |
//! | [`planning`] | a plan within a budget, and what the page shows of it |
//! | [`corpus`] | text and tasks to train on |
//! | [`device`] | opens WebGPU or the processor; makes a device go away, for tests |
//! | [`engine`] | what the page asks for: start, step, evaluate, sample, save |
//! | [`product`] | times a matrix product, to compare with others |
//! | `run` | a run on a device, and its way back from a lost one |
//! | `checkpoint` | a run to and from one file |
//!
//! Everything but the thin layer of bindings compiles natively and is tested there.

#![forbid(unsafe_code)]

mod checkpoint;
mod clock;
pub mod corpus;
pub mod device;
pub mod engine;
mod error;
pub mod planning;
pub mod product;
mod run;
pub mod setup;

#[cfg(target_family = "wasm")]
mod bindings;

pub use error::{Error, Result};
