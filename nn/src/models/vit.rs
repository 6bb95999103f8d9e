//! Vision transformer (Dosovitskiy et al. 2021).   B images, N patches, C channels
//!
//!   x  = [class token; patches(image)·Wᵀ + b] + positions
//!   x += proj(attention(qkv(norm_1(x))))                  every position attends to all
//!   x += down(gelu(up(norm_2(x))))                        for every block
//!   scores = norm_f(x of the class token) · classifierᵀ + b
//!
//! With [`Pooling::Mean`] there is no class token, and the scores are of the mean over patches.

mod files;

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tightrope_core::expr::input;
use tightrope_core::ops::{Channels, Concat, Expand, Mask, Reshape, Slice};
use tightrope_core::{DType, Tensor};

use super::encoders::check_labels;
use super::scores::{self, LABELS};
use crate::error::{Result, ensure};
use crate::inputs::Input;
use crate::layers::{self, Activation, Attention, Block, Conv2d, Layer, LayerNorm, Linear, Mlp};
use crate::model::Model;
use crate::params::{Init, Kind, Parameter};
use crate::pass::Pass;

pub use files::vit_presets;

/// Name of the input of images, f32 (channels, height, width) each.
pub const IMAGES: &str = "images";

const NORMAL: Init = Init::Normal { std: 0.02 };

/// What the scores are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// A token of its own, which attends to all patches.
    Class,
    /// The mean over patches.
    Mean,
}

/// Extents of a vision transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VitConfig {
    /// Blocks.
    pub layers: usize,
    /// Width of the residual stream, C.
    pub channels: usize,
    /// Heads; divides the channels.
    pub heads: usize,
    /// Width inside the feed-forward layers.
    pub hidden: usize,
    /// Pixels of an image, (height, width).
    pub image: [usize; 2],
    /// Pixels of a patch, (height, width); divides the image.
    pub patch: [usize; 2],
    /// Channels of a pixel: 1 for grey, 3 for colours.
    pub colors: usize,
    /// Classes.
    pub classes: usize,
    /// Names of the classes, in order; empty where they have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// What the scores are of.
    pub pooling: Pooling,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// Activation of the feed-forward layers.
    pub activation: Activation,
    /// Probability of zeroing elements of the embedding and of what each layer adds to the residual stream, in training;
    /// 0 for none.
    pub dropout: f64,
    /// Added to the variance in norms.
    pub norm_eps: f64,
}

impl VitConfig {
    /// Patches of an image, N.
    pub fn patches(&self) -> usize {
        let [rows, columns] = [0, 1].map(|axis| self.image[axis] / self.patch[axis].max(1));
        rows * columns
    }

    /// Positions that attend to each other: the patches, and the class token where there is one.
    pub fn tokens(&self) -> usize {
        self.patches() + usize::from(self.pooling == Pooling::Class)
    }

    /// Channels of a head, D.
    pub fn head_dim(&self) -> usize {
        self.channels / self.heads.max(1)
    }

    /// Numbers of a model that passes [`VitConfig::check`].
    pub fn parameters(&self) -> u64 {
        let parameters = Vit::of_checked(self).parameters();
        parameters.iter().map(|parameter| parameter.elements() as u64).sum()
    }

    /// The model of these settings.
    ///
    /// # Errors
    /// As [`VitConfig::check`].
    pub fn build(&self) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(Vit::new(self)?))
    }

    /// # Errors
    /// [`crate::Error::Setting`] for the first setting that is out of range or doesn't fit another.
    pub fn check(&self) -> Result<()> {
        let ([height, width], [patch_height, patch_width]) = (self.image, self.patch);
        for (key, value, limit) in [
            ("layers", self.layers, 1 << 12),
            ("channels", self.channels, 1 << 16),
            ("heads", self.heads, 1 << 16),
            ("hidden", self.hidden, 1 << 18),
            ("image", height, 1 << 14),
            ("image", width, 1 << 14),
            ("patch", patch_height, 1 << 14),
            ("patch", patch_width, 1 << 14),
            ("colors", self.colors, 1 << 10),
            ("classes", self.classes, 1 << 20),
        ] {
            ensure((1..=limit).contains(&value), key, || {
                format!("{value} must lie between 1 and {limit}")
            })?;
        }
        check_labels(&self.labels, self.classes)?;
        ensure(
            height.is_multiple_of(patch_height) && width.is_multiple_of(patch_width),
            "patch",
            || {
                format!(
                    "patches of {patch_height} × {patch_width} pixels don't divide images of {height} × {width}"
                )
            },
        )?;
        ensure(self.channels.is_multiple_of(self.heads), "heads", || {
            format!("{} heads don't divide {} channels", self.heads, self.channels)
        })?;
        ensure((0.0..1.0).contains(&self.dropout), "dropout", || {
            format!("{} must be at least 0 and below 1", self.dropout)
        })?;
        ensure(self.norm_eps.is_finite() && self.norm_eps > 0.0, "norm_eps", || {
            format!("{} must be above 0", self.norm_eps)
        })
    }
}

