//! The host as a second device, at work at the same time: what it's told to write and run waits in a queue, so that the
//! session goes on. Only what is read is waited for. Where there are no threads, each task is done at once.

use std::cell::RefCell;
use std::ops::Range;
use std::slice;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::backend::{Backend, DeviceError, HostMemory, now};
use crate::cancel::Cancel;
use crate::plan::offload::pieces;

/// Tasks that may wait: a write holds up to [`crate::plan::offload::PIECE`] bytes, and copies of a device its memory.
const WAITING: usize = 8;

enum Task {
    Write(u64, Vec<u8>),
    Run(usize, Range<usize>),
    Read(Vec<Range<u64>>),
    /// Of what comes from a device, to an offset.
    Take(u64, Box<dyn HostMemory>),
    /// Of what goes to a device.
    Fill(Range<u64>, Box<dyn HostMemory>),
}

type Bytes = Result<Vec<u8>, DeviceError>;
type Filled = Result<Box<dyn HostMemory>, DeviceError>;

/// A device that works for a session.
pub(super) struct Worker {
    hands: Hands,
    bytes: Receiver<Bytes>,
    filled: Receiver<Filled>,
}

/// Who does the tasks.
enum Hands {
    /// A thread of its own.
    Thread(Option<SyncSender<Task>>, Option<JoinHandle<()>>),
    /// Whoever gives them.
    Own(RefCell<Hand>),
}

impl Worker {
    /// Of a device that has been readied: with a thread where the platform has any.
    pub fn new(backend: Box<dyn Backend + Send>) -> Result<Self, DeviceError> {
        if cfg!(target_family = "wasm") {
            return Ok(Self::without_thread(backend));
        }
        let name = backend.name();
        let refused =
            |error: std::io::Error| DeviceError::Lost { device: name, reason: error.to_string() };
        let (tasks, queue) = sync_channel(WAITING);
        let (mut hand, bytes, filled) = Hand::new(backend);
        let work = move || {
            for task in queue {
                hand.work(task);
            }
        };
        let thread = Builder::new().name("host".to_owned()).spawn(work).map_err(refused)?;
        Ok(Self { hands: Hands::Thread(Some(tasks), Some(thread)), bytes, filled })
    }

    fn without_thread(backend: Box<dyn Backend + Send>) -> Self {
        let (hand, bytes, filled) = Hand::new(backend);
        Self { hands: Hands::Own(RefCell::new(hand)), bytes, filled }
    }

    /// Queues a write at offset `at`.
    pub fn write(&self, at: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        self.queue(Task::Write(at, bytes))
    }

    /// Queues steps of a program.
    pub fn run(&self, program: usize, steps: Range<usize>) -> Result<(), DeviceError> {
        self.queue(Task::Run(program, steps))
    }

    /// Waits for everything before, and reads. What went wrong before comes to light here.
    pub fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<u8>, DeviceError> {
        self.queue(Task::Read(ranges.to_vec()))?;
        self.bytes.recv().map_err(|_| ended())?
    }

    /// Queues a write at offset `at` of what a device copies, which the thread waits for.
    pub fn take(&self, at: u64, from: Box<dyn HostMemory>) -> Result<(), DeviceError> {
        self.queue(Task::Take(at, from))
    }

    /// Queues a copy to memory that a device then copies from, see [`Worker::filled`].
    pub fn fill(&self, from: Range<u64>, to: Box<dyn HostMemory>) -> Result<(), DeviceError> {
        self.queue(Task::Fill(from, to))
    }

    /// Waits for the memory that was first given to [`Worker::fill`], of those that didn't come back.
    pub fn filled(&self) -> Result<Box<dyn HostMemory>, DeviceError> {
        self.filled.recv().map_err(|_| ended())?
    }

