//! The ops of a training step by family and shape, against the peaks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tightrope_backend_cpu::peak::Peaks;
use tightrope_core::ops::MatMul;
use tightrope_core::{
    Backend, DType, Graph, Node, Op, Plan, Rule as _, SessionError, Tensor, Type,
};
use tightrope_nn::Model;

use crate::timing::{fastest, times};
use crate::units::human_count;

/// Ops of one family and shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Family.
    pub op: &'static str,
    /// M×N×K of a matmul; else dtype and shape of the first input.
    pub shape: String,
    /// Runs in an optimizer step.
    pub count: usize,
    /// Milliseconds of one run, the fastest, as the peaks are.
    pub ms: f64,
    /// 10⁹ floating-point operations a second.
    pub gflop_s: f64,
    /// 10⁹ bytes a second, each tensor counted once.
    pub gb_s: f64,
    /// Per cent of the measured peak: of arithmetic, or of the caches or the memory that hold what it reads and writes, whichever is
    /// nearer.
    pub percent_of_peak: f64,
    /// Part of the step's time.
    pub share: f64,
}

/// Replays the programs of a training step op by op, at least so long and so often; rows with the largest share first. Raises
/// `peaks` to what an op reaches.
///
/// # Errors
/// Those of the device.
pub fn profile(
    plan: Plan,
    model: &dyn Model,
    accumulation: usize,
    device: &mut dyn Backend,
    peaks: &mut Peaks,
    least: (Duration, usize),
) -> Result<Vec<Row>, SessionError> {
    let plan = Arc::new(plan);
    let times = times(&plan, model, device, least)?;
    let mut groups: BTreeMap<(&str, String), Group> = BTreeMap::new();
    for (index, times) in times {
        let repeats = plan.graph.programs[index].role.runs_per_step(accumulation);
        for (step, times) in plan.programs[index].steps.iter().zip(&times) {
            let node = &plan.graph.programs[index].nodes[step.node];
            let key = (node.op.name(), describe(&plan.graph, node));
            groups.entry(key).or_default().add(&plan.graph, node, repeats, fastest(times));
        }
    }
    *peaks = groups.values().fold(*peaks, |peaks, group| group.raised(peaks));
    let total: f64 = groups.values().map(|group| group.seconds).sum();
    let mut rows: Vec<Row> =
        groups.into_iter().map(|((op, shape), group)| group.row(op, shape, total, peaks)).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    Ok(rows)
}

/// What ops of one kind come to.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    count: usize,
    seconds: f64,
    flops: f64,
    bytes: f64,
    narrow: bool,
}

impl Group {
    fn add(&mut self, graph: &Graph, node: &Node, repeats: usize, seconds: f64) {
        let cost = node.op.cost(&types(graph, &node.inputs), &types(graph, &node.outputs));
        self.count += repeats;
        self.seconds += seconds * repeats as f64;
        self.flops += cost.flops as f64 * repeats as f64;
        self.bytes += cost.bytes as f64 * repeats as f64;
        self.narrow |= node.inputs.first().is_some_and(|&t| graph.dtype(t) == DType::BF16);
    }

    /// Peaks that this doesn't exceed.
    fn raised(&self, peaks: Peaks) -> Peaks {
        let Self { count, seconds, flops, bytes, narrow } = *self;
        peaks.at_least(narrow, flops / seconds, bytes / seconds, bytes / count as f64)
    }

    fn row(&self, op: &'static str, shape: String, total: f64, peaks: &Peaks) -> Row {
        let Self { count, seconds, flops, bytes, narrow } = *self;
        let of_arithmetic = flops / seconds / peaks.flops(narrow);
        let of_memory = bytes / seconds / peaks.bytes_of(bytes / count as f64);
        Row {
            op,
            shape,
            count,
            ms: 1e3 * seconds / count as f64,
            gflop_s: flops / seconds / 1e9,
            gb_s: bytes / seconds / 1e9,
            percent_of_peak: 100.0 * of_arithmetic.max(of_memory),
            share: seconds / total,
        }
    }
}

fn types<'a>(graph: &'a Graph, tensors: &[Tensor]) -> Vec<&'a Type> {
    tensors.iter().map(|&tensor| graph.ty(tensor)).collect()
}

fn describe(graph: &Graph, node: &Node) -> String {
    let inputs = types(graph, &node.inputs);
    let extents = |matmul: &MatMul, lhs: &Type, rhs: &Type| {
        let matrices = matmul.matrices(lhs, rhs);
        let side = |transposed| if transposed { "t" } else { "n" };
        format!(
            "{}{} {}×{}×{} {}",
            side(matmul.transpose_lhs),
            side(matmul.transpose_rhs),
            matrices.m,
            matrices.n,
            matrices.k,
            lhs.dtype
        )
    };
    match (&node.op, inputs.as_slice()) {
        (Op::MatMul(matmul), [lhs, rhs, ..]) => extents(matmul, lhs, rhs),
        (Op::FusedMatMul(fused), [lhs, rhs, ..]) => {
            let formula = if fused.formula.is_some() { ", mapped" } else { "" };
            let sums = if fused.lhs_sums.is_some() { ", bias gradient" } else { "" };
            extents(&fused.matmul, lhs, rhs) + formula + sums
        }
        (Op::Map(_), _) => {
            let elements: usize = types(graph, &node.outputs).iter().map(|ty| ty.elements()).sum();
            let (takes, gives) = (inputs.len(), node.outputs.len());
            format!("{takes} → {gives}, {} elements", human_count(elements as f64))
        }
        (_, [first, ..]) => first.to_string(),
        (_, []) => String::new(),
    }
}
