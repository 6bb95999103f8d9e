//! Kernels on the processor: their sources compiled as C++ against `kernels/emulator/cuda_on_cpu.h`.

mod faults;
mod linked;
mod maps;
mod queues;
mod work;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use libloading::Library;
use tightrope_core::launch::Boxed;
use tightrope_core::{DType, DeviceError, Links as _};

use super::cublaslt::CublasLt;
use super::nccl::emulated::Exchange;
use super::{
    CopyQueues as _, Dispatch, Driver, Event, HALF_BYTES, HALVES, Loaded, Pinned, Queue, Recorded,
    Task, Version, cache_key,
};
use crate::library::{self, Algorithm, Layout, Multiply, Problem};
use crate::limits;
use crate::source::{self, Kernel, TensorMap};
pub use faults::Faults;
use linked::{Beside, Link};
use queues::Queues;
use work::{Work, until};

/// What a kernel that was compiled for the processor looks like: arguments, blocks, seed, and room for words. False where
/// it did something wrong.
type Entry = unsafe extern "C" fn(*const c_void, c_uint, c_uint, *mut c_char, usize) -> bool;

/// A device that runs kernels' sources on the processor, a thread at a time, and refuses what a GPU would take and
/// answer wrongly. It begins nothing before somebody waits for it, so that what a caller changes too early shows.
pub struct Emulated {
    /// Threads that wait for copies have it go on, as a GPU does by itself.
    device: Arc<Mutex<Device>>,
    staging: Pinned,
    /// The last mark of each half of the staging memory.
    marks: [Event; HALVES],
}

/// What a caller shares with threads that wait.
struct Device {
    /// Where compiled kernels are kept.
    cache: PathBuf,
    seed: u32,
    arena: Vec<Line>,
    bytes: usize,
    /// Bytes that calls allocated and none has freed.
    held: u64,
    loaded: HashMap<Kernel, Loaded>,
    entries: Vec<(Entry, String)>,
    /// Keeps the entries' code in memory.
    libraries: Vec<Library>,
    /// What it was asked for and hasn't begun.
    queues: Queues,
    recorded: Vec<Vec<Task>>,
    /// What stands for cuBLASLt, where it's asked for.
    matmuls: Option<CublasLt>,
    faults: Faults,
    /// The kernel that ended with an error, after which nothing runs.
    faulted: Option<String>,
    /// The way to other ranks' devices.
    link: Option<Link>,
    /// Collectives that were begun and aren't done, and the one of them that is on its way.
    beside: Beside,
    exchanging: Option<Exchange>,
    /// How many tasks of the recording that is being replayed are done.
    replayed: usize,
}

