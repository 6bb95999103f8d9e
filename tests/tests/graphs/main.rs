//! Graphs of models and optimizers, run node by node on the ops' references.

mod model;
mod optim;
mod parity;
mod skips;
