//! Attention between the positions of a sequence.

mod context;
mod eager;

use tightrope_core::{Tensor, ops};

use super::{Layer, Linear};
use crate::error::Result;
use crate::inputs::{DOCUMENTS, POSITIONS, START};
use crate::params::Parameter;
use crate::pass::{AttentionKind, Cache, Pass};

/// Self-attention with its projections (Vaswani et al. 2017), causal unless another mask is given, with grouped key-value heads (Ainslie et al. 2023)
/// and rotary positions (Su et al. 2021) where asked for.   x (B, T, C) → the same shape
///
/// In a decoding pass keys and values join a cache, and queries attend to all that is in it. Where the model has the input
/// [`DOCUMENTS`], a position attends to those of its own document, and [`POSITIONS`] has one for each token.
#[derive(Debug)]
pub struct Attention {
    name: String,
    projections: Projections,
    proj: Linear,
    op: ops::Attention,
    rope: Option<(f64, ops::Stretch)>,
    dropout: f64,
}

/// What makes queries, keys and values of x.
#[derive(Debug)]
enum Projections {
    /// One layer, which packs them in this order.
    Packed(Linear),
    /// A layer for each, and what norms queries and keys.
    Apart { layers: Box<[Linear; 3]>, norms: [Box<dyn Layer>; 2], normed: Normed },
}

/// What a norm of queries and keys takes for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normed {
    /// Each head of a position, (D).
    Heads,
    /// All heads of a position, (H·D) or (G·D).
    Positions,
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
        heads: [usize; 2],
        head_dim: usize,
    ) -> Self {
        Self::made(name, Projections::Packed(qkv), proj, heads, head_dim)
    }

    /// Of projections to queries, keys and values, each for itself, of which the first two are normed.
    pub fn of_normed(
        name: impl Into<String>,
        layers: [Linear; 3],
        (norms, normed): ([Box<dyn Layer>; 2], Normed),
        proj: Linear,
        heads: [usize; 2],
        head_dim: usize,
    ) -> Self {
        let layers = Box::new(layers);
        Self::made(name, Projections::Apart { layers, norms, normed }, proj, heads, head_dim)
    }

    fn made(
        name: impl Into<String>,
        projections: Projections,
        proj: Linear,
        [heads, kv_heads]: [usize; 2],
        head_dim: usize,
    ) -> Self {
        let op = ops::Attention::causal(heads, kv_heads, head_dim);
        Self { name: name.into(), projections, proj, op, rope: None, dropout: 0.0 }
    }

    /// With queries and keys that are rotated by their positions, at angles of this base. The pass needs the input
    /// [`START`].
    pub fn with_rope(self, theta: f64) -> Self {
        self.with_stretched_rope(theta, ops::Stretch::NONE)
    }

    /// As [`Attention::with_rope`], with lower frequencies.
    pub fn with_stretched_rope(self, theta: f64, stretch: ops::Stretch) -> Self {
        Self { rope: Some((theta, stretch)), ..self }
    }

    /// With another mask: [`ops::Mask::NONE`] lets every position attend to every other. A decoding pass takes a causal one
    /// alone, with a window or without.
    pub fn with_mask(mut self, mask: ops::Mask) -> Self {
        self.op.mask = mask;
        self
    }

    /// With another factor on the products of queries and keys than 1/√D.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.op.scale = scale;
        self
    }

    /// With scores s that become cap·tanh(s / cap).
    pub fn with_cap(mut self, cap: f64) -> Self {
        self.op.cap = Some(cap);
        self
    }

    /// With probabilities that are dropped with probability `p` in training.
    pub fn with_dropout(self, p: f64) -> Self {
        Self { dropout: p, ..self }
    }

    /// The caches of its keys and values for `batch` sequences, in a pass that appends to them.
    pub fn cache(&self, pass: &mut Pass<'_>, batch: usize) -> Option<Cache> {
        pass.cache(&self.name, batch, self.op.kv_heads * self.op.head_dim)
    }

    /// Queries, keys and values, (B, T, (H + 2·G)·D).
    fn packed(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let ([q, k, v], norms, normed) = match &self.projections {
            Projections::Packed(qkv) => return qkv.apply(pass, x),
            Projections::Apart { layers, norms, normed } => (&**layers, norms, *normed),
        };
        let mut parts = vec![];
        for (layer, norm) in [q, k].into_iter().zip(norms) {
            let projected = layer.apply(pass, x)?;
            parts.push(self.normed(pass, projected, &**norm, normed)?);
        }
        parts.push(v.apply(pass, x)?);
        pass.one(ops::Concat { axis: 2 }, &parts, &format!("{}.qkv", self.name))
    }

    /// What heads find in whole sequences, (B, T, H·D).
    fn attend(&self, pass: &mut Pass<'_>, qkv: Tensor) -> Result<Tensor> {
        let documents = documents(pass)?;
        let mask = ops::Mask { documents: documents.is_some(), ..self.op.mask };
        let op = ops::Attention { mask, ..self.op.clone() };
        let ranks = pass.context_ranks();
        if ranks == 1 {
            return self.attend_by(pass, op, qkv, documents);
        }
        let own = context::of_rank(&op, ranks)?;
        let qkv = context::heads_of_rank(pass, &op, qkv, &self.name)?;
        let found = self.attend_by(pass, own, qkv, documents)?;
        context::positions_of_rank(pass, &op, found, &self.name)
    }

    fn attend_by(
        &self,
        pass: &mut Pass<'_>,
        op: ops::Attention,
        qkv: Tensor,
        documents: Option<Tensor>,
    ) -> Result<Tensor> {
        if pass.options().attention == AttentionKind::Eager {
            return eager::attend(pass, (&op, self.dropout), qkv, documents, &self.name);
        }
        let drawn = pass.stream(self.dropout);
        let dropout = drawn.map(|(stream, _)| ops::Dropout { p: self.dropout, stream });
        let op = ops::Attention { dropout, ..op };
        let key = drawn.map(|(_, key)| key);
        let inputs: Vec<Tensor> = [qkv].into_iter().chain(documents).chain(key).collect();
        pass.one(op, &inputs, &format!("{}.out", self.name))
    }

    fn normed(
        &self,
        pass: &mut Pass<'_>,
        x: Tensor,
        norm: &dyn Layer,
        normed: Normed,
    ) -> Result<Tensor> {
        if normed == Normed::Positions {
            return norm.apply(pass, x);
        }
        let shape = pass.shape(x).to_vec();
        let name = |part: &str| format!("{}.{part}", self.name);
        let heads = [shape[0], shape[1], shape[2] / self.op.head_dim, self.op.head_dim];
        let x = pass.one(ops::Reshape { shape: heads.to_vec() }, &[x], &name("heads"))?;
        let x = norm.apply(pass, x)?;
        pass.one(ops::Reshape { shape }, &[x], &name("normed"))
    }
}

