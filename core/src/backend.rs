//! `Backend`: prepares a plan and replays it. The seam is "prepare a plan, run a plan", never "add two
//! tensors".

use std::future::Future;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::cancel::{Cancel, Cancelled};
use crate::plan::Plan;
use crate::target::Target;
use crate::variants::Variants;

/// What a device can fail with; everything else was checked when the graph was built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device refused the arena.
    #[error("out of memory on {device}: the plan needs {need} bytes{}{}", free(*have), refused(tensor))]
    OutOfMemory {
        /// Bytes the plan needs.
        need: u64,
        /// Bytes the device had, where it says.
        have: Option<u64>,
        /// The largest tensor of the part that was refused, where that's known.
        tensor: Option<String>,
        /// Name of the device.
        device: String,
    },
    /// The device is gone; its memory with it.
    #[error("{device} was lost: {reason}")]
    Lost {
        /// Name of the device.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// A kernel was refused by the device's compiler.
    #[error("kernel {kernel} does not compile: {log}")]
    Compile {
        /// Entry point.
        kernel: String,
        /// The compiler's words.
        log: String,
    },
    /// Somebody asked to stop.
    #[error("what was computed was stopped on request")]
    Cancelled,
    /// An input from outside broke a promise, such as a token id past the vocabulary.
    #[error("{0}")]
    Input(String),
}

impl From<Cancelled> for DeviceError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

fn free(have: Option<u64>) -> String {
    have.map_or(String::new(), |bytes| format!(", {bytes} are free"))
}

fn refused(tensor: &Option<String>) -> String {
    let Some(tensor) = tensor else { return String::new() };
    format!("; there's no room for the part with `{tensor}`")
}

/// Bytes on their way from a device.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, DeviceError>> + 'a>>;

/// Memory of the host that a device copies from and to by itself.
pub trait HostMemory: Send {
    /// The bytes, once no copy that was begun uses them: waits for that.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn bytes(&mut self) -> Result<&mut [u8], DeviceError>;
}

impl HostMemory for Vec<u8> {
    fn bytes(&mut self) -> Result<&mut [u8], DeviceError> {
        Ok(self)
    }
}

/// What a future comes to whose device doesn't need an event loop to answer.
///
/// # Errors
/// Those of the future; [`DeviceError::Input`] where the device needs one, as in a browser.
pub fn now<T, E: From<DeviceError>>(future: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(E::from(DeviceError::Input(
            "this device answers through the browser's event loop: use the call that is async"
                .to_owned(),
        ))),
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The processor, whose memory is the host's.
    Cpu,
    /// A GPU through Vulkan, Metal, DX12 or WebGPU.
    Wgpu,
    /// An NVIDIA GPU.
    Cuda,
}

impl DeviceKind {
    /// The word for it: cpu, wgpu or cuda.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }

    /// Whether it can go away, and its memory with it.
    pub fn can_be_lost(self) -> bool {
        self != Self::Cpu
    }
}

/// A device's own way to the devices of the other ranks. It carries bytes and adds nothing up, as [`Ranks`](crate::Ranks) does.
///
/// Whoever links devices gives rank 0's invitation to all. From then on every rank runs the same collectives in the same order.
pub trait Links {
    /// Gets ready to be linked; on rank 0, what all ranks [`join`](Links::join) by.
    ///
    /// # Errors
    /// In words, what is missing and what to install.
    fn invite(&mut self, rank: usize) -> Result<Vec<u8>, String>;

    /// Links this device with those of the other ranks, who all do so at the same time.
    ///
    /// # Errors
    /// In words.
    fn join(&mut self, invitation: &[u8], rank: usize, count: usize) -> Result<(), String>;

    /// What links it, where it is linked.
    fn linked(&self) -> Option<Linked>;

    /// Whether the device has done everything that it was asked for. Doesn't wait for other ranks.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], also where the link is broken.
    fn is_done(&mut self) -> Result<bool, DeviceError>;

    /// Gives up what the device waits for of other ranks, and the link.
    fn leave(&mut self);
}

/// What links a device with those of other ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// Which rank this is.
    pub rank: usize,
    /// How many ranks there are.
    pub count: usize,
    /// Name and version of what carries the bytes.
    pub carrier: String,
    /// Bytes of the device that it holds besides the plan, where it says.
    pub bytes: Option<u64>,
}

