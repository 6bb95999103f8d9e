//! The split of work over the threads of the current pool, without allocating.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::threads;

/// Runs `body(task, scratch)` for every task in `0..tasks`, handing tasks out in order to workers
/// that each own `per_worker` f32 of `scratch`. There are as many workers as the pool has threads
/// and the scratch has room for. Which worker runs a task is not determined, so a task must write
/// its whole scratch before it reads it. Once somebody asked to stop, no task is handed out any more.
///
/// # Panics
/// If there is a task and scratch for no worker.
pub(crate) fn for_each_task(
    tasks: usize,
    scratch: &mut [f32],
    per_worker: usize,
    body: impl Fn(usize, &mut [f32]) + Sync,
) {
    if tasks == 0 {
        return;
    }
    let room = scratch.len() / per_worker;
    assert!(room > 0, "scratch holds {} f32, one worker needs {per_worker}", scratch.len());
    let workers = room.min(tasks).min(threads::current());
    let (next, cancel) = (AtomicUsize::new(0), threads::cancel());
    threads::for_each_chunk(&mut scratch[..workers * per_worker], per_worker, |_, scratch| {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks || cancel.is_requested() {
                break;
            }
            body(task, scratch);
        }
    });
}

/// Runs `body` for `0..count` in consecutive ranges of `block`, the last one shorter.
pub(crate) fn for_each_block(count: usize, block: usize, body: impl Fn(Range<usize>) + Sync) {
    threads::for_each(count.div_ceil(block), |i| {
        body(i * block..((i + 1) * block).min(count));
    });
}

/// Rows per task: about 16 Ki elements, large beside the cost of handing it out.
pub(crate) fn block_rows(columns: usize) -> usize {
    (16_384 / columns.max(1)).max(1)
}

/// Rows per block in the first stage of a sum over R rows: at most 64 blocks.
pub(crate) fn partial_rows(rows: usize) -> usize {
    rows.div_ceil(64).max(16)
}

/// A slice whose parts are written by several tasks at once, where the parts are strided and so
/// cannot be split off as slices: the columns of one head, say.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for the `&mut [T]` it was made from, of which `part` hands out pieces that
// its callers keep apart.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Elements `start .. start + len`.
    ///
    /// # Safety
    /// No two parts that share an element are alive at once.
    ///
    /// # Panics
    /// If the part is not inside the slice.
    #[inline(always)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part is outside the slice");
        // SAFETY: in bounds by the assertion; not aliased, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
