//! Which ops have a fast path, the scratch each needs, and the step from tensors to slices.

mod matmuls;
mod matrices;
mod moves;
mod sequences;
#[cfg(test)]
mod tests;

use half::{bf16, f16};
use tightrope_core::ops::SquareSum;
use tightrope_core::{DType, Op, Type};

use crate::arena::View;
use crate::fast::{attention, norm, rows};
use crate::isa::{Isa, Level};

/// Scratch of one step, as the plan placed it.
pub struct Scratch<'a> {
    /// The bytes; aligned as the arena is.
    pub bytes: &'a mut [u8],
    /// The instruction set that computes the step, for which the scratch was sized.
    pub isa: Isa,
    /// Threads of the pool, for which the scratch was sized.
    pub threads: usize,
}

impl<'a> Scratch<'a> {
    /// All of it as f32.
    fn floats(self) -> &'a mut [f32] {
        if self.bytes.is_empty() {
            // An empty slice may be aligned for bytes only.
            return &mut [];
        }
        let whole = self.bytes.len() / 4 * 4;
        bytemuck::cast_slice_mut(&mut self.bytes[..whole])
    }
}

/// Calls `$run::<T>` with the storage type of `$dtype`, or gives `$otherwise`.
macro_rules! by_storage {
    ($dtype:expr, $otherwise:expr, $run:ident($($argument:expr),* $(,)?)) => {
        match $dtype {
            DType::F32 => $run::<f32>($($argument),*),
            DType::BF16 => $run::<bf16>($($argument),*),
            DType::F16 => $run::<f16>($($argument),*),
            _ => $otherwise,
        }
    };
    ($dtype:expr, $otherwise:expr, $module:ident::$run:ident($($argument:expr),* $(,)?)) => {
        match $dtype {
            DType::F32 => $module::$run::<f32>($($argument),*),
            DType::BF16 => $module::$run::<bf16>($($argument),*),
            DType::F16 => $module::$run::<f16>($($argument),*),
            _ => $otherwise,
        }
    };
}
use by_storage;

/// Scratch that the fast path of `op` needs by an instruction set, on `threads` threads, bytes; 0 where it needs none.
pub fn scratch_bytes(
    op: &Op,
    inputs: &[&Type],
    outputs: &[&Type],
    level: Level,
    threads: usize,
) -> usize {
    match op {
        Op::MatMul(op) => matmuls::matmul_scratch(op, inputs[0], inputs[1], level, threads),
        Op::LinearCrossEntropy(_)
        | Op::LinearCrossEntropyGrad(_)
        | Op::LinearCrossEntropyRows(_)
        | Op::LinearDistillation(_)
        | Op::LinearDistillationGrad(_) => matmuls::loss_scratch(op, inputs, level, threads),
        Op::Attention(op) => {
            let dims = sequences::dims(op, inputs[0]);
            4 * by_storage!(inputs[0].dtype, 0, attention::forward_scratch(level, &dims, threads))
        }
        Op::AttentionGrad(grad) => {
            let dims = sequences::dims(&grad.0, inputs[0]);
            4 * by_storage!(inputs[0].dtype, 0, attention::backward_scratch(level, &dims, threads))
        }
        Op::CachedAttention(op) => {
            4 * sequences::cached_scratch(&op.0, inputs[0], inputs[1], threads).0
        }
        Op::Rope(op) => 4 * rows::rope_scratch(op.head_dim, threads),
        Op::LayerNormGrad(_) | Op::RmsNormGrad(_) => {
            4 * norm::norm_backward_scratch(inputs[0].rows(), inputs[0].last())
        }
        // The loss of each row.
        Op::CrossEntropy(_) | Op::CrossEntropyGrad(_) => 4 * inputs[0].rows(),
        Op::EmbeddingGrad(op) => matrices::scatter_scratch(op, inputs[0]),
        Op::Reduce(op) => 4 * matrices::reduce_scratch(op, inputs[0], outputs[0]),
        _ => 0,
    }
}

