//! What is tried: the cases of every family in core, the same in f16, and shapes that core's lists lack.

pub use tightrope_core::conformance::dtypes;
use tightrope_core::expr::{Term, Unary, constant, input};
use tightrope_core::ops::{
    Attention, Case, Codebook, Concat, Dequantize, Embedding, Fill, LayerNorm, LinearCrossEntropy,
    Map, MatMul, Permute, Quantize, Reduce, RmsNorm, Rope, Sample, Slice, SliceGrad, Softmax,
};
use tightrope_core::{DType, Expr, Op, Rule, Type};

/// Every case: core's, [`more`], and a twin in f16 of each that stores bf16.
pub fn all() -> Vec<Case> {
    let mut cases = Op::all_cases();
    cases.extend(more());
    let to_half = |dtype| if dtype == DType::BF16 { DType::F16 } else { dtype };
    let twins: Vec<Case> = cases
        .iter()
        .filter(|case| dtypes(case).contains(&DType::BF16) && !splits_bits(&case.op))
        .map(|case| retyped(case, &to_half))
        .collect();
    cases.extend(twins);
    distinct(cases)
}

/// `cases` without repetitions, in the order of the first of each.
pub fn distinct(cases: Vec<Case>) -> Vec<Case> {
    let same = |a: &Case, b: &Case| {
        let alike = |(x, y): (&Sample, &Sample)| x.ty == y.ty && x.fill == y.fill;
        a.op == b.op
            && a.inputs.len() == b.inputs.len()
            && a.inputs.iter().zip(&b.inputs).all(alike)
    };
    let mut kept: Vec<Case> = Vec::with_capacity(cases.len());
    for case in cases {
        if !kept.iter().any(|before| same(before, &case)) {
            kept.push(case);
        }
    }
    kept
}

/// A case with every dtype, of its inputs and in its op's attributes, replaced by `with(dtype)`.
pub fn retyped(case: &Case, with: &dyn Fn(DType) -> DType) -> Case {
    let inputs = case
        .inputs
        .iter()
        .map(|entry| Sample { ty: entry.ty.with_dtype(with(entry.ty.dtype)), fill: entry.fill });
    Case::new(retyped_op(&case.op, with), inputs.collect())
}

/// An op with every dtype in its attributes replaced by `with(dtype)`.
pub fn retyped_op(op: &Op, with: &dyn Fn(DType) -> DType) -> Op {
    let mut op = op.clone();
    op.retype(with);
    op
}

/// `op` with every float in its attributes stored as f64.
pub fn in_f64(op: &Op) -> Op {
    retyped_op(op, &widened)
}

/// f64 for floats, the dtype itself for the rest.
pub fn widened(dtype: DType) -> DType {
    if dtype.is_float() { DType::F64 } else { dtype }
}

/// Whether a formula of `op` takes an f32's bits apart or joins them: defined for bf16 alone, and a step
/// function of its inputs.
pub fn splits_bits(op: &Op) -> bool {
    use tightrope_core::expr::Binary::{JoinHalves, StochasticHalf};
    fn found(formula: &Expr) -> bool {
        match formula.term() {
            Term::Const(_) | Term::Input(_) | Term::Random(_) => false,
            Term::Unary(Unary::HighHalf | Unary::LowHalf, _)
            | Term::Binary(JoinHalves | StochasticHalf, ..) => true,
            Term::Unary(_, a) => found(a),
            Term::Binary(_, a, b) => found(a) || found(b),
            Term::Select(c, a, b) => found(c) || found(a) || found(b),
        }
    }
    matches!(op, Op::Map(map) if map.formulas.iter().any(found))
}

/// A float input uniform in [low, high).
pub fn floats(dtype: DType, shape: &[usize], low: f64, high: f64) -> Sample {
    Sample { ty: Type::new(dtype, shape), fill: Fill::Uniform(low, high) }
}

/// An f32 input uniform in [−1, 1).
pub fn unit(shape: &[usize]) -> Sample {
    floats(DType::F32, shape, -1.0, 1.0)
}

