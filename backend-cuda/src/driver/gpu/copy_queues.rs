//! Asynchronous copies, and what of a GPU outlives it where a thread of the host still waits.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tightrope_core::DeviceError;

use super::Gpu;
use crate::driver::{CopyQueues, Event, Pinned, Queue, Wait};

/// A device's context, released when nothing is left in it.
pub struct Context {
    pub handle: sys::CUcontext,
    pub device: sys::CUdevice,
}

// SAFETY: a context may be used by any thread that makes it current.
unsafe impl Send for Context {}
// SAFETY: as above, and by several at once.
unsafe impl Sync for Context {}

impl Context {
    /// Makes it the one that this thread's calls are of.
    pub fn make_current(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { result::ctx::set_current(self.handle) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, by `open`. Nothing can be done about a device that is gone.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// An event that asynchronous copies wait for.
pub struct Place {
    handle: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: an event may be used by any thread that makes its context current.
unsafe impl Send for Place {}
// SAFETY: as above, and by several at once.
unsafe impl Sync for Place {}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.context.make_current();
        // SAFETY: it was created by `event` and is used no more.
        let _ = unsafe { result::event::destroy(self.handle) };
    }
}

/// Pages of the host that the device copies from and to.
struct Pages {
    start: *mut c_void,
    context: Arc<Context>,
}

// SAFETY: the driver allocates for all threads.
unsafe impl Send for Pages {}
// SAFETY: as above; nothing is read or written through it.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.context.make_current();
        // SAFETY: `pinned` allocated them, and no copy uses them any more: a device that goes waits for its streams first.
        let _ = unsafe { result::free_host(self.start) };
    }
}

impl Gpu {
    fn stream_of(&self, queue: Queue) -> sys::CUstream {
        match queue {
            Queue::Kernels => self.stream,
            Queue::Loads => self.loads,
            Queue::Stores => self.stores,
        }
    }
}

impl CopyQueues for Gpu {
    fn pinned(&mut self, bytes: usize) -> Result<Pinned, DeviceError> {
        self.make_current()?;
        // SAFETY: every byte is written below, before anything reads it.
        let start = unsafe { result::malloc_host(bytes, 0) }.map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory {
                need: bytes as u64,
                have: None,
                tensor: None,
                device: "the host, whose pages would have to stay where they are".into(),
            },
            _ => self.failed()(error),
        })?;
        // SAFETY: the allocation has this size.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        let owner = Pages { start, context: Arc::clone(&self.context) };
        Ok(Pinned::new(start.cast(), bytes, Box::new(owner)))
    }

    fn event(&mut self) -> Result<Event, DeviceError> {
        self.make_current()?;
        let handle = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(self.failed())?;
        self.events.push(Arc::new(Place { handle, context: Arc::clone(&self.context) }));
        Ok(Event(self.events.len() - 1))
    }

    fn mark_event(&mut self, event: Event, queue: Queue) -> Result<(), DeviceError> {
        self.make_current()?;
        // SAFETY: event and stream live as long as `self`.
        unsafe { result::event::record(self.events[event.0].handle, self.stream_of(queue)) }
            .map_err(self.failed())
    }

    fn follow(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
        self.make_current()?;
        let (stream, event) = (self.stream_of(queue), self.events[event.0].handle);
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: event and stream live as long as `self`. One that was never recorded is passed.
        unsafe { result::stream::wait_event(stream, event, flags) }.map_err(self.failed())
    }

    fn waiter(&self, event: Event) -> Wait {
        let (event, failed) = (Arc::clone(&self.events[event.0]), self.failed());
        Box::new(move || {
            event.context.make_current().map_err(&failed)?;
            // SAFETY: the event lives as long as this closure. One that was never recorded is passed.
            unsafe { result::event::synchronize(event.handle) }.map_err(&failed)
        })
    }

    fn load_async(&mut self, from: &Arc<Pinned>, to: Range<u64>) -> Result<(), DeviceError> {
        self.make_current()?;
        let bytes = to.end - to.start;
        let (to, from) = (self.address(to.start, bytes), from.start().cast_const().cast());
        // SAFETY: both ranges have this size; whoever holds the pages keeps them, and writes them no more until an event after
        // the copy.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes as usize, self.loads) }
            .result()
            .map_err(self.failed())
    }

    fn store_async(&mut self, from: Range<u64>, to: &Arc<Pinned>) -> Result<(), DeviceError> {
        self.make_current()?;
        let bytes = from.end - from.start;
        let from = self.address(from.start, bytes);
        // SAFETY: as above, and nobody reads the pages until an event after the copy.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.start().cast(), from, bytes as usize, self.stores) }
            .result()
            .map_err(self.failed())
    }
}