/// The document of each position of whole sequences, I32 (B, T), where the model has the input [`DOCUMENTS`]. Ranks that have parts of
/// sequences exchange them where this is first asked for.
///
/// # Errors
/// As [`Pass::one`].
pub fn documents(pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
    match pass.optional_input(DOCUMENTS) {
        Some(own) if pass.context_ranks() > 1 => context::documents_of_all(pass, own).map(Some),
        own => Ok(own),
    }
}

/// Where the tokens of a pass are: the position of each one where sequences hold several documents, else that of the first.
fn places(pass: &Pass<'_>) -> Result<Tensor> {
    match (pass.optional_input(DOCUMENTS), pass.optional_input(POSITIONS)) {
        (Some(_), Some(positions)) => Ok(positions),
        _ => pass.input(START),
    }
}

impl Layer for Attention {
    fn parameters(&self) -> Vec<Parameter> {
        let mut list = match &self.projections {
            Projections::Packed(qkv) => qkv.parameters(),
            Projections::Apart { layers, norms: [q_norm, k_norm], .. } => {
                let [q, k, v] = &**layers;
                super::parameters([q as &dyn Layer, k, v, &**q_norm, &**k_norm])
            }
        };
        list.extend(self.proj.parameters());
        list
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let named = |part: &str| format!("{}.{part}", self.name);
        let mut qkv = self.packed(pass, x)?;
        if let Some((theta, stretch)) = self.rope {
            let rotated = self.op.heads + self.op.kv_heads;
            let rope = ops::Rope { stretch, ..ops::Rope::new(rotated, self.op.head_dim, theta) };
            let places = places(pass)?;
            qkv = pass.one(rope, &[qkv, places], &named("rope"))?;
        }
        let batch = pass.shape(x)[0];
        let found = match self.cache(pass, batch) {
            None => self.attend(pass, qkv)?,
            Some(Cache { keys, values }) => {
                let inputs = [qkv, keys, values, pass.input(START)?];
                pass.one(ops::CachedAttention(self.op.clone()), &inputs, &named("out"))?
            }
        };
        self.proj.apply(pass, found)
    }
}
