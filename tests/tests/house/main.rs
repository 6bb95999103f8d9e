//! The repository itself: who depends on whom, how long files are, and what a reader can run.

mod arrows;
mod circles;
mod examples;
mod files;
mod stranger;
