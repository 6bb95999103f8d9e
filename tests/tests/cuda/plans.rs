//! Plans of published models for a large GPU: what they take is known without one, since a device allocates what is planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use tightrope_backend_cuda::driver::Emulated;
use tightrope_backend_cuda::library::Problem;
use tightrope_backend_cuda::source::MOST_ARGUMENT_BYTES;
use tightrope_backend_cuda::{Cuda, together};
use tightrope_core::launch::{Launch, Limits};
use tightrope_core::{Graph, Node, Op, Plan, Rule};
use tightrope_nn::{BuildOptions, Free, Planned, Precision, TrainerConfig, preset};

/// Seconds of an op on a GPU that multiplies matrices at 650 TFLOP/s, attends at 250 and moves 4 TB/s: about an H200.
fn seconds(graph: &Graph, node: &Node) -> f64 {
    let (inputs, outputs) = graph.types(node);
    let cost = node.op.cost(&inputs, &outputs);
    let rate = match &node.op {
        Op::MatMul(_) | Op::FusedMatMul(_) | Op::LinearCrossEntropyGrad(_) => 650e12,
        Op::Attention(_) | Op::AttentionGrad(_) => 250e12,
        _ => 30e12,
    };
    (cost.flops as f64 / rate).max(cost.bytes as f64 / 4e12) + 2e-6
}

fn step_seconds(plan: &Plan) -> f64 {
    plan.graph.programs[0].nodes.iter().map(|node| seconds(&plan.graph, node)).sum()
}

#[test]
fn published_models_fit_and_lose_little_time() {
    const GIB: f64 = (1u64 << 30) as f64;
    // The library's workspace on an H200, which an op may need at the peak.
    const WORKSPACE: u64 = 32 << 20;
    // Of the time of a step that recomputes nothing.
    const MOST: f64 = 1.05;
    let device = Cuda::new(Box::new(Emulated::new(env!("CARGO_TARGET_TMPDIR"), 0)));
    for (name, batch, gib) in [("gpt2", 64, 14.5), ("gpt2-xl", 16, 42.0)] {
        let config = TrainerConfig {
            precision: Precision::BF16,
            batch,
            micro_batch: batch,
            build: BuildOptions { loss_chunk: 8192, ..BuildOptions::default() },
            ..TrainerConfig::new(preset(name).expect("a preset").build(1024).expect("a model"))
        };
        let within = |budget: u64| {
            let found = Planned::within(&config, budget, Free::NONE, &device, &seconds);
            found.expect("a model that can be planned").0.expect("a plan that fits").plan
        };
        let (all, less) = (within(u64::MAX), within((gib * GIB) as u64 - WORKSPACE));
        let ratio = step_seconds(&less) / step_seconds(&all);
        let bytes = |plan: &Plan| plan.peak_bytes() as f64 / GIB;
        println!(
            "{name}, {batch} sequences: {:.2} GiB with nothing recomputed, {:.2} GiB in {ratio:.3} of its time",
            bytes(&all),
            bytes(&less),
        );
        assert!(ratio <= MOST, "{name}: {ratio}");
    }
}

/// Nodes of the graph that a GPU replays of a plan's first program, by what makes them: kernels alone, or where it can, NVIDIA's library.
fn graph_nodes(plan: &Plan, limits: &Limits, library: bool) -> BTreeMap<&'static str, usize> {
    let mut found = BTreeMap::new();
    for node in &plan.graph.programs[0].nodes {
        let (inputs, outputs) = plan.graph.types(node);
        let mut launches = node.op.launch(limits, &inputs, &outputs).expect("kernels").list;
        launches.retain(|launch| !launch.identity);
        let matmul = |launch: &Launch| launch.matmul.as_ref().map(Arc::as_ptr);
        let alike = |a: &Launch, b: &Launch| matmul(a) == matmul(b);
        for part in launches.chunk_by(alike) {
            let problem = part[0].matmul.as_deref().filter(|_| library);
            let nodes = match problem.and_then(|matmul| Problem::of(matmul, false, |_| 0)) {
                Some(_) => 1,
                None => {
                    let together = together(part, MOST_ARGUMENT_BYTES).expect("kernels");
                    together.iter().map(|(all, kernel)| all.len().div_ceil(kernel.several)).sum()
                }
            };
            *found.entry(node.op.name()).or_default() += nodes;
        }
    }
    found
}

#[test]
fn a_step_of_gpt2_is_a_graph_of_few_nodes() {
    let mut device = Cuda::new(Box::new(Emulated::new(env!("CARGO_TARGET_TMPDIR"), 0)));
    device.restrict(|own| own.wgmma = Some(132));
    let config = TrainerConfig {
        precision: Precision::BF16,
        batch: 64,
        micro_batch: 64,
        build: BuildOptions { loss_chunk: 8192, ..BuildOptions::default() },
        ..TrainerConfig::new(preset("gpt2").expect("a preset").build(1024).expect("a model"))
    };
    let plan = Planned::new(&config, &device).expect("a plan").plan;
    for (library, most) in [(true, 291), (false, 291)] {
        let nodes = graph_nodes(&plan, device.limits(), library);
        let all: usize = nodes.values().sum();
        println!("{all} nodes with{} the library: {nodes:?}", if library { "" } else { "out" });
        assert!(all <= most, "{all}");
    }
}