    fn queue(&self, task: Task) -> Result<(), DeviceError> {
        match &self.hands {
            Hands::Thread(tasks, _) => {
                tasks.as_ref().ok_or_else(ended)?.send(task).map_err(|_| ended())
            }
            Hands::Own(hand) => {
                hand.borrow_mut().work(task);
                Ok(())
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Without a sender the thread ends, and its memory is free when this returns.
        if let Hands::Thread(tasks, thread) = &mut self.hands {
            *tasks = None;
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn ended() -> DeviceError {
    DeviceError::Lost {
        device: "the host".to_owned(),
        reason: "the thread that works for it has ended".to_owned(),
    }
}

/// Does tasks in their order. After a failure nothing is done but to say so.
struct Hand {
    backend: Box<dyn Backend + Send>,
    failed: Option<DeviceError>,
    read: Sender<Bytes>,
    fill: Sender<Filled>,
}

impl Hand {
    /// With what it reads and fills.
    fn new(backend: Box<dyn Backend + Send>) -> (Self, Receiver<Bytes>, Receiver<Filled>) {
        let ((read, bytes), (fill, filled)) = (channel(), channel());
        (Self { backend, failed: None, read, fill }, bytes, filled)
    }

    fn work(&mut self, task: Task) {
        let failure = self.failed.clone();
        let backend = &mut *self.backend;
        // Who doesn't hear what was read is about to end.
        let done = match task {
            Task::Read(ranges) => {
                let found = failure.map_or_else(|| now(backend.read(&ranges)), Err);
                let _ = self.read.send(found);
                return;
            }
            Task::Fill(from, to) => {
                let filled = failure.map_or_else(|| filled(backend, &from, to), Err);
                let _ = self.fill.send(filled);
                return;
            }
            _ if failure.is_some() => return,
            Task::Write(at, bytes) => backend.write(at, &bytes),
            Task::Take(at, mut from) => from.bytes().and_then(|bytes| backend.write(at, bytes)),
            // It belongs to an update, or adds up what has arrived: both are finished.
            Task::Run(program, steps) => backend.run(program, steps, &Cancel::default()),
        };
        self.failed = done.err();
    }
}

/// The memory, with these bytes in it.
fn filled(backend: &mut dyn Backend, from: &Range<u64>, mut to: Box<dyn HostMemory>) -> Filled {
    let mut rest = to.bytes()?;
    for piece in pieces(from) {
        let read = now(backend.read(slice::from_ref(&piece)))?;
        let (part, after) = rest.split_at_mut(read.len());
        part.copy_from_slice(&read);
        rest = after;
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use std::slice;
    use std::sync::Arc;

    use super::*;
    use crate::ops::Op;
    use crate::plan::{Plan, Target};
    use crate::types::Type;
    use crate::{DeviceKind, Reading};

    /// Adds the number of a program to every byte; program 0 fails.
    struct Adder(Vec<u8>);

    impl Target for Adder {
        fn alignment(&self) -> u64 {
            1
        }
        fn workspace(&self, _op: &Op, _inputs: &[&Type], _outputs: &[&Type]) -> u64 {
            0
        }
        fn in_place(&self, _op: &Op) -> bool {
            false
        }
    }

    impl Backend for Adder {
        fn kind(&self) -> DeviceKind {
            DeviceKind::Cpu
        }

        fn name(&self) -> String {
            "adder".into()
        }
        fn prepare(&mut self, _plan: Arc<Plan>) -> Result<(), DeviceError> {
            Ok(())
        }
        fn allocated_bytes(&self) -> u64 {
            0
        }
        fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
            self.0[at as usize..][..data.len()].copy_from_slice(data);
            Ok(())
        }
        fn run(
            &mut self,
            program: usize,
            _steps: Range<usize>,
            _cancel: &Cancel,
        ) -> Result<(), DeviceError> {
            if program == 0 {
                return Err(DeviceError::Input("program 0".into()));
            }
            self.0.iter_mut().for_each(|byte| *byte += program as u8);
            Ok(())
        }
        fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
            let part =
                |range: &Range<u64>| self.0[range.start as usize..range.end as usize].to_vec();
            let bytes = ranges.iter().flat_map(part).collect();
            Box::pin(async move { Ok(bytes) })
        }
    }

    #[test]
    fn tasks_are_done_in_their_order_and_a_failure_is_told_when_something_is_read() {
        let adder = || Box::new(Adder(vec![0; 4]));
        for worker in [Worker::new(adder()).unwrap(), Worker::without_thread(adder())] {
            for round in 0..3 * WAITING as u8 {
                worker.write(1, vec![round, 2 * round]).unwrap();
                worker.run(1, 0..1).unwrap();
            }
            let (all, last) = (3 * WAITING as u8, 3 * WAITING as u8 - 1);
            assert_eq!(
                worker.read(slice::from_ref(&(0..4))).unwrap(),
                [all, last + 1, 2 * last + 1, all]
            );
            worker.run(0, 0..1).unwrap();
            worker.run(1, 0..1).unwrap();
            for _ in 0..2 {
                let failure = worker.read(slice::from_ref(&(0..1))).unwrap_err();
                assert!(failure.to_string().contains("program 0"), "{failure}");
            }
        }
    }
}
