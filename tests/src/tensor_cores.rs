//! Cases for tensor cores by `mma.sync`: matmuls in all orders of storage, with what becomes part of them; attention; the loss.

use tightrope_core::DType;
use tightrope_core::activation::gelu_tanh;
use tightrope_core::expr::input;
use tightrope_core::ops::{
    Attention, AttentionGrad, Case, FusedMatMul, LinearCrossEntropy, LinearCrossEntropyGrad, MatMul,
};

use crate::cases;

/// Matmuls of 16-bit operands in tiles that lie across edges, in all orders of storage; in slices of K; on every large
/// tile's path.
pub fn matmuls() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in [DType::BF16, DType::F16] {
        let of = |shape: &[usize]| cases::floats(dtype, shape, -1.0, 1.0);
        for (transpose_lhs, transpose_rhs) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let (b, m, n, k) = (2, 72, 136, 104);
            let lhs = if transpose_lhs { [b, k, m] } else { [b, m, k] };
            let rhs = if transpose_rhs { [b, n, k] } else { [b, k, n] };
            let op = MatMul { batch: true, transpose_lhs, transpose_rhs, ..MatMul::new(dtype) };
            cases.push(Case::new(op, vec![of(&lhs), of(&rhs)]));
            // Rows that fill no tile, and columns that don't come in pairs where rhs may have such.
            let (m, n) = (if transpose_lhs { 8 } else { 5 }, if transpose_rhs { 33 } else { 40 });
            let lhs = if transpose_lhs { [48, m] } else { [m, 48] };
            let rhs = if transpose_rhs { [n, 48] } else { [48, n] };
            let op = MatMul { transpose_lhs, transpose_rhs, ..MatMul::new(DType::F32) };
            cases.push(Case::new(op, vec![of(&lhs), of(&rhs)]));
        }
        let accumulate =
            MatMul { transpose_lhs: true, accumulate: true, ..MatMul::new(DType::F32) };
        cases.push(Case::new(
            accumulate,
            vec![of(&[1600, 24]), of(&[1600, 40]), cases::unit(&[24, 40])],
        ));
        let bias = vec![of(&[2, 65, 64]), of(&[72, 64]), of(&[72])];
        cases.push(Case::new(MatMul::linear(true, dtype), bias));
    }
    cases.push(Case::new(
        MatMul::linear(false, DType::BF16),
        vec![
            cases::floats(DType::BF16, &[2048, 32], -1.0, 1.0),
            cases::floats(DType::BF16, &[2048, 32], -1.0, 1.0),
        ],
    ));
    cases
}

/// Matmuls that other ops became part of: in slices of K, and on the large tile's path.
pub fn fused() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in [DType::BF16, DType::F16] {
        let of = |shape: &[usize]| cases::floats(dtype, shape, -1.0, 1.0);
        for (m, n, k) in [(72, 40, 1600), (2048, 2048, 8)] {
            let (x, y) = (input(0), input(1));
            let mut inputs = vec![of(&[m, k]), of(&[n, k]), of(&[n])];
            let gelu = FusedMatMul {
                formula: Some(gelu_tanh(x.clone())),
                keeps_matmul: true,
                ..MatMul::linear(true, dtype).into()
            };
            cases.push(Case::new(gelu, inputs.clone()));
            inputs.push(of(&[m, n]));
            let sum = FusedMatMul { formula: Some(x + y), ..MatMul::linear(true, dtype).into() };
            cases.push(Case::new(sum, inputs));
        }
        for accumulate in [false, true] {
            let matmul = MatMul { transpose_lhs: true, accumulate, ..MatMul::new(DType::F32) };
            let op = FusedMatMul { lhs_sums: Some(DType::F32), ..matmul.into() };
            let mut inputs = vec![of(&[1600, 136]), of(&[1600, 72])];
            inputs.extend(accumulate.then(|| cases::unit(&[136, 72])));
            cases.push(Case::new(op, inputs));
        }
    }
    cases
}

/// Attention over one tile, and over several with a part of one at the end; heads that share keys.
pub fn attention() -> Vec<Case> {
    let mut cases = vec![];
    for (b, t, heads, kv_heads, head_dim) in
        [(2, 5, 2, 1, 16), (1, 65, 2, 2, 32), (1, 130, 4, 2, 64), (1, 193, 1, 1, 128)]
    {
        for dtype in [DType::BF16, DType::F16] {
            let op = Attention::causal(heads, kv_heads, head_dim);
            let of = |shape: &[usize]| cases::floats(dtype, shape, -1.0, 1.0);
            let (qkv, out) = ([b, t, (heads + 2 * kv_heads) * head_dim], [b, t, heads * head_dim]);
            cases.push(Case::new(op.clone(), vec![of(&qkv)]));
            let lse = cases::floats(DType::F32, &[b, heads, t], 2.0, 4.0);
            cases.push(Case::new(AttentionGrad(op), vec![of(&qkv), of(&out), lse, of(&out)]));
        }
    }
    cases
}

/// The loss of rows in several chunks, the last of them a part of one; all three matmuls. And of rows that take more threads than
/// usual to hold.
pub fn losses() -> Vec<Case> {
    let mut cases = vec![];
    for (dtype, (rows, columns, vocab, padded, chunk)) in [
        (DType::BF16, (40, 64, 250, 256, 16)),
        (DType::F16, (40, 64, 250, 256, 16)),
        (DType::BF16, (3, 16, 27_000, 27_008, 16)),
    ] {
        for accumulate in [false, true] {
            let loss = LinearCrossEntropy { vocab, chunk, cap: None };
            let of = |shape: &[usize]| cases::floats(dtype, shape, -1.0, 1.0);
            let targets = cases::whole(&[rows], -1, vocab as i64);
            let mut inputs =
                vec![of(&[rows, columns]), of(&[padded, columns]), targets, cases::unit(&[1])];
            inputs.extend(accumulate.then(|| cases::unit(&[padded, columns])));
            cases
                .push(Case::new(LinearCrossEntropyGrad { loss, accumulate, weight: true }, inputs));
        }
    }
    cases
}
