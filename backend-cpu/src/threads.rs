//! Work shared among threads: those of a pool, or the caller's alone where the system has no others. Pieces of it are left out once
//! somebody asked the pool to stop.

#[cfg(target_family = "wasm")]
pub(crate) use alone::*;
#[cfg(not(target_family = "wasm"))]
pub(crate) use pooled::*;

#[cfg(not(target_family = "wasm"))]
mod pooled {
    pub(crate) use rayon::current_num_threads as current;
    use std::cell::RefCell;
    use std::sync::{Arc, PoisonError, RwLock};

    use rayon::prelude::*;
    use tightrope_core::{Cancel, DeviceError};

    /// Threads that wait for work.
    pub(crate) struct Pool {
        threads: rayon::ThreadPool,
        cancel: Shared,
    }

    /// The cancellation token of a pool's work.
    type Shared = Arc<RwLock<Cancel>>;

    thread_local! {
        /// The token of the pool which the thread belongs to.
        static CANCEL: RefCell<Option<Shared>> = const { RefCell::new(None) };
    }

    /// The cancellation token of the work that this thread does for its pool.
    pub(crate) fn cancel() -> Cancel {
        let of_pool =
            |cancel: &Shared| cancel.read().unwrap_or_else(PoisonError::into_inner).clone();
        CANCEL.with_borrow(|shared| shared.as_ref().map(of_pool)).unwrap_or_default()
    }

    impl Pool {
        /// A pool of so many threads; 0 takes as many as the process may use.
        pub(crate) fn new(threads: usize) -> Result<Self, DeviceError> {
            let cancel = Shared::default();
            let own = Arc::clone(&cancel);
            let builder = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .start_handler(move |_| CANCEL.set(Some(Arc::clone(&own))))
                .thread_name(|index| format!("cpu-{index}"));
            let lost = |reason: String| DeviceError::Lost { device: "cpu".into(), reason };
            builder.build().map(|threads| Self { threads, cancel }).map_err(|error| {
                lost(format!("its threads, each with a stack in memory, don't start: {error}"))
            })
        }

        pub(crate) fn threads(&self) -> usize {
            self.threads.current_num_threads()
        }

        /// Does the work, whose parts go to the pool's threads. Once `cancel` is requested, parts are left out.
        pub(crate) fn run<R: Send>(&self, cancel: &Cancel, work: impl FnOnce() -> R + Send) -> R {
            *self.cancel.write().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
            self.threads.install(work)
        }
    }

    /// Calls `body` for each number below `count`.
    pub(crate) fn for_each(count: usize, body: impl Fn(usize) + Sync + Send) {
        let cancel = cancel();
        (0..count).into_par_iter().filter(|_| !cancel.is_requested()).for_each(body);
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
        let cancel = cancel();
        let chunks = slice.par_chunks_mut(len).enumerate();
        chunks.filter(|_| !cancel.is_requested()).for_each(|(index, chunk)| body(index, chunk));
    }
}

/// Without rayon, whose splitting is a fifth of a browser's module.
#[cfg(target_family = "wasm")]
mod alone {
    use tightrope_core::{Cancel, DeviceError};

    pub(crate) struct Pool;

    /// A program is stopped between its ops: while one runs, nobody can ask.
    pub(crate) fn cancel() -> Cancel {
        Cancel::default()
    }

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
        pub(crate) fn run<R>(&self, _: &Cancel, work: impl FnOnce() -> R) -> R {
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
