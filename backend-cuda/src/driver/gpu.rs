//! An NVIDIA GPU. Everything but asynchronous copies happens in the order of one stream; the host waits to read, and where
//! it's a whole half of the staging memory ahead.

mod copy_queues;
mod linked;
mod maps;
mod open;

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tightrope_core::launch::Boxed;
use tightrope_core::{DType, DeviceError};

use super::compiler::Compiler;
use super::cublaslt::CublasLt;
use super::nvml::Nvml;
use super::requirements::{self, Code, Version};
use super::{Dispatch, Driver, HALF_BYTES, HALVES, Loaded, Recorded, Task, cache_key};
use crate::collective::Bytes;
use crate::library::{Algorithm, Library, Problem};
use crate::source::{self, Kernel, TensorMap};
use copy_queues::{Context, Place};
use linked::Link;

/// A GPU.
pub struct Gpu {
    name: String,
    context: Arc<Context>,
    stream: sys::CUstream,
    loads: sys::CUstream,
    stores: sys::CUstream,
    events: Vec<Arc<Place>>,
    compiler: Compiler,
    arena: Option<(sys::CUdeviceptr, u64)>,
    loaded: HashMap<Kernel, Loaded>,
    functions: Vec<Function>,
    modules: Vec<sys::CUmodule>,
    graphs: Vec<sys::CUgraphExec>,
    staging: Staging,
    /// Version of CUDA that the driver is for.
    driver: Version,
    capability: Version,
    code: Code,
    /// Multiprocessors, where they run Hopper's own kernels.
    wgmma: Option<u32>,
    /// The way to other ranks' GPUs.
    link: Link,
    /// cuBLASLt, once it was asked for.
    matmuls: Option<CublasLt>,
    /// Before and after what is timed.
    clock: [sys::CUevent; 2],
    /// What all processes used of it before this one opened it.
    used_before: Option<(Nvml, u64)>,
}

// SAFETY: a context's handles may be used by any thread that makes it current, as every method does first; NVML's by any.
unsafe impl Send for Gpu {}

struct Function {
    handle: sys::CUfunction,
    threads: u32,
    shared_bytes: u32,
}

/// Pages of the host that stay where they are, and what the stream has passed of each half.
struct Staging {
    start: *mut u8,
    marks: [sys::CUevent; HALVES],
}

/// Bytes that a plan leaves of what's free: for kernels' code, and graphs.
const LEFT_FREE: u64 = 256 << 20;

fn failed(device: &str) -> impl Fn(DriverError) -> DeviceError {
    move |error| DeviceError::Lost { device: device.into(), reason: format!("{error:?}") }
}

/// Code that was compiled, on the device, and the kernel in it.
fn module(code: &[u8]) -> Result<(sys::CUmodule, sys::CUfunction), DriverError> {
    // SAFETY: NVRTC made the image; PTX ends with a zero.
    let module = unsafe { result::module::load_data(code.as_ptr().cast()) }?;
    let name = CString::new(source::entry_name(0)).expect("the name has no zeros");
    // SAFETY: the module was loaded above; whoever keeps the kernel keeps it.
    Ok((module, unsafe { result::module::get_function(module, name) }?))
}

impl Gpu {
    fn failed(&self) -> impl Fn(DriverError) -> DeviceError + use<> {
        let name = self.name.clone();
        move |error| failed(&name)(error)
    }

