//! What asynchronous copies need of a device: queues that wait for each other, and pages of the host that stay where they
//! are.

use std::ops::Range;
use std::sync::Arc;

use tightrope_core::DeviceError;

/// What a device does in order, at the same time as what is in its other queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Everything but asynchronous copies.
    Kernels,
    /// Copies to the device.
    Loads,
    /// Copies to the host.
    Stores,
}

/// The place in a queue that was marked last, for others to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub(crate) usize);

/// Waits for something of a device, on any thread.
pub type Wait = Box<dyn FnMut() -> Result<(), DeviceError> + Send>;

/// Pages of the host that stay where they are, so that a device copies from and to them by itself.
pub struct Pinned {
    start: *mut u8,
    bytes: usize,
    /// Frees the pages when it's dropped.
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: the pages belong to no thread, and whoever reads or writes them says why nobody else does.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// So many bytes that were written at least once and live as long as their owner.
    pub(super) fn new(start: *mut u8, bytes: usize, owner: Box<dyn Send + Sync>) -> Self {
        Self { start, bytes, _owner: owner }
    }

    /// Address of the first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// How many there are.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A device with queues for copies, each in its own order.
pub trait CopyQueues {
    /// So many bytes of the host for asynchronous copies.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn pinned(&mut self, bytes: usize) -> Result<Pinned, DeviceError>;

    /// An event that marks no place yet, which nobody waits for.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn event(&mut self) -> Result<Event, DeviceError>;

    /// Has an event mark the end of what a queue was asked for.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn mark_event(&mut self, event: Event, queue: Queue) -> Result<(), DeviceError>;

    /// Has what a queue is asked for from here on wait for the place that an event marks now.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn follow(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError>;

    /// What waits for the place that an event marks now, as long as it marks no other.
    fn waiter(&self, event: Event) -> Wait;

    /// Begins to copy as many bytes of the host as the range has, in [`Queue::Loads`].
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn load_async(&mut self, from: &Arc<Pinned>, to: Range<u64>) -> Result<(), DeviceError>;

    /// Begins to copy a range to the host, in [`Queue::Stores`].
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn store_async(&mut self, from: Range<u64>, to: &Arc<Pinned>) -> Result<(), DeviceError>;
}
