//! Times every op of a training step, in place: in the arena of the plan, on the values of a real step.

use std::collections::BTreeMap;
use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollster::block_on;
use serde::Serialize;
use tightrope_core::ops::MatMul;
use tightrope_core::{
    Backend, DType, DeviceError, Graph, Node, Op, Plan, Rule as _, SessionError, Tensor, Type,
};
use tightrope_nn::{ModelConfig, initial_values, parameters};

use super::peak::Peaks;
use crate::progress::human_count;

/// Ops of one family and shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Family.
    pub op: &'static str,
    /// M×N×K of a matrix product; else dtype and shape of the first input.
    pub shape: String,
    /// Runs in an optimizer step.
    pub count: usize,
    /// Milliseconds of one run, the fastest, as the peaks are.
    pub ms: f64,
    /// 10⁹ floating-point operations a second.
    pub gflop_s: f64,
    /// 10⁹ bytes a second, each tensor counted once.
    pub gb_s: f64,
    /// Per cent of the measured peak: of arithmetic or of memory, whichever is nearer.
    pub percent_of_peak: f64,
    /// Part of the step's time.
    pub share: f64,
}

/// Shortest time that ops are measured for, and the fewest replays.
const LEAST: (Duration, usize) = (Duration::from_secs(2), 3);
/// Read to wait for the device.
const FIRST_WORD: Range<u64> = 0..4;
/// Waits for nothing, of which the fastest is taken for the price of one.
const WAITS: usize = 10;

/// Replays the programs of a training step op by op; rows with the largest share first.
///
/// # Errors
/// Those of the device.
pub fn profile(
    plan: Plan,
    model: &ModelConfig,
    accumulation: usize,
    device: &mut dyn Backend,
    peaks: &Peaks,
) -> Result<Vec<Row>, SessionError> {
    let plan = Arc::new(plan);
    let times = times(&plan, model, device, LEAST)?;
    let mut groups: BTreeMap<(&str, String), Group> = BTreeMap::new();
    for (index, times) in times {
        let repeats = plan.graph.programs[index].role.runs_per_step(accumulation);
        for (step, times) in plan.programs[index].steps.iter().zip(&times) {
            let node = &plan.graph.programs[index].nodes[step.node];
            let key = (node.op.name(), describe(&plan.graph, node));
            groups.entry(key).or_default().add(&plan.graph, node, repeats, fastest(times));
        }
    }
    let total: f64 = groups.values().map(|group| group.seconds).sum();
    let mut rows: Vec<Row> =
        groups.into_iter().map(|((op, shape), group)| group.row(op, shape, total, peaks)).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    Ok(rows)
}

/// A program by its index, and the seconds of each of its ops, replay by replay.
pub type Times = (usize, Vec<Vec<f64>>);

/// Seconds of every op of the programs of a training step, replayed at least
/// so long and so often.
///
/// # Errors
/// Those of the device.
pub fn times(
    plan: &Arc<Plan>,
    model: &ModelConfig,
    device: &mut dyn Backend,
    least: (Duration, usize),
) -> Result<Vec<Times>, SessionError> {
    watched(plan, model, device, least, &mut |_, _| ())
}

/// As [`times`], and calls `watch` with the program and the step after every run of an op.
///
/// # Errors
/// Those of the device.
pub fn watched(
    plan: &Arc<Plan>,
    model: &ModelConfig,
    device: &mut dyn Backend,
    least: (Duration, usize),
    watch: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Times>, SessionError> {
    device.prepare(Arc::clone(plan))?;
    fill(plan, model, device)?;
    // A device that works on its own is waited for after each op; what the wait itself takes doesn't count.
    let wait = |device: &mut dyn Backend, start: Instant| {
        block_on(device.read(from_ref(&FIRST_WORD)))?;
        Ok::<f64, DeviceError>(start.elapsed().as_secs_f64())
    };
    wait(device, Instant::now())?;
    let waits: Result<Vec<f64>, _> = (0..WAITS).map(|_| wait(device, Instant::now())).collect();
    let idle = fastest(&waits?);
    let programs = plan.graph.programs.iter().enumerate();
    let mut times: Vec<Times> = programs
        .filter(|(_, program)| program.role.runs_per_step(1) > 0)
        .map(|(index, _)| (index, vec![vec![]; plan.programs[index].steps.len()]))
        .collect();
    let start = Instant::now();
    let mut replays = 0;
    while replays < least.1 || start.elapsed() < least.0 {
        for (index, times) in &mut times {
            for (step, times) in times.iter_mut().enumerate() {
                let start = Instant::now();
                device.run(*index, step..step + 1)?;
                times.push((wait(device, start)? - idle).max(0.0));
                watch(*index, step);
            }
        }
        replays += 1;
    }
    Ok(times)
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

    fn row(&self, op: &'static str, shape: String, total: f64, peaks: &Peaks) -> Row {
        let Self { count, seconds, flops, bytes, narrow } = *self;
        let of_arithmetic = flops / seconds / peaks.flops(narrow);
        let of_memory = bytes / seconds / peaks.bytes;
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
    let extents = |product: &MatMul, lhs: &Type, rhs: &Type| {
        let matrices = product.matrices(lhs, rhs);
        let side = |transposed| if transposed { "t" } else { "n" };
        format!(
            "{}{} {}×{}×{} {}",
            side(product.transpose_lhs),
            side(product.transpose_rhs),
            matrices.m,
            matrices.n,
            matrices.k,
            lhs.dtype
        )
    };
    match (&node.op, inputs.as_slice()) {
        (Op::MatMul(product), [lhs, rhs, ..]) => extents(product, lhs, rhs),
        (Op::FusedMatMul(fused), [lhs, rhs, ..]) => {
            let formula = if fused.formula.is_some() { ", mapped" } else { "" };
            let sums = if fused.lhs_sums.is_some() { ", bias gradient" } else { "" };
            extents(&fused.product, lhs, rhs) + formula + sums
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

fn fastest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Writes weights as a run begins with and made-up tokens. The learning rate stays 0, so that every
/// replay computes the same.
fn fill(plan: &Plan, model: &ModelConfig, device: &mut dyn Backend) -> Result<(), SessionError> {
    let mut write = |name: &str, value: &mut dyn FnMut(usize) -> f64| -> Result<(), SessionError> {
        let tensor = plan.graph.find(name)?;
        let Some((offset, bytes)) = plan.range(tensor) else { return Ok(()) };
        let dtype = plan.graph.dtype(tensor);
        let mut data = vec![0; bytes as usize];
        for (index, element) in data.chunks_exact_mut(dtype.size()).enumerate() {
            dtype.write(element, value(index));
        }
        Ok(device.write(offset, &data)?)
    };
    for parameter in parameters(model) {
        let values = initial_values(&parameter, 0);
        write(&parameter.name, &mut |index| values[index].into())?;
        let master = format!("{}.low", parameter.name);
        if plan.graph.find(&master).is_ok_and(|tensor| plan.graph.dtype(tensor) == DType::F32) {
            write(&master, &mut |index| values[index].into())?;
        }
    }
    let vocab = model.vocab;
    let mut tokens = super::ids(vocab);
    write("tokens", &mut |_| tokens().into())?;
    write("targets", &mut |_| tokens().into())?;
    write("positions", &mut |index| index as f64)?;
    Ok(())
}
