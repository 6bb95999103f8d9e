//! Plans: within a budget, their offsets, what they compute, and their text.

mod budgets;
mod narrow;
mod offsets;
mod overlap;
mod qlora;
mod rewrites;
mod snapshots;
mod timed;