/// Bytes of the arena, aligned as a GPU aligns what it allocates.
#[derive(Clone)]
#[repr(align(256))]
struct Line(#[expect(dead_code, reason = "read and written through pointers")] [u8; 256]);

/// Kernels that are compiled together, so that what comes before them is read once.
const TOGETHER: usize = 16;

const WITHIN: &str = "a plan's tensors lie within its arena";

/// Bytes of workspace that matmuls may use: room for those algorithms that take any, and no more.
const WORKSPACE_BYTES: u64 = 1 << 20;

/// What tasks are said to take: a block so long, whatever it does, and a library so long for what it multiplies. Matmuls
/// of few tiles and long sums are then the kernels'.
const BLOCK_SECONDS: f64 = 1e-6;
const MATMULS_PER_SECOND: f64 = 2e10;

/// What a replay is said to take before its first task begins.
const GRAPH_SECONDS: f64 = 5e-6;

/// How long it is between looks at what other ranks have done, and after how many of them a device hangs.
const PAUSE: Duration = Duration::from_micros(100);
const HANGS: Duration = Duration::from_secs(100);
/// How long other ranks may take where the device is given up.
const PARTING: Duration = Duration::from_secs(5);

/// Bytes for words on what a kernel did wrong.
const REPORT_BYTES: usize = 512;

/// A library's shared memory is its own static memory: one launch of it runs at a time.
static LAUNCHING: Mutex<()> = Mutex::new(());

impl Emulated {
    /// Keeps compiled kernels in the folder `cache`, and lets threads take turns in an order that depends on `seed`.
    pub fn new(cache: impl Into<PathBuf>, seed: u32) -> Self {
        let mut queues = Queues::new(seed);
        let marks = [queues.event(), queues.event()];
        let device = Device {
            cache: cache.into(),
            seed,
            arena: vec![],
            bytes: 0,
            held: 0,
            loaded: HashMap::new(),
            entries: vec![],
            libraries: vec![],
            queues,
            recorded: vec![],
            matmuls: None,
            faults: Faults::default(),
            faulted: None,
            link: None,
            beside: Beside::new(seed),
            exchanging: None,
            replayed: 0,
        };
        let device = Arc::new(Mutex::new(device));
        Self { device, staging: pages(HALVES * HALF_BYTES), marks }
    }

    /// The same device, on which this goes wrong.
    pub fn with_faults(self, faults: Faults) -> Self {
        self.device().faults = faults;
        self
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        locked(&self.device)
    }

    fn finish(&self) -> Result<(), DeviceError> {
        until(&self.device, &|_| false)
    }
}

impl Drop for Emulated {
    /// Does what others wait for, as a GPU that is given up.
    fn drop(&mut self) {
        let since = Instant::now();
        let is_linked = self.device().link.is_some() && !thread::panicking();
        while is_linked && matches!(self.is_done(), Ok(false)) && since.elapsed() < PARTING {
            thread::sleep(PAUSE);
        }
        self.leave();
    }
}

fn locked(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Memory of the host. It stays where it is, like all that a processor allocates.
fn pages(bytes: usize) -> Pinned {
    let mut owner = vec![0; bytes];
    Pinned::new(owner.as_mut_ptr(), bytes, Box::new(owner))
}

const NAME: &str = "emulated";

impl Device {
    /// Address of the first of so many bytes at an offset.
    fn at(&mut self, offset: u64, bytes: usize) -> *mut u8 {
        assert!(offset as usize + bytes <= self.bytes, "{WITHIN}");
        // SAFETY: the arena has as many bytes.
        unsafe { self.arena.as_mut_ptr().cast::<u8>().add(offset as usize) }
    }

    fn arena_bytes(&mut self) -> &mut [u8] {
        let (start, bytes) = (self.at(0, self.bytes), self.bytes);
        // SAFETY: the arena has as many bytes, and nothing else uses it while this is borrowed.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }

    fn multiply(&self, matmul: &Multiply) -> Result<(), DeviceError> {
        let Multiply { problem, algorithm, at, workspace } = matmul;
        let bytes = |layout: &Layout| layout.elements(problem.batch) * layout.dtype.size() as u64;
        let of_bias = problem.bias.map_or(0, |_| problem.d.rows * problem.d.dtype.size() as u64);
        let bias = if problem.bias.is_some() { at.bias } else { at.d };
        for (start, bytes) in [
            (at.a, bytes(&problem.a)),
            (at.b, bytes(&problem.b)),
            (at.d, bytes(&problem.d)),
            (bias, of_bias),
            (*workspace, algorithm.workspace),
        ] {
            let first = self.arena.as_ptr() as u64;
            assert!(first <= start && start + bytes <= first + self.bytes as u64, "{WITHIN}");
        }
        let matmuls = self.matmuls.as_ref().expect("a library made the task");
        // SAFETY: all matrices lie in the arena, as was seen above.
        unsafe { matmuls.multiply(matmul, std::ptr::null_mut()) }.map_err(|words| self.lost(words))
    }

    fn run(&mut self, dispatch: &Dispatch) -> Result<(), DeviceError> {
        let (entry, label) = &self.entries[dispatch.kernel.0];
        // Tensor maps in them are aligned, and lines at least as much.
        let line = |bytes: &[u8]| {
            let mut line = [0; size_of::<Line>()];
            line[..bytes.len()].copy_from_slice(bytes);
            Line(line)
        };
        let lines: Vec<Line> = dispatch.arguments.chunks(size_of::<Line>()).map(line).collect();
        let mut report: [c_char; REPORT_BYTES] = [0; REPORT_BYTES];
        let alone = LAUNCHING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: the arguments are those that the kernel was compiled for, their tensors lie in the arena, and the
        // emulation ends a launch before it leaves them.
        let well = unsafe {
            entry(
                lines.as_ptr().cast(),
                dispatch.blocks,
                self.seed,
                report.as_mut_ptr(),
                report.len(),
            )
        };
        drop(alone);
        self.seed = self.seed.wrapping_add(1);
        if well {
            return Ok(());
        }
        // SAFETY: the emulation ends its words with a zero within the room it was given.
        let words = unsafe { CStr::from_ptr(report.as_ptr()) };
        Err(self.lost(format!("{label}: {}", words.to_string_lossy())))
    }

    fn lost(&self, reason: impl ToString) -> DeviceError {
        DeviceError::Lost { device: NAME.into(), reason: reason.to_string() }
    }

    /// Adds the kernels of a library to the entries.
    fn open(&mut self, build: &Build<'_>) -> Result<(), String> {
        // SAFETY: the library was compiled from this project's kernels and runs no code when it's opened.
        let library = unsafe { Library::new(&build.library) }.map_err(|error| error.to_string())?;
        for (index, kernel) in build.kernels.iter().enumerate() {
            let name = source::entry_name(index);
            // SAFETY: `for_processor` declares the entry with this signature.
            let entry = unsafe { library.get::<Entry>(name.as_bytes()) };
            let entry = *entry.map_err(|error| error.to_string())?;
            self.loaded.insert((*kernel).clone(), Loaded(self.entries.len()));
            self.entries.push((entry, kernel.label.clone()));
        }
        self.libraries.push(library);
        Ok(())
    }
}

/// A library on its way.
struct Build<'a> {
    kernels: Vec<&'a Kernel>,
    library: PathBuf,
    /// The compiler, what it reads, and where it writes until it's done.
    running: Option<(Child, PathBuf, PathBuf)>,
}

impl<'a> Build<'a> {
    /// Begins to compile, unless the cache has it.
    fn begin(cache: &PathBuf, kernels: &[&'a Kernel]) -> std::io::Result<Self> {
        let text = source::for_processor(kernels);
        let library = cache.join(format!("{}.so", cache_key((&text, FLAGS))));
        let kernels = kernels.to_vec();
        if library.exists() {
            return Ok(Self { kernels, library, running: None });
        }
        fs::create_dir_all(cache)?;
        // Others may build the same: each writes files of its own, and the last renames.
        let own = format!("{}-{:?}", std::process::id(), thread::current().id());
        let source = library.with_extension(format!("{own}.cpp"));
        let made = library.with_extension(format!("{own}.so"));
        fs::write(&source, text)?;
        let compiler = Command::new("g++")
            .args(FLAGS)
            .arg("-o")
            .args([&made, &source])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self { kernels, library, running: Some((compiler, source, made)) })
    }

    /// Waits for the compiler.
    fn end(&mut self) -> Result<(), String> {
        let Some((compiler, source, made)) = self.running.take() else { return Ok(()) };
        let output = compiler.wait_with_output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        // What didn't compile stays, to be looked at.
        let kept = fs::remove_file(source).and_then(|()| fs::rename(made, &self.library));
        kept.map_err(|error| error.to_string())
    }
}

const FLAGS: &[&str] = &[
    "-std=c++20",
    // Tests compile for longer than they run, and this takes two thirds of the seconds of -O1.
    "-Og",
    "-shared",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    // Four elements are read as one vector.
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-w",
];

impl Driver for Emulated {
    fn name(&self) -> String {
        NAME.into()
    }

    fn versions(&self) -> String {
        let device = self.device();
        format!("driver emulated {:?}", device.faults)
    }

    fn capability(&self) -> Option<Version> {
        None
    }

    fn argument_bytes(&self) -> usize {
        source::MOST_ARGUMENT_BYTES
    }

    fn tensor_cores(&self) -> &'static [DType] {
        limits().cuda().tensor_cores
    }

    fn replay_operations(&self) -> u64 {
        // A processor that emulates threads one by one.
        100_000_000
    }

    fn wgmma(&self) -> Option<u32> {
        self.device().faults.wgmma
    }

    fn finds_links(&self) -> fn() -> bool {
        || true
    }

    fn tensor_map(&self, boxed: &Boxed, address: u64) -> Result<TensorMap, DeviceError> {
        let device = self.device();
        let first = device.arena.as_ptr() as u64;
        maps::encode(boxed, address, first..first + device.bytes as u64)
            .map_err(|words| device.lost(words))
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        self.finish()?;
        let mut device = self.device();
        device.deregister()?;
        device.recorded.clear();
        device.held -= std::mem::take(&mut device.bytes) as u64;
        device.arena = vec![];
        let lines = (bytes as usize).div_ceil(size_of::<Line>());
        let mut arena = vec![];
        arena.try_reserve_exact(lines).map_err(|_| DeviceError::OutOfMemory {
            need: bytes,
            have: None,
            tensor: None,
            device: NAME.into(),
        })?;
        arena.resize(lines, Line([0; 256]));
        (device.arena, device.bytes) = (arena, bytes as usize);
        device.held += bytes;
        device.register();
        Ok(device.arena.as_mut_ptr() as u64)
    }

    fn allocated_bytes(&self) -> u64 {
        self.device().held
    }

    fn load(&mut self, kernels: &[Kernel]) -> Result<Vec<Loaded>, DeviceError> {
        let mut device = self.device();
        if let Some(kernel) = kernels.iter().find(|kernel| device.faults.refuse(&kernel.label)) {
            let log = "error: it's refused".to_owned();
            return Err(DeviceError::Compile { kernel: kernel.label.clone(), log });
        }
        let mut missing: Vec<&Kernel> = vec![];
        for kernel in kernels {
            if !device.loaded.contains_key(kernel) && !missing.contains(&kernel) {
                missing.push(kernel);
            }
        }
        let refused = |kernels: &[&Kernel], log: String| {
            let labels: Vec<&str> = kernels.iter().map(|kernel| kernel.label.as_str()).collect();
            DeviceError::Compile { kernel: labels.join(", "), log }
        };
        let compilers = thread::available_parallelism().map_or(1, usize::from);
        let groups: Vec<&[&Kernel]> = missing.chunks(TOGETHER).collect();
        for running in groups.chunks(compilers) {
            let mut builds = vec![];
            for group in running {
                let build = Build::begin(&device.cache, group);
                builds.push(build.map_err(|error| refused(group, error.to_string()))?);
            }
            for mut build in builds {
                build.end().map_err(|log| refused(&build.kernels, log))?;
                device.open(&build).map_err(|log| refused(&build.kernels, log))?;
            }
        }
        Ok(kernels.iter().map(|kernel| device.loaded[kernel]).collect())
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn outside_bytes(&self) -> Option<u64> {
        None
    }

    fn staging(&mut self) -> &mut [u8] {
        // SAFETY: there are as many bytes. A copy reads them only before the mark after it is passed.
        unsafe { std::slice::from_raw_parts_mut(self.staging.start(), HALVES * HALF_BYTES) }
    }

    fn copy(&mut self, from: Range<usize>, to: u64) -> Result<(), DeviceError> {
        let source = self.staging()[from].as_ptr_range();
        let (start, bytes) = (source.start as usize, source.end as usize - source.start as usize);
        self.device().queues.push(Work::Copy(start, bytes, to));
        Ok(())
    }

    fn mark(&mut self, half: usize) -> Result<(), DeviceError> {
        self.mark_event(self.marks[half], Queue::Kernels)
    }

    fn wait(&mut self, half: usize) -> Result<(), DeviceError> {
        self.waiter(self.marks[half])()
    }

    fn library(&mut self) -> Result<library::Library, String> {
        let mut device = self.device();
        let version = device.matmuls.get_or_insert_with(CublasLt::emulated).version();
        let choices = device.cache.join("matmuls.tsv");
        Ok(library::Library { version, workspace: WORKSPACE_BYTES, choices })
    }

    fn algorithms(
        &mut self,
        problem: &Problem,
        workspace: u64,
    ) -> Result<Vec<Algorithm>, DeviceError> {
        let device = self.device();
        let library = device.matmuls.as_ref();
        let found = library.map(|library| library.algorithms(problem, workspace));
        found.unwrap_or_else(|| Ok(vec![])).map_err(|words| device.lost(words))
    }

    fn launch(&mut self, task: &Task) -> Result<(), DeviceError> {
        self.device().queues.push(Work::Launch(task.clone()));
        Ok(())
    }

    fn seconds(&mut self, recorded: Recorded) -> Result<f64, DeviceError> {
        // What tasks take on a processor says nothing of a GPU.
        let seconds = |task: &Task| match task {
            Task::Kernel(dispatch) => f64::from(dispatch.blocks) * BLOCK_SECONDS,
            Task::Matmul(matmul) => {
                let Problem { d, k, batch, .. } = matmul.problem;
                (d.rows * d.columns * k * batch) as f64 / MATMULS_PER_SECOND
            }
            // Nothing is chosen by what an exchange takes.
            Task::Exchange(..) | Task::Exchanged(_) => 0.0,
        };
        let device = self.device();
        Ok(GRAPH_SECONDS + device.recorded[recorded.0].iter().map(seconds).sum::<f64>())
    }

    fn clear(&mut self) -> Result<(), DeviceError> {
        self.device().queues.push(Work::Clear);
        Ok(())
    }

    fn repeat(&mut self, bytes: u64) -> Result<(), DeviceError> {
        self.device().queues.push(Work::Repeat(bytes as usize));
        Ok(())
    }

    fn record(&mut self, tasks: &[&Task]) -> Result<Recorded, DeviceError> {
        let mut device = self.device();
        device.recorded.push(tasks.iter().map(|&task| task.clone()).collect());
        Ok(Recorded(device.recorded.len() - 1))
    }

    fn forget(&mut self, kept: usize) -> Result<(), DeviceError> {
        self.finish()?;
        let mut device = self.device();
        device.recorded.truncate(kept);
        Ok(())
    }

    fn replay(&mut self, recorded: Recorded) -> Result<(), DeviceError> {
        self.device().queues.push(Work::Replay(recorded));
        Ok(())
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Result<Vec<u8>, DeviceError> {
        until(&self.device, &|queues| queues.is_empty(Queue::Kernels))?;
        let mut device = self.device();
        let mut bytes = vec![];
        for range in ranges {
            let count = (range.end - range.start) as usize;
            let start = device.at(range.start, count);
            // SAFETY: the arena has as many bytes.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, count) });
        }
        Ok(bytes)
    }
}
