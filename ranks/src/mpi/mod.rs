//! Ranks that are processes, over MPI. It carries bytes from rank to rank and does nothing else: no reduction, whose order of summation
//! would depend on the library.

mod library;

use std::env;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use library::{Api, Handle, Status};

use crate::carrier::{Carrier, carried};
use crate::launch::{FOLDER, ended};
use crate::launched::Launched;
use crate::message::CONTROL;
use crate::transport::{Fault, Pieces, Tag, Transfer, Transport};

/// How long ranks that end with an error wait for the others to say so too, before a launcher ends them all.
const PARTING: Duration = Duration::from_secs(2);

/// A rank among processes, over the MPI library that the launcher belongs to.
///
/// When it's dropped and all went well, it waits for the others to end too. After an error, say what is wrong, and end the process by
/// [`exit`](crate::exit).
pub struct Mpi(Carrier<World>);

/// This rank, after an error: what [`exit`] ends.
static FAILED: Mutex<Option<Carrier<World>>> = Mutex::new(None);

/// Why MPI can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpiError {
    /// No library was found.
    #[error(
        "no MPI library was found. MPICH 5, Open MPI 4 and later, and any with the ABI of MPI 5 are known. Looked for:\n  {looked}"
    )]
    NotFound {
        /// Where, and what was there.
        looked: String,
    },
    /// It is open already.
    #[error("MPI can be opened once in a process, and has been")]
    Twice,
    /// It says that a call failed.
    #[error("{call} of {version} failed: {reason}")]
    Failed {
        /// The function.
        call: &'static str,
        /// The library.
        version: String,
        /// What it says.
        reason: String,
    },
    /// Threads can't take turns to call it.
    #[error(
        "{version} lets only one thread call it: it was built or initialised without MPI_THREAD_SERIALIZED"
    )]
    Threads {
        /// The library.
        version: String,
    },
    /// It sees other ranks than the launcher says.
    #[error(
        "{version} says that this is rank {rank} of {count}, and the launcher that it is {launched}: mpirun is of another MPI"
    )]
    Other {
        /// The library.
        version: String,
        /// This rank.
        rank: usize,
        /// How many there are.
        count: usize,
        /// What the launcher says.
        launched: String,
    },
}

impl Mpi {
    /// Initialises MPI. No rank is waited for longer than `time_out`; zero sets no limit.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn open(launched: Option<&Launched>, time_out: Duration) -> Result<Self, MpiError> {
        static OPENED: AtomicBool = AtomicBool::new(false);
        let api = Api::open(launched.map(|launched| launched.launcher))?;
        if OPENED.swap(true, Ordering::SeqCst) {
            return Err(MpiError::Twice);
        }
        let world = World::of(api)?;
        if let Some(launched) =
            launched.filter(|launched| (launched.rank, launched.count) != (world.rank, world.count))
        {
            let version = world.api.version.clone();
            let (rank, count) = (world.rank, world.count);
            return Err(MpiError::Other { version, rank, count, launched: launched.to_string() });
        }
        Ok(Self(Carrier::new(world, time_out)))
    }
}

carried!(Mpi);

impl Drop for Mpi {
    fn drop(&mut self) {
        if self.0.end() {
            self.0.transport.finalize();
        } else {
            // Finalizing would wait for ranks that are lost.
            *FAILED.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.0.ended());
        }
    }
}

/// Ends the processes of all ranks where one ended with an error; returns where none did.
pub fn abort(code: i32) {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(mut carrier) = failed {
        carrier.part(PARTING);
        let World { api, communicator, .. } = carrier.transport;
        // SAFETY: MPI is initialised and isn't finalized; this is the thread whose turn it is.
        unsafe { (api.functions.abort)(communicator, code.max(1)) };
    }
}

/// All ranks, by a communicator of their own.
#[derive(Clone)]
struct World {
    api: &'static Api,
    communicator: Handle,
    rank: usize,
    count: usize,
    /// Whether MPI wasn't initialised before.
    ours: bool,
    /// Where a launch of this project tells which processes have ended.
    folder: Option<PathBuf>,
}

// SAFETY: the communicator is a handle of MPI's, which is told that threads take turns.
unsafe impl Send for World {}

