//! What is said of a plan: for people, for machines, as a page, as a trace.
//!
//! | module | does |
//! |---|---|
//! | [`step`] | the step as data: what every op takes, and every tensor's place, life and readers |
//! | [`brief`] | what is about to be trained, a line each |
//! | [`summary`] | where the bytes go and what was chosen, as text and as JSON |
//! | [`advice`] | what a plan could be instead: what more bytes would buy and fewer would cost |
//! | [`sweep`] | the plans from the fastest to the smallest |
//! | [`page`] | all of it as one page of HTML that needs nothing else |
//! | [`trace`] | the step as trace events, which ui.perfetto.dev opens |

pub mod advice;
mod alive;
pub mod brief;
mod chart;
mod layers;
pub mod page;
pub mod step;
pub mod summary;
pub mod sweep;
pub mod trace;

#[cfg(all(test, feature = "cpu", not(target_family = "wasm")))]
mod tests;
