//! Plans of one step for one budget after the other.

use std::time::Instant;

use pyo3::prelude::*;
use tightrope::core::Backend;
use tightrope::devices::Devices;
use tightrope::plan::fewest_bytes;
use tightrope::recipe::Step;

use crate::plan::{Plan, Views};
use crate::worker::Worker;

/// A step, and the device that it's planned for.
struct Opened {
    step: Step,
    device: Box<dyn Backend>,
}

impl Opened {
    fn within(&mut self, bytes: u64) -> tightrope::Result<Views> {
        let start = Instant::now();
        self.step.scope.budget = Some(bytes);
        let planned = self.step.plan(&*self.device)?;
        Ok(Views::of(&self.step, &planned, &*self.device, start.elapsed().as_secs_f64()))
    }
}

/// Plans a step again, within other budgets. The device stays open in between, on a thread of its own.
#[pyclass(frozen, module = "tightrope._engine")]
pub struct Planner(Worker<Opened>);

#[pymethods]
impl Planner {
    /// Of the step of a plan.
    #[new]
    fn new(py: Python<'_>, plan: &Plan) -> PyResult<Self> {
        let step = plan.step().clone();
        let worker = Worker::start(py, |_| {
            let device = Devices::default().open(&step.device)?;
            Ok(Opened { step, device })
        })?;
        Ok(Self(worker))
    }

    /// Bytes of the smallest plan, and of the fastest.
    fn range(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.0.ask(py, |Opened { step, device }| {
            step.scope.budget = Some(u64::MAX);
            let fastest = step.plan(&**device)?.plan.peak_bytes();
            // A plan from a file is the only one.
            let smallest = match step.scope.plan {
                Some(_) => fastest,
                None => fewest_bytes(&step.scope, &step.config, &**device)?,
            };
            Ok((smallest, fastest))
        })
    }

    /// The fastest plan that takes at most so many bytes.
    fn within(&self, py: Python<'_>, bytes: u64) -> PyResult<Plan> {
        self.0.ask(py, move |opened| opened.within(bytes)).map(Plan::of)
    }
}
