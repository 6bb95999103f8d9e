//! Runs parts of stages: opens a device for each, compiles what its cases launch, and runs them.

use std::env::VarError;

use conformance::conformance::{Mode, Outcome, described, try_case};
use pollster::block_on;
use tightrope::devices::open_cuda;
use tightrope_backend_cuda::library::Problem;
use tightrope_backend_cuda::matmuls::Makers;
use tightrope_backend_cuda::{Cuda, limits};
use tightrope_core::launch::{Launch, Limits};
use tightrope_core::ops::Case;
use tightrope_core::{Backend as _, DeviceError, Rule as _, Type};

use crate::losses::Run;
use crate::tell;

/// Cases for one device.
pub struct Part {
    pub device: Device,
    pub work: Work,
}

/// What the device is taken for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Device {
    /// It multiplies by warpgroups, on so many multiprocessors.
    pub wgmma: Option<u32>,
    /// Its library makes all matmuls that it can.
    pub library: bool,
}

impl Device {
    /// What launches are made for on a GPU that is taken so.
    pub fn limits(self) -> Limits {
        limits().with_cuda(|own| own.wgmma = self.wgmma)
    }
}

/// What is run.
pub enum Work {
    /// Cases against the reference.
    Cases(Vec<Case>),
    /// Training, against the processor.
    Runs(Vec<Run>),
}

impl Part {
    fn count(&self) -> usize {
        match &self.work {
            Work::Cases(cases) => cases.len(),
            Work::Runs(runs) => runs.len(),
        }
    }
}

/// The launches of a case.
pub fn launches(case: &Case, limits: &Limits) -> Vec<Launch> {
    let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let outputs = case.op.infer(&inputs).unwrap_or_default();
    let outputs: Vec<&Type> = outputs.iter().collect();
    case.op.launch(limits, &inputs, &outputs).map_or(vec![], |launches| launches.list)
}

/// The kernels of a case, each once.
pub fn kernels(case: &Case, limits: &Limits) -> Vec<String> {
    let mut found = vec![];
    for launch in launches(case, limits) {
        let kernel = format!("{}.{}", launch.kernel, launch.entry);
        if !found.contains(&kernel) {
            found.push(kernel);
        }
    }
    found
}

/// The matmuls of a case that the library takes.
pub fn problems(case: &Case) -> Vec<Problem> {
    let problem = |launch: &Launch| Problem::of(launch.matmul.as_ref()?, false, |_| 0);
    let launches = launches(case, &limits());
    launches.iter().filter_map(problem).map(|(problem, _)| problem).collect()
}

/// What makes a case on a device.
fn makers(case: &Case, device: Device, limits: &Limits) -> Vec<String> {
    let of_library = if device.library { problems(case) } else { vec![] };
    let named = |problem| format!("cuBLASLt {problem}");
    of_library.iter().map(named).chain(kernels(case, limits)).collect()
}

/// Runs all parts, but for the cases before `from`; whether the device is still there. Kernels of a part are compiled at once, or
/// `apart`.
pub fn all(parts: Vec<Part>, from: usize, apart: bool) -> bool {
    tell::cases(parts.iter().map(Part::count).sum());
    let mut first = 0;
    for part in parts {
        let count = part.count();
        let skipped = from.saturating_sub(first).min(count);
        if skipped < count && !run(part, first, skipped, apart) {
            return false;
        }
        first += count;
    }
    tell::done();
    true
}

/// Runs a part whose first case has the number `first`, but for the `skipped` first ones.
fn run(part: Part, first: usize, skipped: usize, apart: bool) -> bool {
    let begun = tell::begins(None, "the device opens", &[]);
    let mut backend = match open(part.device) {
        Ok(Some(backend)) => backend,
        Ok(None) => {
            begun.passed("it's there");
            tell::left_out(part.count() - skipped, "this GPU has no wgmma");
            return true;
        }
        Err(problem) => {
            begun.ended(&Outcome::Fail(problem));
            return false;
        }
    };
    begun.passed(&backend.name());
    match part.work {
        Work::Cases(cases) => {
            if !apart && !compile(&mut backend, &cases) {
                return false;
            }
            let mut numbered = cases.iter().enumerate().skip(skipped);
            numbered.all(|(index, case)| {
                let kernels = makers(case, part.device, backend.limits());
                let begun = tell::begins(Some(first + index), &described(case), &kernels);
                begun.ended(&block_on(try_case(&mut backend, case, Mode::Check)))
            })
        }
        Work::Runs(runs) => {
            drop(backend);
            let mut numbered = runs.iter().enumerate().skip(skipped);
            numbered.all(|(index, run)| {
                let begun = tell::begins(Some(first + index), run.name, &[]);
                let device = open(part.device).map_err(Outcome::Lost);
                let outcome = device.and_then(|device| match device {
                    Some(device) => run.follows(Box::new(device)),
                    None => Err(Outcome::Fail("the device is another one now".into())),
                });
                begun.ended(&outcome.map_or_else(|outcome| outcome, Outcome::Pass))
            })
        }
    }
}

/// Compiles all kernels of cases side by side; whether the device is still there. What doesn't compile shows where its case does.
fn compile(backend: &mut Cuda, cases: &[Case]) -> bool {
    let all: Vec<Launch> = cases.iter().flat_map(|case| launches(case, backend.limits())).collect();
    let begun = tell::begins(None, &format!("kernels of {} launches compile", all.len()), &[]);
    match backend.compile(&all) {
        Err(error @ DeviceError::Lost { .. }) => return begun.ended(&error.into()),
        Err(_) => begun.passed("not all: each case compiles its own"),
        Ok(()) => begun.passed("all"),
    }
    true
}

/// The GPU; `None` where it isn't what the cases are for.
fn open(as_what: Device) -> Result<Option<Cuda>, String> {
    let ordinal = match std::env::var("TIGHTROPE_CUDA") {
        Ok(number) => {
            number.parse().map_err(|_| format!("TIGHTROPE_CUDA: `{number}` is no number"))?
        }
        Err(VarError::NotPresent) => 0,
        Err(error) => return Err(format!("TIGHTROPE_CUDA: {error}")),
    };
    let mut backend = open_cuda(ordinal)?;
    if as_what.wgmma.is_some() {
        // What isn't a GPU runs everything.
        let is_gpu = backend.compute_capability().is_some();
        if is_gpu && backend.limits().cuda().wgmma.is_none() {
            return Ok(None);
        }
        backend.restrict(|own| own.wgmma = as_what.wgmma);
    }
    if as_what.library {
        backend.matmuls_by(Makers::Library)?;
    }
    Ok(Some(backend))
}
