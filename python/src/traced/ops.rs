//! The ops of a trace, by the names and fields that `tightrope/trace.py` gives them. Shapes are checked there, and once more
//! where ops are pushed.

use serde::Deserialize;
use tightrope::core::expr::{constant, input};
use tightrope::core::ops::{
    self, Axes, Concat, Expand, Map, Mask, MatMul, Permute, Reduce, Reshape, Rope, Slice, Softmax,
};
use tightrope::core::{DType, Tensor};
use tightrope::nn::inputs::START;
use tightrope::nn::layers::Activation;
use tightrope::nn::{Pass, Result};

use super::formula::{self, Formula, Index, Operand};

/// An op of a function of the model.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Does {
    /// An input, or a constant array.
    Input,
    Layer {
        layer: usize,
        x: Index,
    },
    Activation {
        kind: Activation,
        x: Index,
    },
    /// A formula over elements. Each operand is a number, has one element, or has trailing axes of the output.
    /// Figures such as losses, which have no axis, stay f32, whatever activations are stored in.
    Map {
        formula: Formula,
        operands: Vec<Operand>,
        figure: bool,
    },
    Dropout {
        x: Index,
        p: f64,
    },
    /// `None` is the extent that follows from the others.
    Reshape {
        x: Index,
        extents: Vec<Option<usize>>,
    },
    Permute {
        x: Index,
        axes: Vec<usize>,
    },
    Expand {
        x: Index,
        axis: usize,
        extent: Extent,
    },
    Slice {
        x: Index,
        axis: usize,
        start: usize,
        len: usize,
    },
    Concat {
        parts: Vec<Index>,
        axis: usize,
    },
    /// The sum over axes in increasing order, or the mean.
    Reduce {
        x: Index,
        axes: Vec<usize>,
        mean: bool,
    },
    /// The largest element along an axis, or the smallest.
    Extreme {
        x: Index,
        axis: usize,
        largest: bool,
    },
    /// Over the last axis.
    Softmax {
        x: Index,
    },
    /// Matmul of two matrices, or of each pair of two stacks.
    Matmul {
        a: Index,
        b: Index,
        stacked: bool,
    },
    /// Rotation of (batch, positions, heads · `head_dim`) by positions.
    Rope {
        x: Index,
        head_dim: usize,
        theta: f64,
    },
    Attention(Attends),
    CrossEntropy {
        scores: Index,
        labels: Index,
    },
    LinearCrossEntropy {
        x: Index,
        layer: usize,
        targets: Index,
    },
    MeanSquaredError {
        found: Index,
        expected: Index,
    },
}

/// An extent: a number, or that of another tensor, which has the batch there.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Extent {
    Number(usize),
    Of { of: Index, axis: usize },
}

/// Attention over packed queries, keys and values: (batch, positions, (heads + 2 · `kv_heads`) · `head_dim`).
#[derive(Clone, Debug, Deserialize)]
pub struct Attends {
    x: Index,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    causal: bool,
    window: Option<usize>,
    scale: Option<f64>,
    cap: Option<f64>,
    dropout: f64,
}

impl Does {
    /// The ops whose tensors it reads.
    pub fn reads(&self) -> Vec<Index> {
        match self {
            Self::Input => vec![],
            Self::Layer { x, .. }
            | Self::Activation { x, .. }
            | Self::Dropout { x, .. }
            | Self::Reshape { x, .. }
            | Self::Permute { x, .. }
            | Self::Slice { x, .. }
            | Self::Reduce { x, .. }
            | Self::Extreme { x, .. }
            | Self::Softmax { x }
            | Self::Rope { x, .. }
            | Self::Attention(Attends { x, .. }) => vec![*x],
            Self::Expand { x, extent, .. } => match extent {
                Extent::Number(_) => vec![*x],
                Extent::Of { of, .. } => vec![*x, *of],
            },
            Self::Map { operands, .. } => operands.iter().filter_map(Operand::tensor).collect(),
            Self::Concat { parts, .. } => parts.clone(),
            Self::Matmul { a, b, .. } => vec![*a, *b],
            Self::CrossEntropy { scores, labels } => vec![*scores, *labels],
            Self::LinearCrossEntropy { x, targets, .. } => vec![*x, *targets],
            Self::MeanSquaredError { found, expected } => vec![*found, *expected],
        }
    }