/// A vision transformer.
#[derive(Debug)]
pub struct Vit {
    config: VitConfig,
    patches: Conv2d,
    class_token: Option<Parameter>,
    positions: Parameter,
    blocks: Vec<Block>,
    norm_f: LayerNorm,
    classifier: Linear,
}

impl Vit {
    /// The model of these settings.
    ///
    /// # Errors
    /// As [`VitConfig::check`].
    pub fn new(config: &VitConfig) -> Result<Self> {
        config.check()?;
        Ok(Self::of_checked(config))
    }

    /// `model`, where it is a vision transformer.
    pub fn of(model: &dyn Model) -> Option<&Self> {
        (model as &dyn Any).downcast_ref()
    }

    /// Its settings.
    pub fn config(&self) -> &VitConfig {
        &self.config
    }

    fn of_checked(config: &VitConfig) -> Self {
        let VitConfig { channels, colors, patch, classes, .. } = *config;
        let [height, width] = patch;
        let there = |part: &str| format!("vit.embeddings.{part}");
        let projection = |part: &str| there(&format!("patch_embeddings.projection.{part}"));
        let weight = Parameter::new(
            "patches.weight",
            &[channels, colors * height * width],
            init([channels, colors * height * width]),
        )
        .stored_shaped_as(projection("weight"), &[channels, colors, height, width]);
        let bias = Parameter::new("patches.bias", &[channels], Init::Zeros);
        let bias = bias.stored_as(projection("bias"));
        let patches = Conv2d::of("patches", weight, Some(bias), Channels::First, patch);
        let class_token = (config.pooling == Pooling::Class).then(|| {
            let token = Parameter::new("class_token", &[1, channels], NORMAL);
            token.stored_shaped_as(there("cls_token"), &[1, 1, channels])
        });
        let length = config.tokens();
        let positions = Parameter::new("positions", &[length, channels], NORMAL)
            .of_kind(Kind::Table)
            .stored_shaped_as(there("position_embeddings"), &[1, length, channels]);
        Self {
            patches: patches.with_stride(patch),
            class_token,
            positions,
            blocks: (0..config.layers).map(|index| block(config, index)).collect(),
            norm_f: norm(config, "norm_f", "vit.layernorm"),
            classifier: linear(["classifier"; 2].map(str::to_owned), [classes, channels]).as_head(),
            config: config.clone(),
        }
    }

    /// Scores of each image, f32 (B, 1, classes).
    fn scores(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = self.embed(pass)?;
        for (index, block) in self.blocks.iter().enumerate() {
            x = pass.block(index, |pass| block.apply(pass, x))?;
        }
        let pooled = match self.config.pooling {
            Pooling::Class => pass.one(Slice { axis: 1, start: 0, len: 1 }, &[x], "pooled")?,
            Pooling::Mean => layers::mean(pass, x, 1, "pooled")?,
        };
        let pooled = self.norm_f.apply(pass, pooled)?;
        self.classifier.scores(pass, pooled)
    }

    /// Patches, the class token before them, each with its position: (B, N or N + 1, C).
    fn embed(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let images = pass.input(IMAGES)?;
        let batch = pass.shape(images)[0];
        let VitConfig { channels, dropout, .. } = self.config;
        let patches = self.patches.apply(pass, images)?;
        let shape = vec![batch, self.config.patches(), channels];
        let mut x = pass.one(Reshape { shape }, &[patches], "patches.sequence")?;
        if let Some(token) = &self.class_token {
            let token = pass.parameter(&token.name)?;
            let expand = Expand { axis: 0, extent: batch };
            let token = pass.one(expand, &[token], "class_token.repeated")?;
            x = pass.one(Concat { axis: 1 }, &[token, x], "sequence")?;
        }
        let positions = pass.parameter(&self.positions.name)?;
        let formula = pass.dropped(dropout, input(0) + input(1));
        pass.map(formula, &[x, positions], "embedding")
    }
}

