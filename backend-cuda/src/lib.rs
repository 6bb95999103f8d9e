//! Tightrope on NVIDIA GPUs. With the feature `emulation`, which is for tests, a processor runs the same kernels and
//! launches.
//!
//! | module | does |
//! |---|---|
//! | [`source`] | launches as CUDA C++ |
//! | `recording` | a plan as tasks: launches with their arguments, and matmuls |
//! | [`collective`] | collectives as moves of bytes between the GPUs of ranks |
//! | [`library`] | NVIDIA's library of matmuls, and what it is asked for |
//! | [`matmuls`] | matmuls by NVIDIA's library where they're faster |
//! | `variants` | the kernels of ops, and those that others stand in for |
//! | [`driver`] | what a device does for a plan, and the devices |
//! | [`Described`] | a GPU that isn't here, to plan for |

pub mod collective;
mod described;
pub mod driver;
pub mod library;
pub mod matmuls;
mod planning;
mod recording;
pub mod source;
mod variants;

use std::ops::Range;
use std::sync::Arc;

pub use described::Described;

use tightrope_core::launch::{Api, CudaLimits, Launch, Limits, Tile};
use tightrope_core::plan::{PlannedAs, Target};
use tightrope_core::{
    Backend, Cancel, DType, DeviceError, DeviceKind, HostMemory, Links, Plan, Reading, Variants,
};

use driver::{Copies, Driver, InFlight, Staging};
use matmuls::{Makers, Matmuls, Tally};
use planning::Planning;
use recording::Recording;
pub use recording::together;
use source::Kernel;

/// What launches are made for, of an Ampere GPU and later ones. Threads and shared memory are those of every GPU (CUDA C++
/// Programming Guide, compute capabilities); arguments of 4 KiB have room for more tensors than any op has.
pub fn limits() -> Limits {
    Limits {
        workgroup: 1024,
        shared_bytes: 48 << 10,
        bindings: 64,
        binding_bytes: u64::MAX,
        work: u64::MAX,
        tile: Tile { entry: "tiled", m: 64, n: 64, k: 16, thread_m: 8, thread_n: 4 },
        api: Api::Cuda(CudaLimits {
            epilogues: true,
            tensor_cores: &[DType::BF16, DType::F16],
            wgmma: None,
            clusters: true,
            warp_attention: false,
            tf32: false,
            plain_matmuls: false,
            plain_attention: false,
        }),
    }
}

/// The kernels of launches, one for all that run at once as one, as far as so many bytes have room for their arguments.
///
/// # Errors
/// [`DeviceError::Compile`].
pub fn kernels_of(launches: &[Launch], argument_bytes: usize) -> Result<Vec<Kernel>, DeviceError> {
    Ok(together(launches, argument_bytes)?.into_iter().map(|(_, kernel)| kernel).collect())
}

/// A device that runs CUDA kernels.
pub struct Cuda {
    driver: Box<dyn Driver>,
    planning: Planning,
    staging: Staging,
    copies: Copies,
    in_flight: InFlight,
    loaded: Option<Prepared>,
}

/// A plan with its memory.
struct Prepared {
    recording: Recording,
}

impl Cuda {
    /// A backend on this device.
    pub fn new(driver: Box<dyn Driver>) -> Self {
        let (staging, copies) = (Staging::default(), Copies::default());
        let (tensor_cores, wgmma) = (driver.tensor_cores(), driver.wgmma());
        let limits =
            limits().with_cuda(|own| (own.tensor_cores, own.wgmma) = (tensor_cores, wgmma));
        let planning = Planning::new(limits, driver.finds_links());
        let in_flight = InFlight::default();
        Self { driver, planning, staging, copies, in_flight, loaded: None }
    }

    /// Says who makes matmuls: from the beginning, the kernels.
    ///
    /// # Errors
    /// In words, what is missing and what to install. The kernels go on.
    pub fn matmuls_by(&mut self, makers: Makers) -> Result<(), String> {
        self.planning.matmuls = None;
        if makers != Makers::Kernels {
            self.planning.matmuls = Some(Matmuls::new(self.driver.library()?, makers));
        }
        Ok(())
    }

    /// Name and version of the library that makes matmuls, where one does.
    pub fn library(&self) -> Option<&str> {
        self.planning.matmuls.as_ref().map(|matmuls| matmuls.library.version.as_str())
    }

