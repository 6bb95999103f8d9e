//! The wgpu backend on the GPU that it finds.

mod kernels;
mod matmuls;