    /// An error of what needs `bytes` of the device.
    fn refused(&self, bytes: u64) -> impl Fn(DriverError) -> DeviceError + '_ {
        move |error| {
            if error.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return self.failed()(error);
            }
            let have = result::mem_get_info().ok().map(|(free, _)| free as u64);
            DeviceError::OutOfMemory { need: bytes, have, tensor: None, device: self.name.clone() }
        }
    }

    fn make_current(&self) -> Result<(), DeviceError> {
        self.context.make_current().map_err(self.failed())
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        if self.link.communicator().is_some() {
            // SAFETY: the stream lives as long as `self`.
            return self.until(|| unsafe { sys::cuStreamQuery(self.stream) });
        }
        // SAFETY: as above.
        unsafe { result::stream::synchronize(self.stream) }.map_err(self.failed())
    }

    /// Frees the arena and the graphs over it, after everything that uses them.
    fn free(&mut self) -> Result<(), DeviceError> {
        for stream in [self.stream, self.loads, self.stores] {
            // SAFETY: the stream lives as long as `self`.
            unsafe { result::stream::synchronize(stream) }.map_err(self.failed())?;
        }
        for graph in self.graphs.drain(..) {
            // SAFETY: it was instantiated by `record`, and the stream has passed it.
            unsafe { result::graph::exec_destroy(graph) }.map_err(failed(&self.name))?;
        }
        if let Some(communicator) = self.link.communicator() {
            communicator.deregister();
        }
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

    /// Gives a task to the stream, which runs or records it. `refused` says what a failure of the driver is.
    fn enqueue(
        &self,
        task: &Task,
        refused: &dyn Fn(DriverError) -> DeviceError,
    ) -> Result<(), DeviceError> {
        match task {
            Task::Kernel(dispatch) => self.enqueue_kernel(dispatch).map_err(refused),
            Task::Matmul(matmul) => {
                let matmuls = self.matmuls.as_ref().expect("a library made the task");
                // SAFETY: its matrices and workspace lie in the arena, which outlives everything on the stream.
                unsafe { matmuls.multiply(matmul, self.stream.cast()) }
                    .map_err(|words| DeviceError::Lost { device: self.name.clone(), reason: words })
            }
            Task::Exchange(number, moves) => self.begin_exchange(*number, moves, refused),
            Task::Exchanged(number) => self.end_exchange(*number).map_err(refused),
        }
    }

    fn enqueue_kernel(&self, dispatch: &Dispatch) -> Result<(), DriverError> {
        let Function { handle, threads, shared_bytes } = self.functions[dispatch.kernel.0];
        let mut arguments = [dispatch.arguments.as_ptr().cast_mut().cast::<c_void>()];
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: dispatch.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared_bytes,
            hStream: self.stream,
            attrs: &raw mut attribute,
            numAttrs: self.compiler.early.into(),
        };
        // SAFETY: the kernel takes one struct of the bytes that `arguments` holds, which the driver copies and doesn't
        // change; its tensors lie in the arena. What begins early waits in its code for what it reads.
        let status = unsafe {
            sys::cuLaunchKernelEx(&config, handle, arguments.as_mut_ptr(), std::ptr::null_mut())
        };
        status.result()
    }

    /// A graph of tasks, ready to be launched. `refused` says what a failure of the driver is.
    fn graph(
        &self,
        tasks: &[&Task],
        refused: &dyn Fn(DriverError) -> DeviceError,
    ) -> Result<sys::CUgraphExec, DeviceError> {
        // What other threads do, and what the driver does for itself, has nothing to do with what is recorded.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives as long as `self`, and is recorded by nobody else.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(refused)?;
        let enqueued = tasks.iter().try_for_each(|task| self.enqueue(task, refused));
        // SAFETY: the recording was begun above; it ends whatever came of it, or the stream would do nothing any more.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        enqueued?;
        self.ready(graph.map_err(refused)?).map_err(refused)
    }

    /// A recorded graph, ready to be launched.
    fn ready(&self, graph: sys::CUgraph) -> Result<sys::CUgraphExec, DriverError> {
        // SAFETY: the graph was recorded by the caller, and what is made of it doesn't need it.
        unsafe {
            let ready = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            result::graph::destroy(graph)?;
            let ready = ready?;
            // What it takes of the device is taken now, and not in the first step.
            result::graph::upload(ready, self.stream).inspect_err(|_| {
                let _ = result::graph::exec_destroy(ready);
            })?;
            Ok(ready)
        }
    }
}

impl Driver for Gpu {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn versions(&self) -> String {
        let ((major, minor), (first, second)) = (self.driver, self.compiler.nvrtc.version());
        let architecture = &self.compiler.architecture;
        let driver = self.used_before.as_ref().and_then(|(nvml, _)| nvml.driver());
        let driver = driver.unwrap_or_default();
        format!(
            "driver {driver} for CUDA {major}.{minor}, NVRTC {first}.{second} for {architecture}"
        )
    }

    fn capability(&self) -> Option<Version> {
        Some(self.capability)
    }

    fn argument_bytes(&self) -> usize {
        requirements::argument_bytes(self.driver, self.compiler.nvrtc.version())
    }

