//! An allocator that counts, and gives no more than it may: what asks for more ends the process, or refuses the file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Capped;

#[global_allocator]
static ALLOCATOR: Capped = Capped;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// From here on, at most `most` bytes more are given.
pub fn begin(most: usize) {
    let live = LIVE.load(Relaxed);
    BEFORE.store(live, Relaxed);
    PEAK.store(live, Relaxed);
    MOST.store(live.saturating_add(most), Relaxed);
}

/// The most bytes that were held since [`begin`], besides those before.
pub fn end() -> usize {
    MOST.store(usize::MAX, Relaxed);
    PEAK.load(Relaxed).saturating_sub(BEFORE.load(Relaxed))
}

/// Adds bytes to those that are allocated; `false` if they exceed the limit, and then none is added.
fn take(bytes: usize) -> bool {
    let live = LIVE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if live > MOST.load(Relaxed) {
        LIVE.fetch_sub(bytes, Relaxed);
        return false;
    }
    PEAK.fetch_max(live, Relaxed);
    true
}

// SAFETY: memory comes from the system's allocator, which the layouts go to unchanged.
unsafe impl GlobalAlloc for Capped {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size) {
            return ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { System.realloc(memory, layout, size) };
        LIVE.fetch_sub(if moved.is_null() { size } else { layout.size() }, Relaxed);
        moved
    }
}
