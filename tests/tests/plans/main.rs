//! Plans: within a budget, their offsets, what they compute, and their text.

mod budgets;
mod offsets;
mod rewrites;
mod snapshots;
