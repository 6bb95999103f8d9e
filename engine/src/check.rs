//! Kernels that a device wasn't seen with before run once, on small cases, against the references, before anything else does.
//!
//! What is right is kept on disk, for the device, its driver, its compiler and each kernel's text. A kernel that is wrong, ends
//! with an error or never ends is left out on that device, and another stands in for it. Whoever wants that says so once:
//!
//! ```no_run
//! use tightrope::check::{self, Checker, Program};
//!
//! # fn asked_for_a_check() -> bool { false }
//! // A process that is started so runs cases, and does nothing else.
//! if asked_for_a_check() {
//!     return check::serve_stdin();
//! }
//! let path = std::env::current_exe().expect("a program");
//! let program = Program { path, arguments: vec!["check".into()] };
//! check::enable(Checker::new(program, |line| eprintln!("{line}")));
//! # Ok::<(), tightrope::Error>(())
//! ```

pub mod cases;
mod child;
pub(crate) mod record;
mod serve;
pub mod variants;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::anyhow;
use tightrope_core::ops::Case;
use tightrope_core::{Backend, DeviceKind, KernelUse, Plan, Rule as _, Variants};
use tightrope_nn::Planned;

use crate::devices::{Devices, Spec};
use crate::error::{Error, Result};
use crate::settings::Device;
use crate::units::plural;
use cases::Checked;
use child::Ended;
pub use child::{Program, serve_stdin};
use record::records;
pub use record::{Record, Records, Wrong, found};
use serve::{Event, Request};

/// Set to `off`, it keeps kernels from being checked.
pub const VARIABLE: &str = "TIGHTROPE_CHECK_KERNELS";

/// What to do where a device is wrong.
const REPORT: &str = "report it with the output of `tightrope doctor`";

/// How kernels are checked.
pub struct Checker {
    program: Program,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl Checker {
    /// By cases in a process of their own, which a kernel may take down. `tell` hears what is checked, and what came of it.
    pub fn new(program: Program, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { program, tell: Box::new(tell) }
    }
}

static CHECKER: OnceLock<Checker> = OnceLock::new();

/// Has kernels checked in this process from now on. The first call counts.
pub fn enable(checker: Checker) {
    let _ = CHECKER.set(checker);
}

/// The plan that `make` makes for a device, of kernels that are right there: the device leaves out what isn't, and plans are
/// made until none has any. Where [`Device::Auto`] was asked for and a kernel has no other, another device takes its place.
///
/// # Errors
/// Those of `make`, and a kernel that is wrong where nothing stands in for it.
pub fn planned(
    spec: &Spec,
    device: &mut Box<dyn Backend>,
    make: &mut dyn FnMut(&dyn Backend) -> Result<Planned>,
) -> Result<Planned> {
    let checker =
        CHECKER.get().filter(|_| std::env::var_os(VARIABLE).is_none_or(|how| how != "off"));
    loop {
        let planned = make(&**device)?;
        let Some(checker) = checker else { return Ok(planned) };
        match checker.plan(spec, &mut **device, &planned.plan) {
            Verdict::Right => return Ok(planned),
            Verdict::LeftOut => {}
            Verdict::Unusable(wrong) if spec.device == Device::Auto => {
                (checker.tell)(&format!("{}: {}; {REPORT}", device.name(), wrong.text()));
                let mut devices = Devices::default();
                *device = devices.open(spec)?;
                devices.notes.iter().for_each(|note| (checker.tell)(note));
                (checker.tell)(&format!("--device auto takes {}", device.name()));
            }
            Verdict::Unusable(wrong) => {
                return Err(Error::failed(
                    anyhow!("{} computes wrongly: {}", device.name(), wrong.text()),
                    format!("use --device cpu, and {REPORT}"),
                ));
            }
        }
    }
}

/// What came of a check.
enum Verdict {
    Right,
    /// A variant was left out: plans are void.
    LeftOut,
    Unusable(Wrong),
}

impl Checker {
    /// Checks what a plan takes.
    fn plan(&self, spec: &Spec, device: &mut dyn Backend, plan: &Plan) -> Verdict {
        self.check(spec, device, &|variants, record| {
            cases::of_plan(plan, variants, &|kernel| record.has(kernel))
        })
    }

