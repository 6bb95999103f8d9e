//! What stands for NCCL on the processor: ranks are threads or processes that share memory. It keeps to what NCCL promises and no more.
//!
//! | NCCL | here |
//! |---|---|
//! | a send completes when its bytes have been taken | no byte is read before the other rank has begun to receive |
//! | a receive has its bytes when its group is done | no byte is written before all of them have come |
//! | calls of a group progress independently, in order for one rank | a drawn one goes on by a piece at a time |
//! | a group waits as long as it takes, whoever is lost | it does |
//! | other counts, or another order on one rank, hang or give other bytes | an error that names both ranks and what each does |
//! | the same byte may not be received into twice, nor sent meanwhile | an error |

mod exchange;
mod shared;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

pub use exchange::{Calls, Exchange, Memory};
pub use shared::Shared;

use super::api::{Api, BYTE, Made, Status, UniqueId};
use crate::collective::Bytes;

const WELL: Status = 0;
/// `ncclSystemError`, `ncclInvalidArgument` and `ncclInvalidUsage`.
const SYSTEM: Status = 2;
const ARGUMENT: Status = 4;
const USAGE: Status = 5;

/// What it says it is: the version whose header it was written by.
const VERSION: c_int = 23_203;

/// A communicator.
pub struct Comm {
    /// What all ranks share.
    pub shared: Arc<Shared>,
    /// Which one this is.
    pub rank: usize,
    /// Memory that is sent from and received into, by handle.
    registered: Mutex<BTreeMap<usize, Bytes>>,
}

/// A send or a receive.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Whether it sends.
    pub sends: bool,
    /// The other rank.
    pub peer: usize,
    /// Bytes that are sent or received.
    pub bytes: Bytes,
}

/// A stream: the groups that were given to it, for whoever emulates a device to do.
pub type Stream = Vec<Vec<Call>>;

thread_local! {
    /// The group that a thread has begun, with how often, and its stream.
    static GROUP: RefCell<(usize, Vec<(Made, Call)>)> = const { RefCell::new((0, vec![])) };
    /// Words on the last call that was refused.
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(vec![]) };
}

/// A refusal, with its words.
fn refused(status: Status, words: &str) -> Status {
    LAST.with_borrow_mut(|last| *last = [words.as_bytes(), &[0]].concat());
    status
}

/// The communicator behind a handle.
///
/// # Safety
/// The handle is of [`init`] and wasn't ended.
pub unsafe fn comm<'a>(made: Made) -> &'a Comm {
    // SAFETY: as the caller promises.
    unsafe { &*made.cast::<Comm>() }
}

impl Comm {
    /// Whether all of these bytes are in one registered range.
    pub fn has(&self, bytes: Bytes) -> bool {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.values().any(|range| {
            range.start <= bytes.start && bytes.start + bytes.count <= range.start + range.count
        })
    }
}

unsafe extern "C" fn version(number: *mut c_int) -> Status {
    // SAFETY: the caller has room for a number.
    unsafe { *number = VERSION };
    WELL
}

unsafe extern "C" fn get_id(id: *mut UniqueId) -> Status {
    match Shared::name() {
        // SAFETY: the caller has room for an id.
        Ok(name) if name.len() <= UniqueId::BYTES => unsafe {
            (*id).0 = [0; UniqueId::BYTES];
            (&mut (*id).0)[..name.len()].copy_from_slice(name.as_bytes());
            WELL
        },
        Ok(name) => refused(SYSTEM, &format!("{name} is too long for an id")),
        Err(error) => refused(SYSTEM, &error.to_string()),
    }
}

unsafe extern "C" fn init(made: *mut Made, count: c_int, id: UniqueId, rank: c_int) -> Status {
    let (rank, count) = (rank as usize, count as usize);
    let name = String::from_utf8_lossy(&id.0);
    match Shared::join(name.trim_end_matches('\0'), rank, count) {
        Ok(shared) => {
            let registered = Mutex::default();
            let comm = Comm { shared: Arc::new(shared), rank, registered };
            // SAFETY: the caller has room for a handle.
            unsafe { *made = Box::into_raw(Box::new(comm)).cast() };
            WELL
        }
        Err(words) => refused(SYSTEM, &words),
    }
}

unsafe extern "C" fn destroy(made: Made) -> Status {
    // SAFETY: `init` made it, and the caller uses it no more.
    drop(unsafe { Box::from_raw(made.cast::<Comm>()) });
    WELL
}

unsafe extern "C" fn async_error(_made: Made, status: *mut Status) -> Status {
    // SAFETY: the caller has room for a number.
    unsafe { *status = WELL };
    WELL
}

