//! Two models, as anybody may write them.

use tightrope::core::ops::{Channels, Reshape};
use tightrope::core::{DType, Tensor};
use tightrope::nn::layers::{self, Activation, Conv2d, Layer, LayerNorm, Linear};
use tightrope::nn::{Input, Model, Parameter, Pass, Result};

/// What images are sorted into.
pub const CLASSES: usize = 10;
const SIDE: usize = 8;

/// Residual layers over all pixels at once.
#[derive(Debug)]
pub struct Mlp {
    first: Linear,
    blocks: Vec<(LayerNorm, Linear, Linear)>,
    head: Linear,
}

impl Mlp {
    pub fn new() -> Self {
        let block = |index: usize| {
            let name = |part: &str| format!("blocks.{index}.{part}");
            let (up, down) =
                (Linear::new(&name("up"), 64, 128), Linear::new(&name("down"), 128, 64));
            (LayerNorm::new(&name("norm"), 64), up, down)
        };
        Self {
            first: Linear::new("first", SIDE * SIDE, 64),
            blocks: (0..4).map(block).collect(),
            head: Linear::new("head", 64, CLASSES).as_head(),
        }
    }
}

impl Model for Mlp {
    fn parameters(&self) -> Vec<Parameter> {
        let mut layers: Vec<&dyn Layer> = vec![&self.first];
        self.blocks
            .iter()
            .for_each(|(norm, up, down)| layers.extend([norm as &dyn Layer, up, down]));
        layers.push(&self.head);
        layers::parameters(layers)
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::new("x", DType::F32, &[SIDE * SIDE]), Input::new("y", DType::I32, &[])]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = pass.input("x")?;
        let mut x = self.first.apply(pass, x)?;
        for (index, (norm, up, down)) in self.blocks.iter().enumerate() {
            x = pass.block(index, |pass| {
                let branch = norm.apply(pass, x)?;
                let branch = up.apply(pass, branch)?;
                let branch =
                    Activation::Gelu.apply(pass, branch, &format!("blocks.{index}.active"))?;
                let branch = down.apply(pass, branch)?;
                pass.residual(x, branch, 0.1, &format!("blocks.{index}"))
            })?;
        }
        let (scores, labels) = (self.head.scores(pass, x)?, pass.input("y")?);
        layers::cross_entropy(pass, scores, labels)
    }
}

/// Convolutions, the mean over pixels, and a linear layer.
#[derive(Debug)]
pub struct Conv {
    convolutions: Vec<Conv2d>,
    head: Linear,
}

impl Conv {
    pub fn new() -> Self {
        let layer = |index: usize| {
            let (order, channels) =
                if index == 0 { (Channels::First, 1) } else { (Channels::Last, 16) };
            let name = format!("convolutions.{index}");
            Conv2d::new(&name, order, channels, 16, [3, 3]).with_padding([1, 1])
        };
        Self {
            convolutions: (0..4).map(layer).collect(),
            head: Linear::new("head", 16, CLASSES).as_head(),
        }
    }
}

impl Model for Conv {
    fn parameters(&self) -> Vec<Parameter> {
        let convolutions = self.convolutions.iter().map(|layer| layer as &dyn Layer);
        layers::parameters(convolutions.chain([&self.head as &dyn Layer]))
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::new("x", DType::F32, &[1, SIDE, SIDE]), Input::new("y", DType::I32, &[])]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = pass.input("x")?;
        for (index, layer) in self.convolutions.iter().enumerate() {
            x = pass.block(index, |pass| {
                let made = layer.apply(pass, x)?;
                Activation::Relu.apply(pass, made, &format!("convolutions.{index}.active"))
            })?;
        }
        let shape = vec![pass.shape(x)[0], SIDE * SIDE, 16];
        let pixels = pass.one(Reshape { shape }, &[x], "pixels")?;
        let pooled = layers::mean(pass, pixels, 1, "pooled")?;
        let (scores, labels) = (self.head.scores(pass, pooled)?, pass.input("y")?);
        layers::cross_entropy(pass, scores, labels)
    }
}