/// Runs the fast path of `op`; false where it has none for these dtypes.
///
/// # Safety
/// Nothing else uses the tensors meanwhile, and they don't overlap but for the pairs of
/// [`tightrope_core::Rule::overwrites`] and, for ops that the backend lets run in place, of
/// [`tightrope_core::Rule::may_overwrite`].
pub unsafe fn run(
    op: &Op,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let Some(first) = inputs.first() else { return false };
    let (dtype, isa) = (first.ty().dtype, scratch.isa);
    // SAFETY: passed on.
    unsafe {
        match op {
            Op::MatMul(op) => matmuls::matmul(op, inputs, outputs, scratch),
            Op::LinearCrossEntropy(_)
            | Op::LinearCrossEntropyGrad(_)
            | Op::LinearCrossEntropyRows(_)
            | Op::LinearDistillation(_)
            | Op::LinearDistillationGrad(_) => matmuls::loss(op, inputs, outputs, scratch),
            Op::Attention(op) => {
                by_storage!(dtype, false, sequences::attend(op, inputs, outputs, scratch))
            }
            Op::AttentionGrad(op) => {
                by_storage!(dtype, false, sequences::attend_back(&op.0, inputs, outputs, scratch))
            }
            Op::CachedAttention(op) => {
                by_storage!(dtype, false, sequences::attend_cached(&op.0, inputs, outputs, scratch))
            }
            Op::Rope(op) => {
                by_storage!(dtype, false, sequences::rotate(op, inputs, outputs, scratch))
            }
            Op::LayerNorm(op) => {
                by_storage!(dtype, false, matrices::layer_norm(isa, op, inputs, outputs))
            }
            Op::LayerNormGrad(op) if !op.residual => {
                by_storage!(dtype, false, matrices::layer_norm_grad(inputs, outputs, scratch))
            }
            Op::RmsNorm(op) => {
                by_storage!(dtype, false, matrices::rms_norm(isa, op, inputs, outputs))
            }
            Op::RmsNormGrad(op) if !op.residual => {
                by_storage!(dtype, false, matrices::rms_norm_grad(inputs, outputs, scratch))
            }
            Op::Softmax(_) => by_storage!(dtype, false, matrices::softmax(isa, inputs, outputs)),
            Op::SoftmaxGrad(_) => {
                by_storage!(dtype, false, matrices::softmax_grad(isa, inputs, outputs))
            }
            Op::Reduce(op) => {
                by_storage!(dtype, false, matrices::reduce(op, inputs, outputs, scratch))
            }
            Op::SquareSum(op) => {
                let mut slot = op.slot;
                inputs[1..].iter().all(|x| {
                    let first = slot;
                    slot += SquareSum::blocks(x.ty().elements());
                    by_storage!(
                        x.ty().dtype,
                        false,
                        matrices::square_sum(isa, x, &outputs[0], first)
                    )
                })
            }
            Op::Accumulate(op) => {
                by_storage!(dtype, false, matrices::accumulate(isa, op, inputs, outputs))
            }
            Op::Quantize(op) => {
                by_storage!(dtype, false, matrices::quantize(isa, op, inputs, outputs))
            }
            Op::Dequantize(op) => {
                by_storage!(
                    outputs[0].ty().dtype,
                    false,
                    matrices::dequantize(isa, op, inputs, outputs)
                )
            }
            Op::DequantizeNf4(op) => {
                by_storage!(
                    outputs[0].ty().dtype,
                    false,
                    matrices::dequantize_nf4(op, inputs, outputs)
                )
            }
            Op::Permute(op) => moves::permute(op, inputs, outputs),
            Op::Reshape(_) => moves::reshape(inputs, outputs),
            Op::Expand(op) => moves::expand(op, inputs, outputs),
            Op::Slice(op) => moves::slice(op, inputs, outputs),
            Op::SliceGrad(op) => moves::slice_grad(op, inputs, outputs),
            Op::Concat(op) => moves::concat(op, inputs, outputs),
            Op::Unfold(op) => by_storage!(dtype, false, moves::unfold(op, inputs, outputs)),
            Op::UnfoldGrad(op) => by_storage!(dtype, false, moves::fold(op, inputs, outputs)),
            Op::CrossEntropy(_) => {
                by_storage!(dtype, false, matrices::cross_entropy(inputs, outputs, scratch))
            }
            Op::CrossEntropyRows(_) => {
                by_storage!(
                    dtype,
                    false,
                    matrices::cross_entropy_rows(scratch.isa, inputs, outputs)
                )
            }
            Op::CrossEntropyGrad(_) => {
                by_storage!(dtype, false, matrices::cross_entropy_grad(inputs, outputs, scratch))
            }
            Op::Embedding(_) => by_storage!(dtype, false, matrices::gather(isa, inputs, outputs)),
            Op::EmbeddingGrad(op) => {
                let dtype = inputs[1].ty().dtype;
                by_storage!(dtype, false, matrices::scatter(op, inputs, outputs, scratch))
            }
            _ => false,
        }
    }
}
