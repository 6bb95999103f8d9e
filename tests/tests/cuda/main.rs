//! The CUDA backend without a GPU: its kernels and its driver, emulated on the processor.

mod attention;
mod changed;
mod driver;
mod kernels;
mod large;
mod last;
mod plans;
mod ranks;
mod rounding;
mod training;
mod watched;
mod wgmma;
