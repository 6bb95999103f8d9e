//! Tightrope trains neural networks in the memory you have.
//!
//! This is the library under every front end: the command line, the page and Python. A run is four values in a row, each
//! made from the one before: `Settings` → `Recipe` → `Planned` → `Run`.

#![forbid(unsafe_code)]

pub mod settings;