    /// Who makes what was timed on this device, in earlier runs too; nothing where there's no library.
    pub fn tallies(&self) -> Vec<Tally> {
        self.planning.matmuls.as_ref().map_or(vec![], Matmuls::tallies)
    }

    /// Compiles the kernels of launches that plans will have, all at once.
    ///
    /// # Errors
    /// [`DeviceError::Compile`].
    pub fn compile(&mut self, launches: &[Launch]) -> Result<(), DeviceError> {
        let kernels = kernels_of(launches, self.driver.argument_bytes())?;
        self.driver.load(&kernels).map(|_| ())
    }

    /// Lets matmuls of f32 round their operands to TF32.
    ///
    /// # Errors
    /// In words, where the GPU's tensor cores don't multiply it.
    pub fn round_to_tf32(&mut self) -> Result<(), String> {
        self.planning.round_to_tf32(&self.driver.name())
    }

    /// What launches are made for.
    pub fn limits(&self) -> &Limits {
        &self.planning.limits
    }

    /// Pretends that the device can do less, to try what other devices need.
    pub fn restrict(&mut self, restrict: impl FnOnce(&mut CudaLimits)) {
        self.planning.limits = self.planning.limits.clone().with_cuda(restrict);
    }

    /// Pretends that a launch binds no more than so many bytes of a tensor, to try how larger ones are cut.
    pub fn bind_at_most(&mut self, bytes: u64) {
        self.planning.limits.binding_bytes = bytes;
    }
}

impl PlannedAs for Cuda {
    fn planned_as(&self) -> &dyn Target {
        &self.planning
    }
}

impl Backend for Cuda {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn name(&self) -> String {
        // What is measured of a device that multiplies in TF32 is kept apart.
        let tf32 = if self.planning.limits.cuda().tf32 { " in TF32" } else { "" };
        format!("cuda ({}{tf32})", self.driver.name())
    }

    fn compute_capability(&self) -> Option<(i32, i32)> {
        self.driver.capability()
    }

    fn variants(&mut self) -> Option<&mut dyn Variants> {
        Some(self)
    }

    fn links(&mut self) -> Option<&mut dyn Links> {
        Some(&mut *self.driver)
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.loaded = None;
        self.copies.clear();
        let arena = self.driver.allocate(plan.arena_bytes)?;
        let matmuls = self.planning.matmuls.as_mut();
        let recording =
            Recording::new(&mut *self.driver, &self.planning.limits, matmuls, &plan, arena)?;
        self.loaded = Some(Prepared { recording });
        Ok(())
    }

    fn allocated_bytes(&self) -> u64 {
        self.loaded.as_ref().map_or(0, |_| self.driver.allocated_bytes())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.driver.free_bytes()
    }

    fn outside_bytes(&self) -> Option<u64> {
        self.driver.outside_bytes()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.staging.write(&mut *self.driver, at, data)
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        let loaded = self.loaded.as_ref().expect("a plan was prepared before it's used");
        for piece in loaded.recording.pieces(program, &steps) {
            cancel.check()?;
            self.in_flight.wait(&mut *self.driver)?;
            match piece.recorded {
                Some(recorded) => self.driver.replay(recorded)?,
                None => {
                    let mut tasks = loaded.recording.steps[program][piece.steps].iter().flatten();
                    tasks.try_for_each(|task| self.driver.launch(task))?;
                }
            }
            self.in_flight.push(piece.operations);
        }
        Ok(())
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        let bytes = self.driver.read(ranges);
        Box::pin(async move { bytes })
    }
    fn begin_load(&mut self, to: Range<u64>) -> Result<Box<dyn HostMemory>, DeviceError> {
        self.copies.begin_load(&mut *self.driver, &to)
    }

    fn end_load(&mut self, from: Box<dyn HostMemory>, to: Range<u64>) -> Result<(), DeviceError> {
        self.copies.end_load(&mut *self.driver, from, to)
    }

    fn begin_store(&mut self, from: Range<u64>) -> Result<(), DeviceError> {
        self.copies.begin_store(&mut *self.driver, from)
    }

    fn end_store(&mut self, from: Range<u64>) -> Result<Box<dyn HostMemory>, DeviceError> {
        self.copies.end_store(&mut *self.driver, &from)
    }
}
