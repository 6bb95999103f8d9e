//! What a plan needs of a device: memory, kernels, and work in order.

mod compiler;
mod copies;
mod copy_queues;
mod cublaslt;
#[cfg(any(test, feature = "emulation"))]
mod emulated;
mod gpu;
mod in_flight;
mod loaded;
mod nccl;
mod nvml;
pub mod nvrtc;
mod requirements;
mod staging;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

pub use copies::Copies;
pub use copy_queues::{CopyQueues, Event, Pinned, Queue, Wait};
#[cfg(any(test, feature = "emulation"))]
pub use emulated::{Emulated, Faults};
pub use gpu::Gpu;
pub use in_flight::InFlight;
pub use requirements::{Version, has_wgmma, tensor_cores};
pub use staging::{HALF_BYTES, HALVES, Staging};
use tightrope_core::launch::Boxed;
use tightrope_core::{DType, DeviceError, Links};

use crate::collective::Moves;
use crate::library::{Algorithm, Library, Multiply, Problem};
use crate::source::{Kernel, TensorMap};

/// A compiled kernel of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded(pub(crate) usize);

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The kernel.
    pub kernel: Loaded,
    /// Numbers and tensors, as `Args` declares them.
    pub arguments: Vec<u8>,
    /// Blocks.
    pub blocks: u32,
}

/// A piece of a plan's work.
#[derive(Clone, Debug)]
pub enum Task {
    /// A kernel of the engine.
    Kernel(Dispatch),
    /// A matmul of the device's library.
    Matmul(Box<Multiply>),
    /// Begins the collective of this number, where the device is linked with those of other ranks. It's made beside the tasks that come
    /// after, and one after the other in their order.
    Exchange(usize, Box<Moves>),
    /// What comes after waits for the collective of this number.
    Exchanged(usize),
}

/// Tasks that a driver recorded, to be replayed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded(pub(crate) usize);

/// A device, with one allocation, and memory of the host that copies to it read from. It works in the order in which
/// it's asked to, queue by queue, and the caller goes on meanwhile.
pub trait Driver: CopyQueues + Links {
    /// Name of the device, for people.
    fn name(&self) -> String;

    /// Versions of the driver and of the compiler of kernels.
    fn versions(&self) -> String;

    /// Compute capability, where it's a GPU.
    fn capability(&self) -> Option<Version>;

    /// Most bytes of a kernel's arguments.
    fn argument_bytes(&self) -> usize;

    /// What its tensor cores multiply as it's stored.
    fn tensor_cores(&self) -> &'static [DType];

    /// Operations that it does in some tenths of a second at most: no more are recorded to be replayed as one.
    fn replay_operations(&self) -> u64;

    /// Multiprocessors that multiply for warpgroups (Hopper's `wgmma`), and whose copy engine takes tensor maps.
    fn wgmma(&self) -> Option<u32>;

    /// What finds out whether there is something that exchanges with the devices of other ranks.
    fn finds_links(&self) -> fn() -> bool;

    /// Describes a tensor at this address to the copy engine. Nothing happens on the device.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], where the copy engine can't have it.
    fn tensor_map(&self, boxed: &Boxed, address: u64) -> Result<TensorMap, DeviceError>;

    /// Replaces what was allocated, none of which is on its way to other ranks, by `bytes` zeros, and gives the address of the first. What was recorded is gone.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn allocate(&mut self, bytes: u64) -> Result<u64, DeviceError>;

    /// Bytes of the allocation, by the device's own record; 0 where there is none.
    fn allocated_bytes(&self) -> u64;

    /// Bytes that could be allocated now, where the device says.
    fn free_bytes(&self) -> Option<u64>;

    /// Bytes that the device takes besides the allocation, where they were measured.
    fn outside_bytes(&self) -> Option<u64>;

    /// Compiles kernels, or finds those that were.
    ///
    /// # Errors
    /// [`DeviceError::Compile`].
    fn load(&mut self, kernels: &[Kernel]) -> Result<Vec<Loaded>, DeviceError>;

    /// [`HALVES`] times [`HALF_BYTES`] of the host.
    fn staging(&mut self) -> &mut [u8];

    /// Begins to copy bytes of the staging memory to the allocation at offset `to`.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn copy(&mut self, from: Range<usize>, to: u64) -> Result<(), DeviceError>;

    /// Marks a half of the staging memory: everything asked for so far may read it.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn mark(&mut self, half: usize) -> Result<(), DeviceError>;

    /// Waits for everything before the last mark of a half.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn wait(&mut self, half: usize) -> Result<(), DeviceError>;

    /// Finds what multiplies matrices besides kernels.
    ///
    /// # Errors
    /// In words, what is missing and what to install.
    fn library(&mut self) -> Result<Library, String>;

    /// Ways of the library to solve a problem within so many bytes of workspace, those that it expects to be fastest
    /// first; none where it has none.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn algorithms(
        &mut self,
        problem: &Problem,
        workspace: u64,
    ) -> Result<Vec<Algorithm>, DeviceError>;

    /// Begins to run a task.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn launch(&mut self, task: &Task) -> Result<(), DeviceError>;

    /// Replays what was recorded and waits for it; the seconds that it took on the device.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn seconds(&mut self, recorded: Recorded) -> Result<f64, DeviceError>;

    /// Begins to make every byte of the allocation zero.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn clear(&mut self) -> Result<(), DeviceError>;

    /// Begins to copy so many bytes at the beginning of the allocation behind themselves, again and again, until it's full.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn repeat(&mut self, bytes: u64) -> Result<(), DeviceError>;

    /// Records tasks, of which none runs.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] and [`DeviceError::Lost`].
    fn record(&mut self, tasks: &[&Task]) -> Result<Recorded, DeviceError>;

    /// Forgets what was recorded last, but for so many recordings, after everything that replays it.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn forget(&mut self, kept: usize) -> Result<(), DeviceError>;

    /// Begins to run what was recorded.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn replay(&mut self, recorded: Recorded) -> Result<(), DeviceError>;

    /// Waits for all kernels before and reads ranges of the allocation, one after the other.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn read(&mut self, ranges: &[Range<u64>]) -> Result<Vec<u8>, DeviceError>;
}

/// A file name for what is compiled from this.
fn cache_key(of: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
