//! Opens a GPU: what is asked first, in which order, and what is said where something is missing.

use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::path::PathBuf;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tightrope_core::DeviceError;

use super::copy_queues::Context;
use super::linked::Link;
use super::{Gpu, Staging, failed, maps};
use crate::driver::compiler::Compiler;
use crate::driver::nvml::Nvml;
use crate::driver::nvrtc::Nvrtc;
use crate::driver::requirements::{self, Code, Version, cuda_version};
use crate::driver::{HALF_BYTES, HALVES};

/// What a context has from its beginning.
struct Begun {
    context: Arc<Context>,
    streams: [sys::CUstream; 3],
    staging: Staging,
    clock: [sys::CUevent; 2],
}

/// Room for a PCI address, of 16 characters at most, and the zero at its end.
const ADDRESS_BYTES: usize = 32;

/// Compute capability.
fn capability(device: sys::CUdevice) -> Result<Version, DriverError> {
    use sys::CUdevice_attribute as Attribute;
    // SAFETY: the device was given by the driver.
    let get = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    Ok((
        get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// A GPU in NVML, with the bytes that are in use.
fn used(device: sys::CUdevice) -> Option<(Nvml, u64)> {
    let mut address = [0; ADDRESS_BYTES];
    // SAFETY: at most as many bytes are written, the last a zero.
    let status =
        unsafe { sys::cuDeviceGetPCIBusId(address.as_mut_ptr(), address.len() as c_int, device) };
    status.result().ok()?;
    // SAFETY: the driver ended the address with a zero.
    let nvml = Nvml::open(unsafe { CStr::from_ptr(address.as_ptr()) })?;
    let bytes = nvml.used()?;
    Some((nvml, bytes))
}

impl Gpu {
    /// How many there are; none where there's no driver.
    pub fn count() -> usize {
        // SAFETY: the libraries that this tries are the driver's. Asked first, since cudarc panics without them.
        let has_driver = unsafe { sys::is_culib_present() };
        let count = has_driver.then(|| result::init().and_then(|()| result::device::get_count()));
        count.and_then(Result::ok).and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    }

    /// Opens GPU number `ordinal`. Kernels that were compiled are kept in the folder `cache`.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] where there's no driver, no such GPU, or no compiler, or one of them is too old.
    pub fn open(ordinal: usize, cache: impl Into<PathBuf>) -> Result<Self, DeviceError> {
        let device = format!("cuda:{ordinal}");
        let refused = |reason: String| DeviceError::Lost { device: device.clone(), reason };
        // SAFETY: the libraries that this tries are the driver's. Asked first, since cudarc panics without them.
        if !unsafe { sys::is_culib_present() } {
            return Err(refused("no NVIDIA driver is installed".into()));
        }
        let failed = failed(&device);
        let mut number = 0;
        // SAFETY: a number is written. Every driver has this function, and none of the later ones is called before.
        unsafe { sys::cuDriverGetVersion(&mut number) }.result().map_err(&failed)?;
        let driver = cuda_version(number);
        requirements::of_driver(driver).map_err(&refused)?;
        result::init().map_err(&failed)?;
        let count = result::device::get_count().map_err(&failed)?;
        let number = i32::try_from(ordinal).ok().filter(|&number| number < count);
        let number = number.ok_or_else(|| refused(format!("there are {count} NVIDIA GPUs")))?;
        let handle = result::device::get(number).map_err(&failed)?;
        let name = result::device::get_name(handle).map_err(&failed)?;
        let capability = capability(handle).map_err(&failed)?;
        requirements::of_gpu(&name, capability).map_err(&refused)?;
        let nvrtc = Nvrtc::open_where(|version, supported| {
            requirements::of_compiler(version, Code::of(capability, supported)?, driver)
        });
        let nvrtc = nvrtc.map_err(&refused)?;
        let code = Code::of(capability, nvrtc.supported()).map_err(&refused)?;
        let used_before = used(handle);
        let opened = Self::with_context(handle).map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => refused(format!(
                "another process holds all memory of {name}, not even a context fits; `nvidia-smi` names it"
            )),
            _ => failed(error),
        });
        let Begun { context, streams: [stream, loads, stores], staging, clock } = opened?;
        let architecture = code.architecture();
        let early = requirements::begins_early(code.capability(), driver);
        Ok(Self {
            name,
            context,
            stream,
            loads,
            stores,
            events: vec![],
            compiler: Compiler { architecture, nvrtc, early, cache: cache.into() },
            arena: None,
            loaded: HashMap::new(),
            functions: vec![],
            modules: vec![],
            graphs: vec![],
            staging,
            driver,
            capability,
            code,
            wgmma: match code {
                Code::Gpu(own) => maps::multiprocessors(handle, own),
                Code::Ptx(_) => None,
            },
            link: Link::default(),
            matmuls: None,
            clock,
            used_before,
        })
    }

    /// A context of a device, made current, with streams and staging memory.
    fn with_context(device: sys::CUdevice) -> Result<Begun, DriverError> {
        // SAFETY: the device was given by the driver.
        let handle = unsafe { result::primary_ctx::retain(device) }?;
        let context = Arc::new(Context { handle, device });
        context.make_current()?;
        let stream = || result::stream::create(result::stream::StreamKind::NonBlocking);
        let streams = [stream()?, stream()?, stream()?];
        let mark = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let marks = [mark()?, mark()?];
        // SAFETY: every byte is written before a copy reads it.
        let start = unsafe { result::malloc_host(HALVES * HALF_BYTES, 0) }?.cast::<u8>();
        // SAFETY: the allocation has this size.
        unsafe { start.write_bytes(0, HALVES * HALF_BYTES) };
        let time = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let clock = [time()?, time()?];
        Ok(Begun { context, streams, staging: Staging { start, marks }, clock })
    }
}
