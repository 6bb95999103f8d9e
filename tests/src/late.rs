//! A device with queues for copies, made of one without: what is loaded takes its place as early as it may and holds nothing
//! until its end, and what is stored is looked at as late as it may be. So bytes that a plan gives to two at once show.

use std::ops::Range;
use std::sync::Arc;

use tightrope_core::plan::{PlannedAs, Target};
use tightrope_core::{Backend, Cancel, DeviceError, DeviceKind, HostMemory, Plan, Reading};

/// A byte that makes a NaN of any float, and no token of an id.
const NOTHING: u8 = 0xff;

/// Such a device.
pub struct Late<B>(pub B);

impl<B: Backend> PlannedAs for Late<B> {
    fn planned_as(&self) -> &dyn Target {
        &self.0
    }

    fn overlaps_copies(&self) -> bool {
        true
    }
}

impl<B: Backend> Backend for Late<B> {
    fn kind(&self) -> DeviceKind {
        self.0.kind()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.0.prepare(plan)
    }

    fn allocated_bytes(&self) -> u64 {
        self.0.allocated_bytes()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.0.write(at, data)
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        self.0.run(program, steps, cancel)
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        self.0.read(ranges)
    }

    fn begin_load(&mut self, to: Range<u64>) -> Result<Box<dyn HostMemory>, DeviceError> {
        let bytes = vec![NOTHING; (to.end - to.start) as usize];
        self.0.write(to.start, &bytes)?;
        Ok(Box::new(bytes))
    }
}
