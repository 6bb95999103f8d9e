//! What the emulated device does with what it was asked for, and when: nothing before somebody waits for it, and an exchange as far as
//! other ranks have come.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use tightrope_core::DeviceError;

use super::faults::{self, Fault};
use super::queues::{Copy, Queues};
use super::{Device, HANGS, Line, PAUSE, locked};
use crate::driver::{Queue, Recorded, Task};
use crate::variants::LIBRARY;

/// What exchanges are called where faults are named.
const EXCHANGE: &str = "exchange";

/// Work of a device.
pub enum Work {
    /// Of so many bytes of the staging memory, which begin at this address, to an offset.
    Copy(usize, usize, u64),
    AsyncCopy(Copy),
    Launch(Task),
    Clear,
    /// Of so many bytes at the beginning.
    Repeat(usize),
    Replay(Recorded),
}

/// Waits until this holds of a device, or nothing is left for it to do.
pub fn until(device: &Mutex<Device>, holds: &dyn Fn(&Queues) -> bool) -> Result<(), DeviceError> {
    let since = Instant::now();
    // Whoever waits for this one's host to go on goes on by itself meanwhile.
    while !locked(device).advance(holds)? {
        if since.elapsed() > HANGS {
            return Err(locked(device).lost("it hangs: it waits for another rank"));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

impl Device {
    /// Works until this holds, or nothing is left to do; whether that's so, and it doesn't wait for another rank. After work that fails,
    /// the rest is forgotten.
    pub fn advance(&mut self, until: &dyn Fn(&Queues) -> bool) -> Result<bool, DeviceError> {
        loop {
            if let Some(words) = &self.faulted {
                return Err(self.lost(words));
            }
            self.queues.settle();
            if until(&self.queues) {
                return Ok(true);
            }
            let Some(work) = self.queues.next() else { return Ok(true) };
            match self.perform(&work) {
                Ok(true) => {}
                Ok(false) => {
                    self.queues.put_back(work);
                    return Ok(false);
                }
                Err(error) => {
                    self.queues.clear();
                    self.beside.clear();
                    (self.exchanging, self.replayed) = (None, 0);
                    return Err(error);
                }
            }
        }
    }

    /// Does it, or as much as it can before it waits for another rank; whether it's done.
    fn perform(&mut self, work: &Work) -> Result<bool, DeviceError> {
        match *work {
            Work::Copy(from, bytes, to) => {
                let (from, to) = (from as *const u8, self.at(to, bytes));
                // SAFETY: both have as many bytes, and share none. The staging memory outlives the queue.
                unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
                Ok(true)
            }
            Work::AsyncCopy(Copy { ref memory, at, bytes, direction, .. }) => {
                let (host, own) = (memory.start(), self.at(at, bytes));
                // SAFETY: both have as many bytes, and share none. Nobody else uses the host's before an event that comes
                // after this copy.
                unsafe {
                    match direction {
                        Queue::Stores => std::ptr::copy_nonoverlapping(own, host, bytes),
                        _ => std::ptr::copy_nonoverlapping(host, own, bytes),
                    }
                }
                Ok(true)
            }
            Work::Launch(ref task) => self.run_task(task),
            Work::Clear => {
                self.arena.fill(Line([0; 256]));
                Ok(true)
            }
            Work::Repeat(first) => {
                for at in (first..self.bytes).step_by(first.max(1)) {
                    let bytes = first.min(self.bytes - at);
                    let (from, to) = (self.at(0, bytes), self.at(at as u64, bytes));
                    // SAFETY: the arena has both, and they share no byte.
                    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
                }
                Ok(true)
            }
            Work::Replay(Recorded(index)) => {
                let tasks = std::mem::take(&mut self.recorded[index]);
                let outcome = self.replay(&tasks);
                self.recorded[index] = tasks;
                outcome
            }
        }
    }

    /// Goes on with a recording; whether it's done.
    fn replay(&mut self, tasks: &[Task]) -> Result<bool, DeviceError> {
        while let Some(task) = tasks.get(self.replayed) {
            if !self.run_task(task)? {
                return Ok(false);
            }
            self.replayed += 1;
        }
        self.replayed = 0;
        Ok(true)
    }

    fn run_task(&mut self, task: &Task) -> Result<bool, DeviceError> {
        let label = match task {
            Task::Kernel(dispatch) => &self.entries[dispatch.kernel.0].1,
            Task::Matmul(_) => LIBRARY,
            Task::Exchange(..) | Task::Exchanged(_) => EXCHANGE,
        };
        let fault = self.faults.of(label);
        if fault == Some(Fault::Error) {
            self.faulted = Some(format!("{label}: illegal memory access"));
        }
        if let Some(words) = &self.faulted {
            return Err(self.lost(words));
        }
        let before = (fault == Some(Fault::Wrong)).then(|| self.arena_bytes().to_vec());
        match task {
            Task::Kernel(dispatch) => self.run(dispatch)?,
            Task::Matmul(matmul) => self.multiply(matmul)?,
            Task::Exchange(number, moves) => {
                if self.beside.begins(*number, moves) && !self.exchange_all(|_| true)? {
                    return Ok(false);
                }
                self.beside.begun();
            }
            Task::Exchanged(number) => {
                if !self.exchange_all(|beside| beside.waits(*number))? {
                    return Ok(false);
                }
            }
        }
        if let Some(before) = before {
            faults::spoil(&before, self.arena_bytes());
        }
        Ok(true)
    }
}
