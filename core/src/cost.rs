//! `Cost`: arithmetic and traffic of an op or of a launch. `Work`: rows and elements of an op.

use crate::types::Type;

/// Arithmetic and traffic of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: u64,
    /// Bytes read and written, each tensor once.
    pub bytes: u64,
}

/// Work of an op besides arithmetic and traffic: how many results are computed, those included that are never stored, and in how many
/// pieces. Small heads and short rows take time that a count of operations doesn't show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows of contiguous elements, each begun anew.
    pub rows: u64,
    /// Elements, such as scores of attention and logits of a loss.
    pub elements: u64,
}

impl Work {
    /// Work on every element of tensors of these types.
    pub fn on(tensors: &[&Type]) -> Self {
        let sum = |count: fn(&Type) -> usize| tensors.iter().map(|ty| count(ty) as u64).sum();
        Self { rows: sum(Type::rows), elements: sum(Type::elements) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Attention, EmbeddingGrad, LinearCrossEntropy, Op, Rule as _};
    use crate::types::DType;

    #[test]
    fn gradients_of_a_table_touch_the_rows_of_their_ids() {
        let (ids, dy) = (Type::new(DType::I32, [2, 4]), Type::new(DType::F32, [2, 4, 32]));
        let table = Type::new(DType::F32, [50257, 32]);
        let bytes = |accumulate: bool| {
            let op = EmbeddingGrad { rows: 50257, accumulate, dtype: DType::F32 };
            let inputs = [&ids, &dy, &table];
            op.cost(&inputs[..2 + usize::from(accumulate)], &[&table]).bytes
        };
        // Ids, rows of dy, and as many rows of the table read and written.
        let touched = 8 * 4 + 3 * 8 * 32 * 4;
        assert_eq!(bytes(true), touched);
        assert_eq!(bytes(false), 8 * 4 + 8 * 32 * 4 + 50257 * 32 * 4);
        // A table of fewer rows than ids is touched once.
        let few = EmbeddingGrad { rows: 3, accumulate: true, dtype: DType::F32 };
        let table = Type::new(DType::F32, [3, 32]);
        assert_eq!(few.cost(&[&ids, &dy, &table], &[&table]).bytes, 8 * 4 + (8 + 2 * 3) * 32 * 4);
    }

    #[test]
    fn heads_of_the_same_channels_differ_in_scores_alone() {
        let of = |heads: usize| {
            let op: Op = Attention::causal(heads, heads, 64 / heads).into();
            let qkv = Type::new(DType::F32, [2, 256, 3 * 64]);
            let outputs = op.infer(&[&qkv]).unwrap();
            let outputs: Vec<&Type> = outputs.iter().collect();
            (op.cost(&[&qkv], &outputs).flops, op.work(&[&qkv], &outputs))
        };
        let pairs = 2 * 256 * 257 / 2;
        assert_eq!(of(1), (4 * pairs * 64, Work { rows: 512, elements: pairs }));
        assert_eq!(of(64), (4 * pairs * 64, Work { rows: 64 * 512, elements: 64 * pairs }));
    }

    #[test]
    fn logits_are_elements_though_none_is_stored() {
        let inputs = [
            Type::new(DType::F32, [3, 5, 16]),
            Type::new(DType::F32, [100, 16]),
            Type::new(DType::I32, [3, 5]),
        ];
        let inputs: Vec<&Type> = inputs.iter().collect();
        let op: Op = LinearCrossEntropy { vocab: 100, chunk: 16, cap: None }.into();
        assert_eq!(op.work(&inputs, &[]), Work { rows: 15, elements: 1500 });
    }
}
