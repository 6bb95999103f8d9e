//! A GPU that isn't here, to plan for.

use std::ops::Range;
use std::sync::Arc;

use tightrope_core::plan::{PlannedAs, Target};
use tightrope_core::{Backend, Cancel, DeviceError, DeviceKind, Plan, Reading};

use crate::driver::{Version, has_wgmma, tensor_cores};
use crate::limits;
use crate::planning::Planning;

/// What plans depend on, of a GPU that isn't here. Its own kernels multiply matrices, and nothing runs.
pub struct Described {
    name: String,
    free_bytes: u64,
    planning: Planning,
}

impl Described {
    /// A GPU of this compute capability, with so many multiprocessors and `free_bytes` for a plan.
    pub fn new(name: String, capability: Version, multiprocessors: u32, free_bytes: u64) -> Self {
        let limits = limits().with_cuda(|own| {
            own.tensor_cores = tensor_cores(capability);
            own.wgmma = has_wgmma(capability).then_some(multiprocessors);
        });
        Self { name, free_bytes, planning: Planning::new(limits, || true) }
    }

    /// Lets matmuls of f32 round their operands to TF32.
    ///
    /// # Errors
    /// In words, where the GPU's tensor cores don't multiply it.
    pub fn round_to_tf32(&mut self) -> Result<(), String> {
        self.planning.round_to_tf32(&self.name)
    }

    fn absent<T>(&self) -> Result<T, DeviceError> {
        let reason = "it isn't here; plans alone are made for it".to_owned();
        Err(DeviceError::Lost { device: self.name.clone(), reason })
    }
}

impl PlannedAs for Described {
    fn planned_as(&self) -> &dyn Target {
        &self.planning
    }
}

impl Backend for Described {
    fn name(&self) -> String {
        format!("{}{}", self.name, if self.planning.limits.cuda().tf32 { " in TF32" } else { "" })
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn prepare(&mut self, _plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.absent()
    }

    fn allocated_bytes(&self) -> u64 {
        0
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(self.free_bytes)
    }

    fn write(&mut self, _at: u64, _data: &[u8]) -> Result<(), DeviceError> {
        self.absent()
    }

    fn run(&mut self, _: usize, _: Range<usize>, _: &Cancel) -> Result<(), DeviceError> {
        self.absent()
    }

    fn read(&mut self, _ranges: &[Range<u64>]) -> Reading<'_> {
        let absent = self.absent();
        Box::pin(async move { absent })
    }
}
