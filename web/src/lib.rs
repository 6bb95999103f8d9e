//! Tightrope in a browser tab: the library `tightrope`, bound to the page.
//!
//! | module | does |
//! |---|---|
//! | [`setup`] | the page's setup as the settings of a run, and back |
//! | [`planning`] | what the page shows of a plan, and the presets that it offers |
//! | [`device`] | opens WebGPU or the processor; makes a device go away, for tests |
//! | [`engine`] | what the page asks for: start, step, evaluate, sample, save |
//! | [`running`] | a run, and text and answers out of its model |
//!
//! Everything but the thin layer of bindings compiles natively and is tested there.

#![forbid(unsafe_code)]

pub mod device;
pub mod engine;
mod error;
pub mod planning;
pub mod running;
pub mod setup;

#[cfg(target_family = "wasm")]
mod bindings;

pub use error::{Error, Result};
