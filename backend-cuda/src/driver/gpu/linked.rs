//! A GPU among those of other ranks, by NCCL. What ranks exchange is on the stream of the kernels, so that it's in the step's graph.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tightrope_core::{DeviceError, Linked, Links};

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
}

impl Link {
    /// The way to other GPUs, where there's one.
    pub fn communicator(&mut self) -> Option<&mut Communicator> {
        self.communicator.as_mut()
    }
}

impl Gpu {
    /// Gives a collective to the stream.
    pub(super) fn enqueue_exchange(
        &self,
        moves: &Moves,
        refused: &dyn Fn(DriverError) -> DeviceError,
    ) -> Result<(), DeviceError> {
        for &Bytes { start, count } in &moves.zeros {
            // SAFETY: the range lies in the arena, which outlives everything on the stream.
            unsafe { result::memset_d8_async(start, 0, count as usize, self.stream) }
                .map_err(refused)?;
        }
        for &(from, Bytes { start, count }) in &moves.copies {
            // SAFETY: as above; a plan gives no byte to two tensors at once.
            unsafe { result::memcpy_dtod_async(start, from, count as usize, self.stream) }
                .map_err(refused)?;
        }
        let communicator = self.link.communicator.as_ref();
        let communicator = communicator.expect("a device is linked before it exchanges");
        // SAFETY: as above.
        unsafe { communicator.exchange(moves, self.stream.cast()) }
            .map_err(|words| self.lost(words))
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
        self.link.communicator = Some(communicator);
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
