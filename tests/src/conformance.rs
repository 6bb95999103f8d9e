//! Every case on a backend, held against the references.
//!
//! A case becomes a plan of one op. The arena is filled with a pattern first, and everything is run twice
//! over different patterns: an output that depends on bytes nobody wrote shows, and so does a run that
//! doesn't repeat bit for bit. Ops that may write over a dying input are run once more with inputs that die.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tightrope_core::ops::{Case, Permute};
use tightrope_core::plan::Options;
use tightrope_core::{Backend, Class, DType, DeviceError, Graph, Plan, Result, Role, Rule, Tensor};

use crate::reference::{self, Lone};
use crate::tolerance::{self, Deviation};
use crate::values;

/// What is done with each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Run it and compare every output with the reference.
    Check,
    /// Only find out whether the backend takes it.
    Support,
}

/// What came of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Every output is within what is allowed; the largest error of any.
    Pass(Deviation),
    /// The backend has no kernel for it, in the backend's words.
    Unsupported(String),
    /// What is wrong.
    Fail(String),
    /// The device is gone, in its words. Nothing more runs on it.
    Lost(String),
}

impl From<DeviceError> for Outcome {
    fn from(error: DeviceError) -> Self {
        let words = error.to_string();
        match error {
            DeviceError::Compile { .. } => Self::Unsupported(words),
            DeviceError::Lost { .. } => Self::Lost(words),
            DeviceError::OutOfMemory { .. } | DeviceError::Input(_) => Self::Fail(words),
        }
    }
}

/// What came of a family at one storage type.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Cases that passed.
    pub passed: usize,
    /// Their largest error.
    pub deviation: Option<Deviation>,
    /// Why cases are unsupported.
    pub unsupported: Vec<String>,
    /// What is wrong with the cases that failed.
    pub failed: Vec<String>,
}

/// What came of all cases, by family and storage type.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One line a family (a variant of [`tightrope_core::Op`]) and storage type.
    pub lines: BTreeMap<(&'static str, DType), Line>,
}

/// Runs `cases` on `backend`.
pub async fn run(backend: &mut dyn Backend, cases: &[Case], mode: Mode) -> Report {
    let mut report = Report::default();
    for case in cases {
        let outcome = try_case(backend, case, mode).await;
        report.add(case, outcome);
    }
    report
}

