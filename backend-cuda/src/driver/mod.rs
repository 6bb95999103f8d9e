//! What a plan needs of a device: memory, kernels, and launches in order.

mod emulated;
mod gpu;
pub mod nvrtc;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

pub use emulated::Emulated;
pub use gpu::Gpu;
use tightrope_core::DeviceError;

use crate::source::Kernel;

/// A compiled kernel of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded(pub(crate) usize);

/// A device, with one allocation.
pub trait Driver {
    /// Name of the device, for people.
    fn name(&self) -> String;

    /// Replaces what was allocated by `bytes` zeros, and gives the address of the first.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn allocate(&mut self, bytes: u64) -> Result<u64, DeviceError>;

    /// Compiles kernels, or finds those that were.
    ///
    /// # Errors
    /// [`DeviceError::Compile`].
    fn load(&mut self, kernels: &[Kernel]) -> Result<Vec<Loaded>, DeviceError>;

    /// Copies `data` to the allocation at offset `at`.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Runs `blocks` blocks of a kernel after everything before, without waiting for them.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn launch(
        &mut self,
        kernel: Loaded,
        arguments: &mut [u8],
        blocks: u32,
    ) -> Result<(), DeviceError>;

    /// Waits for everything before and reads ranges of the allocation, one after the other.
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
