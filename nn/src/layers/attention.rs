//! Attention between the positions of a sequence.

use tightrope_core::{Tensor, ops};

use super::{Layer, Linear};
use crate::error::Result;
use crate::inputs::START;
use crate::params::Parameter;
use crate::pass::{Cache, Pass};

/// Self-attention with its projections (Vaswani et al. 2017), causal unless another mask is given, with grouped key-value heads (Ainslie et al. 2023)
/// and rotary positions (Su et al. 2021) where asked for.   x (B, T, C) → the same shape
///
/// In a decoding pass keys and values join a cache, and queries attend to all that is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    name: String,
    qkv: Linear,
    proj: Linear,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    rope: Option<f64>,
    mask: ops::Mask,
}

impl Attention {
    /// With as many key-value heads as query heads, which divide the channels.
    pub fn new(name: &str, channels: usize, heads: usize) -> Self {
        let qkv = Linear::new(&format!("{name}.qkv"), channels, 3 * channels);
        let proj = Linear::new(&format!("{name}.proj"), channels, channels);
        Self::of(name, qkv, proj, [heads, heads], channels / heads.max(1))
    }

    /// Of these projections: `qkv` to queries, keys and values of `heads` query and key-value heads of `head_dim`
    /// channels, packed in this order, and `proj` from what heads found.
    pub fn of(
        name: impl Into<String>,
        qkv: Linear,
        proj: Linear,
        [heads, kv_heads]: [usize; 2],
        head_dim: usize,
    ) -> Self {
        Self {
            name: name.into(),
            qkv,
            proj,
            heads,
            kv_heads,
            head_dim,
            rope: None,
            mask: ops::Mask::CAUSAL,
        }
    }

    /// With queries and keys that are rotated by their positions, at angles of this base. The pass needs the input
    /// [`START`].
    pub fn with_rope(self, theta: f64) -> Self {
        Self { rope: Some(theta), ..self }
    }

    /// With another mask: [`ops::Mask::NONE`] lets every position attend to every other. A decoding pass takes the causal one
    /// alone.
    pub fn with_mask(self, mask: ops::Mask) -> Self {
        Self { mask, ..self }
    }

    /// The caches of its keys and values for `batch` sequences, in a pass that appends to them.
    pub fn cache(&self, pass: &mut Pass<'_>, batch: usize) -> Option<Cache> {
        pass.cache(&self.name, batch, self.kv_heads * self.head_dim)
    }
}

impl Layer for Attention {
    fn parameters(&self) -> Vec<Parameter> {
        super::parameters([&self.qkv as &dyn Layer, &self.proj])
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let Self { heads, kv_heads, head_dim, .. } = *self;
        let named = |part: &str| format!("{}.{part}", self.name);
        let mut qkv = self.qkv.apply(pass, x)?;
        if let Some(theta) = self.rope {
            let rotated = heads + kv_heads;
            let rope = ops::Rope { rotated, head_dim, theta, inverse: false };
            let start = pass.input(START)?;
            qkv = pass.one(rope, &[qkv, start], &named("rope"))?;
        }
        let op = ops::Attention { heads, kv_heads, head_dim, mask: self.mask, dropout: None };
        let batch = pass.shape(x)[0];
        let outputs = match self.cache(pass, batch) {
            None => pass.push(op, &[qkv], &named("out"))?,
            Some(Cache { keys, values }) => {
                let inputs = [qkv, keys, values, pass.input(START)?];
                pass.push(ops::CachedAttention(op), &inputs, &named("out"))?
            }
        };
        self.proj.apply(pass, outputs[0])
    }
}
