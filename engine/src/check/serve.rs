//! Runs cases on a device, in a process that may come to harm.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder};

use serde::{Deserialize, Serialize};
use tightrope_core::conformance::{Mode, Outcome, reference, try_against};
use tightrope_core::ops::Case;
use tightrope_core::plan::{PlannedAs, Target};
use tightrope_core::{Backend, Cancel, DeviceError, DeviceKind, Plan, Reading, Rule as _, Type};

use super::cases::Checked;
use crate::block_on;
use crate::devices::{Devices, Spec};
use crate::error::Result;
use crate::settings::Settings;

/// What is asked of whoever runs cases.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// What whoever asks measured when it opened the device.
    measured: String,
    groups: Vec<Group>,
}

/// Cases of a device as it's opened for them.
#[derive(Debug, Serialize, Deserialize)]
struct Group {
    /// Settings of the device, as on a command line.
    settings: Vec<String>,
    /// Whether few of its multiprocessors are taken.
    few: bool,
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
    /// To run cases on a device of this kind. They're numbered as they are here: those of the library come last, and after those for
    /// all multiprocessors.
    pub(super) fn new(spec: &Spec, kind: DeviceKind, measured: String, cases: &[Checked]) -> Self {
        let mut device = spec.device.to_string();
        if device == "auto" {
            device = kind.name().to_owned();
        }
        let group = |cases: &[Checked]| {
            let Checked { library, few, .. } = cases[0];
            let mut settings = vec![format!("run.device={device}")];
            settings.push(format!("run.matmul={}", if library { "cublaslt" } else { "own" }));
            if spec.tf32 {
                settings.push("run.precision=tf32".to_owned());
            }
            let cases = cases.iter().map(|checked| checked.case.clone()).collect();
            Group { settings, few, cases }
        };
        let alike = |a: &Checked, b: &Checked| (a.library, a.few) == (b.library, b.few);
        Self { measured, groups: cases.chunk_by(alike).map(group).collect() }
    }

    /// How many cases there are.
    pub(super) fn cases(&self) -> usize {
        self.groups.iter().map(|group| group.cases.len()).sum()
    }
}

/// Does what is asked, and tells what happens.
///
/// # Errors
/// A device that can't be opened.
pub(super) fn serve(request: &Request, tell: &mut dyn FnMut(Event)) -> Result<()> {
    // One makes what the next compares with too.
    let mut made = Made::default();
    let mut first = 0;
    for group in &request.groups {
        if !serve_group(group, &request.measured, first, &mut made, tell)? {
            break;
        }
        first += group.cases.len();
    }
    Ok(())
}

/// Runs the cases of a group, of which the first has this number, until one is wrong. Whether none was.
fn serve_group<'a>(
    group: &'a Group,
    measured: &str,
    first: usize,
    made: &mut Made<'a>,
    tell: &mut dyn FnMut(Event),
) -> Result<bool> {
    let mut settings = Settings::default();
    for setting in &group.settings {
        settings.read_argument(setting)?;
    }
    let mut device = Devices::default().open(&Spec::of(&settings))?;
    tell(Event::Opened);
    let compile = || {
        let Some(variants) = device.variants() else { return };
        variants.measured_elsewhere(measured);
        if group.few {
            variants.take_few();
        }
        let types: Vec<[Vec<Type>; 2]> = group.cases.iter().map(types).collect();
        let uses = group.cases.iter().zip(&types).map(|(case, [inputs, outputs])| {
            (&case.op, inputs.iter().collect(), outputs.iter().collect())
        });
        variants.compile(&uses.collect::<Vec<_>>());
    };
    made.with(&group.cases, compile);
    for (index, case) in (first..).zip(&group.cases) {
        let mut watched = Watched { device: &mut *device, tell: &mut *tell, index };
        let outputs = || made.of(case);
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
            return Ok(false);
        }
    }
    Ok(true)
}

/// Types of a case's inputs and outputs.
fn types(case: &Case) -> [Vec<Type>; 2] {
    let inputs: Vec<Type> = case.inputs.iter().map(|sample| sample.ty.clone()).collect();
    let outputs = case.op.infer(&inputs.iter().collect::<Vec<_>>()).unwrap_or_default();
    [inputs, outputs]
}

/// What cases should come to: each once, also where several kernels make it.
#[derive(Default)]
struct Made<'a> {
    cases: Vec<(&'a Case, Expected)>,
}

type Expected = tightrope_core::Result<Vec<Vec<u8>>>;

impl<'a> Made<'a> {
    /// Makes that of cases on all cores, while `meanwhile` runs.
    fn with(&mut self, cases: &'a [Case], meanwhile: impl FnOnce()) {
        let missing = cases.iter().filter(|case| !self.cases.iter().any(|(old, _)| old == case));
        let order: Mutex<VecDeque<&Case>> = Mutex::new(missing.collect());
        let next = || order.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let work = || {
            let mut made = vec![];
            while let Some(case) = next() {
                made.push((case, reference::outputs(case)));
            }
            made
        };
        let threads = thread::available_parallelism().map_or(1, Into::into);
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..threads).map(|_| Builder::new().spawn_scoped(scope, work)).collect();
            meanwhile();
            // Cases that no thread was started for are made when they're asked for.
            let threads = threads.into_iter().flatten();
            let joined = threads.flat_map(|thread| thread.join().unwrap_or_default());
            self.cases.extend(joined);
        });
    }

    fn of(&self, case: &Case) -> Expected {
        let found = self.cases.iter().find(|(known, _)| *known == case);
        // A thread that ended early left it out.
        found.map_or_else(|| reference::outputs(case), |(_, outputs)| outputs.clone())
    }
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

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> std::result::Result<(), DeviceError> {
        (self.tell)(Event::Running(self.index));
        self.device.run(program, steps, cancel)
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
