//! Digests of the code that a device's rates are measured with, so that rates are measured anew when it changes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Code of the costs of ops, and of the measuring.
const COMMON: [&str; 7] = [
    "../core/src/ops",
    "../core/src/cost.rs",
    "../nn/src/cost.rs",
    "../nn/src/cost",
    "src/rates.rs",
    "src/rates",
    "src/timing.rs",
];

/// Code of each backend, with the variable that tells its digest.
const BACKENDS: [(&str, &[&str]); 3] = [
    ("KERNELS_CPU", &["../backend-cpu/src"]),
    ("KERNELS_WGPU", &["../backend-wgpu/src", "../shaders"]),
    ("KERNELS_CUDA", &["../backend-cuda/src", "../kernels"]),
];

fn main() {
    let compiler =
        env::var_os("RUSTC").and_then(|rustc| Command::new(rustc).arg("-V").output().ok());
    let compiler = compiler.map(|output| output.stdout).unwrap_or_default();
    let of = |name: &str| env::var(name).unwrap_or_default();
    let settings = ["CARGO_PKG_VERSION", "TARGET", "OPT_LEVEL", "DEBUG", "CARGO_ENCODED_RUSTFLAGS"]
        .map(of)
        .join("\n");
    for (variable, own) in BACKENDS {
        let mut files = vec![];
        for path in COMMON.iter().chain(own) {
            println!("cargo::rerun-if-changed={path}");
            collect(Path::new(path), &mut files);
        }
        files.sort();
        let mut hash = Hash::new();
        hash.add(&compiler);
        hash.add(settings.as_bytes());
        for file in files {
            hash.add(file.to_string_lossy().as_bytes());
            hash.add(&fs::read(&file).unwrap_or_default());
        }
        println!("cargo::rustc-env={variable}={:016x}", hash.0);
    }
}

/// Appends the file at `path`, or all files of the folder.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo).
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes, and where they end.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
