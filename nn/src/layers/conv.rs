//! Convolutions over images.

use tightrope_core::Tensor;
use tightrope_core::ops::{Channels, Unfold};

use super::{Layer, Linear};
use crate::error::Result;
use crate::params::{Init, Kind, Parameter};
use crate::pass::Pass;

/// A convolution (LeCun et al. 1989): a linear layer over the patches of an image.   x (B, H, W, C), or (B, C, H, W) as
/// files and PyTorch have it → (B, OH, OW, out)
///
/// A checkpoint holds the weight of the first as (out, KH, KW, C), and of the second as PyTorch's (out, C, KH, KW).
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2d {
    name: String,
    linear: Linear,
    unfold: Unfold,
}

impl Conv2d {
    /// Of images with so many channels in this order, by kernels of these extents, (KH, KW), with a bias and without
    /// padding. It begins as `torch.nn.Conv2d` does.
    pub fn new(
        name: &str,
        order: Channels,
        channels: usize,
        outputs: usize,
        kernel: [usize; 2],
    ) -> Self {
        let [height, width] = kernel;
        let init = Init::linear(channels * height * width);
        let stored = match order {
            Channels::Last => [outputs, height, width, channels],
            Channels::First => [outputs, channels, height, width],
        };
        let weight = format!("{name}.weight");
        let weight = Parameter::new(&weight, &[outputs, channels * height * width], init)
            .stored_shaped_as(&weight, &stored);
        let bias = Parameter::new(format!("{name}.bias"), &[outputs], init);
        Self::of(name, weight, Some(bias), order, kernel)
    }

    /// Of these parameters: a weight (out, columns of a patch), and a bias (out) where there is one.
    pub fn of(
        name: impl Into<String>,
        weight: Parameter,
        bias: Option<Parameter>,
        channels: Channels,
        kernel: [usize; 2],
    ) -> Self {
        let linear = Linear::of(weight, bias).of_kind(Kind::Other);
        let unfold = Unfold { channels, kernel, stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
        Self { name: name.into(), linear, unfold }
    }

    /// With so many pixels from one patch to the next, vertically and horizontally.
    pub fn with_stride(mut self, stride: [usize; 2]) -> Self {
        self.unfold.stride = stride;
        self
    }

    /// With so many zeros around the image, above and below and on both sides.
    pub fn with_padding(mut self, padding: [usize; 2]) -> Self {
        self.unfold.padding = padding;
        self
    }
}

impl Layer for Conv2d {
    fn parameters(&self) -> Vec<Parameter> {
        self.linear.parameters()
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        let x = pass.activation(x, &format!("{}.input", self.name))?;
        let patches = pass.one(self.unfold.clone(), &[x], &format!("{}.patches", self.name))?;
        self.linear.apply(pass, patches)
    }
}
