//! What the commands that run a model share.
//!
//! | module | does |
//! |---|---|
//! | [`source`] | model directories: Hugging Face's, a checkpoint, a run |
//! | [`adapters`] | directories of PEFT's, to start from |
//! | [`corpus`] | tokenizer and data, the built-in text among them |
//! | [`directory`] | the run directory |
//! | [`origin`] | what a run is made from, on the first device and on another |
//! | [`state`] | a trainer to and from a checkpoint |
//! | [`training`] | the loop over steps |
//! | [`evaluate`] | loss on held-out data |
//! | [`sample`] | text out of a model |
//! | [`figures`] | what a run measures of itself |

pub mod adapters;
pub mod corpus;
pub mod directory;
pub mod evaluate;
pub mod figures;
pub mod origin;
pub mod sample;
pub mod source;
pub mod state;
pub mod training;
