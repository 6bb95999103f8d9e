//! Small cases that run the kernels of a plan.
//!
//! A case is an op of the plan with smaller extents, as long as its kernels stay the same text: so what is checked is what the
//! plan runs, and compiling it is no work that the plan wouldn't do.

use std::collections::BTreeSet;

use tightrope_core::conformance::{reference, values};
use tightrope_core::ops::{
    Case, Fill, FusedMatMul, LinearCrossEntropy, LinearCrossEntropyRows, MatMul, Sample,
};
use tightrope_core::{DType, KernelUse, Op, Plan, Rule as _, Type, Variants};

/// A case, and the kernels that it runs.
pub struct Checked {
    /// The op and its inputs.
    pub case: Case,
    /// What is right once the case passes.
    pub kernels: Vec<KernelUse>,
    /// Whether the device's library multiplies, where it can.
    pub library: bool,
    /// Whether few multiprocessors make it.
    pub few: bool,
}

/// Extents to try in place of larger ones: some that tiles divide, and some that leave a part of a tile.
const EXTENTS: [usize; 22] = [
    40, 64, 72, 128, 136, 200, 256, 264, 328, 384, 512, 520, 768, 1024, 1032, 1536, 2048, 2056,
    3072, 4096, 4104, 8192,
];
/// How often every extent is tried.
const PASSES: usize = 2;
/// Axes of one extent that are tried apart from each other, where there are no more.
const MOST_APART: usize = 8;

/// The same for the first of three axes or more, sequences of a batch; of a gradient of attention, which is long, one.
fn batch(op: &Op) -> usize {
    if matches!(op, Op::AttentionGrad(_)) { 1 } else { 2 }
}

/// The least extent, where some kernels go round a ring of buffers: they come to its beginning again. A matmul has at most six stages
/// of 64 summed indices, the gradient of attention eight of 64 queries. Attention goes on with other tiles, of which
/// some are whole and some are not.
fn least(op: &Op) -> usize {
    match op {
        // It sums over rows, of which there are more than along this axis.
        Op::MatMul(MatMul { transpose_lhs: true, .. })
        | Op::FusedMatMul(FusedMatMul { matmul: MatMul { transpose_lhs: true, .. }, .. }) => 136,
        Op::MatMul(_) | Op::FusedMatMul(_) => 328,
        Op::Attention(_) => 200,
        Op::AttentionGrad(_) => 520,
        _ => 0,
    }
}

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
        let Some(kernels) = kernels(variants, false, &op, &inputs) else { continue };
        let is_new = |kernel: &&KernelUse| !covered.contains(&kernel.text) && !passed(kernel);
        let new = |library| kernels.iter().filter(is_new).any(|k| k.of_library == library);
        let [of_library, of_own] = [true, false].map(new);
        if !of_library && !of_own {
            continue;
        }
        let of = |few| Some((few, small(variants, few, &kernels, op.clone(), inputs.clone())?));
        let Some((few, case)) = of(true).or_else(|| of(false)) else { continue };
        let (library, own): (Vec<KernelUse>, Vec<KernelUse>) =
            kernels.into_iter().partition(|kernel| kernel.of_library);
        for (library, kernels) in [(false, own), (true, library)] {
            if [of_own, of_library][usize::from(library)] {
                covered.extend(kernels.iter().map(|kernel| kernel.text));
                cases.push(Checked { case: case.clone(), kernels, library, few });
            }
        }
    }
    cases
}

/// The kernels of a use, where few multiprocessors make it or all.
fn kernels(variants: &dyn Variants, few: bool, op: &Op, inputs: &[Type]) -> Option<Vec<KernelUse>> {
    let inputs: Vec<&Type> = inputs.iter().collect();
    let outputs = op.infer(&inputs).ok()?;
    let outputs: Vec<&Type> = outputs.iter().collect();
    // As a graph has it: what is written over has the type of what is written.
    if op.overwrites().into_iter().any(|(output, input)| outputs[output] != inputs[input]) {
        return None;
    }
    variants.kernels(few, op, &inputs, &outputs).ok()
}

/// A use with extents as small as its kernels allow, as a case. Few multiprocessors may have them for no extents.
fn small(
    variants: &dyn Variants,
    few: bool,
    wanted: &[KernelUse],
    mut op: Op,
    mut inputs: Vec<Type>,
) -> Option<Case> {
    let texts = |kernels: &[KernelUse]| -> BTreeSet<u64> {
        kernels.iter().map(|kernel| kernel.text).collect()
    };
    let wanted = texts(wanted);
    let same = |op: &Op, inputs: &[Type]| {
        kernels(variants, few, op, inputs).is_some_and(|own| texts(&own) == wanted)
    };
    // How far an extent goes down depends on the others.
    for _ in 0..PASSES {
        once_smaller(&same, &mut op, &mut inputs);
    }
    if let (Some(loss), Some(head)) = (op.loss_mut(), inputs.get(1)) {
        loss.vocab = loss.vocab.min(head.shape[0].div_ceil(REAL));
    }
    same(&op, &inputs).then(|| filled(op, inputs))
}