    /// Checks cases of which nothing is known.
    fn check(
        &self,
        spec: &Spec,
        device: &mut dyn Backend,
        cases: &dyn Fn(&dyn Variants, &Record) -> Vec<Checked>,
    ) -> Verdict {
        let (name, kind, records) = (device.name(), device.kind(), records());
        let Some(variants) = device.variants() else { return Verdict::Right };
        let mut record = records.read(&name, &variants.identity());
        let mut cases = cases(variants, &record);
        let known = cases.iter().find_map(|case| record.unusable(&case.kernels)).cloned();
        if let Some(wrong) = known {
            return Verdict::Unusable(wrong);
        }
        if cases.is_empty() {
            return Verdict::Right;
        }
        let measured = variants.measured();
        let new = cases.iter().flat_map(|case| &case.kernels).filter(|kernel| !record.has(kernel));
        let new: BTreeSet<u64> = new.map(|kernel| kernel.text).collect();
        let kernels = plural(new.len(), "kernel", "kernels");
        (self.tell)(&format!(
            "{name}: {kernels} weren't seen on it before; each runs once, in a process of its own"
        ));
        let start = Instant::now();
        cases.sort_by_key(|case| (case.library, case.few));
        let request = Request::new(spec, kind, measured, &cases);
        match self.run(kind, &request, &cases, &mut record) {
            Came::Right => {}
            Came::Wrong(wrong) => return self.wrong(device, &records, record, wrong),
            Came::Never(reason) => {
                (self.tell)(&format!("{name}: its kernels go unchecked: {reason}"));
                records.write(&name, &record);
                return Verdict::Right;
            }
        }
        records.write(&name, &record);
        let seconds = start.elapsed().as_secs_f64();
        (self.tell)(&format!("{name}: {kernels} agree with the references, {seconds:.1} s"));
        Verdict::Right
    }

    /// Runs cases, and notes those that are right.
    fn run(
        &self,
        kind: DeviceKind,
        request: &Request,
        cases: &[Checked],
        record: &mut Record,
    ) -> Came {
        let describe = |index: usize, reason: String| {
            let Checked { case, kernels, .. } = &cases[index];
            Wrong::new(replaced(kernels), kernels, described(case), reason)
        };
        let mut wrong = None;
        let mut heard = |event: &Event| match event {
            Event::Done(index, None) => record.pass(&cases[*index].kernels),
            Event::Done(index, Some(reason)) => wrong = Some((*index, reason.clone())),
            Event::Opened | Event::Running(_) | Event::Answered => {}
        };
        match self.program.run(kind, request, &mut heard) {
            Ended::Told => {}
            Ended::At(index, reason) => wrong = Some((index, reason)),
            Ended::Never(reason) => return Came::Never(reason),
        }
        wrong.map_or(Came::Right, |(index, reason)| Came::Wrong(describe(index, reason)))
    }

    /// Notes what is wrong, and leaves it out where another stands in for it.
    fn wrong(
        &self,
        device: &mut dyn Backend,
        records: &Records,
        mut record: Record,
        wrong: Wrong,
    ) -> Verdict {
        record.wrong.push(wrong.clone());
        records.write(&device.name(), &record);
        let name = device.name();
        let Some(variant) = &wrong.variant else { return Verdict::Unusable(wrong) };
        (self.tell)(&format!("{name}: {}; {REPORT}", wrong.text()));
        if let Some(variants) = device.variants() {
            variants.leave_out(variant);
        }
        Verdict::LeftOut
    }
}

/// How a run of cases came out.
enum Came {
    Right,
    Wrong(Wrong),
    Never(String),
}

/// The variant to leave out where one of these kernels is wrong.
fn replaced(kernels: &[KernelUse]) -> Option<&'static str> {
    kernels.iter().find_map(|kernel| kernel.variants.first().copied())
}

/// A case, for people: the op and the types that it's given, or the first of many.
fn described(case: &Case) -> String {
    const SHOWN: usize = 8;
    let types: Vec<String> =
        case.inputs.iter().take(SHOWN).map(|sample| sample.ty.to_string()).collect();
    let more = case.inputs.len() - types.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} of {}{more}", case.op.name(), types.join(", "))
}
