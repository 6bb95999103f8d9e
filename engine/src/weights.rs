//! Where the weights of a run come from: model directories, checkpoints, adapters, and what is beside them.

pub mod adapters;
pub mod preprocessor;
pub mod source;
pub mod start;
pub mod tokenizer;

pub use source::{Places, Source};
pub use start::Start;