/// Makes each extent as small as `same` lets it be, one after the other.
fn once_smaller(same: &dyn Fn(&Op, &[Type]) -> bool, op: &mut Op, inputs: &mut Vec<Type>) {
    // The batch first: its extent may be that of another axis by chance.
    let of_batch = inputs.iter().find(|ty| ty.shape.len() > 2).map(|ty| ty.shape[0]);
    if let Some(all) = of_batch {
        let smaller = resized(inputs, |_, axis, extent| {
            if axis == 0 && extent == all { extent.min(batch(op)) } else { extent }
        });
        if same(op, &smaller) {
            *inputs = smaller;
        }
    }
    for (fewer, rows) in fewer_chunked(op, inputs) {
        if same(&fewer, &rows) {
            (*op, *inputs) = (fewer, rows);
            break;
        }
    }
    let mut extents: Vec<usize> = inputs.iter().flat_map(|ty| ty.shape.iter().copied()).collect();
    extents.sort_unstable();
    extents.dedup();
    for from in extents.into_iter().rev() {
        for (index, axes) in apart(inputs, from).into_iter().enumerate() {
            for to in EXTENTS.into_iter().filter(|&to| to >= least(op)).take_while(|&to| to < from)
            {
                let smaller = resized(inputs, |input, axis, extent| {
                    if extent == from && axes.contains(&(input, axis)) { to } else { extent }
                });
                // Attributes go with all axes of their extent.
                let smaller_op = if index == 0 { op_resized(op, from, to) } else { op.clone() };
                if same(&smaller_op, &smaller) {
                    (*op, *inputs) = (smaller_op, smaller);
                    break;
                }
            }
        }
    }
}

/// Rows of a chunk of logits that are tried in place of more; with fewer than those, tensor cores would make half a tile for nothing.
const CHUNKS: [usize; 5] = [80, 128, 144, 160, 256];
/// Padded columns of a head to each that is real in a case: padding takes the reference no time, and a thread has some of both.
const REAL: usize = 8;

/// A loss with fewer rows of logits at a time, as many as a sequence has then.
fn fewer_chunked(op: &Op, inputs: &[Type]) -> Vec<(Op, Vec<Type>)> {
    let x = inputs.first().map_or(&[][..], |x| &x.shape);
    let (Some(loss), [_, all, _]) = (op.loss(), x) else { return vec![] };
    let fewer = CHUNKS.into_iter().filter(|&rows| rows < loss.chunk && rows < *all);
    let with = |rows| {
        let mut op = op.clone();
        op.loss_mut().expect("a loss").chunk = rows;
        let of_sequence = |_, axis, extent| if axis == 1 && extent == *all { rows } else { extent };
        (op, resized(inputs, of_sequence))
    };
    fewer.map(with).collect()
}

/// The axes of an extent: all together, and where they're few, those that may be of one kind by themselves. Each is an input and
/// its axis.
fn apart(inputs: &[Type], extent: usize) -> Vec<Vec<(usize, usize)>> {
    let of = |(input, ty): (usize, &Type)| {
        let shape = ty.shape.iter().enumerate();
        shape.filter(|(_, other)| **other == extent).map(move |(axis, _)| (input, axis)).collect()
    };
    let all: Vec<(usize, usize)> =
        inputs.iter().enumerate().flat_map(|entry| -> Vec<_> { of(entry) }).collect();
    if all.len() > MOST_APART {
        return vec![all];
    }
    let chosen = |set: usize| {
        let in_set = all.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
        in_set.map(|(_, axis)| *axis).collect()
    };
    (1..1_usize << all.len()).rev().map(chosen).collect()
}

/// Types with other extents, as `change` says of an input, an axis and its extent. Where the rows of the first are counted along one axis
/// of another, they are there too.
fn resized(inputs: &[Type], change: impl Fn(usize, usize, usize) -> usize) -> Vec<Type> {
    let of = |(input, ty): (usize, &Type)| {
        let shape = ty.shape.iter().enumerate().map(|(axis, &extent)| change(input, axis, extent));
        Type::new(ty.dtype, shape.collect::<Vec<_>>())
    };
    let mut changed: Vec<Type> = inputs.iter().enumerate().map(of).collect();
    let [before, after] = [inputs, &changed[..]].map(|types| types.first().map_or(0, Type::rows));
    for (ty, old) in changed.iter_mut().zip(inputs) {
        if before != after && old.shape[..] == [before] && ty.shape == old.shape {
            *ty = Type::new(ty.dtype, [after]);
        }
    }
    changed
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
        Op::LinearCrossEntropyRows(LinearCrossEntropyRows(loss)) => of_loss(loss),
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