/// Runs one case on `backend`.
pub async fn try_case(backend: &mut dyn Backend, case: &Case, mode: Mode) -> Outcome {
    let lone = match Lone::new(case) {
        Ok(lone) => lone,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    let kept = on_device(backend, case, lone, mode).await;
    let (Outcome::Pass(kept), false) = (&kept, case.op.may_overwrite().is_empty()) else {
        return kept;
    };
    let dying = match dying(case) {
        Ok(lone) => lone,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    match on_device(backend, case, dying, mode).await {
        Outcome::Pass(dying) => Outcome::Pass(kept.max(dying)),
        Outcome::Fail(problem) => Outcome::Fail(format!("over dying inputs: {problem}")),
        other => other,
    }
}

/// A case whose inputs are copied first, so that its op is the last reader of each.
fn dying(case: &Case) -> Result<Lone> {
    let mut graph = Graph::new();
    let mut declared = vec![];
    let mut copies = vec![];
    graph.begin(Role::Main);
    for (index, sample) in case.inputs.iter().enumerate() {
        let name = format!("input.{index}");
        let tensor = graph.persistent(&name, sample.ty.clone(), Class::Input);
        let copy = Permute { axes: (0..sample.ty.shape.len()).collect() };
        copies.push(graph.one(copy, &[tensor], &format!("{name}.copy"))?);
        declared.push(tensor);
    }
    let outputs = graph.push(case.op.clone(), &copies, "output")?;
    outputs.iter().for_each(|&output| graph.result(output));
    Ok(Lone { graph, inputs: declared, outputs })
}

/// Bytes that the arena is filled with before each of both runs: a NaN in every float dtype, and a number.
const PATTERNS: [u8; 2] = [0xFF, 0x3A];

async fn on_device(backend: &mut dyn Backend, case: &Case, lone: Lone, mode: Mode) -> Outcome {
    let options = Options { fusion: false, ..Options::default() };
    let plan = match Plan::new(lone.graph, &options, &*backend) {
        Ok(plan) => Arc::new(plan),
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    if let Err(error) = backend.prepare(Arc::clone(&plan)) {
        return error.into();
    }
    if backend.allocated_bytes() != plan.peak_bytes() {
        let (allocated, planned) = (backend.allocated_bytes(), plan.peak_bytes());
        return Outcome::Fail(format!("allocated {allocated} bytes, the plan has {planned}"));
    }
    if mode == Mode::Support {
        return Outcome::Pass(Deviation::NONE);
    }
    let inputs = values::inputs(case);
    let mut runs = vec![];
    for pattern in PATTERNS {
        match replay(backend, &plan, &lone.inputs, &inputs, &lone.outputs, pattern).await {
            Ok(outputs) => runs.push(outputs),
            Err(outcome) => return outcome,
        }
    }
    if runs[0] != runs[1] {
        let index = runs[0].iter().zip(&runs[1]).position(|(a, b)| a != b).unwrap_or(0);
        return Outcome::Fail(format!(
            "output {index} changes from run to run: it reads bytes nobody wrote, or its order isn't fixed"
        ));
    }
    compare(case, &runs[0])
}

/// Fills the arena with `pattern`, writes the inputs, runs, and reads the outputs.
async fn replay(
    backend: &mut dyn Backend,
    plan: &Plan,
    tensors: &[Tensor],
    inputs: &[Vec<u8>],
    outputs: &[Tensor],
    pattern: u8,
) -> std::result::Result<Vec<Vec<u8>>, Outcome> {
    let place = |tensor: Tensor| {
        let name = || &plan.graph.info(tensor).name;
        plan.range(tensor)
            .map(|(offset, bytes)| offset..offset + bytes)
            .ok_or_else(|| Outcome::Fail(format!("`{}` has no place in the plan", name())))
    };
    backend.write(0, &vec![pattern; plan.arena_bytes as usize])?;
    for (&tensor, bytes) in tensors.iter().zip(inputs) {
        backend.write(place(tensor)?.start, bytes)?;
    }
    backend.run(0, 0..plan.programs[0].steps.len())?;
    let mut read = vec![];
    for &output in outputs {
        read.push(backend.read(&[place(output)?]).await?);
    }
    let taken_over = |tensor| outputs.iter().any(|&output| plan.graph.storage(output) == tensor);
    for (index, (&tensor, bytes)) in tensors.iter().zip(inputs).enumerate() {
        if !taken_over(tensor) && backend.read(&[place(tensor)?]).await? != *bytes {
            return Err(Outcome::Fail(format!("input {index} was written to")));
        }
    }
    Ok(read)
}

/// What one case gives on `backend`, byte by byte.
///
/// # Errors
/// In words, where it can't be planned or run.
pub async fn outputs(
    backend: &mut dyn Backend,
    case: &Case,
) -> std::result::Result<Vec<Vec<u8>>, String> {
    let lone = Lone::new(case).map_err(|error| error.to_string())?;
    let options = Options { fusion: false, ..Options::default() };
    let plan = Plan::new(lone.graph, &options, &*backend).map_err(|error| error.to_string())?;
    let plan = Arc::new(plan);
    backend.prepare(Arc::clone(&plan)).map_err(|error| error.to_string())?;
    let inputs = values::inputs(case);
    let outputs = replay(backend, &plan, &lone.inputs, &inputs, &lone.outputs, PATTERNS[0]).await;
    outputs.map_err(|outcome| match outcome {
        Outcome::Unsupported(words) | Outcome::Fail(words) | Outcome::Lost(words) => words,
        Outcome::Pass(_) => "outputs were refused that passed".to_owned(),
    })
}

fn compare(case: &Case, outputs: &[Vec<u8>]) -> Outcome {
    let references = match reference::outputs(case) {
        Ok(references) => references,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    let types: Vec<_> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let types = case.op.infer(&types).unwrap_or_default();
    let mut worst = Deviation::NONE;
    for (index, ((ty, actual), expected)) in types.iter().zip(outputs).zip(&references).enumerate()
    {
        let (actual, expected) =
            (values::decode(ty.dtype, actual), values::decode(ty.dtype, expected));
        let deviation = Deviation::between(&actual, &expected);
        let allowed = tolerance::allowed(case, ty.dtype);
        if !deviation.within(allowed) {
            let largest = |&i: &usize| (actual[i] - expected[i]).abs();
            let at = (0..expected.len())
                .max_by(|i, j| largest(i).total_cmp(&largest(j)))
                .map_or(String::new(), |i| {
                    format!("; element {i} is {:e}, should be {:e}", actual[i], expected[i])
                });
            return Outcome::Fail(format!(
                "output {index} {ty}: nmse {:.1e} (allowed {:.0e}), largest {:.1e} (allowed {:.0e}){at}",
                deviation.nmse, allowed.nmse, deviation.largest, allowed.largest
            ));
        }
        worst = worst.max(deviation);
    }
    Outcome::Pass(worst)
}

/// A case in words: its op with every attribute, and the types that it's of.
pub fn described(case: &Case) -> String {
    let types: Vec<String> = case.inputs.iter().map(|sample| sample.ty.to_string()).collect();
    format!("{:?} of {}", case.op, types.join(", "))
}

impl Report {
    fn add(&mut self, case: &Case, outcome: Outcome) {
        let line = self.lines.entry((case.op.family(), tolerance::storage(case))).or_default();
        match outcome {
            Outcome::Pass(deviation) => {
                line.passed += 1;
                let before = line.deviation.unwrap_or(Deviation::NONE);
                line.deviation = Some(before.max(deviation));
            }
            Outcome::Unsupported(reason) => line.unsupported.push(reason),
            Outcome::Fail(problem) | Outcome::Lost(problem) => {
                line.failed.push(format!("{}: {problem}", described(case)));
            }
        }
    }

    /// What differs from a backend's list of unsupported ops, a line `Family dtype` each; `#` begins a
    /// comment. Empty where every case passes or is listed, and nothing is listed that passes.
    pub fn problems(&self, unsupported: &str) -> Vec<String> {
        let listed: Vec<(usize, &str)> = unsupported
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line.split('#').next().unwrap_or("").trim()))
            .filter(|(_, entry)| !entry.is_empty())
            .collect();
        let entry = |(family, dtype): &(&str, DType)| format!("{family} {dtype}");
        let mut problems = vec![];
        for (key, line) in &self.lines {
            let name = entry(key);
            let expected = listed.iter().any(|&(_, entry)| entry == name);
            problems.extend(line.failed.iter().map(|problem| format!("{name}: {problem}")));
            if let (Some(reason), false) = (line.unsupported.first(), expected) {
                problems.push(format!("{name} is unsupported and not listed as such: {reason}"));
            }
            if line.unsupported.is_empty() && expected {
                problems.push(format!("{name} is listed as unsupported, yet runs: take it off"));
            }
        }
        for (number, name) in listed {
            if !self.lines.keys().any(|key| entry(key) == name) {
                problems
                    .push(format!("line {number}, `{name}`: no case has this family and dtype"));
            }
        }
        problems
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((family, dtype), line) in &self.lines {
            let state = match line {
                Line { failed, .. } if !failed.is_empty() => "FAIL",
                Line { unsupported, .. } if !unsupported.is_empty() => "UNSUPPORTED",
                _ => "PASS",
            };
            let cases = line.passed + line.unsupported.len() + line.failed.len();
            write!(f, "{state:11} {family:22} {dtype:4} {:3} of {cases:3}", line.passed)?;
            if let Some(Deviation { nmse, largest }) = line.deviation {
                write!(f, "  nmse {nmse:7.1e}  largest {largest:7.1e}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The checked-in list of what a backend doesn't support, `unsupported/<backend>.txt` in this crate, for
/// [`Report::problems`]. A backend without a file supports everything.
///
/// # Errors
/// Where the file is there and can't be read as text.
pub fn unsupported(backend: &str) -> std::io::Result<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/unsupported");
    match std::fs::read_to_string(format!("{folder}/{backend}.txt")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}
