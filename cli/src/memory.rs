//! Where the system gives no more memory: the command says what was asked for, and ends as one that doesn't fit.
//!
//! Plans, arenas and copies of state are asked for with care, and are refused by name. What is left are small things of which
//! Rust's library makes an abort, after [`Noting`] has noted their size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::fs::File;
use std::io::{self, Cursor, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::SIGABRT;
use signal_hook::low_level::{exit, register};

use crate::output;

/// Bytes of the allocation that was refused last; 0 before the first one.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Set while a panic's backtrace is made: Rust's library waits for a lock that it holds itself where memory runs out meanwhile.
static TRACING: AtomicBool = AtomicBool::new(false);

/// What the kind of a failure that doesn't fit exits with.
const DOES_NOT_FIT: i32 = 3;

/// The system's allocator, which notes what it couldn't give.
pub struct Noting;

#[global_allocator]
static ALLOCATOR: Noting = Noting;

fn noted(given: *mut u8, bytes: usize) -> *mut u8 {
    if given.is_null() {
        REFUSED.store(bytes.max(1), Ordering::Relaxed);
        if TRACING.load(Ordering::Relaxed) {
            end();
        }
    }
    given
}

// SAFETY: each call is the system's, with what the caller promised.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        noted(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        noted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        noted(unsafe { System.realloc(start, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) };
    }
}

/// Whether results and errors go to stdout as JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// From now on, an abort for want of memory exits with code 3 and a sentence. The command line isn't read yet: its words take
/// memory too.
///
/// # Errors
/// When the system refuses the handler.
pub fn listen() -> io::Result<()> {
    let ended = || {
        let bytes = REFUSED.load(Ordering::Relaxed);
        // What a thread begins with is asked of the system past this allocator.
        if bytes > 0 || io::Error::last_os_error().kind() == io::ErrorKind::OutOfMemory {
            end();
        }
    };
    // SAFETY: what runs in the handler reads two numbers, writes to descriptors and ends the process, without a lock or an
    // allocation.
    unsafe { register(SIGABRT, ended) }.map(drop)
}

/// Ends the process with the sentence, without a lock or an allocation.
fn end() {
    say_no_more(REFUSED.load(Ordering::Relaxed), JSON.load(Ordering::Relaxed));
    exit(DOES_NOT_FIT);
}

/// Backtraces that `RUST_BACKTRACE` asks for are of panics alone. Rust's library prints one where memory runs out too, takes memory for it,
/// and waits for its own lock when there is none.
pub fn trace_panics_alone() {
    const ASKED: &str = "RUST_BACKTRACE";
    if std::env::var_os(ASKED).is_none_or(|value| value == "0") {
        return;
    }
    // SAFETY: `main` calls this before it starts a thread.
    unsafe { std::env::remove_var(ASKED) };
    std::panic::set_hook(Box::new(|panic| {
        TRACING.store(true, Ordering::Relaxed);
        output::note(&format!("{panic}\n{}", Backtrace::force_capture()));
        TRACING.store(false, Ordering::Relaxed);
    }));
}

/// From now on, with `json`, the sentence comes as an object on stdout too.
pub fn speak_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
}

/// Prints `error: …` and `help: …`, or as much as the descriptors take. 0 bytes are an unknown number.
fn say_no_more(bytes: usize, json: bool) {
    let known = format_args!("out of memory: the system refused {bytes} more bytes");
    let unknown = format_args!("out of memory: the system refused more");
    let error = if bytes > 0 { known } else { unknown };
    let help = "free memory or raise its limit (ulimit -v, ulimit -d, the container's); or take a smaller batch, context or model";
    write_to(2, format_args!("error: {error}\nhelp: {help}\n"));
    if json {
        let object = format_args!(
            "{{\"error\":\"{error}\",\"causes\":[],\"help\":\"{help}\",\"exit_code\":{DOES_NOT_FIT}}}\n"
        );
        write_to(1, object);
    }
}

/// Writes to a descriptor past its lock, which the interrupted code may hold.
fn write_to(descriptor: i32, text: std::fmt::Arguments) {
    let mut line = Cursor::new([0; 512]);
    // The texts are shorter, and a closed descriptor leaves nobody to tell.
    let _ = line.write_fmt(text);
    let end = usize::try_from(line.position()).unwrap_or(0);
    // SAFETY: the descriptor is stdout's or stderr's, which nothing closes, this `File` neither.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let _ = file.write_all(&line.get_ref()[..end]);
}