impl World {
    fn of(api: Api) -> Result<Self, MpiError> {
        // Never closed: MPI's own threads and exit handlers outlive this rank.
        let api: &'static Api = Box::leak(Box::new(api));
        let functions = &api.functions;
        let failed = |call, status| {
            if status == 0 {
                return Ok(());
            }
            Err(MpiError::Failed {
                call,
                version: api.version.clone(),
                reason: api.explain(status),
            })
        };
        let (mut initialised, mut threads) = (0, 0);
        // SAFETY: a flag is written.
        failed("MPI_Initialized", unsafe { (functions.initialized)(&mut initialised) })?;
        let ours = initialised == 0;
        if ours {
            let none = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: MPI permits null for both arguments, and writes the level.
            let status =
                unsafe { (functions.init_thread)(none.0, none.1, api.serialized, &mut threads) };
            failed("MPI_Init_thread", status)?;
        } else {
            // SAFETY: MPI is initialised; the level is written.
            failed("MPI_Query_thread", unsafe { (functions.query_thread)(&mut threads) })?;
        }
        if threads < api.serialized {
            return Err(MpiError::Threads { version: api.version.clone() });
        }
        let mut communicator = api.world;
        let (mut rank, mut count): (c_int, c_int) = (0, 0);
        // SAFETY: MPI is initialised, the handles are its own, and a handle or a number is written.
        unsafe {
            failed("MPI_Comm_dup", (functions.comm_dup)(api.world, &mut communicator))?;
            let handled = (functions.comm_set_errhandler)(communicator, api.errors_return);
            failed("MPI_Comm_set_errhandler", handled)?;
            failed("MPI_Comm_rank", (functions.comm_rank)(communicator, &mut rank))?;
            failed("MPI_Comm_size", (functions.comm_size)(communicator, &mut count))?;
        }
        let number = |number| usize::try_from(number).unwrap_or_default();
        let folder = env::var_os(FOLDER).map(PathBuf::from);
        Ok(Self { api, communicator, rank: number(rank), count: number(count), ours, folder })
    }

    fn finalize(&self) {
        if self.ours {
            // SAFETY: nothing is under way, and no rank calls MPI any more. What it answers changes nothing.
            unsafe { (self.api.functions.finalize)() };
        }
    }

    /// What MPI says of a message to or from a rank.
    fn checked(&self, rank: usize, status: Status) -> Result<(), Fault> {
        let reason = || format!("MPI says: {}", self.api.explain(status));
        if status == 0 { Ok(()) } else { Err(Fault::of(rank, reason())) }
    }
}

/// MPI counts in 32 bits; a carrier cuts messages far below that.
fn int(number: usize) -> Result<c_int, Fault> {
    c_int::try_from(number).map_err(|_| Fault::new(format!("{number} is too much for MPI")))
}

/// A buffer that MPI reads or writes.
struct Buffer {
    bytes: ManuallyDrop<Vec<u8>>,
    pending: Vec<Pending>,
}

struct Pending {
    rank: usize,
    piece: Range<usize>,
    request: Handle,
}

// SAFETY: requests are handles of MPI's, which is told that threads take turns.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: ManuallyDrop::new(bytes), pending: vec![] }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.pending.is_empty() {
            // SAFETY: it's dropped once, here, and MPI has no part of it any more. `into_bytes` leaves an empty one.
            unsafe { ManuallyDrop::drop(&mut self.bytes) }
        }
        // Else MPI may still read or write it, until the process ends.
    }
}

impl Transfer for Buffer {
    fn missing(&self) -> Vec<usize> {
        self.pending.iter().map(|pending| pending.rank).collect()
    }

    fn arrived(&self, piece: Range<usize>) -> Option<Vec<u8>> {
        let missing = self.pending.iter().any(|pending| pending.piece == piece);
        if missing || self.bytes.get(piece.clone()).is_none() {
            return None;
        }
        let mut copy = vec![0; piece.len()];
        // SAFETY: the piece lies within the buffer, and MPI has written it; no reference is made to what it hasn't.
        unsafe {
            ptr::copy_nonoverlapping(
                self.bytes.as_ptr().add(piece.start),
                copy.as_mut_ptr(),
                piece.len(),
            )
        };
        Some(copy)
    }

    fn into_bytes(mut self) -> Vec<u8> {
        let empty = ManuallyDrop::new(vec![]);
        if self.pending.is_empty() {
            ManuallyDrop::into_inner(std::mem::replace(&mut self.bytes, empty))
        } else {
            vec![]
        }
    }
}

