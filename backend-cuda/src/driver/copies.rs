//! Asynchronous copies: the memory of the host that they use, and which queue waits for which.

use std::collections::VecDeque;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tightrope_core::{DeviceError, HostMemory};

use super::{CopyQueues, Event, Pinned, Queue, Wait};

/// Memory for a copy, with the places in queues that it's about.
#[derive(Clone)]
struct Memory {
    pages: Arc<Pinned>,
    /// Of the kernels' queue: what comes before is done before the copy begins.
    begun: Event,
    /// After the last copy.
    done: Event,
}

/// Copies that were begun, and memory for more: as much as was on its way at once.
pub struct Copies {
    free: Vec<Memory>,
    back: (Sender<Memory>, Receiver<Memory>),
    loads: VecDeque<Memory>,
    stores: VecDeque<Memory>,
}

impl Default for Copies {
    fn default() -> Self {
        let (loads, stores) = (VecDeque::new(), VecDeque::new());
        Self { free: vec![], back: channel(), loads, stores }
    }
}

impl Copies {
    /// Forgets copies that were begun and didn't end, for another plan.
    pub fn clear(&mut self) {
        self.free.extend(self.loads.drain(..).chain(self.stores.drain(..)));
    }

    /// See [`tightrope_core::Backend::begin_load`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn begin_load(
        &mut self,
        driver: &mut dyn CopyQueues,
        to: &Range<u64>,
    ) -> Result<Box<dyn HostMemory>, DeviceError> {
        let memory = self.take(driver, to)?;
        driver.mark_event(memory.begun, Queue::Kernels)?;
        let lent = self.lent(driver, memory.clone(), to);
        self.loads.push_back(memory);
        Ok(Box::new(lent))
    }

    /// See [`tightrope_core::Backend::end_load`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn end_load(
        &mut self,
        driver: &mut dyn CopyQueues,
        from: Box<dyn HostMemory>,
        to: Range<u64>,
    ) -> Result<(), DeviceError> {
        let memory = self.loads.pop_front().ok_or_else(never_begun)?;
        driver.follow(Queue::Loads, memory.begun)?;
        driver.load_async(&memory.pages, to)?;
        driver.mark_event(memory.done, Queue::Loads)?;
        driver.follow(Queue::Kernels, memory.done)?;
        drop(from);
        Ok(())
    }

    /// See [`tightrope_core::Backend::begin_store`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn begin_store(
        &mut self,
        driver: &mut dyn CopyQueues,
        from: Range<u64>,
    ) -> Result<(), DeviceError> {
        let memory = self.take(driver, &from)?;
        // The device may still copy from this memory what it held before.
        driver.follow(Queue::Stores, memory.done)?;
        driver.mark_event(memory.begun, Queue::Kernels)?;
        driver.follow(Queue::Stores, memory.begun)?;
        driver.store_async(from, &memory.pages)?;
        driver.mark_event(memory.done, Queue::Stores)?;
        self.stores.push_back(memory);
        Ok(())
    }

    /// See [`tightrope_core::Backend::end_store`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn end_store(
        &mut self,
        driver: &mut dyn CopyQueues,
        from: &Range<u64>,
    ) -> Result<Box<dyn HostMemory>, DeviceError> {
        let memory = self.stores.pop_front().ok_or_else(never_begun)?;
        driver.follow(Queue::Kernels, memory.done)?;
        Ok(Box::new(self.lent(driver, memory, from)))
    }

    /// The smallest memory that has room and that nobody holds, or new one.
    fn take(
        &mut self,
        driver: &mut dyn CopyQueues,
        range: &Range<u64>,
    ) -> Result<Memory, DeviceError> {
        self.free.extend(self.back.1.try_iter());
        let bytes = (range.end - range.start) as usize;
        let fits = self.free.iter().enumerate().filter(|(_, memory)| memory.pages.bytes() >= bytes);
        match fits.min_by_key(|(_, memory)| memory.pages.bytes()) {
            Some((index, _)) => Ok(self.free.swap_remove(index)),
            None => Ok(Memory {
                pages: Arc::new(driver.pinned(bytes)?),
                begun: driver.event()?,
                done: driver.event()?,
            }),
        }
    }

    fn lent(&self, driver: &dyn CopyQueues, memory: Memory, range: &Range<u64>) -> Lent {
        let (wait, back) = (driver.waiter(memory.done), self.back.0.clone());
        let bytes = (range.end - range.start) as usize;
        Lent { memory: Some(memory), bytes, wait, back }
    }
}

fn never_begun() -> DeviceError {
    DeviceError::Input("a copy ends that was never begun".to_owned())
}

/// Memory in the hands of the host; it comes back when it's dropped.
struct Lent {
    memory: Option<Memory>,
    bytes: usize,
    wait: Wait,
    back: Sender<Memory>,
}

impl HostMemory for Lent {
    fn bytes(&mut self) -> Result<&mut [u8], DeviceError> {
        (self.wait)()?;
        let Some(memory) = &self.memory else { return Ok(&mut []) };
        // SAFETY: there are as many pages, which live as long as `memory`. The copy before is done, as was waited for, and
        // the next one begins when this comes back.
        Ok(unsafe { slice::from_raw_parts_mut(memory.pages.start(), self.bytes) })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Where the device is gone already, the memory goes too.
        let _ = self.memory.take().map(|memory| self.back.send(memory));
    }
}
