//! Ops of the families that a block's training step hasn't, or has in few shapes, each on its own at several sizes.

use tightrope_core::ops::{
    Attention, CachedAttention, Channels, Codebook, Concat, CrossEntropy, CrossEntropyGrad,
    Dequantize, DequantizeNf4, Expand, LinearCrossEntropy, LinearDistillation,
    LinearDistillationGrad, NF4_BLOCK, Permute, Quantize, Reshape, RmsNorm, RmsNormGrad, Rope,
    Slice, SliceGrad, Softmax, SoftmaxGrad, Unfold, UnfoldGrad,
};
use tightrope_core::{Class, DType, Graph, Op, Result, Role, Type};

/// Rows and columns of the tensors that ops are measured on.
const SIZES: [[usize; 2]; 6] = [[2, 8], [16, 64], [128, 32], [30, 1000], [500, 100], [256, 512]];

/// Channels of heads, besides a single head of all columns.
const HEADS: [usize; 3] = [2, 8, 32];

/// Elements in a block of quantized ones.
const BLOCK: usize = 256;

/// A program of all of them, on tensors of `dtype` that hold zeros.
pub(super) fn graph(dtype: DType) -> Result<Graph> {
    let mut graph = Graph::new();
    graph.begin(Role::Main);
    let all = SIZES.into_iter().flat_map(|size| [ops(dtype, size), of_heads(dtype, size)].concat());
    for (index, (op, inputs)) in all.enumerate() {
        let input = |(at, ty): (usize, Type)| {
            graph.persistent(&format!("input.{index}.{at}"), ty, Class::Input)
        };
        let inputs: Vec<_> = inputs.into_iter().enumerate().map(input).collect();
        let outputs = graph.push(op, &inputs, &format!("output.{index}"))?;
        outputs.iter().for_each(|&output| graph.result(output));
    }
    Ok(graph)
}

/// Ops and the types of their inputs.
fn ops(dtype: DType, [rows, columns]: [usize; 2]) -> Vec<(Op, Vec<Type>)> {
    let of = |shape: &[usize]| Type::new(dtype, shape.to_vec());
    let number = || Type::new(DType::F32, [1]);
    let labels = || Type::new(DType::I32, [rows]);
    let x = || of(&[rows, columns]);
    let elements = rows * columns;
    let blocks = |block: usize| Type::new(DType::F32, [elements.div_ceil(block)]);
    let codes = |dtype: DType, count: usize| Type::new(dtype, [count]);
    let loss = LinearCrossEntropy { vocab: columns, chunk: rows, cap: None };
    let taught = LinearDistillation {
        student: loss.clone(),
        taught: columns,
        teacher_cap: None,
        temperature: 2.0,
        share: 0.5,
    };
    let logits = || [of(&[rows, 32]), of(&[columns, 32]), labels()].to_vec();
    let with_teacher = || [logits(), vec![of(&[rows, 16]), of(&[columns, 16])]].concat();
    let heads = Attention::causal(2, 2, columns.min(128));
    let cache = || of(&[1, rows, 2 * heads.head_dim]);
    let position = Type::new(DType::I32, [1]);
    let unfold = Unfold {
        channels: Channels::Last,
        kernel: [3, 3],
        stride: [2, 2],
        padding: [1, 1],
        dilation: [1, 1],
    };
    let side = (rows / 4).clamp(4, 64);
    let channels = columns.min(32);
    let patches = of(&[1, side.div_ceil(2), side.div_ceil(2), 9 * channels]);
    let codebook = Codebook::Linear;
    vec![
        (Softmax.into(), vec![x()]),
        (SoftmaxGrad.into(), vec![x(), x()]),
        (CrossEntropy.into(), vec![x(), labels()]),
        (CrossEntropyGrad.into(), vec![x(), labels(), number()]),
        (loss.into(), logits()),
        (taught.clone().into(), with_teacher()),
        (
            LinearDistillationGrad { loss: taught, weight: true, accumulate: false }.into(),
            [with_teacher(), vec![number()]].concat(),
        ),
        (
            CachedAttention(heads.clone()).into(),
            vec![of(&[1, 1, 6 * heads.head_dim]), cache(), cache(), position],
        ),
        (Permute { axes: vec![1, 0] }.into(), vec![x()]),
        (Permute { axes: vec![1, 0, 2] }.into(), vec![of(&[rows, 4, columns.div_ceil(4)])]),
        (Reshape { shape: vec![columns, rows] }.into(), vec![x()]),
        (Expand { axis: 0, extent: rows }.into(), vec![of(&[columns])]),
        (Slice { axis: 1, start: 1, len: columns / 2 }.into(), vec![x()]),
        (SliceGrad { axis: 1, start: 1, extent: columns + 3 }.into(), vec![x()]),
        (Concat { axis: 1 }.into(), vec![x(), x()]),
        (unfold.clone().into(), vec![of(&[1, side, side, channels])]),
        (UnfoldGrad { unfold, image: [side, side] }.into(), vec![patches]),
        (
            Quantize { block: BLOCK, codebook, update: false }.into(),
            vec![codes(DType::F32, elements)],
        ),
        (
            Dequantize { block: BLOCK, codebook, dtype }.into(),
            vec![codes(codebook.dtype(), elements), blocks(BLOCK)],
        ),
        (
            DequantizeNf4 { shape: vec![rows, columns], block: NF4_BLOCK, dtype }.into(),
            vec![codes(DType::U8, elements.div_ceil(2)), blocks(NF4_BLOCK)],
        ),
    ]
}

/// Ops on rows that are cut into heads of several widths.
fn of_heads(dtype: DType, [rows, columns]: [usize; 2]) -> Vec<(Op, Vec<Type>)> {
    let widths = HEADS.into_iter().chain([columns]).filter(|&width| columns.is_multiple_of(width));
    let ops = |width: usize| {
        let heads = columns / width;
        let x = Type::new(dtype, [1, rows, columns]);
        let by_head = || Type::new(dtype, [rows * heads, width]);
        let weight = || Type::new(dtype, [width]);
        let rstd = Type::new(DType::F32, [rows * heads]);
        let gradient = RmsNormGrad { weights: true, residual: false };
        [
            (Rope::new(heads, width, 10_000.0).into(), vec![x, Type::new(DType::I32, [1])]),
            (RmsNorm { eps: 1e-6 }.into(), vec![by_head(), weight()]),
            (gradient.into(), vec![by_head(), weight(), rstd, by_head()]),
        ]
    };
    widths.flat_map(ops).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tightrope_backend_cpu::Cpu;
    use tightrope_core::Plan;
    use tightrope_core::plan::Options;

    use super::*;

    #[test]
    fn each_size_has_a_plan() {
        for dtype in [DType::F32, DType::BF16] {
            let graph = graph(dtype).unwrap();
            let families: BTreeSet<&str> =
                graph.programs[0].nodes.iter().map(|node| node.op.family()).collect();
            assert_eq!(families.len(), 22, "{families:?}");
            Plan::new(
                graph,
                &Options { fusion: false, ..Options::default() },
                &Cpu::new(1).unwrap(),
            )
            .unwrap();
        }
    }
}
