//! NVIDIA's management library: bytes in use on a GPU, which can be asked before this process uses any.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::{Library, Symbol};

use super::loaded;

/// Name of the library, which comes with the driver.
const NAME: &str = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };

/// A GPU, to the library.
type Device = *mut c_void;
/// Zero where a call went well.
type Status = c_int;

/// Room for the driver's version (NVML, `NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE`).
const VERSION_BYTES: usize = 80;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// One GPU.
pub struct Nvml {
    library: &'static Library,
    device: Device,
}

impl Nvml {
    /// The GPU at a PCI address, where the library is installed and knows it.
    pub fn open(address: &CStr) -> Option<Self> {
        type Init = unsafe extern "C" fn() -> Status;
        type Find = unsafe extern "C" fn(*const c_char, *mut Device) -> Status;
        let library = loaded::library(NAME).ok()?;
        let mut nvml = Self { library, device: ptr::null_mut() };
        // SAFETY: NVML declares `nvmlInit_v2` so. Dropping ends what it begins.
        let begun = unsafe { nvml.find::<Init>("nvmlInit_v2")?() };
        let mut device = ptr::null_mut();
        let found = nvml.find::<Find>("nvmlDeviceGetHandleByPciBusId_v2")?;
        // SAFETY: the address ends with a zero; a handle is written.
        let found = unsafe { found(address.as_ptr(), &mut device) };
        nvml.device = device;
        (begun == 0 && found == 0).then_some(nvml)
    }

    /// Bytes in use by all processes.
    pub fn used(&self) -> Option<u64> {
        type Get = unsafe extern "C" fn(Device, *mut Memory) -> Status;
        let mut memory = Memory::default();
        // SAFETY: the handle was given by the library, which writes three numbers.
        let status =
            unsafe { self.find::<Get>("nvmlDeviceGetMemoryInfo")?(self.device, &mut memory) };
        (status == 0).then_some(memory.used)
    }

    /// The driver's version.
    pub fn driver(&self) -> Option<String> {
        type Get = unsafe extern "C" fn(*mut c_char, c_uint) -> Status;
        let mut words = [0u8; VERSION_BYTES];
        let length = words.len() as c_uint;
        // SAFETY: at most as many bytes are written.
        let status = unsafe {
            self.find::<Get>("nvmlSystemGetDriverVersion")?(words.as_mut_ptr().cast(), length)
        };
        let words = CStr::from_bytes_until_nul(&words).ok().filter(|_| status == 0)?;
        Some(words.to_string_lossy().into_owned())
    }

    fn find<F>(&self, name: &str) -> Option<Symbol<'_, F>> {
        // SAFETY: every caller names the type that NVML's header declares.
        unsafe { self.library.get(name.as_bytes()) }.ok()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        type Shutdown = unsafe extern "C" fn() -> Status;
        if let Some(shutdown) = self.find::<Shutdown>("nvmlShutdown") {
            // SAFETY: nothing of the library is used any more; where it wasn't begun, it says so.
            unsafe { shutdown() };
        }
    }
}
