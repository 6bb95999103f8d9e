//! Small cases that run the kernels of a plan.
//!
//! A case is an op of the plan with smaller extents, as long as its kernels stay the same text: so what is checked is what the
//! plan runs, and compiling it is no work that the plan wouldn't do.

use std::collections::BTreeSet;

use tightrope_core::conformance::{reference, values};
use tightrope_core::ops::{Case, Fill, LinearCrossEntropy, Sample};
use tightrope_core::{DType, KernelUse, Op, Plan, Rule as _, Type, Variants};

/// A case, and the kernels that it runs.
pub struct Checked {
    /// The op and its inputs.
    pub case: Case,
    /// What is right once the case passes.
    pub kernels: Vec<KernelUse>,
    /// Whether the device's library multiplies, where it can.
    pub library: bool,
}

/// Extents to try in place of larger ones: some that tiles divide, and some that leave a part of a tile.
const EXTENTS: [usize; 20] = [
    40, 64, 72, 128, 136, 256, 264, 384, 512, 520, 768, 1024, 1032, 1536, 2048, 2056, 3072, 4096,
    4104, 8192,
];
/// The same for the first of three axes or more: sequences of a batch.
const BATCH: usize = 2;

/// Cases that run every kernel of a plan of which `passed` doesn't know.
pub fn of_plan(
    plan: &Plan,
    variants: &dyn Variants,
    passed: &dyn Fn(&KernelUse) -> bool,
) -> Vec<Checked> {
    let nodes = plan.graph.programs.iter().flat_map(|program| &program.nodes);
    let mut seen: Vec<(&Op, Vec<&Type>)> = vec![];
    for node in nodes {
        let inputs = plan.graph.types(node).0;
        if !seen.iter().any(|(op, types)| **op == node.op && *types == inputs) {
            seen.push((&node.op, inputs));
        }
    }
    let uses = seen
        .into_iter()
        .map(|(op, inputs)| (op.clone(), inputs.into_iter().cloned().collect::<Vec<Type>>()));
    covering(uses, variants, passed)
}

/// Those of all families.
pub fn of_families(variants: &dyn Variants, passed: &dyn Fn(&KernelUse) -> bool) -> Vec<Checked> {
    let uses = Op::all_cases()
        .into_iter()
        .map(|Case { op, inputs }| (op, inputs.into_iter().map(|sample| sample.ty).collect()));
    covering(uses, variants, passed)
}

/// Cases of the first of these uses that have a kernel which none before has, and which isn't known to be right.
fn covering(
    uses: impl Iterator<Item = (Op, Vec<Type>)>,
    variants: &dyn Variants,
    passed: &dyn Fn(&KernelUse) -> bool,
) -> Vec<Checked> {
    let mut covered = BTreeSet::new();
    let mut cases = vec![];
    for (op, inputs) in uses {
        // What has no kernel is refused when the plan is prepared.
        let Some(kernels) = kernels(variants, &op, &inputs) else { continue };
        let (library, own): (Vec<KernelUse>, Vec<KernelUse>) =
            kernels.into_iter().partition(|kernel| kernel.of_library);
        let is_new = |kernel: &KernelUse| !covered.contains(&kernel.text) && !passed(kernel);
        let [of_library, of_own] = [&library, &own].map(|kernels| kernels.iter().any(is_new));
        if !of_library && !of_own {
            continue;
        }
        let Some(case) = small(variants, op, inputs) else { continue };
        for (library, kernels) in [(false, own), (true, library)] {
            if [of_own, of_library][usize::from(library)] {
                covered.extend(kernels.iter().map(|kernel| kernel.text));
                cases.push(Checked { case: case.clone(), kernels, library });
            }
        }
    }
    cases
}

fn kernels(variants: &dyn Variants, op: &Op, inputs: &[Type]) -> Option<Vec<KernelUse>> {
    let inputs: Vec<&Type> = inputs.iter().collect();
    let outputs = op.infer(&inputs).ok()?;
    variants.kernels(op, &inputs, &outputs.iter().collect::<Vec<_>>()).ok()
}

/// A use with extents as small as its kernels allow, as a case.
fn small(variants: &dyn Variants, mut op: Op, mut inputs: Vec<Type>) -> Option<Case> {
    let texts = |op: &Op, inputs: &[Type]| -> Option<BTreeSet<u64>> {
        let kernels = kernels(variants, op, inputs)?;
        Some(kernels.into_iter().map(|kernel| kernel.text).collect())
    };
    let wanted = texts(&op, &inputs)?;
    let same = |op: &Op, inputs: &[Type]| texts(op, inputs).is_some_and(|own| own == wanted);
    // The batch first: its extent may be that of another axis by chance.
    let first: Vec<Type> = inputs.iter().map(in_batch).collect();
    if same(&op, &first) {
        inputs = first;
    }
    let mut extents: Vec<usize> = inputs.iter().flat_map(|ty| ty.shape.iter().copied()).collect();
    extents.sort_unstable();
    extents.dedup();
    for from in extents.into_iter().rev() {
        for to in EXTENTS.into_iter().take_while(|&to| to < from) {
            let smaller: Vec<Type> = inputs.iter().map(|ty| resized(ty, from, to)).collect();
            let smaller_op = op_resized(&op, from, to);
            if same(&smaller_op, &smaller) {
                (op, inputs) = (smaller_op, smaller);
                break;
            }
        }
    }
    Some(filled(op, inputs))
}

