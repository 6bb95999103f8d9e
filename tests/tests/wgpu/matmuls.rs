//! Sums of matmuls on the GPU that wgpu finds: long ones that are made in slices, and those of the loss,
//! which go on from chunk to chunk.

use conformance::conformance::{Mode, run};
use conformance::values;
use pollster::block_on;
use tightrope_backend_wgpu::tiles::CANDIDATES;
use tightrope_backend_wgpu::{Options, Wgpu};
use tightrope_core::launch::Tile;
use tightrope_core::ops::{Case, Fill, LinearCrossEntropy, LinearCrossEntropyGrad, MatMul, Sample};
use tightrope_core::{Class, DType, Graph, Plan, Role, Session, Type, plan};

fn open(tile: Tile) -> Wgpu {
    let mut device =
        block_on(Wgpu::open(&Options::default())).expect("an adapter: install mesa-vulkan-drivers");
    device.restrict(|limits| limits.tile = tile);
    device
}

fn float(dtype: DType, shape: &[usize]) -> Sample {
    Sample { ty: Type::new(dtype, shape), fill: Fill::Uniform(-1.0, 1.0) }
}

#[test]
fn long_sums_match_the_references_with_every_tile() {
    let (m, n, k) = (7, 10, 1300);
    let mut cases = vec![];
    for dtype in [DType::F32, DType::BF16] {
        let (lhs, rhs) = (float(dtype, &[k, m]), float(dtype, &[k, n]));
        let op = MatMul { transpose_lhs: true, ..MatMul::new(dtype) };
        cases.push(Case::new(op.clone(), vec![lhs.clone(), rhs.clone()]));
        let op = MatMul { bias: true, accumulate: true, ..op };
        cases.push(Case::new(op, vec![lhs, rhs, float(dtype, &[n]), float(dtype, &[m, n])]));
        let op = MatMul { batch: true, transpose_rhs: true, ..MatMul::new(DType::F32) };
        cases.push(Case::new(op, vec![float(dtype, &[3, m, k]), float(dtype, &[3, n, k])]));
        cases.push(Case::new(
            MatMul::linear(true, dtype),
            vec![float(dtype, &[2, k]), float(dtype, &[n, k]), float(dtype, &[n])],
        ));
    }
    for &tile in CANDIDATES {
        let report = block_on(run(&mut open(tile), &cases, Mode::Check));
        let problems = report.problems("");
        assert!(problems.is_empty(), "{tile:?}:\n{}", problems.join("\n"));
    }
}

/// Bits of the loss and its gradients.
fn gradients(device: Wgpu, chunk: usize) -> Vec<Vec<u32>> {
    let (rows, columns, vocab, padded) = (23, 12, 61, 64);
    let loss = LinearCrossEntropy { vocab, chunk, cap: None };
    let targets = Type::new(DType::I32, [rows]);
    let inputs = vec![
        float(DType::F32, &[rows, columns]),
        float(DType::F32, &[padded, columns]),
        Sample { ty: targets, fill: Fill::Whole(-1, vocab as i64) },
        float(DType::F32, &[1]),
    ];
    let op = LinearCrossEntropyGrad { loss, weight: true, accumulate: false };
    let case = Case::new(op, inputs);
    let mut graph = Graph::new();
    let tensors: Vec<_> = (case.inputs.iter().enumerate())
        .map(|(i, sample)| graph.persistent(&format!("in{i}"), sample.ty.clone(), Class::Input))
        .collect();
    graph.begin(Role::Main);
    let outputs = graph.push(case.op.clone(), &tensors, "loss").expect("types fit");
    outputs.iter().for_each(|&output| graph.result(output));
    let plan = Plan::new(graph, &plan::Options::default(), &device).expect("a plan");
    let mut session = Session::new(plan, Box::new(device)).expect("a device");
    for (&tensor, bytes) in tensors.iter().zip(values::inputs(&case)) {
        session.write(tensor, &bytes).expect("the input's length");
    }
    session.run(Role::Main).expect("a run");
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    outputs.iter().map(|&o| bits(block_on(session.read_values(o)).expect("values"))).collect()
}

#[test]
fn chunks_of_the_loss_change_no_bit() {
    for &tile in CANDIDATES {
        let whole = gradients(open(tile), 23);
        for chunk in [1, 4, 10, 16] {
            assert!(gradients(open(tile), chunk) == whole, "{tile:?}, chunks of {chunk}");
        }
    }
}
