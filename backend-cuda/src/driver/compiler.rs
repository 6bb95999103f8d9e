//! Kernels to a GPU's code, kept on disk.

use std::cmp::Reverse;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use tightrope_core::threads::side_by_side;

use super::cache_key;
use super::nvrtc::Nvrtc;
use crate::source::{self, Kernel};

/// Compiles for one architecture.
pub struct Compiler {
    /// As NVRTC names it.
    pub architecture: String,
    pub nvrtc: Nvrtc,
    /// Whether kernels begin before those before them have ended.
    pub early: bool,
    /// Where compiled kernels are kept.
    pub cache: PathBuf,
}

impl Compiler {
    /// Code of a kernel, from the cache or the compiler.
    fn code(&self, kernel: &Kernel) -> Result<Vec<u8>, String> {
        let text = source::for_device(&[kernel], self.early);
        let options = Nvrtc::options(&self.architecture);
        let key = cache_key((&text, options, self.nvrtc.version()));
        let path = self.cache.join(format!("{key}.code"));
        if let Ok(code) = fs::read(&path) {
            return Ok(code);
        }
        let code = self.nvrtc.compile(&text, &self.architecture)?.code;
        // A cache that can't be written costs time and nothing else. Renamed, so that nobody reads half a file.
        let own = path.with_extension(format!("{}", std::process::id()));
        let kept = fs::create_dir_all(&self.cache).and_then(|()| fs::write(&own, &code));
        if kept.and_then(|()| fs::rename(&own, &path)).is_err() {
            let _ = fs::remove_file(&own);
        }
        Ok(code)
    }

    /// Code of kernels, compiled side by side.
    pub fn codes(&self, kernels: &[&Kernel]) -> Vec<Result<Vec<u8>, String>> {
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        heaviest_first(kernels, workers, |kernel| kernel.weight(), |kernel| self.code(kernel))
    }
}

/// What `work` makes of every item, in the order of the items. Each of so many threads takes the heaviest item that is left, so
/// that none is still at a heavy one when the others are done.
fn heaviest_first<T: Sync, R: Send>(
    items: &[T],
    workers: usize,
    weight: impl Fn(&T) -> u64,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let mut queue: Vec<usize> = (0..items.len()).collect();
    queue.sort_by_key(|&index| Reverse(weight(&items[index])));
    let queue = Mutex::new(queue.into_iter());
    let next = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
    let take = || {
        let mut done = vec![];
        while let Some(index) = next() {
            done.push((index, work(&items[index])));
        }
        done
    };
    let workers = 0..workers.min(items.len());
    let mut done: Vec<_> = side_by_side(workers, |_| take()).into_iter().flatten().collect();
    done.sort_unstable_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Condvar};

    use super::*;

    #[test]
    fn heavy_kernels_are_begun_first_and_no_thread_has_them_all() {
        // Two heavy ones next to each other at the end, where chunks of neighbours would leave both to one thread.
        let weights = [1, 2, 3, 4, 100, 90];
        let (both, begun) = (Barrier::new(2), Mutex::new(vec![]));
        let results = heaviest_first(
            &weights,
            2,
            |&weight| weight,
            |&weight| {
                begun.lock().unwrap().push(weight);
                // Passed only where two threads have a heavy one each.
                if weight >= 90 {
                    both.wait();
                }
                weight * 10
            },
        );
        assert_eq!(results, weights.map(|weight| weight * 10));
        let mut first = begun.into_inner().unwrap()[..2].to_vec();
        first.sort_unstable();
        assert_eq!(first, [90, 100]);
    }

    #[test]
    fn one_thread_does_the_light_ones_while_another_is_at_the_heaviest() {
        let weights = [5, 100, 1, 2, 3, 4];
        let (left, all_light) = (Mutex::new(weights.len() - 1), Condvar::new());
        let results = heaviest_first(
            &weights,
            2,
            |&weight| weight,
            |&weight| {
                let mut left = left.lock().unwrap();
                if weight == 100 {
                    drop(all_light.wait_while(left, |left| *left > 0).unwrap());
                } else {
                    *left -= 1;
                    all_light.notify_all();
                }
                weight
            },
        );
        assert_eq!(results, weights);
        assert_eq!(heaviest_first(&[0; 0], 2, |_| 0, |&item| item), []);
    }
}
