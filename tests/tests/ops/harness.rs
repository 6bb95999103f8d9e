//! The conformance suite on backends that are known to be right or wrong.

use std::ops::Range;
use std::sync::Arc;

use conformance::cases::{self, unit, whole};
use conformance::conformance::{Mode, Outcome, Report, run, try_case};
use conformance::oracle::Oracle;
use pollster::block_on;
use tightrope_core::ops::{Case, Embedding, Softmax};
use tightrope_core::plan::{PlannedAs, Target};
use tightrope_core::{Backend, Cancel, DType, DeviceError, DeviceKind, Plan, Reading};

/// References over a planned arena give what the interpreter gives, bit for bit.
#[test]
fn references_in_an_arena_are_exact() {
    let report = block_on(run(&mut Oracle::default(), &cases::all(), Mode::Check));
    assert_eq!(report.problems(""), [] as [String; 0], "\n{report}");
    for ((family, dtype), line) in &report.lines {
        let deviation = line.deviation.expect("every line has a case");
        assert_eq!(deviation.largest, 0.0, "{family} {dtype}");
    }
}

/// What a broken backend does differently.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Lacks a kernel.
    Refuses,
    /// The last byte of what is read is off.
    Rounds,
    /// Reads of an output give what was there before the run.
    Idles,
    /// Writes to the first bytes of the arena, where an input is.
    Strays,
    /// Allocates something the plan doesn't know of.
    Hoards,
}

struct Faulty {
    inner: Oracle,
    fault: Fault,
}

impl PlannedAs for Faulty {
    fn planned_as(&self) -> &dyn Target {
        &self.inner
    }
}

impl Backend for Faulty {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn name(&self) -> String {
        "faulty".into()
    }
    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        if self.fault == Fault::Refuses {
            let (kernel, log) = ("softmax".into(), "no such kernel".into());
            return Err(DeviceError::Compile { kernel, log });
        }
        self.inner.prepare(plan)
    }
    fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes() + u64::from(self.fault == Fault::Hoards)
    }
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(at, data)
    }
    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        if self.fault == Fault::Idles {
            return Ok(());
        }
        self.inner.run(program, steps, cancel)?;
        if self.fault == Fault::Strays { self.inner.write(0, &[0x55]) } else { Ok(()) }
    }
    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        let wrong = self.fault == Fault::Rounds;
        let inner = self.inner.read(ranges);
        Box::pin(async move {
            let mut bytes = inner.await?;
            if let Some(last) = bytes.last_mut().filter(|_| wrong) {
                *last ^= 1;
            }
            Ok(bytes)
        })
    }
}

fn softmax_with(fault: Fault) -> Outcome {
    let mut backend = Faulty { inner: Oracle::default(), fault };
    let case = Case::new(Softmax, vec![unit(&[3, 7])]);
    block_on(try_case(&mut backend, &case, Mode::Check))
}

#[test]
fn faults_are_seen() {
    let problem = |fault| match softmax_with(fault) {
        Outcome::Fail(problem) => problem,
        other => panic!("{other:?}"),
    };
    assert!(problem(Fault::Idles).contains("changes from run to run"));
    assert!(problem(Fault::Strays).contains("input 0 was written to"));
    assert!(problem(Fault::Hoards).contains("the plan has"));
    // The input reads back wrong as well, and that is noticed first.
    assert!(problem(Fault::Rounds).contains("input 0"));
    assert!(matches!(softmax_with(Fault::Refuses), Outcome::Unsupported(_)));
}

/// A table of other numbers than the reference has: right bits in the wrong place.
#[test]
fn wrong_numbers_name_the_element() {
    struct Shifted(Oracle);
    impl PlannedAs for Shifted {
        fn planned_as(&self) -> &dyn Target {
            &self.0
        }
    }
    impl Backend for Shifted {
        fn kind(&self) -> DeviceKind {
            DeviceKind::Cpu
        }

        fn name(&self) -> String {
            "shifted".into()
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
            // Outputs come after the inputs' 128 bytes; the table and its indices read back right.
            let shift = if ranges[0].start >= 128 { 4 } else { 0 };
            let inner = self.0.read(ranges);
            Box::pin(async move {
                let mut bytes = inner.await?;
                bytes.rotate_left(shift);
                Ok(bytes)
            })
        }
    }
    let case = Case::new(Embedding, vec![unit(&[3, 2]), whole(&[5], 0, 3)]);
    let outcome = block_on(try_case(&mut Shifted(Oracle::default()), &case, Mode::Check));
    let Outcome::Fail(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.contains("output 0 f32[5, 2]: nmse"), "{problem}");
    assert!(problem.contains("should be"), "{problem}");
}

fn report_of(fault: Option<Fault>) -> Report {
    let cases = [Case::new(Softmax, vec![unit(&[3, 7])])];
    match fault {
        None => block_on(run(&mut Oracle::default(), &cases, Mode::Check)),
        Some(fault) => {
            let mut backend = Faulty { inner: Oracle::default(), fault };
            block_on(run(&mut backend, &cases, Mode::Support))
        }
    }
}

#[test]
fn the_list_of_unsupported_ops_is_held_both_ways() {
    let listed = "# a comment\nSoftmax f32  # a reason\n";
    let refused = report_of(Some(Fault::Refuses));
    assert_eq!(refused.problems(listed), [] as [String; 0]);
    assert!(refused.problems("")[0].contains("not listed as such: kernel softmax"));
    assert!(refused.to_string().starts_with("UNSUPPORTED Softmax"));
    let passed = report_of(None);
    assert_eq!(passed.problems(""), [] as [String; 0]);
    assert!(passed.problems(listed)[0].contains("take it off"));
    assert!(passed.problems("Softmax f23")[0].contains("line 1, `Softmax f23`: no case"));
    assert!(passed.lines.contains_key(&("Softmax", DType::F32)));
    assert!(passed.to_string().starts_with("PASS"));
}
