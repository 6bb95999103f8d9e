//! Cases of ops on a device, held against the references.
//!
//! | module | holds |
//! |---|---|
//! | [`values`] | what the inputs hold |
//! | [`reference`](mod@reference) | an interpreter that runs graphs through the references |
//! | [`tolerance`] | how far a device may be from the reference |
//!
//! A case becomes a plan of one op. The arena is filled with a pattern first, and everything is run twice
//! over different patterns: an output that depends on bytes nobody wrote shows, and so does a run that
//! doesn't repeat bit for bit. Ops that may write over a dying input are run once more with inputs that die.

pub mod reference;
pub mod tolerance;
pub mod values;

use std::cell::RefCell;
use std::sync::Arc;

use crate::cancel::Cancel;
use crate::expr::{Binary, Term, Unary};
use crate::ops::{Case, Permute};
use crate::plan::Options;
use crate::{
    Backend, Class, DType, DeviceError, Expr, Graph, Op, Plan, Result, Role, Rule, Tensor,
};
use reference::Lone;
use tolerance::Deviation;

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
            DeviceError::OutOfMemory { .. } | DeviceError::Cancelled | DeviceError::Input(_) => {
                Self::Fail(words)
            }
        }
    }
}

/// Runs one case on `backend`.
pub async fn try_case(backend: &mut dyn Backend, case: &Case, mode: Mode) -> Outcome {
    try_against(backend, case, mode, &|| reference::outputs(case)).await
}

/// The bytes of a case's outputs, as they should be.
pub type Expected<'a> = &'a dyn Fn() -> Result<Vec<Vec<u8>>>;

/// As [`try_case`], where the outputs of the reference are made already, or elsewhere.
pub async fn try_against(
    backend: &mut dyn Backend,
    case: &Case,
    mode: Mode,
    expected: Expected<'_>,
) -> Outcome {
    let lone = match Lone::new(case) {
        Ok(lone) => lone,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    let kept = on_device(backend, case, lone, mode, expected).await;
    let (Outcome::Pass(kept), false) = (&kept, case.op.may_overwrite().is_empty()) else {
        return kept;
    };
    let dying = match dying(case) {
        Ok(lone) => lone,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    match on_device(backend, case, dying, mode, expected).await {
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

async fn on_device(
    backend: &mut dyn Backend,
    case: &Case,
    lone: Lone,
    mode: Mode,
    expected: Expected<'_>,
) -> Outcome {
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
    compare(case, &runs[0], expected)
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
    backend.run(0, 0..plan.programs[0].steps.len(), &Cancel::default())?;
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

fn compare(case: &Case, outputs: &[Vec<u8>], expected: Expected<'_>) -> Outcome {
    let references = match expected() {
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
        let (dtype, actual, expected) = match remainder_of(&case.op, index) {
            Some(high) => {
                let ty = types[high].dtype;
                let whole = |outputs: &[Vec<u8>], low: &[f64]| {
                    let high = values::decode(ty, &outputs[high]);
                    high.iter().zip(low).map(|(&h, &l)| Binary::JoinHalves.apply(h, l)).collect()
                };
                (DType::F32, whole(outputs, &actual), whole(&references, &expected))
            }
            None => (ty.dtype, actual, expected),
        };
        let deviation = Deviation::between(&actual, &expected);
        let allowed = tolerance::allowed(case, dtype);
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

/// The output with the upper half of the numbers whose lower half output `index` stores. Both are compared as the numbers
/// that they make together: where one is a little larger, it may have the next upper half and a lower half far from
/// the other's.
fn remainder_of(op: &Op, index: usize) -> Option<usize> {
    let Op::Map(map) = op else { return None };
    let formulas = &map.formulas;
    let segment = index / formulas.len() * formulas.len();
    let Term::Unary(Unary::LowHalf, number) = changed(&formulas[index - segment]).term() else {
        return None;
    };
    let upper = |formula: &Expr| match changed(formula).term() {
        Term::Unary(Unary::HighHalf, other) => other == number,
        _ => false,
    };
    formulas.iter().position(upper).map(|high| segment + high)
}

/// What a formula stores where it changes something: updates that are skipped store what was there.
fn changed(formula: &Expr) -> &Expr {
    match formula.term() {
        Term::Select(_, yes, _) => changed(yes),
        _ => formula,
    }
}

/// Dtypes of a case's inputs and outputs.
pub fn dtypes(case: &Case) -> Vec<DType> {
    let mut found: Vec<DType> = case.inputs.iter().map(|entry| entry.ty.dtype).collect();
    // The dtype attributes, read by the one function that knows them all.
    let attributes = RefCell::new(vec![]);
    case.op.clone().retype(&|dtype| {
        attributes.borrow_mut().push(dtype);
        dtype
    });
    found.extend(attributes.into_inner());
    found
}
