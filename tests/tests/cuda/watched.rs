//! The emulated device, and what the CUDA backend asks of it: a driver that writes it down, and can do something wrong.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use tightrope_backend_cuda::driver::{
    CopyQueues, Driver, Emulated, Event, Loaded, Pinned, Queue, Recorded, Task, Version, Wait,
};
use tightrope_backend_cuda::library::{Algorithm, Library, Problem};
use tightrope_backend_cuda::source::{Kernel, MOST_ARGUMENT_BYTES, TensorMap};
use tightrope_core::launch::Boxed;
use tightrope_core::ops::uniform;
use tightrope_core::{DType, DeviceError, Linked, Links};

/// What a driver was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asked {
    Copy,
    Mark(usize),
    Wait(usize),
    Time,
    Clear,
    Repeat,
    Launch,
    /// Of a matmul of the library.
    Multiply,
    Record,
    Replay(Recorded),
    Exchange,
    Read,
    /// Asynchronous copies.
    Load,
    Store,
}

/// The emulated device, and what it was asked for.
pub struct Watched {
    pub device: Emulated,
    pub asked: Rc<RefCell<Vec<Asked>>>,
    /// Where what was timed is kept.
    pub choices: PathBuf,
    /// A queue that is never told what to wait for.
    pub forgets: Option<Queue>,
    /// What it does with the exchanges of what it records.
    pub changes: Option<fn(&mut Vec<Task>)>,
    /// Whether what is replayed is launched again instead, task by task; and what was recorded.
    pub one_by_one: bool,
    pub recorded: Vec<(Recorded, Vec<Task>)>,
    /// Whether what it times begins late now and then, and how often it was asked to time anything.
    pub unsteady: bool,
    pub timings: u64,
    /// Most bytes of a kernel's arguments.
    pub argument_bytes: usize,
    /// Whether nothing is found that exchanges with other ranks' devices.
    pub alone: bool,
}

impl Watched {
    pub fn new() -> Self {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
        Self {
            device: Emulated::new(cache, 11),
            asked: Rc::default(),
            choices: PathBuf::new(),
            forgets: None,
            changes: None,
            one_by_one: false,
            recorded: vec![],
            unsteady: false,
            timings: 0,
            argument_bytes: MOST_ARGUMENT_BYTES,
            alone: false,
        }
    }

    /// One that finds nothing that exchanges with other ranks' devices.
    pub fn alone() -> Self {
        Self { alone: true, ..Self::new() }
    }

    /// One that keeps what was timed in this file.
    pub fn keeping(choices: PathBuf) -> Self {
        Self { choices, ..Self::new() }
    }

    /// The same, which launches again what others replay.
    pub fn one_by_one(self) -> Self {
        Self { one_by_one: true, ..self }
    }

    /// The same, with a queue that is never told what to wait for.
    pub fn forgetting(self, forgets: Option<Queue>) -> Self {
        Self { forgets, ..self }
    }

    /// The same, which changes what it records.
    pub fn changing(self, changes: Option<fn(&mut Vec<Task>)>) -> Self {
        Self { changes, ..self }
    }

    fn ask(&self, asked: Asked) {
        self.asked.borrow_mut().push(asked);
    }
}

impl Driver for Watched {
    fn capability(&self) -> Option<Version> {
        self.device.capability()
    }
    fn versions(&self) -> String {
        self.device.versions()
    }

    fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }
    fn tensor_cores(&self) -> &'static [DType] {
        self.device.tensor_cores()
    }
    fn replay_operations(&self) -> u64 {
        self.device.replay_operations()
    }
    fn wgmma(&self) -> Option<u32> {
        self.device.wgmma()
    }
    fn finds_links(&self) -> fn() -> bool {
        if self.alone { || false } else { self.device.finds_links() }
    }

    fn tensor_map(&self, boxed: &Boxed, address: u64) -> Result<TensorMap, DeviceError> {
        self.device.tensor_map(boxed, address)
    }
    fn name(&self) -> String {
        self.device.name()
    }
    fn allocate(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        self.device.allocate(bytes)
    }
    fn allocated_bytes(&self) -> u64 {
        self.device.allocated_bytes()
    }
    fn free_bytes(&self) -> Option<u64> {
        self.device.free_bytes()
    }
    fn outside_bytes(&self) -> Option<u64> {
        self.device.outside_bytes()
    }
    fn load(&mut self, kernels: &[Kernel]) -> Result<Vec<Loaded>, DeviceError> {
        self.device.load(kernels)
    }
    fn staging(&mut self) -> &mut [u8] {
        self.device.staging()
    }
    fn copy(&mut self, from: Range<usize>, to: u64) -> Result<(), DeviceError> {
        self.ask(Asked::Copy);
        self.device.copy(from, to)
    }
    fn mark(&mut self, half: usize) -> Result<(), DeviceError> {
        self.ask(Asked::Mark(half));
        self.device.mark(half)
    }
    fn wait(&mut self, half: usize) -> Result<(), DeviceError> {
        self.ask(Asked::Wait(half));
        self.device.wait(half)
    }
    fn library(&mut self) -> Result<Library, String> {
        let library = self.device.library()?;
        Ok(Library { choices: self.choices.clone(), ..library })
    }
    fn algorithms(
        &mut self,
        problem: &Problem,
        workspace: u64,
    ) -> Result<Vec<Algorithm>, DeviceError> {
        self.device.algorithms(problem, workspace)
    }
    fn launch(&mut self, task: &Task) -> Result<(), DeviceError> {
        self.ask(match task {
            Task::Kernel(_) => Asked::Launch,
            Task::Matmul(_) => Asked::Multiply,
            Task::Exchange(..) | Task::Exchanged(_) => Asked::Exchange,
        });
        self.device.launch(task)
    }
    fn seconds(&mut self, recorded: Recorded) -> Result<f64, DeviceError> {
        self.ask(Asked::Time);
        self.timings += 1;
        // A replay begins later than another, and now and then others use the device.
        let late = match (self.unsteady, uniform([3, 0, 0, 0], 0, self.timings)) {
            (false, _) => 0.0,
            (true, drawn) if drawn < 0.1 => 3e-4,
            (true, drawn) => drawn * 2e-5,
        };
        Ok(late + self.device.seconds(recorded)?)
    }
    fn clear(&mut self) -> Result<(), DeviceError> {
        self.ask(Asked::Clear);
        self.device.clear()
    }
    fn repeat(&mut self, bytes: u64) -> Result<(), DeviceError> {
        self.ask(Asked::Repeat);
        self.device.repeat(bytes)
    }
    fn forget(&mut self, kept: usize) -> Result<(), DeviceError> {
        self.device.forget(kept)
    }
    fn record(&mut self, tasks: &[&Task]) -> Result<Recorded, DeviceError> {
        self.ask(Asked::Record);
        let mut tasks: Vec<Task> = tasks.iter().map(|&task| task.clone()).collect();
        if let Some(change) = self.changes {
            change(&mut tasks);
        }
        let recorded = self.device.record(&tasks.iter().collect::<Vec<_>>())?;
        if self.one_by_one {
            self.recorded.push((recorded, tasks));
        }
        Ok(recorded)
    }
    fn replay(&mut self, recorded: Recorded) -> Result<(), DeviceError> {
        // A number that was forgotten is given again.
        let mut kept = self.recorded.iter().rev();
        if let Some((_, tasks)) = kept.find(|(number, _)| *number == recorded) {
            let tasks = tasks.clone();
            return tasks.iter().try_for_each(|task| self.launch(task));
        }
        self.ask(Asked::Replay(recorded));
        self.device.replay(recorded)
    }
    fn read(&mut self, ranges: &[Range<u64>]) -> Result<Vec<u8>, DeviceError> {
        self.ask(Asked::Read);
        self.device.read(ranges)
    }
}

impl Links for Watched {
    fn invite(&mut self, rank: usize) -> Result<Vec<u8>, String> {
        self.device.invite(rank)
    }
    fn join(&mut self, invitation: &[u8], rank: usize, count: usize) -> Result<(), String> {
        self.device.join(invitation, rank, count)
    }
    fn linked(&self) -> Option<Linked> {
        self.device.linked()
    }
    fn is_done(&mut self) -> Result<bool, DeviceError> {
        self.device.is_done()
    }
    fn leave(&mut self) {
        self.device.leave();
    }
}

impl CopyQueues for Watched {
    fn pinned(&mut self, bytes: usize) -> Result<Pinned, DeviceError> {
        self.device.pinned(bytes)
    }
    fn event(&mut self) -> Result<Event, DeviceError> {
        self.device.event()
    }
    fn mark_event(&mut self, event: Event, queue: Queue) -> Result<(), DeviceError> {
        self.device.mark_event(event, queue)
    }
    fn follow(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
        if self.forgets == Some(queue) {
            return Ok(());
        }
        self.device.follow(queue, event)
    }
    fn waiter(&self, event: Event) -> Wait {
        self.device.waiter(event)
    }
    fn load_async(&mut self, from: &Arc<Pinned>, to: Range<u64>) -> Result<(), DeviceError> {
        self.ask(Asked::Load);
        self.device.load_async(from, to)
    }
    fn store_async(&mut self, from: Range<u64>, to: &Arc<Pinned>) -> Result<(), DeviceError> {
        self.ask(Asked::Store);
        self.device.store_async(from, to)
    }
}
