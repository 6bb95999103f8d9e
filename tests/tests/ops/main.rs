//! Ops: what their list promises, their references, their gradients, and all of them on the CPU.

mod cpu;
mod gradients;
mod harness;
mod list;
mod nf4;
