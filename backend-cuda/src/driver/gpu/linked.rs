//! A GPU among those of other ranks, by NCCL. What ranks exchange has a stream of its own, which waits for that of the kernels where a
//! collective begins, and is waited for where it's needed: so it's in the step's graph, beside the kernels.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tightrope_core::{DeviceError, Linked, Links};

use super::copy_queues::Context;
use super::{Gpu, failed};
use crate::collective::{Bytes, Moves};
use crate::driver::nccl::{Api, Communicator, UniqueId};

/// How long it is between looks at a stream that waits for other ranks.
const PAUSE: Duration = Duration::from_micros(50);
/// How long what is on the stream may take where the GPU is given up.
const PARTING: Duration = Duration::from_secs(5);

/// NCCL, and the way to other GPUs once it was found.
#[derive(Default)]
pub struct Link {
    api: Option<Arc<Api>>,
    communicator: Option<Communicator>,
    beside: Option<Beside>,
}

/// The stream of what ranks exchange.
struct Beside {
    stream: sys::CUstream,
    /// Where the kernels' stream has come as a collective begins.
    begins: sys::CUevent,
    /// Where this one has come as each ends.
    ends: RefCell<HashMap<usize, sys::CUevent>>,
    context: Arc<Context>,
}

impl Beside {
    fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let begins = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        let ends = RefCell::default();
        Ok(Self { stream, begins, ends, context: Arc::clone(context) })
    }

    /// The event of a collective's end.
    fn end_of(&self, number: usize) -> Result<sys::CUevent, DriverError> {
        let mut ends = self.ends.borrow_mut();
        if let Some(&end) = ends.get(&number) {
            return Ok(end);
        }
        let end = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        ends.insert(number, end);
        Ok(end)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.context.make_current();
        let events = std::iter::once(self.begins).chain(self.ends.get_mut().values().copied());
        for event in events {
            // SAFETY: it was created above and is used no more.
            let _ = unsafe { result::event::destroy(event) };
        }
        // SAFETY: as above; what is on it ends first.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

impl Link {
    /// The way to other GPUs, where there's one.
    pub fn communicator(&mut self) -> Option<&mut Communicator> {
        self.communicator.as_mut()
    }
}

/// Has a stream wait for an event.
///
/// # Safety
/// Both live.
unsafe fn wait(stream: sys::CUstream, event: sys::CUevent) -> Result<(), DriverError> {
    // SAFETY: the caller's promise.
    unsafe {
        result::stream::wait_event(stream, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
    }
}

impl Gpu {
    /// Begins a collective once the kernels so far have run.
    pub(super) fn begin_exchange(
        &self,
        number: usize,
        moves: &Moves,
        refused: &dyn Fn(DriverError) -> DeviceError,
    ) -> Result<(), DeviceError> {
        let beside = self.beside();
        let end = beside.end_of(number).map_err(refused)?;
        // SAFETY: events and streams live as long as the link.
        unsafe {
            result::event::record(beside.begins, self.stream)
                .and_then(|()| wait(beside.stream, beside.begins))
        }
        .map_err(refused)?;
        self.enqueue_exchange(moves, beside.stream, refused)?;
        // SAFETY: as above.
        unsafe { result::event::record(end, beside.stream) }.map_err(refused)
    }

    /// Has the kernels' stream wait for a collective that was begun.
    pub(super) fn end_exchange(&self, number: usize) -> Result<(), DriverError> {
        let end = self.beside().end_of(number)?;
        // SAFETY: event and stream live as long as the link.
        unsafe { wait(self.stream, end) }
    }

    fn beside(&self) -> &Beside {
        self.link.beside.as_ref().expect("a device is linked before it exchanges")
    }

    /// Gives a collective to a stream.
    fn enqueue_exchange(
        &self,
        moves: &Moves,
        stream: sys::CUstream,
        refused: &dyn Fn(DriverError) -> DeviceError,
    ) -> Result<(), DeviceError> {
        for &Bytes { start, count } in &moves.zeros {
            // SAFETY: the range lies in the arena, which outlives everything on the stream.
            unsafe { result::memset_d8_async(start, 0, count as usize, stream) }
                .map_err(refused)?;
        }
        for &(from, Bytes { start, count }) in &moves.copies {
            // SAFETY: as above; a plan gives no byte to two tensors at once.
            unsafe { result::memcpy_dtod_async(start, from, count as usize, stream) }
                .map_err(refused)?;
        }
        let communicator = self.link.communicator.as_ref();
        let communicator = communicator.expect("a device is linked before it exchanges");
        // SAFETY: as above.
        unsafe { communicator.exchange(moves, stream.cast()) }.map_err(|words| self.lost(words))
    }

    /// Waits until this says that it's passed, and not for ever for a rank that NCCL knows is lost.
    pub(super) fn until(&self, passed: impl Fn() -> sys::CUresult) -> Result<(), DeviceError> {
        while !self.has_passed(passed())? {
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Whether a query says that all is done.
    fn has_passed(&self, answer: sys::CUresult) -> Result<bool, DeviceError> {
        if answer != sys::CUresult::CUDA_ERROR_NOT_READY {
            return answer.result().map(|()| true).map_err(failed(&self.name));
        }
        match &self.link.communicator {
            Some(communicator) => {
                communicator.error().map(|()| false).map_err(|words| self.lost(words))
            }
            None => Ok(false),
        }
    }

    fn lost(&self, reason: String) -> DeviceError {
        DeviceError::Lost { device: self.name.clone(), reason }
    }

    /// Has every GPU find its way to every other one, which allocates memory, before anything is recorded.
    fn connect(&self, communicator: &Communicator) -> Result<(), String> {
        let words = |error: DriverError| format!("{error:?}");
        let (rank, count) = communicator.place();
        // SAFETY: what is allocated is filled before anything reads it.
        let memory = unsafe { result::malloc_sync(2 * count) }.map_err(words)?;
        let byte = |index: usize| Bytes { start: memory + index as u64, count: 1 };
        let peers = || (0..count).filter(move |&peer| peer != rank);
        let moves = Moves {
            sends: peers().map(|peer| (peer, byte(peer))).collect(),
            receives: peers().map(|peer| (peer, byte(count + peer))).collect(),
            ..Moves::default()
        };
        // SAFETY: the allocation has this size, and is freed below, after the stream has passed what uses it.
        let connected = unsafe { result::memset_d8_async(memory, 0, 2 * count, self.stream) }
            .map_err(words)
            // SAFETY: as above.
            .and_then(|()| unsafe { communicator.exchange(&moves, self.stream.cast()) })
            .and_then(|()| {
                // SAFETY: the stream lives as long as `self`.
                unsafe { result::stream::synchronize(self.stream) }.map_err(words)
            });
        // SAFETY: it was allocated above, and nothing uses it any more.
        unsafe { result::free_sync(memory) }.map_err(words).and(connected)
    }

    /// Waits a little for what is on the stream, where the GPU is given up; gives up other ranks where they're late.
    pub(super) fn part(&mut self) {
        let since = Instant::now();
        while self.link.communicator.is_some() {
            match self.is_done() {
                Ok(true) => return,
                Ok(false) if since.elapsed() < PARTING => thread::sleep(PAUSE),
                _ => self.leave(),
            }
        }
    }
}

impl Links for Gpu {
    fn invite(&mut self, rank: usize) -> Result<Vec<u8>, String> {
        self.make_current().map_err(|error| error.to_string())?;
        let api = match &self.link.api {
            Some(api) => Arc::clone(api),
            None => Arc::clone(self.link.api.insert(Arc::new(Api::open()?))),
        };
        match rank {
            0 => api.unique_id().map(|id| id.0.to_vec()),
            _ => Ok(vec![]),
        }
    }

    fn join(&mut self, invitation: &[u8], rank: usize, count: usize) -> Result<(), String> {
        self.make_current().map_err(|error| error.to_string())?;
        let id =
            invitation.try_into().map_err(|_| "the invitation is none of NCCL's".to_owned())?;
        let api = self.link.api.clone().ok_or("NCCL wasn't found before")?;
        let context = Arc::clone(&self.context);
        let begin = move || context.make_current().map_err(|error| format!("{error:?}"));
        let communicator = Communicator::new(&api, UniqueId(id), rank, count, Arc::new(begin))?;
        self.connect(&communicator)?;
        let beside = Beside::new(&self.context).map_err(|error| format!("{error:?}"))?;
        (self.link.communicator, self.link.beside) = (Some(communicator), Some(beside));
        Ok(())
    }

    fn linked(&self) -> Option<Linked> {
        let communicator = self.link.communicator.as_ref()?;
        let ((rank, count), bytes) = (communicator.place(), communicator.bytes());
        Some(Linked { rank, count, carrier: communicator.name(), bytes })
    }

    fn is_done(&mut self) -> Result<bool, DeviceError> {
        self.make_current()?;
        // SAFETY: the stream lives as long as `self`.
        self.has_passed(unsafe { sys::cuStreamQuery(self.stream) })
    }

    fn leave(&mut self) {
        if let Some(communicator) = self.link.communicator.take() {
            communicator.abort();
        }
    }
}