    /// The layer that it applies, or whose weight it reads.
    pub fn layer(&self) -> Option<usize> {
        match self {
            Self::Layer { layer, .. } | Self::LinearCrossEntropy { layer, .. } => Some(*layer),
            _ => None,
        }
    }
}

/// Appends a formula over its operands.
pub fn mapped(
    pass: &mut Pass<'_>,
    (formula, operands): (Formula, &[Operand]),
    figure: bool,
    made: &[Tensor],
    name: &str,
) -> Result<Tensor> {
    let mut tensors = vec![];
    let terms = operands.iter().map(|operand| operand.term(made, &mut tensors)).collect();
    let formula = formula.of(terms);
    let dtype = if figure { DType::F32 } else { pass.dtype() };
    // The formula drops operands that are multiplied by 0 or raised to the power 0.
    let shape = (formula.arity() < tensors.len()).then(|| {
        let shapes = tensors.iter().map(|&tensor| pass.shape(tensor));
        shapes.max_by_key(|shape| (shape.iter().product::<usize>(), shape.len())).map(<[_]>::to_vec)
    });
    tensors.truncate(formula.arity());
    pass.one(Map { shape: shape.flatten(), ..Map::new(formula, dtype) }, &tensors, name)
}

/// Appends a reshape, whose one extent that isn't said follows from the others.
pub fn reshaped(
    pass: &mut Pass<'_>,
    x: Tensor,
    extents: &[Option<usize>],
    name: &str,
) -> Result<Tensor> {
    let known: usize = extents.iter().flatten().product();
    let rest = pass.ty(x).elements() / known.max(1);
    let shape = extents.iter().map(|extent| extent.unwrap_or(rest)).collect();
    pass.one(Reshape { shape }, &[x], name)
}

/// Appends a repetition along a new axis.
pub fn expanded(
    pass: &mut Pass<'_>,
    (x, axis): (Tensor, usize),
    extent: Extent,
    made: &[Tensor],
    name: &str,
) -> Result<Tensor> {
    let extent = match extent {
        Extent::Number(extent) => extent,
        Extent::Of { of, axis } => pass.shape(made[of]).get(axis).copied().unwrap_or(0),
    };
    pass.one(Expand { axis, extent }, &[x], name)
}

/// Appends a sum over `axes`, or a mean. The sum of all elements is a figure, f32 (1).
pub fn reduced(
    pass: &mut Pass<'_>,
    x: Tensor,
    axes: &[usize],
    mean: bool,
    name: &str,
) -> Result<Tensor> {
    let shape = pass.shape(x).to_vec();
    let count: usize = axes.iter().filter_map(|&axis| shape.get(axis)).product();
    let scale = if mean { 1.0 / count as f64 } else { 1.0 };
    let dtype = pass.dtype();
    if axes.iter().copied().eq(0..shape.len()) {
        let sum = Reduce { scale, ..Reduce::to_suffix(vec![1], DType::F32) };
        return pass.one(sum, &[x], name);
    }
    if axes.len() > 1 && axes.iter().copied().eq(0..axes.len()) {
        let sum = Reduce { scale, ..Reduce::to_suffix(shape[axes.len()..].to_vec(), dtype) };
        return pass.one(sum, &[x], name);
    }
    let mut sum = x;
    for (index, &axis) in axes.iter().enumerate().rev() {
        let scale = if index == 0 { scale } else { 1.0 };
        sum = pass.one(Reduce { axes: Axes::Axis(axis), scale, dtype }, &[sum], name)?;
    }
    Ok(sum)
}