    fn tensor_cores(&self) -> &'static [DType] {
        requirements::tensor_cores(self.code.capability())
    }

    fn replay_operations(&self) -> u64 {
        // A small GPU of some years ago does 5e12 a second, where each replay costs nothing that can be measured.
        2_000_000_000_000
    }

    fn wgmma(&self) -> Option<u32> {
        self.wgmma
    }

    fn finds_links(&self) -> fn() -> bool {
        || super::nccl::Api::open().is_ok()
    }

    fn tensor_map(&self, boxed: &Boxed, address: u64) -> Result<TensorMap, DeviceError> {
        maps::encode(boxed, address).map_err(self.failed())
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        self.make_current()?;
        self.free()?;
        // No allocation is empty.
        let size = (bytes as usize).max(1);
        // SAFETY: what is allocated is filled before anything reads it.
        let arena = unsafe { result::malloc_sync(size) }.map_err(self.refused(bytes))?;
        self.arena = Some((arena, bytes));
        if let Some(communicator) = self.link.communicator() {
            communicator.register(Bytes { start: arena, count: bytes });
        }
        // SAFETY: the allocation has this size.
        unsafe { result::memset_d8_async(arena, 0, size, self.stream) }.map_err(self.failed())?;
        Ok(arena)
    }

    fn allocated_bytes(&self) -> u64 {
        let Some((arena, _)) = self.arena.filter(|_| self.make_current().is_ok()) else { return 0 };
        let (mut start, mut bytes) = (0, 0);
        // SAFETY: the arena is an allocation of the current context, and both results have a place.
        let found = unsafe { sys::cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, arena) };
        found.result().map_or(0, |()| bytes as u64)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.make_current().ok()?;
        let (free, _) = result::mem_get_info().ok()?;
        let arena = self.arena.map_or(0, |(_, bytes)| bytes);
        Some((free as u64 + arena).saturating_sub(LEFT_FREE))
    }

    fn outside_bytes(&self) -> Option<u64> {
        let (nvml, before) = self.used_before.as_ref()?;
        let arena = self.arena.map_or(0, |(_, bytes)| bytes);
        Some(nvml.used()?.saturating_sub(before + arena))
    }

    fn load(&mut self, kernels: &[Kernel]) -> Result<Vec<Loaded>, DeviceError> {
        self.make_current()?;
        let mut missing: Vec<&Kernel> = vec![];
        for kernel in kernels {
            if !self.loaded.contains_key(kernel) && !missing.contains(&kernel) {
                missing.push(kernel);
            }
        }
        let codes = self.compiler.codes(&missing);
        for (kernel, code) in missing.into_iter().zip(codes) {
            let refused = |log| DeviceError::Compile { kernel: kernel.label.clone(), log };
            let code = code.map_err(refused)?;
            let loaded =
                module(&code).map_err(|error| match self.refused(code.len() as u64)(error) {
                    full @ DeviceError::OutOfMemory { .. } => full,
                    _ => refused(format!("{error:?}")),
                });
            let (module, handle) = loaded?;
            self.modules.push(module);
            maps::allow_shared(handle, kernel.shared_bytes).map_err(self.failed())?;
            self.loaded.insert(kernel.clone(), Loaded(self.functions.len()));
            self.functions.push(Function {
                handle,
                threads: kernel.threads,
                shared_bytes: kernel.shared_bytes,
            });
        }
        Ok(kernels.iter().map(|kernel| self.loaded[kernel]).collect())
    }

    fn staging(&mut self) -> &mut [u8] {
        // SAFETY: `open` allocated and filled as many bytes, which nothing else in this process points to.
        unsafe { std::slice::from_raw_parts_mut(self.staging.start, HALVES * HALF_BYTES) }
    }

    fn copy(&mut self, from: Range<usize>, to: u64) -> Result<(), DeviceError> {
        self.make_current()?;
        let to = self.address(to, from.len() as u64);
        let source = &self.staging()[from];
        // SAFETY: both ranges have this size; the source stays where it is, and is written no more until `wait`.
        let copied = unsafe {
            sys::cuMemcpyHtoDAsync_v2(to, source.as_ptr().cast(), source.len(), self.stream)
        };
        copied.result().map_err(self.failed())
    }

    fn mark(&mut self, half: usize) -> Result<(), DeviceError> {
        self.make_current()?;
        // SAFETY: event and stream live as long as `self`.
        unsafe { result::event::record(self.staging.marks[half], self.stream) }
            .map_err(self.failed())
    }

    fn wait(&mut self, half: usize) -> Result<(), DeviceError> {
        self.make_current()?;
        let mark = self.staging.marks[half];
        if self.link.communicator().is_some() {
            // SAFETY: the event lives as long as `self`. One that was never recorded is passed.
            return self.until(|| unsafe { sys::cuEventQuery(mark) });
        }
        // SAFETY: as above.
        unsafe { result::event::synchronize(mark) }.map_err(self.failed())
    }

    fn library(&mut self) -> Result<Library, String> {
        self.make_current().map_err(|error| error.to_string())?;
        if self.matmuls.is_none() {
            self.matmuls = Some(CublasLt::open(self.driver)?);
        }
        let version = self.matmuls.as_ref().map_or(String::new(), CublasLt::version);
        let workspace = requirements::workspace_bytes(self.capability);
        let key = cache_key((&self.name, self.capability, &version));
        let choices = self.compiler.cache.join(format!("matmuls-{key}.tsv"));
        Ok(Library { version, workspace, choices })
    }

    fn algorithms(
        &mut self,
        problem: &Problem,
        workspace: u64,
    ) -> Result<Vec<Algorithm>, DeviceError> {
        self.make_current()?;
        let Some(matmuls) = &self.matmuls else { return Ok(vec![]) };
        // What the library refuses to think about, the kernels make.
        Ok(matmuls.algorithms(problem, workspace).unwrap_or_default())
    }

    fn launch(&mut self, task: &Task) -> Result<(), DeviceError> {
        self.make_current()?;
        self.enqueue(task, &self.failed())
    }

    fn seconds(&mut self, recorded: Recorded) -> Result<f64, DeviceError> {
        self.make_current()?;
        let [before, after] = self.clock;
        // SAFETY: events and stream live as long as `self`.
        unsafe { result::event::record(before, self.stream) }.map_err(self.failed())?;
        self.replay(recorded)?;
        // SAFETY: as above; the time between the two is asked for once the stream has passed both.
        let milliseconds = unsafe {
            result::event::record(after, self.stream)
                .and_then(|()| result::event::synchronize(after))
                .and_then(|()| result::event::elapsed(before, after))
        };
        Ok(f64::from(milliseconds.map_err(self.failed())?) / 1e3)
    }

    fn clear(&mut self) -> Result<(), DeviceError> {
        self.make_current()?;
        let Some((arena, bytes)) = self.arena else { return Ok(()) };
        // SAFETY: the arena has as many bytes.
        unsafe { result::memset_d8_async(arena, 0, bytes as usize, self.stream) }
            .map_err(self.failed())
    }

    fn repeat(&mut self, bytes: u64) -> Result<(), DeviceError> {
        self.make_current()?;
        let Some((arena, size)) = self.arena else { return Ok(()) };
        // What is there is copied behind itself, twice as much each time.
        let mut there = bytes;
        while there > 0 && there < size {
            let next = there.min(size - there) as usize;
            // SAFETY: both ranges lie in the arena and share no byte.
            unsafe { result::memcpy_dtod_async(arena + there, arena, next, self.stream) }
                .map_err(self.failed())?;
            there += next as u64;
        }
        Ok(())
    }

    fn record(&mut self, tasks: &[&Task]) -> Result<Recorded, DeviceError> {
        self.make_current()?;
        // Each matmul runs once, on zeros: what the library loads for it is loaded now, and not while it's recorded.
        let mut matmuls = tasks.iter().filter(|task| matches!(task, Task::Matmul(_)));
        matmuls.try_for_each(|task| self.enqueue(task, &self.failed()))?;
        self.finish()?;
        let arena = self.arena.map_or(0, |(_, bytes)| bytes);
        let graph = self.graph(tasks, &self.refused(arena))?;
        self.graphs.push(graph);
        Ok(Recorded(self.graphs.len() - 1))
    }

    fn forget(&mut self, kept: usize) -> Result<(), DeviceError> {
        self.make_current()?;
        self.finish()?;
        for graph in self.graphs.drain(kept.min(self.graphs.len())..) {
            // SAFETY: it was instantiated by `record`, and the stream has passed it.
            unsafe { result::graph::exec_destroy(graph) }.map_err(failed(&self.name))?;
        }
        Ok(())
    }

    fn replay(&mut self, recorded: Recorded) -> Result<(), DeviceError> {
        self.make_current()?;
        // SAFETY: `record` made the graph, and `free` hasn't destroyed it: recordings don't outlive the arena.
        unsafe { result::graph::launch(self.graphs[recorded.0], self.stream) }
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
        self.finish()?;
        Ok(bytes)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Nothing can be done about a device that is gone.
        let _ = self.make_current();
        self.part();
        let _ = self.free();
        self.link = Link::default();
        self.matmuls = None;
        for &module in &self.modules {
            // SAFETY: nothing runs any more.
            let _ = unsafe { result::module::unload(module) };
        }
        // SAFETY: all of these were made by `open` and are used no more.
        unsafe {
            let _ = result::free_host(self.staging.start.cast());
            for mark in self.staging.marks.into_iter().chain(self.clock) {
                let _ = result::event::destroy(mark);
            }
            for stream in [self.stream, self.loads, self.stores] {
                let _ = result::stream::destroy(stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    /// The streams don't wait for the one that calls without a stream use, so that such a copy would come at any time.
    #[test]
    fn nothing_is_copied_or_set_outside_of_the_streams() {
        let own = include_str!("gpu.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let others = [
            include_str!("gpu/open.rs"),
            include_str!("gpu/copy_queues.rs"),
            include_str!("gpu/linked.rs"),
        ];
        let text = [own, &others.concat()].concat();
        for (number, line) in text.lines().enumerate() {
            let copies = ["memcpy", "memset", "cuMemcpy", "cuMemset"];
            let call = copies.iter().any(|name| line.contains(&format!("::{name}")));
            assert!(!call || line.to_lowercase().contains("async"), "line {}: {line}", number + 1);
        }
    }
}
