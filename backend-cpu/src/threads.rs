//! Work shared among threads: those of a pool, or the caller's alone where the system has no others.

#[cfg(target_family = "wasm")]
pub(crate) use alone::*;
#[cfg(not(target_family = "wasm"))]
pub(crate) use pooled::*;

#[cfg(not(target_family = "wasm"))]
mod pooled {
    pub(crate) use rayon::current_num_threads as current;
    use rayon::prelude::*;
    use tightrope_core::DeviceError;

    /// Threads that wait for work.
    pub(crate) struct Pool(rayon::ThreadPool);

    impl Pool {
        /// A pool of so many threads; 0 takes as many as the process may use.
        pub(crate) fn new(threads: usize) -> Result<Self, DeviceError> {
            let builder = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|index| format!("cpu-{index}"));
            let lost = |reason: String| DeviceError::Lost { device: "cpu".into(), reason };
            builder.build().map(Self).map_err(|error| {
                lost(format!("its threads, each with a stack in memory, don't start: {error}"))
            })
        }

        pub(crate) fn threads(&self) -> usize {
            self.0.current_num_threads()
        }

        /// Does the work, whose parts go to the pool's threads.
        pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
            self.0.install(work)
        }
    }

    /// Calls `body` for each number below `count`.
    pub(crate) fn for_each(count: usize, body: impl Fn(usize) + Sync + Send) {
        (0..count).into_par_iter().for_each(body);
    }

    /// As [`for_each`], each call a task of its own.
    pub(crate) fn for_each_worker(count: usize, body: impl Fn(usize) + Sync + Send) {
        (0..count).into_par_iter().with_max_len(1).for_each(body);
    }

    /// Calls `body` with each piece of `len` elements, the last one shorter, and its number.
    pub(crate) fn for_each_chunk<T: Send>(
        slice: &mut [T],
        len: usize,
        body: impl Fn(usize, &mut [T]) + Sync + Send,
    ) {
        slice.par_chunks_mut(len).enumerate().for_each(|(index, chunk)| body(index, chunk));
    }
}

/// Without rayon, whose splitting is a fifth of a browser's module.
#[cfg(target_family = "wasm")]
mod alone {
    use tightrope_core::DeviceError;

    pub(crate) struct Pool;

    impl Pool {
        #[expect(clippy::unnecessary_wraps, reason = "a pool of threads may be refused")]
        pub(crate) fn new(_: usize) -> Result<Self, DeviceError> {
            Ok(Self)
        }

        #[expect(clippy::unused_self, reason = "a pool of threads knows how many there are")]
        pub(crate) fn threads(&self) -> usize {
            current()
        }

        #[expect(clippy::unused_self, reason = "a pool of threads does the work on them")]
        pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
            work()
        }
    }

    pub(crate) fn current() -> usize {
        1
    }

    pub(crate) fn for_each(count: usize, body: impl Fn(usize)) {
        (0..count).for_each(body);
    }

    pub(crate) use for_each as for_each_worker;

    pub(crate) fn for_each_chunk<T>(slice: &mut [T], len: usize, body: impl Fn(usize, &mut [T])) {
        slice.chunks_mut(len).enumerate().for_each(|(index, chunk)| body(index, chunk));
    }
}