impl World {
    /// Begins a message for each piece, by `begin` from its address, its length and its rank.
    fn begin(
        &self,
        bytes: Vec<u8>,
        pieces: &Pieces,
        begin: impl Fn(*mut u8, c_int, c_int, &mut Handle) -> Status,
    ) -> Result<Buffer, Fault> {
        let mut buffer = Buffer::new(bytes);
        let start = buffer.bytes.as_mut_ptr();
        for (rank, piece) in pieces {
            if piece.start > piece.end || piece.end > buffer.bytes.len() {
                return Err(Fault::new("a piece lies outside of its buffer"));
            }
            let mut request = ptr::null_mut();
            let (length, peer) = (int(piece.len())?, int(*rank)?);
            // SAFETY: the piece lies within the buffer.
            let address = unsafe { start.add(piece.start) };
            self.checked(*rank, begin(address, length, peer, &mut request))?;
            buffer.pending.push(Pending { rank: *rank, piece: piece.clone(), request });
        }
        Ok(buffer)
    }
}

impl Transport for World {
    type Transfer = Buffer;
    const ENDS_TOGETHER: bool = true;

    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn send(&mut self, tag: Tag, bytes: Vec<u8>, pieces: &Pieces) -> Result<Buffer, Fault> {
        let (functions, tag) = (&self.api.functions, tag as c_int);
        self.begin(bytes, pieces, |address, length, rank, request| {
            // SAFETY: the buffer outlives the request, or is never freed; nobody writes it meanwhile.
            unsafe {
                (functions.isend)(
                    address.cast(),
                    length,
                    self.api.byte,
                    rank,
                    tag,
                    self.communicator,
                    request,
                )
            }
        })
    }

    fn receive(&mut self, tag: Tag, bytes: Vec<u8>, pieces: &Pieces) -> Result<Buffer, Fault> {
        let (functions, tag) = (&self.api.functions, tag as c_int);
        self.begin(bytes, pieces, |address, length, rank, request| {
            // SAFETY: the buffer outlives the request, or is never freed; pieces don't overlap, and nobody reads them meanwhile.
            unsafe {
                (functions.irecv)(
                    address.cast(),
                    length,
                    self.api.byte,
                    rank,
                    tag,
                    self.communicator,
                    request,
                )
            }
        })
    }

    fn advance(&mut self, buffer: &mut Buffer) -> Result<(), Fault> {
        let mut first = Ok(());
        buffer.pending.retain_mut(|pending| {
            let mut done = 0;
            // SAFETY: the request is under way; a null status is MPI_STATUS_IGNORE.
            let status = unsafe {
                (self.api.functions.test)(&mut pending.request, &mut done, ptr::null_mut())
            };
            if status != 0 && first.is_ok() {
                first = self.checked(pending.rank, status);
            }
            // One that failed is kept: MPI may still have a part of the buffer.
            done == 0 || status != 0
        });
        first
    }

    fn ended(&self, rank: usize) -> Option<String> {
        ended(self.folder.as_ref()?, rank)
    }

    fn control(&mut self) -> Result<Option<(usize, Vec<u8>)>, Fault> {
        for rank in (0..self.count).filter(|&rank| rank != self.rank) {
            let (peer, tag, mut found) = (int(rank)?, Tag::Control as c_int, 0);
            let functions = &self.api.functions;
            // SAFETY: a flag is written; a null status is MPI_STATUS_IGNORE.
            let status = unsafe {
                (functions.iprobe)(peer, tag, self.communicator, &mut found, ptr::null_mut())
            };
            self.checked(rank, status)?;
            if found != 0 {
                let piece = vec![(rank, 0..CONTROL)];
                let mut buffer = self.receive(Tag::Control, vec![0; CONTROL], &piece)?;
                // It's here already.
                while !buffer.pending.is_empty() {
                    self.advance(&mut buffer)?;
                }
                return Ok(Some((rank, buffer.into_bytes())));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_mpi_may_write_is_neither_read_nor_freed() {
        let mut buffer = Buffer::new(vec![1, 2, 3, 4]);
        buffer.pending.push(Pending { rank: 3, piece: 2..4, request: ptr::null_mut() });
        assert_eq!(buffer.missing(), [3]);
        assert_eq!(buffer.arrived(0..2), Some(vec![1, 2]));
        assert_eq!(buffer.arrived(2..4), None);
        assert_eq!(buffer.arrived(2..5), None);
        let address = buffer.bytes.as_ptr();
        drop(buffer);
        // SAFETY: what has just been dropped is kept for MPI.
        assert_eq!(unsafe { address.add(3).read() }, 4);
        assert_eq!(Buffer::new(vec![1, 2]).into_bytes(), [1, 2]);
    }
}