/// A device with an arena, and a plan that it replays.
///
/// Copies of one direction end in the order in which they begin. Whoever begins one sees to it that until its end nothing reads
/// the bytes that are loaded, and nothing writes to those that are loaded or stored. Without
/// [queues for copies](Target::copy_queues) they're made where they end.
pub trait Backend: Target {
    /// Name of the device, for people.
    fn name(&self) -> String;

    /// What it is.
    fn kind(&self) -> DeviceKind;

    /// Compute capability, major and minor number, of a GPU that has one.
    fn compute_capability(&self) -> Option<(i32, i32)> {
        None
    }

    /// Its kernels, where it compiles some that are chosen among variants.
    fn variants(&mut self) -> Option<&mut dyn Variants> {
        None
    }

    /// Its own way to the devices of other ranks, where it has one. Once it's linked, [`Backend::run`] makes collectives.
    fn links(&mut self) -> Option<&mut dyn Links> {
        None
    }

    /// Allocates the plan's arena, filled with zeros, and readies every step. Frees what was there before.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] and [`DeviceError::Compile`].
    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError>;

    /// Bytes that this backend holds for its plan, by the account of whoever gave them and never by the plan's: what a
    /// run reports as `measured_peak_bytes`.
    ///
    /// | device | measured |
    /// |---|---|
    /// | CPU | the size of the arena's allocation; a test under an allocator that counts holds that there is no other of size |
    /// | wgpu | the sizes of the buffers that were created; a test holds that the device's allocator gave them as much, but for what a driver pads each buffer by |
    /// | CUDA | the driver's record of the arena (`cuMemGetAddressRange`) |
    /// | CUDA, emulated | what the driver was asked for by allocation calls, less what was freed |
    fn allocated_bytes(&self) -> u64;

    /// Bytes that a plan may take now, where the device has memory of its own and says what is free.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes that the device takes besides the plan, for its context and code, where they can be measured.
    fn outside_bytes(&self) -> Option<u64> {
        None
    }

    /// Copies `data` to the arena at offset `at`.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Replays `steps` of a program, unless `cancel` is requested: it's looked at as often as each second at least, between ops, between
    /// the pieces of long ones, or between what is sent to a device. What the steps write is undefined then, and the device goes on with
    /// whatever is run next.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], [`DeviceError::Input`] and [`DeviceError::Cancelled`].
    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError>;

    /// Replays `steps` of a program as [`Backend::run`] does, and returns the seconds of each; `None`, and nothing was replayed, if the device
    /// can't tell them without a wait after each.
    ///
    /// # Errors
    /// As [`Backend::run`].
    fn run_timed(
        &mut self,
        program: usize,
        steps: Range<usize>,
    ) -> Result<Option<Vec<f64>>, DeviceError> {
        let _ = (program, steps);
        Ok(None)
    }

    /// Waits for everything before and reads these byte ranges of the arena, one after the other.
    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_>;

    /// Begins a copy to the arena, and gives the memory that it's to be made from.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], and [`DeviceError::OutOfMemory`] of the host.
    fn begin_load(&mut self, to: Range<u64>) -> Result<Box<dyn HostMemory>, DeviceError> {
        Ok(Box::new(vec![0; (to.end - to.start) as usize]))
    }

    /// Ends the copy that was begun first, now that its memory holds what is copied: what is run from here on finds it.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn end_load(
        &mut self,
        mut from: Box<dyn HostMemory>,
        to: Range<u64>,
    ) -> Result<(), DeviceError> {
        self.write(to.start, from.bytes()?)
    }

    /// Begins a copy from the arena, of what is there once everything before is done.
    ///
    /// # Errors
    /// As [`Backend::begin_load`].
    fn begin_store(&mut self, from: Range<u64>) -> Result<(), DeviceError> {
        let _ = from;
        Ok(())
    }

    /// Ends the copy that was begun first: what is run from here on may write over what was copied. The host waits for
    /// the copy where it looks at the memory.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn end_store(&mut self, from: Range<u64>) -> Result<Box<dyn HostMemory>, DeviceError> {
        Ok(Box::new(now(self.read(slice::from_ref(&from)))?))
    }
}