/// An i32 input of whole numbers in [low, high).
pub fn whole(shape: &[usize], low: i64, high: i64) -> Sample {
    Sample { ty: Type::new(DType::I32, shape), fill: Fill::Whole(low, high) }
}

/// One row more than a GPU dispatches workgroups along one axis.
pub const MANY_ROWS: usize = 65_537;

/// Shapes that core's lists lack: more axes, extents of 1 inside, oblong stacks of matrices, more rows than
/// workgroups in one dispatch axis, every function of `Expr`.
pub fn more() -> Vec<Case> {
    let mut cases = maps();
    cases.extend(matmuls());
    cases.extend(rows());
    cases.extend(moves());
    cases
}

fn maps() -> Vec<Case> {
    use DType::{BF16, F32};
    let (x, y, z) = (input(0), input(1), input(2));
    let smooth = [Unary::Neg, Unary::Exp, Unary::Sin, Unary::Cos, Unary::Erf, Unary::Tanh];
    let mut cases: Vec<Case> = smooth
        .map(|function| Case::new(Map::new(x.clone().unary(function), F32), vec![unit(&[2, 53])]))
        .into();
    // Steps and kinks, fed with numbers on both sides of them.
    let kinked = [Unary::Abs, Unary::Sign, Unary::Floor, Unary::IsFinite];
    cases.extend(kinked.map(|function| {
        let formula = x.clone().unary(function) * y.clone();
        Case::new(Map::new(formula, F32), vec![floats(F32, &[3, 41], -4.0, 4.0), unit(&[3, 41])])
    }));
    let clipped = x.clone().min(constant(0.5)).max(-y.clone());
    cases.extend([
        Case::new(Map::new(clipped, F32), vec![unit(&[7, 13]), unit(&[13])]),
        // A scalar repeated, a row repeated, a stack of rows repeated.
        Case::new(
            Map::new(x.clone() * y.clone() + z.clone(), F32),
            vec![unit(&[1]), unit(&[2, 1, 5]), unit(&[1, 5])],
        ),
        Case::new(
            Map::new(x.clone().pow(y.clone()) / z.clone(), BF16),
            vec![
                floats(BF16, &[3, 2, 11], 0.5, 2.0),
                floats(F32, &[11], -2.0, 2.0),
                floats(BF16, &[2, 11], 0.5, 2.0),
            ],
        ),
        // Both uses of one input, and a select whose branches differ.
        Case::new(
            Map::new(x.clone().less(y.clone()).select(x.clone() * y.clone(), x - y), F32),
            vec![unit(&[31]), unit(&[31])],
        ),
        Case::new(
            Map { shape: Some(vec![4, 3, 7]), ..Map::new(input(0) * constant(3.0), F32) },
            vec![unit(&[7])],
        ),
    ]);
    cases
}

fn matmuls() -> Vec<Case> {
    let (b, m, n, k) = (3, 5, 7, 11);
    let mut cases = vec![];
    for (transpose_lhs, transpose_rhs) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let lhs = if transpose_lhs { [b, k, m] } else { [b, m, k] };
        let rhs = if transpose_rhs { [b, n, k] } else { [b, k, n] };
        let op = MatMul { batch: true, transpose_lhs, transpose_rhs, ..MatMul::new(DType::F32) };
        cases.push(Case::new(op, vec![unit(&lhs), unit(&rhs)]));
    }
    let with_bias = MatMul { batch: true, bias: true, ..MatMul::new(DType::F32) };
    cases.push(Case::new(
        with_bias,
        vec![unit(&[2, 1, 4, 6]), unit(&[2, 1, 6, 3]), floats(DType::F32, &[3], 1.0, 2.0)],
    ));
    // A linear layer over sequences in 16 bits, as models use it; and the matmul of its weight's gradient.
    let bf16 = |shape: &[usize]| floats(DType::BF16, shape, -1.0, 1.0);
    cases.push(Case::new(
        MatMul::linear(true, DType::BF16),
        vec![bf16(&[2, 19, 40]), bf16(&[24, 40]), bf16(&[24])],
    ));
    cases.push(Case::new(
        MatMul { transpose_lhs: true, accumulate: true, ..MatMul::new(DType::F32) },
        vec![bf16(&[2, 19, 24]), bf16(&[2, 19, 40]), unit(&[24, 40])],
    ));
    cases
}