fn in_batch(ty: &Type) -> Type {
    let mut shape = ty.shape.to_vec();
    if shape.len() > 2 {
        shape[0] = shape[0].min(BATCH);
    }
    Type::new(ty.dtype, shape)
}

fn resized(ty: &Type, from: usize, to: usize) -> Type {
    let shape = ty.shape.iter().map(|&extent| if extent == from { to } else { extent });
    Type::new(ty.dtype, shape.collect::<Vec<_>>())
}

/// An op with an extent in its attributes replaced.
fn op_resized(op: &Op, from: usize, to: usize) -> Op {
    let mut op = op.clone();
    let change = |extent: &mut usize| {
        if *extent == from {
            *extent = to;
        }
    };
    // The rest of a head's columns is padding.
    let of_loss = |loss: &mut LinearCrossEntropy| {
        if loss.vocab <= from {
            loss.vocab = loss.vocab.min(to);
        }
    };
    match &mut op {
        Op::Map(map) => map.shape.iter_mut().flatten().for_each(change),
        Op::Reshape(reshape) => reshape.shape.iter_mut().for_each(change),
        Op::DequantizeNf4(whole) => whole.shape.iter_mut().for_each(change),
        Op::Expand(expand) => change(&mut expand.extent),
        Op::SliceGrad(slice) => change(&mut slice.extent),
        Op::EmbeddingGrad(table) => change(&mut table.rows),
        Op::LinearCrossEntropy(loss) => of_loss(loss),
        Op::LinearCrossEntropyGrad(gradient) => of_loss(&mut gradient.loss),
        Op::LinearDistillation(loss) => of_loss(&mut loss.student),
        Op::LinearDistillationGrad(gradient) => of_loss(&mut gradient.loss.student),
        _ => {}
    }
    op
}

/// Where values are needed that roots and logarithms take.
const POSITIVE: Fill = Fill::Uniform(0.1, 1.0);
/// Most of an index that no table bounds.
const MOST: usize = 4096;

/// The case of a use: with indices within their tables, other inputs as the family's own cases have them, and positive ones
/// where others give no number.
fn filled(op: Op, inputs: Vec<Type>) -> Case {
    let types: Vec<&Type> = inputs.iter().collect();
    let indices = op.indices(&types);
    let similar = Op::all_cases().into_iter().find(|case| {
        let alike = |(sample, ty): (&Sample, &Type)| {
            sample.ty.dtype.is_float() == ty.dtype.is_float()
                && sample.ty.shape.len() == ty.shape.len()
        };
        let map = matches!(op, Op::Map(_));
        case.op.family() == op.family()
            && !map
            && case.inputs.len() == inputs.len()
            && case.inputs.iter().zip(&inputs).all(alike)
    });
    let fill = |(position, ty): (usize, &Type)| {
        if let Some(of) = indices.iter().find(|of| of.input == position) {
            return Fill::Whole(-i64::from(of.negative), of.end.min(MOST) as i64);
        }
        if let Some(case) = &similar {
            return case.inputs[position].fill;
        }
        match ty.dtype {
            DType::I32 => Fill::Whole(0, 16),
            DType::U32 => Fill::Whole(0, 1 << 16),
            DType::I16 => Fill::Whole(-(1 << 15), 1 << 15),
            DType::I8 => Fill::Whole(-127, 128),
            DType::U8 => Fill::Whole(0, 256),
            _ => Fill::Uniform(-1.0, 1.0),
        }
    };
    let fills: Vec<Fill> = inputs.iter().enumerate().map(fill).collect();
    let samples = inputs.into_iter().zip(fills).map(|(ty, fill)| Sample { ty, fill });
    let mut case = Case { op, inputs: samples.collect() };
    if !finite(&case) {
        let floats = case.inputs.iter_mut().filter(|sample| sample.ty.dtype.is_float());
        floats.for_each(|sample| sample.fill = POSITIVE);
    }
    case
}

/// Whether the reference gives numbers alone. Only maps have functions that don't take every number.
fn finite(case: &Case) -> bool {
    if !matches!(case.op, Op::Map(_)) {
        return true;
    }
    let types: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let outputs = case.op.infer(&types).unwrap_or_default();
    let bytes = reference::outputs(case).unwrap_or_default();
    let decoded = outputs.iter().zip(&bytes).map(|(ty, bytes)| values::decode(ty.dtype, bytes));
    decoded.flatten().all(f64::is_finite)
}
