//! A device that goes away at a call, or one of whose ops once gives a number that isn't one.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use tightrope::core::plan::{PlannedAs, Target};
use tightrope::core::{Backend, Cancel, DType, DeviceError, DeviceKind, Plan, Reading, Rule as _};

/// What is to happen, shared with whoever says so and counts.
#[derive(Default)]
pub struct Disturbance {
    /// Calls so far, of one device after the other.
    pub calls: Cell<u64>,
    /// The call at which the device goes away.
    pub lose_at: Cell<Option<u64>>,
    /// The replay of a program at which an op is spoilt, and which of its ops.
    pub spoil_at: Cell<Option<(u64, u64)>>,
    /// Whether that op is spoilt from then on, and not once.
    pub spoils_on: Cell<bool>,
    /// Name of the op that was spoilt, and its output.
    pub spoilt: Cell<Option<String>>,
    /// Replays so far.
    replays: Cell<u64>,
}

/// A device with a disturbance.
pub struct Disturbed {
    device: Box<dyn Backend>,
    what: Rc<Disturbance>,
    /// Makes it go away. The processor has none, and only says so.
    lose: Option<Box<dyn Fn()>>,
    lost: bool,
    plan: Option<Arc<Plan>>,
}

impl Disturbed {
    /// Stands before a device that can be made to go away by `lose`.
    pub fn before(
        device: Box<dyn Backend>,
        lose: Option<Box<dyn Fn()>>,
        what: &Rc<Disturbance>,
    ) -> Box<dyn Backend> {
        Box::new(Self { device, what: Rc::clone(what), lose, lost: false, plan: None })
    }

    /// Counts a call, at which it may go away.
    fn call(&mut self) -> Result<(), DeviceError> {
        let number = self.what.calls.replace(self.what.calls.get() + 1);
        if self.what.lose_at.get().is_some_and(|at| number >= at) {
            self.what.lose_at.set(None);
            match &self.lose {
                Some(lose) => lose(),
                None => self.lost = true,
            }
        }
        match self.lost {
            false => Ok(()),
            true => {
                let reason = "it was taken away".to_owned();
                Err(DeviceError::Lost { device: self.device.name(), reason })
            }
        }
    }

    /// The step of `steps` after which an output is spoilt, and the output's first bytes.
    fn spoils(&self, program: usize, steps: &Range<usize>) -> Option<(usize, u64, Vec<u8>)> {
        let replay = self.what.replays.replace(self.what.replays.get() + 1);
        let (at, op) = self.what.spoil_at.get()?;
        if replay < at || (replay > at && !self.what.spoils_on.get()) {
            return None;
        }
        let plan = self.plan.as_ref()?;
        let nodes = &plan.graph.programs.get(program)?.nodes;
        let step = steps.start + (op % steps.len().max(1) as u64) as usize;
        let node = nodes.get(step)?;
        let output = *node.outputs.first()?;
        let info = &plan.graph.tensors[output.index()];
        let dtype = info.ty.dtype;
        if !matches!(dtype, DType::F32 | DType::BF16 | DType::F16) {
            return None;
        }
        let mut bytes = vec![0; dtype.size()];
        dtype.write(&mut bytes, f64::NAN);
        self.what.spoilt.set(Some(format!("{} of {}", info.name, node.op.name())));
        Some((step, plan.offsets[output.index()]?, bytes))
    }
}

impl PlannedAs for Disturbed {
    fn planned_as(&self) -> &dyn Target {
        &*self.device
    }
}

impl Backend for Disturbed {
    fn kind(&self) -> DeviceKind {
        self.device.kind()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.call()?;
        self.plan = Some(Arc::clone(&plan));
        self.device.prepare(plan)
    }

    fn allocated_bytes(&self) -> u64 {
        self.device.allocated_bytes()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.call()?;
        self.device.write(at, data)
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        self.call()?;
        let Some((step, at, bytes)) = self.spoils(program, &steps) else {
            return self.device.run(program, steps, cancel);
        };
        self.device.run(program, steps.start..step + 1, cancel)?;
        self.device.write(at, &bytes)?;
        self.device.run(program, step + 1..steps.end, cancel)
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        match self.call() {
            Ok(()) => self.device.read(ranges),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}
