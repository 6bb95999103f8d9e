//! An NVIDIA GPU. Everything happens in the order of one stream; the host waits only to read.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tightrope_core::DeviceError;

use super::nvrtc::Nvrtc;
use super::{Driver, Loaded, cache_key};
use crate::source::{self, Kernel};

/// A GPU.
pub struct Gpu {
    name: String,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    compiler: Compiler,
    arena: Option<(sys::CUdeviceptr, u64)>,
    loaded: HashMap<Kernel, Loaded>,
    functions: Vec<Function>,
    modules: Vec<sys::CUmodule>,
    /// What copies on their way to the device read from.
    in_flight: Vec<Vec<u8>>,
    in_flight_bytes: usize,
}

// SAFETY: a context's handles may be used by any thread that makes it current, as every method does first.
unsafe impl Send for Gpu {}

struct Function {
    handle: sys::CUfunction,
    threads: u32,
}

/// Bytes of copies that may be on their way before the host waits.
const IN_FLIGHT_BYTES: usize = 16 << 20;

fn failed(device: &str) -> impl Fn(DriverError) -> DeviceError {
    move |error| DeviceError::Lost { device: device.into(), reason: format!("{error:?}") }
}

impl Gpu {
    /// Opens GPU number `ordinal`. Kernels that were compiled are kept in the folder `cache`.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] where there's no driver, no such GPU, or no compiler.
    pub fn open(ordinal: usize, cache: impl Into<PathBuf>) -> Result<Self, DeviceError> {
        let device = format!("cuda:{ordinal}");
        let refused =
            |reason: &str| DeviceError::Lost { device: device.clone(), reason: reason.into() };
        // SAFETY: the libraries that this tries are the driver's. Asked first, since cudarc panics without them.
        if !unsafe { sys::is_culib_present() } {
            return Err(refused("no NVIDIA driver is installed"));
        }
        let nvrtc = Nvrtc::open().map_err(|reason| refused(&reason))?;
        let failed = failed(&device);
        result::init().map_err(&failed)?;
        let count = result::device::get_count().map_err(&failed)?;
        let number = i32::try_from(ordinal).ok().filter(|&number| number < count);
        let number = number.ok_or_else(|| refused(&format!("there are {count} NVIDIA GPUs")))?;
        let handle = result::device::get(number).map_err(&failed)?;
        let name = result::device::get_name(handle).map_err(&failed)?;
        use sys::CUdevice_attribute as Attribute;
        let capability = [
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        // SAFETY: the device was given by the driver.
        let [major, minor] =
            capability.map(|attribute| unsafe { result::device::get_attribute(handle, attribute) });
        let (major, minor) = (major.map_err(&failed)?, minor.map_err(&failed)?);
        if major < OLDEST_MAJOR {
            return Err(refused(&format!(
                "{name} has compute capability {major}.{minor}, kernels need {OLDEST_MAJOR}.0"
            )));
        }
        // SAFETY: the device was given by the driver.
        let context = unsafe { result::primary_ctx::retain(handle) }.map_err(&failed)?;
        // SAFETY: the context was retained above.
        unsafe { result::ctx::set_current(context) }.map_err(&failed)?;
        let stream =
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(&failed)?;
        Ok(Self {
            name,
            device: handle,
            context,
            stream,
            compiler: Compiler {
                architecture: format!("sm_{major}{minor}"),
                nvrtc,
                cache: cache.into(),
            },
            arena: None,
            loaded: HashMap::new(),
            functions: vec![],
            modules: vec![],
            in_flight: vec![],
            in_flight_bytes: 0,
        })
    }

    fn failed(&self) -> impl Fn(DriverError) -> DeviceError + use<> {
        let name = self.name.clone();
        move |error| failed(&name)(error)
    }

    fn make_current(&self) -> Result<(), DeviceError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.context) }.map_err(self.failed())
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.stream) }.map_err(self.failed())?;
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        Ok(())
    }

    /// Frees the arena, after everything that uses it.
    fn free(&mut self) -> Result<(), DeviceError> {
        self.wait()?;
        let Some((arena, _)) = self.arena.take() else { return Ok(()) };
        // SAFETY: it was allocated by `allocate`, and nothing uses it any more.
        unsafe { result::free_sync(arena) }.map_err(self.failed())
    }

    /// Address of offset `at`.
    fn address(&self, at: u64, bytes: u64) -> sys::CUdeviceptr {
        let (arena, size) = self.arena.expect("a plan is prepared before its tensors are used");
        assert!(at + bytes <= size, "a plan's tensors lie within its arena");
        arena + at
    }
}

/// Compiles for one architecture.
struct Compiler {
    /// As NVRTC names it.
    architecture: String,
    nvrtc: Nvrtc,
    /// Where compiled kernels are kept.
    cache: PathBuf,
}

impl Compiler {
    /// Code of a kernel, from the cache or the compiler.
    fn cubin(&self, kernel: &Kernel) -> Result<Vec<u8>, String> {
        let text = source::for_device(&[kernel]);
        let key = cache_key((&text, &self.architecture, self.nvrtc.version()));
        let path = self.cache.join(format!("{key}.cubin"));
        if let Ok(cubin) = fs::read(&path) {
            return Ok(cubin);
        }
        let cubin = self.nvrtc.compile(&text, &self.architecture)?.cubin;
        // A cache that can't be written costs time and nothing else. Renamed, so that nobody reads half a file.
        let own = path.with_extension(format!("{}", std::process::id()));
        let kept = fs::create_dir_all(&self.cache).and_then(|()| fs::write(&own, &cubin));
        if kept.and_then(|()| fs::rename(&own, &path)).is_err() {
            let _ = fs::remove_file(&own);
        }
        Ok(cubin)
    }

