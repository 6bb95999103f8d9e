//! Products on Hopper's tensor cores, emulated on the processor: against the reference; and what such a kernel may not do is
//! found and named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use conformance::conformance::{Mode, block_on, run, unsupported};
use conformance::tolerance::{self, Deviation};
use conformance::{cases, reference, values};
use tightrope_backend_cuda::driver::{Dispatch, Driver, Emulated, Task};
use tightrope_backend_cuda::source::{self, Kernel};
use tightrope_backend_cuda::{Cuda, limits};
use tightrope_core::launch::{Launch, Limits, Place, Source};
use tightrope_core::ops::{Case, LinearCrossEntropy, LinearCrossEntropyGrad, MatMul};
use tightrope_core::{DType, Rule, Type};

fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated")
}

/// Limits of a GPU with so many multiprocessors.
fn hopper(multiprocessors: u32) -> Limits {
    Limits { wgmma: Some(multiprocessors), ..limits() }
}

fn launches(case: &Case, limits: &Limits) -> Vec<Launch> {
    let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let outputs = case.op.infer(&inputs).expect("a valid case");
    let outputs: Vec<&Type> = outputs.iter().collect();
    case.op.launch(limits, &inputs, &outputs).expect("kernels").list
}

/// Products in all orders of storage, in tiles that lie across every edge, narrow and wide; with what is added to them.
fn product_cases() -> Vec<Case> {
    let mut cases = vec![];
    for (dtype, out) in [(DType::BF16, DType::F32), (DType::F16, DType::F16)] {
        let of = |shape: &[usize]| cases::floats(dtype, shape, -1.0, 1.0);
        for (transpose_lhs, transpose_rhs) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            for (b, m, n, k) in [(2, 136, 200, 104), (1, 72, 264, 200)] {
                let lhs = if transpose_lhs { [b, k, m] } else { [b, m, k] };
                let rhs = if transpose_rhs { [b, n, k] } else { [b, k, n] };
                let op = MatMul { batch: true, transpose_lhs, transpose_rhs, ..MatMul::new(out) };
                cases.push(Case::new(op, vec![of(&lhs), of(&rhs)]));
            }
        }
        // Rows that fill no tile, and columns that don't come in pairs.
        let odd = MatMul { transpose_rhs: true, ..MatMul::new(DType::F32) };
        cases.push(Case::new(odd, vec![of(&[129, 64]), of(&[131, 64])]));
        let bias = vec![of(&[2, 65, 64]), of(&[136, 64]), of(&[136])];
        cases.push(Case::new(MatMul::linear(true, dtype), bias));
        let op = MatMul { transpose_lhs: true, accumulate: true, ..MatMul::new(DType::F32) };
        cases.push(Case::new(op, vec![of(&[88, 72]), of(&[88, 72]), cases::unit(&[72, 72])]));
    }
    cases
}

/// Products of long sums and few tiles.
fn sliced_cases() -> Vec<Case> {
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let sum = MatMul { transpose_lhs: true, accumulate: true, ..MatMul::new(DType::F32) };
    let inputs = vec![of(&[2000, 72]), of(&[2000, 136]), cases::unit(&[72, 136])];
    let bias = vec![of(&[2, 40, 1800]), of(&[136, 1800]), of(&[136])];
    vec![Case::new(sum, inputs), Case::new(MatMul::linear(true, DType::BF16), bias)]
}

/// The loss of rows in several chunks, the last of them a part of one: products whose sums go on from others.
fn loss_cases() -> Vec<Case> {
    let (rows, columns, vocab, padded, chunk) = (40, 128, 250, 256, 16);
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let op = LinearCrossEntropyGrad {
        loss: LinearCrossEntropy { vocab, chunk },
        accumulate: false,
        weight: true,
    };
    let targets = cases::whole(&[rows], -1, vocab as i64);
    let inputs = vec![of(&[rows, columns]), of(&[padded, columns]), targets, cases::unit(&[1])];
    vec![Case::new(op, inputs)]
}

/// Runs cases on a device with so many multiprocessors; what they launched.
fn check(cases: &[Case], multiprocessors: u32) -> Vec<Launch> {
    let mut backend = Cuda::new(Box::new(Emulated::new(cache(), 3 + multiprocessors)));
    backend.restrict(|limits| limits.wgmma = Some(multiprocessors));
    let by_groups = |launch: &Launch| launch.kernel == "matmul_wgmma";
    let all: Vec<Vec<Launch>> = cases.iter().map(|case| launches(case, backend.limits())).collect();
    assert!(all.iter().all(|launches| launches.iter().any(by_groups)));
    let all = all.concat();
    backend.compile(&all).expect("kernels");
    let report = block_on(run(&mut backend, cases, Mode::Check));
    println!("{report}");
    let problems = report.problems(&unsupported("cuda").expect("a readable list"));
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
    all
}

fn constant(launch: &Launch, name: &str) -> u32 {
    let found = launch.constants.iter().find(|(other, _)| *other == name);
    found.expect("a constant").1
}

#[test]
fn products_by_groups_of_warps_match_the_references_emulated() {
    let launched = check(&[product_cases(), loss_cases()].concat(), 1);
    let widths: BTreeSet<u32> = launched
        .iter()
        .filter(|launch| launch.most_groups.is_some())
        .map(|launch| constant(launch, "TILE_N"))
        .collect();
    assert_eq!(widths, BTreeSet::from([128, 256]));
    // One block makes them all, and every stage is filled several times.
    let tiles = launched.iter().map(|launch| launch.groups.end).max();
    assert!(tiles >= Some(8), "only {tiles:?} tiles");
    let sliced = check(&sliced_cases(), 8);
    assert_eq!(sliced.iter().filter(|launch| launch.entry == "add_slices").count(), 2);
}