unsafe extern "C" fn group_start() -> Status {
    GROUP.with_borrow_mut(|(depth, _)| *depth += 1);
    WELL
}

unsafe extern "C" fn group_end() -> Status {
    GROUP.with_borrow_mut(|(depth, calls)| {
        if *depth == 0 {
            return refused(USAGE, "a group ends that wasn't begun");
        }
        *depth -= 1;
        if *depth == 0 {
            push(std::mem::take(calls));
        }
        WELL
    })
}

/// Gives a group to its stream.
fn push(calls: Vec<(Made, Call)>) {
    let Some(&(stream, _)) = calls.first() else { return };
    let group = calls.into_iter().map(|(_, call)| call).collect();
    // SAFETY: whoever emulates a device gave the calls such a stream, which outlives the group's end.
    unsafe { (*stream.cast::<Stream>()).push(group) };
}

/// A call of a group, or one by itself.
fn called(made: Made, stream: Made, dtype: c_int, call: Call) -> Status {
    // SAFETY: the caller's handle is of `init`.
    let comm = unsafe { comm(made) };
    if dtype != BYTE {
        return refused(ARGUMENT, "bytes alone are carried here");
    }
    if call.peer >= comm.shared.count || call.peer == comm.rank {
        return refused(ARGUMENT, &format!("rank {} is no other rank", call.peer));
    }
    if !comm.has(call.bytes) {
        return refused(ARGUMENT, &format!("{:?} lie in no registered memory", call.bytes));
    }
    GROUP.with_borrow_mut(|(depth, calls)| {
        if calls.iter().any(|(other, _)| *other != stream) {
            return refused(USAGE, "a group is of one stream here");
        }
        match *depth {
            0 => push(vec![(stream, call)]),
            _ => calls.push((stream, call)),
        }
        WELL
    })
}

unsafe extern "C" fn send(
    from: *const c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    made: Made,
    stream: Made,
) -> Status {
    let bytes = Bytes { start: from as u64, count: count as u64 };
    called(made, stream, dtype, Call { sends: true, peer: peer as usize, bytes })
}

unsafe extern "C" fn receive(
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    made: Made,
    stream: Made,
) -> Status {
    let bytes = Bytes { start: to as u64, count: count as u64 };
    called(made, stream, dtype, Call { sends: false, peer: peer as usize, bytes })
}

unsafe extern "C" fn register(
    made: Made,
    start: *mut c_void,
    count: usize,
    handle: *mut Made,
) -> Status {
    // SAFETY: the caller's handle is of `init`.
    let comm = unsafe { comm(made) };
    let mut registered = comm.registered.lock().unwrap_or_else(PoisonError::into_inner);
    let number = registered.keys().last().map_or(1, |last| last + 1);
    registered.insert(number, Bytes { start: start as u64, count: count as u64 });
    // SAFETY: the caller has room for a handle.
    unsafe { *handle = number as Made };
    WELL
}

unsafe extern "C" fn deregister(made: Made, handle: Made) -> Status {
    // SAFETY: the caller's handle is of `init`.
    let comm = unsafe { comm(made) };
    let mut registered = comm.registered.lock().unwrap_or_else(PoisonError::into_inner);
    match registered.remove(&(handle as usize)) {
        Some(_) => WELL,
        None => refused(ARGUMENT, "nothing is registered by this handle"),
    }
}

unsafe extern "C" fn memory_stats(made: Made, figure: c_int, bytes: *mut u64) -> Status {
    if figure != 3 {
        return refused(ARGUMENT, "the sum alone is known here");
    }
    // SAFETY: the caller's handle is of `init`, and it has room for a number.
    unsafe { *bytes = comm(made).shared.bytes() as u64 };
    WELL
}

unsafe extern "C" fn words(status: Status) -> *const c_char {
    let words = match status {
        WELL => c"no error",
        SYSTEM => c"unhandled system error",
        ARGUMENT => c"invalid argument",
        USAGE => c"invalid usage",
        _ => c"unknown result code",
    };
    words.as_ptr()
}

unsafe extern "C" fn last_words(_made: Made) -> *const c_char {
    LAST.with_borrow_mut(|last| {
        if last.is_empty() {
            last.push(0);
        }
        last.as_ptr().cast()
    })
}

/// Its calls.
pub fn api() -> Api {
    Api {
        version,
        get_id,
        init,
        destroy,
        abort: destroy,
        async_error,
        group_start,
        group_end,
        send,
        receive,
        register,
        deregister,
        memory_stats: Some(memory_stats),
        words,
        last_words,
    }
}
