//! The repository itself: who depends on whom, how long files are, and what a reader can run.

mod arrows;
#[path = "../../../xtask/src/cargo.rs"]
mod cargo;
mod circles;
mod examples;
mod files;
mod stranger;
