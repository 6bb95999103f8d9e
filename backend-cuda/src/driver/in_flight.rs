//! A bound on the work that is queued on a device, so that a request to stop finds little left to do: the host waits above it.

use tightrope_core::DeviceError;

use super::{Driver, Event, Queue};

/// Operations that were asked for since two marks in the queue of kernels.
#[derive(Default)]
pub struct InFlight {
    /// The marks that take turns, and which is next.
    marks: Option<[Event; 2]>,
    next: usize,
    /// Operations since the last mark.
    operations: u64,
}

impl InFlight {
    /// Adds what the device was asked for.
    pub fn push(&mut self, operations: u64) {
        self.operations = self.operations.saturating_add(operations);
    }

    /// Waits until all operations are done but those of the last recording and of what came after it. A device that is linked with other
    /// ranks' devices isn't waited for: it waits for them itself.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn wait(&mut self, driver: &mut dyn Driver) -> Result<(), DeviceError> {
        if self.operations < driver.replay_operations() || driver.linked().is_some() {
            return Ok(());
        }
        let marks = match self.marks {
            Some(marks) => marks,
            None => *self.marks.insert([driver.event()?, driver.event()?]),
        };
        driver.mark_event(marks[self.next], Queue::Kernels)?;
        (self.next, self.operations) = (1 - self.next, 0);
        driver.waiter(marks[self.next])()
    }
}
