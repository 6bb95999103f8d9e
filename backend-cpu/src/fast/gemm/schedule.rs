//! How tasks reach threads, and how scratch is shared out among them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::threads;

/// Bytes that every piece of scratch is aligned to: a cache line, and an AVX-512 vector.
pub(super) const ALIGN: usize = 64;

/// Multiply-adds below which another thread costs more than it saves: some 5 µs of work.
const GRAIN: usize = 1 << 18;

/// How many of `threads` an m×k · k×n matmul can keep busy; at least 1.
pub(super) fn useful(threads: usize, m: usize, n: usize, k: usize) -> usize {
    threads.min(m.saturating_mul(n).saturating_mul(k) / GRAIN).max(1)
}

/// Calls `work(worker, next)` once per worker, where `next()` hands out the tasks `0..tasks`, each once; none any more once somebody
/// asked to stop.
///
/// Each worker begins with neighbouring tasks of its own, which read the same of an operand, and then takes from those that the
/// others have left: a thread that the system slows down does fewer.
pub(super) fn share(
    workers: usize,
    tasks: usize,
    work: impl Fn(usize, &dyn Fn() -> Option<usize>) + Sync,
) {
    let workers = workers.max(1);
    let start = |worker: usize| worker * tasks / workers;
    let counters: Vec<AtomicUsize> = (0..workers).map(|own| AtomicUsize::new(start(own))).collect();
    let cancel = threads::cancel();
    let next = |worker: usize| {
        if cancel.is_requested() {
            return None;
        }
        let owners = (worker..workers).chain(0..worker);
        owners.into_iter().find_map(|owner| {
            let task = counters[owner].fetch_add(1, Ordering::Relaxed);
            (task < start(owner + 1)).then_some(task)
        })
    };
    let work = |worker: usize| work(worker, &|| next(worker));
    if workers == 1 {
        work(0);
    } else {
        threads::for_each_worker(workers, work);
    }
}

/// Start of the scratch, shared among workers that each keep to their own part of it.
#[derive(Clone, Copy)]
pub(super) struct Scratch(*mut u8);

// SAFETY: a bare address; whoever dereferences it keeps to the part of one worker.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// The first aligned byte of `bytes`, of which up to `ALIGN - 1` are skipped.
    pub(super) fn new(bytes: &mut [u8]) -> Self {
        let skip = bytes.as_ptr().align_offset(ALIGN).min(bytes.len());
        Self(bytes[skip..].as_mut_ptr())
    }

    /// The part of `worker`, when each has `bytes_each`.
    ///
    /// # Safety
    ///
    /// The scratch must hold more than `worker` such parts.
    pub(super) unsafe fn part(self, worker: usize, bytes_each: usize) -> *mut u8 {
        // SAFETY: in range by the caller's promise.
        unsafe { self.0.add(worker * bytes_each) }
    }
}
