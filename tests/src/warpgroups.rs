//! Cases for Hopper's tensor cores, which groups of four warps use (`wgmma`).

use tightrope_core::DType;
use tightrope_core::activation::gelu_tanh;
use tightrope_core::expr::input;
use tightrope_core::ops::{Case, FusedMatMul, LinearCrossEntropy, LinearCrossEntropyGrad, MatMul};

use crate::cases;

/// A small matmul in each order of storage.
pub fn orders() -> Vec<Case> {
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let orders = [(false, false), (false, true), (true, false), (true, true)];
    let case = |(transpose_lhs, transpose_rhs)| {
        let (m, n, k) = (72, 136, 104);
        let lhs = if transpose_lhs { [k, m] } else { [m, k] };
        let rhs = if transpose_rhs { [n, k] } else { [k, n] };
        let op = MatMul { transpose_lhs, transpose_rhs, ..MatMul::new(DType::F32) };
        Case::new(op, vec![of(&lhs), of(&rhs)])
    };
    orders.map(case).into()
}

/// Matmuls in all orders of storage, in tiles that lie across every edge, narrow and wide; with what is added to them.
pub fn matmuls() -> Vec<Case> {
    let mut cases = vec![];
    for (dtype, out) in [(DType::BF16, DType::F32), (DType::F16, DType::F16)] {
        let of = |shape: &[usize]| cases::floats(dtype, shape, -1.0, 1.0);
        for (transpose_lhs, transpose_rhs) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            for (b, m, n, k) in [(3, 136, 200, 104), (1, 72, 264, 200)] {
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
        // Tiles of which one group of warps is ahead, and boxes that lie across every edge.
        let long = vec![of(&[2, 136, 584]), of(&[264, 584]), of(&[264])];
        cases.push(Case::new(MatMul::linear(true, dtype), long));
        let op = MatMul { transpose_lhs: true, accumulate: true, ..MatMul::new(DType::F32) };
        let mut inputs = vec![of(&[88, 72]), of(&[88, 72]), cases::unit(&[72, 72])];
        cases.push(Case::new(op.clone(), inputs.clone()));
        cases.push(Case::new(with_sums(op), inputs));
        // Of several tiles down and across, the first across sum their rows.
        let op = MatMul { transpose_lhs: true, ..MatMul::new(out) };
        cases.push(Case::new(with_sums(op), vec![of(&[200, 136]), of(&[200, 264])]));
        let (x, y) = (input(0), input(1));
        inputs = vec![of(&[130, 72]), of(&[136, 72]), of(&[136])];
        let gelu = FusedMatMul {
            formula: Some(gelu_tanh(x.clone())),
            keeps_matmul: true,
            ..MatMul::linear(true, dtype).into()
        };
        cases.push(Case::new(gelu, inputs.clone()));
        inputs.push(of(&[130, 136]));
        let residual = FusedMatMul { formula: Some(x + y), ..MatMul::linear(true, dtype).into() };
        cases.push(Case::new(residual, inputs));
    }
    cases
}

/// A matmul with the sums of its left factor, of a bias' gradient.
pub fn with_sums(matmul: MatMul) -> FusedMatMul {
    FusedMatMul { lhs_sums: Some(DType::F32), ..matmul.into() }
}

/// Matmuls of long sums and few tiles.
pub fn sliced() -> Vec<Case> {
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let sum = MatMul { transpose_lhs: true, accumulate: true, ..MatMul::new(DType::F32) };
    let inputs = vec![of(&[2000, 72]), of(&[2000, 136]), cases::unit(&[72, 136])];
    let bias = vec![of(&[2, 40, 1800]), of(&[136, 1800]), of(&[136])];
    vec![
        Case::new(sum.clone(), inputs.clone()),
        Case::new(with_sums(sum), inputs),
        Case::new(MatMul::linear(true, DType::BF16), bias),
    ]
}

/// The loss of rows in several chunks, the last of them a part of one: matmuls whose sums go on from others.
pub fn losses() -> Vec<Case> {
    let (rows, columns, vocab, padded, chunk) = (40, 128, 250, 256, 16);
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let op = LinearCrossEntropyGrad {
        loss: LinearCrossEntropy { vocab, chunk, cap: None },
        accumulate: false,
        weight: true,
    };
    let targets = cases::whole(&[rows], -1, vocab as i64);
    let inputs = vec![of(&[rows, columns]), of(&[padded, columns]), targets, cases::unit(&[1])];
    vec![Case::new(op, inputs)]
}
