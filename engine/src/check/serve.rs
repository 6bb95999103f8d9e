//! Runs cases on a device, in a process that may come to harm.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use tightrope_core::conformance::{Mode, Outcome, reference, try_against};
use tightrope_core::ops::Case;
use tightrope_core::plan::{PlannedAs, Target};
use tightrope_core::{Backend, DeviceError, DeviceKind, Plan, Reading, Rule as _, Type};

use crate::block_on;
use crate::devices::{Devices, Spec};
use crate::error::Result;
use crate::settings::Settings;

/// What is asked of whoever runs cases.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Settings of the device, as on a command line.
    settings: Vec<String>,
    /// What whoever asks measured when it opened the device.
    measured: String,
    cases: Vec<Case>,
}

/// What happens meanwhile. What runs longest without a word may be compiled; what doesn't come back after
/// [`Event::Running`] hangs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    /// The device is open.
    Opened,
    /// The device works on this case.
    Running(usize),
    /// The device answered.
    Answered,
    /// The case is right, or what is wrong with it; nothing comes after a case that is wrong.
    Done(usize, Option<String>),
}

impl Request {
    /// To run these cases on a device of this kind.
    pub(super) fn new(spec: &Spec, kind: DeviceKind, library: bool, cases: Vec<Case>) -> Self {
        let mut device = spec.device.to_string();
        if device == "auto" {
            device = kind.name().to_owned();
        }
        let mut settings = vec![format!("run.device={device}")];
        settings.push(format!("run.matmul={}", if library { "cublaslt" } else { "own" }));
        if spec.tf32 {
            settings.push("run.precision=tf32".to_owned());
        }
        Self { settings, measured: String::new(), cases }
    }

    /// How many cases there are.
    pub(super) fn cases(&self) -> usize {
        self.cases.len()
    }

    /// With what was measured.
    pub(super) fn measured(self, measured: String) -> Self {
        Self { measured, ..self }
    }
}

/// Does what is asked, and tells what happens.
///
/// # Errors
/// A device that can't be opened.
pub(super) fn serve(request: &Request, tell: &mut dyn FnMut(Event)) -> Result<()> {
    let mut settings = Settings::default();
    for setting in &request.settings {
        settings.read_argument(setting)?;
    }
    let mut device = Devices::default().open(&Spec::of(&settings))?;
    tell(Event::Opened);
    if let Some(variants) = device.variants() {
        variants.measured_elsewhere(&request.measured);
        let cases = request.cases.iter();
        let types: Vec<[Vec<Type>; 2]> = cases.clone().map(types).collect();
        let uses: Vec<_> = cases
            .zip(&types)
            .map(|(case, [inputs, outputs])| {
                (&case.op, inputs.iter().collect(), outputs.iter().collect())
            })
            .collect();
        variants.compile(&uses);
    }
    let expected = references(&request.cases);
    for (index, case) in request.cases.iter().enumerate() {
        let mut watched = Watched { device: &mut *device, tell: &mut *tell, index };
        let outputs = || expected[index].clone();
        let outcome = block_on(try_against(&mut watched, case, Mode::Check, &outputs));
        let wrong = match outcome {
            Outcome::Pass(_) => None,
            Outcome::Unsupported(reason) | Outcome::Fail(reason) | Outcome::Lost(reason) => {
                Some(reason)
            }
        };
        let ends = wrong.is_some();
        tell(Event::Done(index, wrong));
        if ends {
            break;
        }
    }
    Ok(())
}

/// Types of a case's inputs and outputs.
fn types(case: &Case) -> [Vec<Type>; 2] {
    let inputs: Vec<Type> = case.inputs.iter().map(|sample| sample.ty.clone()).collect();
    let outputs = case.op.infer(&inputs.iter().collect::<Vec<_>>()).unwrap_or_default();
    [inputs, outputs]
}

type References = Vec<tightrope_core::Result<Vec<Vec<u8>>>>;

/// What each case should come to, made on all cores.
fn references(cases: &[Case]) -> References {
    let order: Mutex<VecDeque<usize>> = Mutex::new((0..cases.len()).collect());
    let next = || order.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut made = vec![];
        while let Some(index) = next() {
            made.push((index, reference::outputs(&cases[index])));
        }
        made
    };
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let mut made: Vec<(usize, tightrope_core::Result<Vec<Vec<u8>>>)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default());
        joined.collect()
    });
    made.sort_by_key(|(index, _)| *index);
    made.into_iter().map(|(_, outputs)| outputs).collect()
}

/// A device that tells when it's asked to run something, and when it answers.
struct Watched<'a> {
    device: &'a mut dyn Backend,
    tell: &'a mut dyn FnMut(Event),
    index: usize,
}

impl PlannedAs for Watched<'_> {
    fn planned_as(&self) -> &dyn Target {
        self.device
    }
}

impl Backend for Watched<'_> {
    fn name(&self) -> String {
        self.device.name()
    }

    fn kind(&self) -> DeviceKind {
        self.device.kind()
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> std::result::Result<(), DeviceError> {
        self.device.prepare(plan)
    }

    fn allocated_bytes(&self) -> u64 {
        self.device.allocated_bytes()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> std::result::Result<(), DeviceError> {
        self.device.write(at, data)
    }

    fn run(&mut self, program: usize, steps: Range<usize>) -> std::result::Result<(), DeviceError> {
        (self.tell)(Event::Running(self.index));
        self.device.run(program, steps)
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        let reading = self.device.read(ranges);
        let tell = &mut self.tell;
        Box::pin(async move {
            let read = reading.await;
            tell(Event::Answered);
            read
        })
    }
}