/// Appends the largest or the smallest element along an axis, by halves that are compared until one element is left. Equal extremes
/// have the same part of the gradient each, as PyTorch's `amax` has it: halves count theirs.
pub fn extreme(
    pass: &mut Pass<'_>,
    (x, axis): (Tensor, usize),
    largest: bool,
    name: &str,
) -> Result<Tensor> {
    let (mut halved, mut counts) = (x, None);
    while let Some(&extent) = pass.shape(halved).get(axis).filter(|&&extent| extent > 1) {
        let parts = |pass: &mut Pass<'_>, tensor: Tensor, of: &str| {
            let len = extent / 2;
            let mut slice = |(start, len), part: &str| {
                pass.one(Slice { axis, start, len }, &[tensor], &format!("{name}{of}.{part}"))
            };
            let parts =
                [((0, len), "first"), ((len, len), "second"), ((2 * len, extent % 2), "rest")];
            let parts = parts.into_iter().filter(|((_, len), _)| *len > 0);
            parts.map(|(range, part)| slice(range, part)).collect::<Result<Vec<_>>>()
        };
        let values = parts(pass, halved, "")?;
        let counted = counts.map(|counts| parts(pass, counts, ".counts")).transpose()?;
        let mut inputs = values[..2].to_vec();
        inputs.extend(counted.iter().flat_map(|counted| &counted[..2]));
        let [extreme, count] = formula::extreme_of_counted(largest, counted.is_some());
        halved = pass.map(extreme, &inputs, name)?;
        let of_halves =
            pass.one(Map::new(count, DType::F32), &inputs, &format!("{name}.counts"))?;
        counts = Some(of_halves);
        if let Some(&rest) = values.get(2) {
            let rest = pass.activation(rest, &format!("{name}.rest"))?;
            halved = pass.one(Concat { axis }, &[halved, rest], name)?;
            let one = match &counted {
                Some(counted) => counted[2],
                None => pass.one(
                    Map::new(constant(1.0) + input(0).less(input(0)), DType::F32),
                    &[rest],
                    name,
                )?,
            };
            counts =
                Some(pass.one(Concat { axis }, &[of_halves, one], &format!("{name}.counts"))?);
        }
    }
    let mut shape = pass.shape(halved).to_vec();
    if axis < shape.len() && shape.len() > 1 {
        shape.remove(axis);
    }
    pass.one(Reshape { shape }, &[halved], name)
}

/// Appends a concatenation.
pub fn concat(pass: &mut Pass<'_>, parts: &[Tensor], axis: usize, name: &str) -> Result<Tensor> {
    let mut stored = Vec::with_capacity(parts.len());
    for &part in parts {
        stored.push(pass.activation(part, &format!("{name}.part"))?);
    }
    pass.one(Concat { axis }, &stored, name)
}

/// Appends a matmul.
pub fn matmul(
    pass: &mut Pass<'_>,
    operands: [Tensor; 2],
    stacked: bool,
    name: &str,
) -> Result<Tensor> {
    let [a, b] = operands;
    let a = pass.activation(a, &format!("{name}.left"))?;
    let b = pass.activation(b, &format!("{name}.right"))?;
    pass.one(MatMul { batch: stacked, ..MatMul::new(pass.dtype()) }, &[a, b], name)
}

/// Appends a softmax over the last axis.
pub fn softmax(pass: &mut Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
    let x = pass.activation(x, &format!("{name}.input"))?;
    pass.one(Softmax, &[x], name)
}

/// Appends a permutation of axes.
pub fn permuted(pass: &mut Pass<'_>, x: Tensor, axes: &[usize], name: &str) -> Result<Tensor> {
    pass.one(Permute { axes: axes.to_vec() }, &[x], name)
}

/// Appends a rotation of all heads by their positions, of which the first is 0.
pub fn rotated(
    pass: &mut Pass<'_>,
    x: Tensor,
    (head_dim, theta): (usize, f64),
    name: &str,
) -> Result<Tensor> {
    let x = pass.activation(x, &format!("{name}.input"))?;
    let heads = pass.ty(x).last() / head_dim.max(1);
    let start = pass.input(START)?;
    pass.one(Rope::new(heads, head_dim, theta), &[x, start], name)
}

impl Attends {
    /// Appends it.
    ///
    /// # Errors
    /// As [`Pass::one`].
    pub fn append(&self, pass: &mut Pass<'_>, made: &[Tensor], name: &str) -> Result<Tensor> {
        let drawn = pass.stream(self.dropout);
        let plain = ops::Attention::causal(self.heads, self.kv_heads, self.head_dim);
        let op = ops::Attention {
            scale: self.scale.unwrap_or(plain.scale),
            cap: self.cap,
            mask: Mask { causal: self.causal, window: self.window, documents: false },
            dropout: drawn.map(|(stream, _)| ops::Dropout { p: self.dropout, stream }),
            ..plain
        };
        let qkv = pass.activation(made[self.x], &format!("{name}.input"))?;
        let inputs: Vec<Tensor> = [qkv].into_iter().chain(drawn.map(|(_, key)| key)).collect();
        pass.one(op, &inputs, name)
    }
}
