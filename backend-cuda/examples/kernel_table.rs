//! Compiles every kernel that the core's cases launch, and those of models' shapes, with NVRTC, and prints what the compiler says of each entry:
//! the most registers, shared memory and spilled bytes of its variants. Needs no GPU.
//!
//!     cargo run -p tightrope-backend-cuda --example kernel_table -- sm_80 sm_86 sm_89 sm_90a > backend-cuda/kernels.tsv

use std::collections::{BTreeMap, HashSet};

use tightrope_backend_cuda::driver::nvrtc::Nvrtc;
use tightrope_backend_cuda::limits;
use tightrope_backend_cuda::source::Kernel;
use tightrope_core::launch::Launch;
use tightrope_core::ops::{Attention, AttentionGrad, Case, Fill, MatMul, Sample};
use tightrope_core::{DType, Op, Rule, Type};

fn launches(case: &Case) -> Vec<Launch> {
    let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let Ok(outputs) = case.op.infer(&inputs) else { return vec![] };
    let outputs: Vec<&Type> = outputs.iter().collect();
    case.op.launch(&limits(), &inputs, &outputs).map_or(vec![], |launches| launches.list)
}

/// Shapes of models, which have larger tiles and heads than cases do.
fn models() -> Vec<Case> {
    let of = |shape: &[usize]| Sample {
        ty: Type::new(DType::BF16, shape),
        fill: Fill::Uniform(-1.0, 1.0),
    };
    let mut cases = vec![];
    for (transpose_lhs, transpose_rhs) in [(false, false), (false, true), (true, false)] {
        for edge in [1024, 4096] {
            let op = MatMul { transpose_lhs, transpose_rhs, ..MatMul::new(DType::BF16) };
            cases.push(Case::new(op, vec![of(&[edge, edge]), of(&[edge, edge])]));
        }
    }
    for head_dim in [64, 128] {
        let op = Attention { heads: 4, kv_heads: 4, head_dim, chunk: 0 };
        let out = [1, 256, 4 * head_dim];
        let (qkv, lse) = ([1, 256, 12 * head_dim], Type::new(DType::F32, [1, 4, 256]));
        cases.push(Case::new(op.clone(), vec![of(&qkv)]));
        let lse = Sample { ty: lse, fill: Fill::Uniform(2.0, 4.0) };
        cases.push(Case::new(AttentionGrad(op), vec![of(&qkv), of(&out), lse, of(&out)]));
    }
    cases
}

/// Largest figures of an entry's variants.
#[derive(Default)]
struct Row {
    variants: usize,
    threads: u32,
    registers: u64,
    shared: u64,
    stack: u64,
    spilled: u64,
}

/// The number before `unit` in the compiler's words, the largest where there are several.
fn before(log: &str, unit: &str) -> u64 {
    let numbers = log.match_indices(unit).filter_map(|(at, _)| {
        let digits: String = log[..at].chars().rev().take_while(char::is_ascii_digit).collect();
        digits.chars().rev().collect::<String>().parse::<u64>().ok()
    });
    numbers.max().unwrap_or(0)
}

fn main() -> Result<(), String> {
    let nvrtc = Nvrtc::open()?;
    let (major, minor) = nvrtc.version();
    println!("# NVRTC {major}.{minor}; the largest of each entry's variants");
    println!(
        "architecture\tkernel\tvariants\tthreads\tregisters\tshared bytes\tstack bytes\tspilled bytes"
    );
    let mut kernels = vec![];
    let mut seen = HashSet::new();
    for launch in Op::all_cases().iter().chain(&models()).flat_map(launches) {
        let kernel = Kernel::of(&launch)?;
        if seen.insert(kernel.clone()) {
            kernels.push(kernel);
        }
    }
    for architecture in std::env::args().skip(1) {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for kernel in &kernels {
            let compiled = nvrtc
                .compile(&kernel.for_device(), &architecture)
                .map_err(|log| format!("{} for {architecture}: {log}", kernel.label))?;
            let row = rows.entry(&kernel.label).or_default();
            row.variants += 1;
            row.threads = row.threads.max(kernel.threads);
            row.registers = row.registers.max(before(&compiled.log, " registers"));
            row.shared = row.shared.max(before(&compiled.log, " bytes smem"));
            row.stack = row.stack.max(before(&compiled.log, " bytes stack frame"));
            row.spilled = row.spilled.max(before(&compiled.log, " bytes spill stores"));
        }
        for (label, row) in rows {
            println!(
                "{architecture}\t{label}\t{}\t{}\t{}\t{}\t{}\t{}",
                row.variants, row.threads, row.registers, row.shared, row.stack, row.spilled
            );
        }
    }
    Ok(())
}
