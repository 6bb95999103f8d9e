//! Allocations: counted, and failed.
//!
//! To fail each of a run's, the process is forked where one is made: in the child it fails, and the parent goes on to the next once
//! the child has ended. The child shares the parent's files, so that it ends itself where it would change one.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use crate::log::{Entry, log};
use crate::protocol::{ALLOCATION, Order, SURVIVED, Word};
use crate::{fail, get, order, set, word};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

/// Milliseconds that a process may go on after an allocation failed. It may wait for a thread that wasn't copied: the chamber
/// then sees what comes of it in a process of its own.
const PATIENCE: c_int = 1000;

/// Whether this process is one in which an allocation failed.
static CHILD: AtomicBool = AtomicBool::new(false);
/// Where children print, to be read by the parent.
static WORDS: AtomicI32 = AtomicI32::new(-1);

/// What comes of an allocation: null where it's to fail.
fn allocate(real: impl FnOnce() -> *mut c_void) -> *mut c_void {
    // The numbers are the parent's.
    let word = word(Word::Allocations).filter(|_| !CHILD.load(Relaxed));
    let Some(allocations) = word else { return real() };
    let number = allocations.fetch_add(1, Relaxed);
    let (at, end) = (get(Word::At), get(Word::End));
    let fails = match order() {
        Order::FailAllocation => number == at,
        Order::FailEachAllocation => {
            number >= at && (end == 0 || number < end) && fails_in_a_child(number)
        }
        _ => false,
    };
    if !fails {
        return real();
    }
    set(Word::Done, 1);
    fail(libc::ENOMEM);
    ptr::null_mut()
}

/// Forks: true in the child; false in the parent, once the child has ended.
fn fails_in_a_child(number: u64) -> bool {
    // SAFETY: calls of the system, with memory that lives as long as they take. `fork` copies this thread alone: the chamber asks
    // for this in runs of one thread, and in others the child's wait has an end.
    unsafe {
        if WORDS.load(Relaxed) < 0 {
            let made = system!(SYS_memfd_create, c"words".as_ptr(), 0);
            WORDS.store(made as i32, Relaxed);
        }
        let words = WORDS.load(Relaxed);
        system!(SYS_ftruncate, words, 0);
        system!(SYS_lseek, words, 0, libc::SEEK_SET);
        let child = libc::fork();
        if child == 0 {
            CHILD.store(true, Relaxed);
            system!(SYS_dup2, words, 1);
            system!(SYS_dup2, words, 2);
            return true;
        }
        if child > 0 {
            look_at(number, child, words);
        }
    }
    false
}

/// Waits for a child and logs it, unless it ended as it should: with words, and a code that says so.
///
/// # Safety
/// `child` is a process of this one, and `words` an open file.
unsafe fn look_at(number: u64, child: libc::pid_t, words: c_int) {
    let mut status = 0;
    let mut printed = [0_u8; 4096];
    // SAFETY: calls of the system, with memory that lives as long as they take.
    let length = unsafe {
        let handle = system!(SYS_pidfd_open, child, 0) as c_int;
        let mut ends = libc::pollfd { fd: handle, events: libc::POLLIN, revents: 0 };
        if libc::poll(&raw mut ends, 1, PATIENCE) == 0 {
            system!(SYS_kill, child, libc::SIGKILL);
        }
        system!(SYS_close, handle);
        libc::waitpid(child, &raw mut status, 0);
        system!(SYS_pread64, words, printed.as_mut_ptr(), printed.len(), 0)
    };
    let said = usize::try_from(length).ok().and_then(|length| printed.get(..length));
    let said = said.unwrap_or_default();
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
    let refused = (1..=3).contains(&code) && said.windows(6).any(|part| part == b"error:");
    if refused {
        set(Word::Refused, get(Word::Refused) + 1);
        return;
    }
    log(&Entry {
        what: ALLOCATION,
        result: number as i64,
        numbers: [status.into(), 0],
        number,
        paths: [c"", c""],
        data: said,
    });
}

/// Ends a process in which an allocation failed, and which went on, before it touches a file of its parent's.
pub fn leave_the_files_alone() {
    if CHILD.load(Relaxed) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(SURVIVED) };
    }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: as C's.
    allocate(|| unsafe { __libc_malloc(size) })
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: as C's.
    allocate(|| unsafe { __libc_calloc(count, size) })
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as C's.
    allocate(|| unsafe { __libc_realloc(old, size) })
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: as C's.
    allocate(|| unsafe { __libc_memalign(alignment, size) })
}

/// # Safety
/// As POSIX's: `place` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    // SAFETY: as POSIX's.
    let memory = allocate(|| unsafe { __libc_memalign(alignment, size) });
    if memory.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: as POSIX's.
    unsafe { *place = memory };
    0
}