fn rows() -> Vec<Case> {
    let f32 = DType::F32;
    let ids = |shape: &[usize], rows| whole(shape, 0, rows);
    vec![
        Case::new(LayerNorm { eps: 1e-5 }, vec![unit(&[2, 1, 13]), unit(&[13]), unit(&[13])]),
        Case::new(LayerNorm { eps: 1e-5 }, vec![unit(&[MANY_ROWS, 3]), unit(&[3]), unit(&[3])]),
        Case::new(RmsNorm { eps: 1e-6 }, vec![unit(&[2, 1, 13]), unit(&[13])]),
        Case::new(RmsNorm { eps: 1e-6 }, vec![unit(&[MANY_ROWS, 3]), unit(&[3])]),
        Case::new(Softmax, vec![floats(f32, &[11], -3.0, 3.0)]),
        Case::new(Softmax, vec![floats(f32, &[2, 1, 3, 7], -3.0, 3.0)]),
        Case::new(Softmax, vec![floats(f32, &[MANY_ROWS, 2], -3.0, 3.0)]),
        Case::new(Reduce { scale: -2.0, ..Reduce::last(f32) }, vec![unit(&[2, 1, 3, 5])]),
        Case::new(Reduce::last(f32), vec![unit(&[MANY_ROWS, 2])]),
        Case::new(Reduce::last(f32), vec![unit(&[37])]),
        Case::new(Reduce::to_suffix(vec![1], f32), vec![unit(&[5, 3])]),
        Case::new(Reduce::to_suffix(vec![2], f32), vec![unit(&[MANY_ROWS, 2])]),
        Case::new(Embedding, vec![unit(&[13, 5]), ids(&[2, 1, 3], 13)]),
        Case::new(Embedding, vec![unit(&[3, 2]), ids(&[MANY_ROWS], 3)]),
        // Every head turns, far from the start of a long context.
        Case::new(Rope::new(3, 6, 5e5), vec![unit(&[2, 5, 18]), whole(&[1], 4000, 4001)]),
        Case::new(Attention::causal(5, 1, 3), vec![unit(&[3, 7, 21])]),
        // About half of the rows ignored; a padded vocabulary.
        Case::new(
            LinearCrossEntropy { vocab: 13, chunk: 3, cap: None },
            vec![unit(&[2, 4, 3]), unit(&[16, 3]), whole(&[2, 4], -1, 1)],
        ),
    ]
}

fn moves() -> Vec<Case> {
    let swapped = Permute { axes: vec![1, 0, 3, 2] };
    vec![
        Case::new(Permute { axes: vec![0, 1] }, vec![unit(&[1, 1])]),
        Case::new(swapped, vec![unit(&[1, 3, 1, 17])]),
        Case::new(Slice { axis: 2, start: 1, len: 2 }, vec![unit(&[1, 3, 4, 5])]),
        Case::new(SliceGrad { axis: 2, start: 1, extent: 7 }, vec![unit(&[1, 3, 4, 5])]),
        Case::new(
            Quantize { block: 7, codebook: Codebook::Signed, update: false },
            vec![unit(&[3, 1, 11])],
        ),
        Case::new(
            Dequantize { block: 7, codebook: Codebook::Linear, dtype: DType::F32 },
            vec![
                Sample { ty: Type::new(DType::I8, [3, 1, 11]), fill: Fill::Whole(-127, 128) },
                unit(&[5]),
            ],
        ),
        Case::new(Concat { axis: 2 }, vec![unit(&[2, 1, 3]), unit(&[2, 1, 1]), unit(&[2, 1, 7])]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tolerance;

    #[test]
    fn every_exception_is_needed_by_a_case() {
        assert_eq!(tolerance::unused(all().iter()), [] as [&str; 0]);
    }
}
