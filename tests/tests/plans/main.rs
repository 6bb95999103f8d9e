//! Plans: within a budget, their offsets, what they compute, and their text.

mod budgets;
mod growth;
mod offsets;
mod rewrites;
mod snapshots;
