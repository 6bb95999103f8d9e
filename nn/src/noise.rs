//! Noise on embeddings while a model is trained (Jain et al. 2023, "NEFTune: Noisy Embeddings Improve Instruction Finetuning").
//! L tokens of a sequence, C channels
//!
//!   x ← x + α/√(L·C) · u,   u uniform in [−1, 1)
//!
//! Padding counts as no token, as in the paper; transformers' `neftune_noise_alpha` takes padded lengths. Numbers are drawn by sequence of the
//! batch, position and channel, so that they're the same however the batch is cut into passes, and on any number of ranks.

use tightrope_core::expr::{constant, input, random};
use tightrope_core::ops::{Expand, Map, Op, Reshape, SHARD_KEY_WORDS};
use tightrope_core::{Class, DType, Graph, Tensor, Type};

use crate::error::{Error, Result};
use crate::inputs::Batch;

/// The setting.
pub(crate) const KEY: &str = "train.neftune";

/// Stream of random numbers that nothing else draws from: others are counted from 0.
const STREAM: u32 = u32::MAX;

/// Tensors that the noise of a pass is made of, which the host writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Key of random numbers, U32 (5): seed (low, high), step, 0 and the pass of the step.
    pub(crate) key: Tensor,
    /// α/√L of each sequence of the pass, F32.
    pub(crate) bounds: Tensor,
}

impl Noise {
    /// Declares the tensors of the noise of this many sequences.
    pub(crate) fn declare(graph: &mut Graph, sequences: usize) -> Self {
        let mut input =
            |name, dtype, count| graph.persistent(name, Type::new(dtype, [count]), Class::Input);
        Self {
            key: input("noise.random_key", DType::U32, SHARD_KEY_WORDS),
            bounds: input("noise.of_sequences", DType::F32, sequences),
        }
    }

    /// `x`, embeddings (sequences, positions, C), with `factor` times the noise, stored as `dtype`.
    pub(crate) fn add(
        self,
        graph: &mut Graph,
        x: Tensor,
        factor: f64,
        dtype: DType,
    ) -> Result<Tensor> {
        let shape = graph.ty(x).shape.clone();
        let [sequences, positions, channels] = shape[..] else {
            return Err(Error::Setting {
                key: KEY,
                problem: format!("embeddings of {shape:?} aren't of sequences"),
            });
        };
        let mut bounds = self.bounds;
        // One number repeats by itself.
        if sequences > 1 {
            let expand = Expand { axis: 1, extent: positions * channels };
            bounds = graph.one(Op::from(expand), &[bounds], "noise.expanded")?;
            bounds = graph.one(Op::from(Reshape { shape }), &[bounds], "noise.bounds")?;
        }
        let uniform = random(STREAM) * constant(2.0) - constant(1.0);
        let scaled = input(1) * constant(factor / (channels as f64).sqrt());
        let map = Map::new(input(0) + scaled * uniform, dtype);
        Ok(graph.one(Op::from(map), &[x, bounds, self.key], "noise")?)
    }
}

/// α/√L of each of `count` sequences of `batch`, which have this many positions.
pub(crate) fn bounds(alpha: f64, batch: &Batch<'_>, [count, positions]: [usize; 2]) -> Vec<f32> {
    let tokens = |index: usize| {
        let padding = batch.padding().and_then(|all| all.chunks(positions.max(1)).nth(index));
        padding.map_or(positions, |all| all.iter().filter(|&&is_padding| !is_padding).count())
    };
    let bound = |index| (alpha / (tokens(index).max(1) as f64).sqrt()) as f32;
    (0..count).map(bound).collect()
}
