//! The layers of a traced model.

use serde::Deserialize;
use tightrope::core::Tensor;
use tightrope::core::ops::{Channels, Mask};
use tightrope::nn::layers::{
    Attention, Conv2d, Dropout, Embedding, Layer, LayerNorm, Linear, RmsNorm,
};
use tightrope::nn::{Pass, Result};

/// A layer with its place among the model's attributes.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Described {
    Linear {
        name: String,
        inputs: usize,
        outputs: usize,
        bias: bool,
    },
    Embedding {
        name: String,
        rows: usize,
        columns: usize,
    },
    LayerNorm {
        name: String,
        channels: usize,
    },
    RmsNorm {
        name: String,
        channels: usize,
    },
    Attention(Box<DescribedAttention>),
    Conv2d {
        name: String,
        channels: usize,
        outputs: usize,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        channels_first: bool,
    },
    Dropout {
        name: String,
        p: f64,
    },
}

/// A layer of attention; see `Attention` in `tightrope/nn.py`.
#[derive(Clone, Debug, Deserialize)]
pub struct DescribedAttention {
    name: String,
    channels: usize,
    heads: usize,
    kv_heads: usize,
    bias: bool,
    causal: bool,
    window: Option<usize>,
    /// Base of the angles of rotary positions.
    rope: Option<f64>,
    cap: Option<f64>,
    dropout: f64,
}

impl DescribedAttention {
    fn layer(&self) -> Attention {
        let Self { name, channels, heads, kv_heads, .. } = self;
        let head_dim = channels / heads.max(&1);
        let linear = |part, inputs, outputs| {
            let linear = Linear::new(&format!("{name}.{part}"), inputs, outputs);
            if self.bias { linear } else { linear.without_bias() }
        };
        let qkv = linear("qkv", *channels, (heads + 2 * kv_heads) * head_dim);
        let proj = linear("proj", heads * head_dim, *channels);
        let mask = Mask { causal: self.causal, window: self.window, documents: false };
        let layer = Attention::of(name, qkv, proj, [*heads, *kv_heads], head_dim);
        let layer = layer.with_mask(mask).with_dropout(self.dropout);
        let layer = match self.rope {
            Some(theta) => layer.with_rope(theta),
            None => layer,
        };
        match self.cap {
            Some(cap) => layer.with_cap(cap),
            None => layer,
        }
    }
}

impl Described {
    /// True if it reads the position of the first row.
    pub fn is_rotary(&self) -> bool {
        matches!(self, Self::Attention(attention) if attention.rope.is_some())
    }
}

/// A layer that can be applied.
#[derive(Debug)]
pub enum Applied {
    /// A linear layer whose output a cross-entropy takes: it makes it in f32.
    Head(Box<Linear>),
    Other(Box<dyn Layer>),
}

impl Applied {
    /// The layer that is described; `is_head` if its output goes into a cross-entropy.
    pub fn of(described: &Described, is_head: bool) -> Self {
        match described.clone() {
            Described::Linear { name, inputs, outputs, bias } => {
                let linear = Linear::new(&name, inputs, outputs);
                let linear = if bias { linear } else { linear.without_bias() };
                match is_head {
                    true => Self::Head(Box::new(linear.as_head())),
                    false => Self::Other(Box::new(linear)),
                }
            }
            Described::Embedding { name, rows, columns } => {
                Self::Other(Box::new(Embedding::new(&name, rows, columns)))
            }
            Described::LayerNorm { name, channels } => {
                Self::Other(Box::new(LayerNorm::new(&name, channels)))
            }
            Described::RmsNorm { name, channels } => {
                Self::Other(Box::new(RmsNorm::new(&name, channels)))
            }
            Described::Attention(attention) => Self::Other(Box::new(attention.layer())),
            Described::Conv2d {
                name,
                channels,
                outputs,
                kernel,
                stride,
                padding,
                channels_first,
            } => {
                let order = if channels_first { Channels::First } else { Channels::Last };
                let layer = Conv2d::new(&name, order, channels, outputs, kernel);
                Self::Other(Box::new(layer.with_stride(stride).with_padding(padding)))
            }
            Described::Dropout { name, p } => Self::Other(Box::new(Dropout::new(name, p))),
        }
    }

    /// The layer.
    pub fn layer(&self) -> &dyn Layer {
        match self {
            Self::Head(linear) => &**linear,
            Self::Other(layer) => &**layer,
        }
    }

    /// Appends it to a pass.
    ///
    /// # Errors
    /// As [`Layer::apply`].
    pub fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        match self {
            Self::Head(linear) => linear.scores(pass, x),
            Self::Other(layer) => layer.apply(pass, x),
        }
    }
}
