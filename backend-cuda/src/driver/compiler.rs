//! Kernels to a GPU's code, kept on disk.

use std::fs;
use std::path::PathBuf;
use std::thread;

use super::cache_key;
use super::nvrtc::Nvrtc;
use crate::source::{self, Kernel};

/// Compiles for one architecture.
pub struct Compiler {
    /// As NVRTC names it.
    pub architecture: String,
    pub nvrtc: Nvrtc,
    /// Where compiled kernels are kept.
    pub cache: PathBuf,
}

impl Compiler {
    /// Code of a kernel, from the cache or the compiler.
    fn cubin(&self, kernel: &Kernel) -> Result<Vec<u8>, String> {
        let text = source::for_device(&[kernel]);
        let key = cache_key((&text, &self.architecture, self.nvrtc.version()));
        let path = self.cache.join(format!("{key}.cubin"));
        if let Ok(cubin) = fs::read(&path) {
            return Ok(cubin);
        }
        let cubin = self.nvrtc.compile(&text, &self.architecture)?.cubin;
        // A cache that can't be written costs time and nothing else. Renamed, so that nobody reads half a file.
        let own = path.with_extension(format!("{}", std::process::id()));
        let kept = fs::create_dir_all(&self.cache).and_then(|()| fs::write(&own, &cubin));
        if kept.and_then(|()| fs::rename(&own, &path)).is_err() {
            let _ = fs::remove_file(&own);
        }
        Ok(cubin)
    }

    /// Code of kernels, compiled side by side.
    pub fn cubins(&self, kernels: &[&Kernel]) -> Vec<Result<Vec<u8>, String>> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let share = kernels.len().div_ceil(workers).max(1);
        thread::scope(|scope| {
            let shares: Vec<_> = kernels
                .chunks(share)
                .map(|part| {
                    let compile = || part.iter().map(|kernel| self.cubin(kernel)).collect();
                    scope.spawn::<_, Vec<_>>(compile)
                })
                .collect();
            shares
                .into_iter()
                .flat_map(|share| share.join().expect("compiling doesn't panic"))
                .collect()
        })
    }
}