    /// Code of kernels, compiled side by side.
    fn cubins(&self, kernels: &[&Kernel]) -> Vec<Result<Vec<u8>, String>> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let share = kernels.len().div_ceil(workers).max(1);
        thread::scope(|scope| {
            let shares: Vec<_> = kernels
                .chunks(share)
                .map(|part| {
                    let compile = || part.iter().map(|kernel| self.cubin(kernel)).collect();
                    scope.spawn::<_, Vec<_>>(compile)
                })
                .collect();
            shares
                .into_iter()
                .flat_map(|share| share.join().expect("compiling doesn't panic"))
                .collect()
        })
    }
}

/// Least compute capability: the first with 16-bit matrix products of bf16 and copies to shared memory beside other work.
const OLDEST_MAJOR: i32 = 8;

impl Driver for Gpu {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        self.make_current()?;
        self.free()?;
        // No allocation is empty.
        let size = (bytes as usize).max(1);
        // SAFETY: what is allocated is filled before anything reads it.
        let arena = unsafe { result::malloc_sync(size) }.map_err(|error| {
            if error.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return self.failed()(error);
            }
            let have = result::mem_get_info().ok().map(|(free, _)| free as u64);
            DeviceError::OutOfMemory { need: bytes, have, tensor: None, device: self.name() }
        })?;
        self.arena = Some((arena, bytes));
        // SAFETY: the allocation has this size.
        unsafe { result::memset_d8_async(arena, 0, size, self.stream) }.map_err(self.failed())?;
        Ok(arena)
    }

    fn load(&mut self, kernels: &[Kernel]) -> Result<Vec<Loaded>, DeviceError> {
        self.make_current()?;
        let mut missing: Vec<&Kernel> = vec![];
        for kernel in kernels {
            if !self.loaded.contains_key(kernel) && !missing.contains(&kernel) {
                missing.push(kernel);
            }
        }
        let cubins = self.compiler.cubins(&missing);
        for (kernel, cubin) in missing.into_iter().zip(cubins) {
            let refused = |log| DeviceError::Compile { kernel: kernel.label.clone(), log };
            let cubin = cubin.map_err(refused)?;
            let driver = |error: DriverError| refused(format!("{error:?}"));
            // SAFETY: NVRTC made the image.
            let module =
                unsafe { result::module::load_data(cubin.as_ptr().cast()) }.map_err(driver)?;
            self.modules.push(module);
            let name =
                std::ffi::CString::new(source::entry_name(0)).expect("the name has no zeros");
            // SAFETY: the module was loaded above and stays until `self` is dropped.
            let handle = unsafe { result::module::get_function(module, name) }.map_err(driver)?;
            self.loaded.insert(kernel.clone(), Loaded(self.functions.len()));
            self.functions.push(Function { handle, threads: kernel.threads });
        }
        Ok(kernels.iter().map(|kernel| self.loaded[kernel]).collect())
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.make_current()?;
        let to = self.address(at, data.len() as u64);
        // SAFETY: the range lies in the arena; the source stays where it is until the stream has passed the copy.
        let copy = |source: &[u8]| unsafe { result::memcpy_htod_async(to, source, self.stream) };
        if data.len() > IN_FLIGHT_BYTES {
            copy(data).map_err(self.failed())?;
            return self.wait();
        }
        let kept = data.to_vec();
        copy(&kept).map_err(self.failed())?;
        self.in_flight_bytes += kept.len();
        self.in_flight.push(kept);
        if self.in_flight_bytes > IN_FLIGHT_BYTES { self.wait() } else { Ok(()) }
    }

    fn launch(
        &mut self,
        kernel: Loaded,
        arguments: &mut [u8],
        blocks: u32,
    ) -> Result<(), DeviceError> {
        self.make_current()?;
        let Function { handle, threads } = self.functions[kernel.0];
        let mut arguments = [arguments.as_mut_ptr().cast::<c_void>()];
        // SAFETY: the kernel takes one struct of the bytes that `arguments` holds, which the driver copies; its
        // tensors lie in the arena.
        unsafe {
            result::launch_kernel(
                handle,
                (blocks, 1, 1),
                (threads, 1, 1),
                0,
                self.stream,
                &mut arguments,
            )
        }
        .map_err(self.failed())
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Result<Vec<u8>, DeviceError> {
        self.make_current()?;
        let sizes = ranges.iter().map(|range| (range.end - range.start) as usize);
        let mut bytes = vec![0; sizes.sum()];
        let mut rest = &mut bytes[..];
        for range in ranges {
            let size = range.end - range.start;
            let (part, after) = rest.split_at_mut(size as usize);
            // SAFETY: both ranges have this size, and `bytes` lives until the copies are done.
            unsafe {
                result::memcpy_dtoh_async(part, self.address(range.start, size), self.stream)
            }
            .map_err(self.failed())?;
            rest = after;
        }
        self.wait()?;
        Ok(bytes)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Nothing can be done about a device that is gone.
        let _ = self.make_current();
        let _ = self.free();
        for &module in &self.modules {
            // SAFETY: nothing runs any more.
            let _ = unsafe { result::module::unload(module) };
        }
        // SAFETY: the stream and the context were made by `open` and are used no more.
        unsafe {
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
