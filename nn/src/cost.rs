//! Estimated time of a plan: each op takes the longer of its arithmetic and its traffic, at default rates.
//!
//! The rates are of one kind of machine and rounded, so the estimate ranks plans and tells seconds from
//! minutes; `tightrope bench` measures.

use tightrope_core::{DType, Graph, Node, Op, Phase, Plan, Rule as _};

/// What one thread reaches, FLOP/s and B/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Matrix products, f32.
    matmul: f64,
    /// Matrix products of 16-bit numbers.
    matmul_16: f64,
    /// Attention, whose products are small.
    attention: f64,
    /// Formulas, norms and sums.
    elementwise: f64,
    /// Memory.
    bytes: f64,
    /// These are the rates of a whole device, whatever threads the processor has.
    whole: bool,
}

/// Threads that a socket's memory keeps busy.
const MEMORY_THREADS: usize = 6;
/// Seconds to begin an op on all threads.
const DISPATCH: f64 = 4e-6;

impl Rates {
    /// Default rates of a device by its name, which for a CPU says how wide its vectors are.
    pub fn of(device: &str) -> Self {
        let [matmul, matmul_16, attention, elementwise, bytes] = if device.starts_with("wgpu") {
            // A small GPU: what a page may meet.
            [600e9, 600e9, 200e9, 60e9, 60e9]
        } else if device.contains("avx512") {
            [90e9, 180e9, 45e9, 8e9, 10e9]
        } else if device.contains("avx2") {
            [55e9, 45e9, 25e9, 5e9, 8e9]
        } else {
            [6e9, 4e9, 4e9, 1e9, 6e9]
        };
        let whole = device.starts_with("wgpu");
        Self { matmul, matmul_16, attention, elementwise, bytes, whole }
    }

    /// Seconds of one op on `threads` threads.
    pub fn seconds(&self, graph: &Graph, node: &Node, threads: usize) -> f64 {
        let types = |tensors: &[tightrope_core::Tensor]| -> Vec<_> {
            tensors.iter().map(|&tensor| graph.ty(tensor)).collect()
        };
        let cost = node.op.cost(&types(&node.inputs), &types(&node.outputs));
        let narrow =
            node.inputs.iter().any(|&t| matches!(graph.dtype(t), DType::BF16 | DType::F16));
        let rate = match node.op {
            Op::MatMul(_) | Op::LinearCrossEntropy(_) | Op::LinearCrossEntropyGrad(_) => {
                if narrow {
                    self.matmul_16
                } else {
                    self.matmul
                }
            }
            Op::Attention(_) | Op::AttentionGrad(_) | Op::CachedAttention(_) => self.attention,
            _ => self.elementwise,
        };
        let threads = if self.whole { 1 } else { threads };
        let arithmetic = cost.flops as f64 / (rate * threads as f64);
        let traffic = cost.bytes as f64 / (self.bytes * threads.min(MEMORY_THREADS) as f64);
        arithmetic.max(traffic) + DISPATCH
    }
}

/// Time of one optimizer step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Seconds in all.
    pub step_s: f64,
    /// Seconds spent on computing activations again.
    pub recompute_s: f64,
    /// Floating-point operations, those of recomputation included.
    pub flops: f64,
}

impl Estimate {
    /// Of `plan`, whose `micro` program runs `accumulation` times a step.
    pub fn new(plan: &Plan, accumulation: usize, rates: &Rates, threads: usize) -> Self {
        let mut estimate = Self::default();
        for (program, planned) in plan.graph.programs.iter().zip(&plan.programs) {
            let times = match program.name.as_str() {
                "train" | "update" => 1.0,
                "micro" => accumulation as f64,
                _ => continue,
            };
            for node in &program.nodes {
                let seconds = times * rates.seconds(&plan.graph, node, threads);
                estimate.step_s += seconds;
                if node.phase == Phase::Recompute {
                    estimate.recompute_s += seconds;
                }
            }
            estimate.flops += times * planned.cost.flops as f64;
        }
        estimate
    }

    /// Part of the time that recomputation takes.
    pub fn recomputed(&self) -> f64 {
        if self.step_s > 0.0 { self.recompute_s / self.step_s } else { 0.0 }
    }
}