impl Model for Vit {
    fn parameters(&self) -> Vec<Parameter> {
        let mut list: Vec<Parameter> = self.class_token.iter().cloned().collect();
        list.extend(self.patches.parameters());
        list.push(self.positions.clone());
        let blocks = self.blocks.iter().map(|block| block as &dyn Layer);
        let ends = [&self.norm_f as &dyn Layer, &self.classifier];
        list.extend(layers::parameters(blocks.chain(ends)));
        list
    }

    fn inputs(&self) -> Vec<Input> {
        let VitConfig { colors, image: [height, width], .. } = self.config;
        let images = Input::new(IMAGES, DType::F32, &[colors, height, width]);
        vec![images, Input::new(LABELS, DType::I32, &[])]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let scores = self.scores(pass)?;
        scores::loss(pass, scores)
    }

    fn logits(&self, pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        let scores = self.scores(pass)?;
        scores::logits(pass, scores, self.config.classes).map(Some)
    }

    fn prefix(&self) -> &str {
        "vit."
    }

    fn passes_over(&self, name: &str) -> bool {
        // What files of the model without a classifier end in.
        name.starts_with("vit.pooler.") || name.starts_with("pooler.")
    }
}

fn block(config: &VitConfig, index: usize) -> Block {
    let VitConfig { channels, heads, hidden, activation, dropout, .. } = *config;
    let own = |part: &str| format!("h.{index}.{part}");
    let there = |part: &str| format!("vit.encoder.layer.{index}.{part}");
    let layer = |part: &str, there_part: &str, shape| linear([own(part), there(there_part)], shape);
    let packed = |part: &str, shape: &[usize], init| {
        let name = |which: &str| there(&format!("attention.attention.{which}.{part}"));
        let parts = ["query", "key", "value"].map(|which| (name(which), channels));
        Parameter::new(own(&format!("attn.qkv.{part}")), shape, init).stored_in(parts)
    };
    let weight = packed("weight", &[3 * channels, channels], init([channels, channels]));
    let bias = config.qkv_bias.then(|| Parameter {
        without_gradient: channels..2 * channels,
        ..packed("bias", &[3 * channels], Init::Zeros)
    });
    let proj = layer("attn.proj", "attention.output.dense", [channels, channels]);
    let qkv = Linear::of(weight, bias);
    let attention = Attention::of(own("attn"), qkv, proj, [heads, heads], config.head_dim());
    let up = layer("mlp.up", "intermediate.dense", [hidden, channels]);
    let down = layer("mlp.down", "output.dense", [channels, hidden]);
    let mlp = Mlp::of(own("mlp"), None, up, activation, down);
    let norms = [("norm_1", "layernorm_before"), ("norm_2", "layernorm_after")];
    let norms = norms
        .map(|(part, theirs)| Box::new(norm(config, &own(part), &there(theirs))) as Box<dyn Layer>);
    Block::new(format!("h.{index}"), norms, attention.with_mask(Mask::NONE), mlp, dropout)
}

/// How a weight (out, in) begins: normal with variance 2/(out + in) (Glorot and Bengio 2010). Narrow models learn slowly from
/// the 0.02 that suits 768 channels.
fn init([outputs, inputs]: [usize; 2]) -> Init {
    Init::Normal { std: (2.0 / (outputs + inputs) as f64).sqrt() }
}

/// A linear layer by its own name and that of Hugging Face.
fn linear([own, there]: [String; 2], shape: [usize; 2]) -> Linear {
    let parameter = |part: &str, shape: &[usize], init| {
        Parameter::new(format!("{own}.{part}"), shape, init).stored_as(format!("{there}.{part}"))
    };
    let bias = parameter("bias", &shape[..1], Init::Zeros);
    Linear::of(parameter("weight", &shape, init(shape)), Some(bias))
}

fn norm(config: &VitConfig, own: &str, there: &str) -> LayerNorm {
    let parameter = |part: &str, init| {
        Parameter::new(format!("{own}.{part}"), &[config.channels], init)
            .stored_as(format!("{there}.{part}"))
    };
    let (gain, bias) = (parameter("weight", Init::Ones), parameter("bias", Init::Zeros));
    LayerNorm::of(gain, bias, config.norm_eps)
}
