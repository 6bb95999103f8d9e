//! Loaded into the command by `LD_PRELOAD`, it takes the place of calls of the C library: it counts them, fails the one it's told to,
//! ends the process there, and logs what is written, so that a disk can be made as it was at any moment.
//!
//! Nothing here allocates, locks or calls what it takes the place of: calls go to the system, and allocations to glibc under
//! its other name for them.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

/// A call of the system by its number. C's `syscall` reads six words whatever it's given: shorter ones would leave parts of
/// them undefined.
macro_rules! system {
    ($number:ident $(, $argument:expr)*) => {
        libc::syscall(libc::$number $(, $argument as std::ffi::c_long)*)
    };
}

mod calls;
mod log;
mod memory;
#[path = "../protocol.rs"]
#[allow(dead_code, reason = "the chamber uses the other half")]
mod protocol;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};

use protocol::{Call, Order, PART, PATH, WORDS, Word};

/// The file that the chamber sees too, once it's mapped.
static CONTROL: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// Where it's logged, -1 for nowhere.
static LOG: AtomicI32 = AtomicI32::new(-1);

/// A word of the control file; none where there's no file.
fn word(word: Word) -> Option<&'static AtomicU64> {
    let control = CONTROL.load(Relaxed);
    if control.is_null() {
        return None;
    }
    // SAFETY: the mapping has `WORDS` words, of which this is one, and stays to the end of the process. Others that write there
    // are atomic too.
    Some(unsafe { &*control.add(word as usize) })
}

fn get(of: Word) -> u64 {
    word(of).map_or(0, |word| word.load(Relaxed))
}

fn set(of: Word, value: u64) {
    word(of).into_iter().for_each(|word| word.store(value, Relaxed));
}

fn order() -> Order {
    Order::of(get(Word::Order))
}

fn fail(error: c_int) {
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = error };
}

/// Ends the process as nothing else does that is no crash.
fn die() {
    // SAFETY: two calls of the system that touch no memory.
    unsafe { system!(SYS_kill, libc::getpid(), libc::SIGKILL) };
}

/// What is to become of a call.
enum Fate {
    /// It's made.
    Made,
    /// It's made, and the process ends.
    Last,
    /// It fails.
    Failed(c_int),
    /// It does a part.
    Part,
}

/// Counts a call, and gives its number.
fn count() -> Option<u64> {
    word(Word::Calls).map(|calls| calls.fetch_add(1, Relaxed))
}

/// What becomes of a call of this number. What touches no file takes no space.
fn fate(call: Call, touches: bool, number: u64) -> Fate {
    let (order, at) = (order(), get(Word::At));
    let carried_out = |error: c_int| {
        set(Word::Call, call as u64);
        set(Word::Error, error as u64);
        set(Word::Done, 1);
        if error == PART { Fate::Part } else { Fate::Failed(error) }
    };
    match order {
        Order::Full if number >= at && touches && takes_space(call) => {
            return carried_out(libc::ENOSPC);
        }
        Order::Stutter if number >= at && number.is_multiple_of(2) => {
            if let Call::Read | Call::Write = call {
                let interrupted = number.is_multiple_of(4);
                return carried_out(if interrupted { libc::EINTR } else { PART });
            }
        }
        _ => {}
    }
    if number != at {
        return Fate::Made;
    }
    match order {
        Order::Fail => {
            let errors = call.errors();
            carried_out(errors[get(Word::Draw) as usize % errors.len()])
        }
        Order::KillBefore | Order::KillAfter => {
            carried_out(0);
            if order == Order::KillBefore {
                die();
            }
            Fate::Last
        }
        _ => Fate::Made,
    }
}

/// True for the name of the checkpoint that ends the process.
fn is_last_checkpoint(name: &CStr) -> bool {
    let step = name.to_bytes().rsplit(|byte| *byte == b'/').next();
    let digits = step.and_then(|step| step.strip_prefix(b"step-"));
    let step = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    order() == Order::KillAfterCheckpoint && step == Some(get(Word::At))
}

fn takes_space(call: Call) -> bool {
    matches!(call, Call::Write | Call::Mkdir | Call::Sync)
}

/// Maps the control file and opens the log, before the program itself begins.
extern "C" fn begin() {
    let mut name = [0; 32];
    name[..protocol::CONTROL.len()].copy_from_slice(protocol::CONTROL.as_bytes());
    let bytes = WORDS * size_of::<u64>() + PATH;
    // SAFETY: `name` ends with a zero, and what `getenv` gives does. The file is as long as what is mapped of it; the mapping is
    // never undone.
    unsafe {
        let path = libc::getenv(name.as_ptr().cast());
        if path.is_null() {
            return;
        }
        let mode = libc::O_RDWR | libc::O_CLOEXEC;
        let file = system!(SYS_openat, libc::AT_FDCWD, path, mode, 0);
        if file < 0 {
            return;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let none = ptr::null::<c_void>();
        let map = system!(SYS_mmap, none, bytes, access, libc::MAP_SHARED, file, 0);
        system!(SYS_close, file);
        if map < 0 {
            return;
        }
        let control = map as *mut AtomicU64;
        let log = control.add(WORDS).cast::<c_char>();
        if *log != 0 {
            let mode = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
            let file = system!(SYS_openat, libc::AT_FDCWD, log, mode, 0o600);
            LOG.store(file as i32, Relaxed);
        }
        CONTROL.store(control, Relaxed);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
