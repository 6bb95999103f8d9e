//! `cargo xtask kernels`: what NVIDIA's compilers make of every CUDA kernel, held against tables that are checked in.
//!
//! They come as Python wheels, of the versions that the table was made with, unpacked into a folder of the build. Nothing
//! is installed, and no GPU is needed.

use anyhow::ensure;

use crate::packages::{PACKAGES, words};
use crate::shell::Shell;
use crate::wheels;

/// nvcc with what it's made of, and NVRTC: what compiles kernels.
const COMPILERS: [&str; 6] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-nvrtc==13.0.88",
];
/// Prints machine code. The oldest that is published reads what the compilers make.
const DISASSEMBLER: &str = "nvidia-cuda-nvdisasm==13.2.78";
/// The library whose calls are described to it.
const CUBLASLT: &str = "nvidia-cublas==13.0.2.14";
/// The library that is opened, and whose errors are named.
const NCCL: &str = "nvidia-nccl-cu13==2.32.3";

/// Runs the tests, their compilers unpacked.
///
/// # Errors
/// Where pip can't fetch the wheels, and on machines of another kind.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    ensure!(
        cfg!(all(target_arch = "x86_64", target_os = "linux")),
        "NVIDIA's compilers are fetched for x86-64 Linux alone"
    );
    let home = wheels::unpacked(shell, "NVIDIA", &[&COMPILERS[..], &[CUBLASLT]].concat())?
        .join("nvidia/cu13");
    let disassembler =
        wheels::unpacked(shell, "nvdisasm", &[DISASSEMBLER])?.join("nvidia/cu13/bin/nvdisasm");
    let nccl = wheels::unpacked(shell, "nccl", &[NCCL])?.join("nvidia/nccl/lib");
    let mut command = words(&["test", "--lib", "--test", "kernel_table"]);
    command
        .args(PACKAGES)
        .args(["--", "--ignored", "--nocapture", "--skip", "timed::"])
        // Under the name `CUDA_HOME`, crates that look for it would be compiled again, and all that is made of them.
        .env("NVCC_HOME", &home)
        // What was compiled by others is compiled again.
        .env("CUDA_WHEELS", COMPILERS.join(" "))
        .env("NVDISASM", disassembler)
        .env("NVDISASM_WHEEL", DISASSEMBLER)
        .env("LD_LIBRARY_PATH", std::env::join_paths([home.join("lib"), nccl])?);
    shell.run(&mut command)
}
