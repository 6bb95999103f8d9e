//! Patches of images as rows of a matrix (im2col), so that a convolution is a matmul with its weight.   B images of H × W
//! pixels, C channels, kernels of KH × KW
//!
//!   out[b,oy,ox,(ky,kx,c)] = x[b, oy·stride + ky·dilation − padding, ox·stride + kx·dilation − padding, c],  0 outside
//!   dx[b,y,x,c]            = Σ of dy over all places that x[b,y,x,c] went to, in the order of (ky,kx)

use serde::{Deserialize, Serialize};

use super::windows::row_windows;
use super::{Array, Case, Cost, Inferred, Rule, arity, ensure, float, traffic, unit};
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Order of the axes of an image, and of the columns that are made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channels {
    /// Images (B, H, W, C) and columns (KH, KW, C). A matmul of the columns gives the next layer's image.
    Last,
    /// Images (B, C, H, W) and columns (C, KH, KW), as weights of PyTorch's convolutions (O, C, KH, KW) have them.
    First,
}

/// Patches. Input: images, (B, H, W, C) or (B, C, H, W). Output: (B, OH, OW, KH·KW·C), with
/// OH = ⌊(H + 2·padding − dilation·(KH − 1) − 1) / stride⌋ + 1 and OW alike. Pairs are of the vertical axis and of the
/// horizontal one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unfold {
    /// Order of axes.
    pub channels: Channels,
    /// Extents of a patch, (KH, KW).
    pub kernel: [usize; 2],
    /// Pixels from one patch to the next.
    pub stride: [usize; 2],
    /// Zeros around the image, on each side.
    pub padding: [usize; 2],
    /// Pixels from one element of a patch to the next.
    pub dilation: [usize; 2],
}

/// Gradient of [`Unfold`]: sums what lies over each pixel. Input: dy (B, OH, OW, KH·KW·C). Output: dx, like the images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnfoldGrad {
    /// The op.
    pub unfold: Unfold,
    /// Extents of the images, (H, W).
    pub image: [usize; 2],
}

/// Extents of one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Images.
    pub batch: usize,
    /// Channels of a pixel.
    pub channels: usize,
    /// Pixels of an image, (H, W).
    pub image: [usize; 2],
    /// Patches of an image, (OH, OW).
    pub patches: [usize; 2],
}

/// Threads of a workgroup, and neighbours that each makes: whole words, whatever the dtype.
const THREADS: u32 = 64;
const PER_THREAD: u64 = 4;

impl Unfold {
    /// Patches that lie beside each other and cover the image: the stride is the kernel.
    pub fn patches(channels: Channels, kernel: [usize; 2]) -> Self {
        Self { channels, kernel, stride: kernel, padding: [0; 2], dilation: [1; 2] }
    }

    /// Elements of a patch in one channel.
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Patches along an axis of `pixels`, if there are any.
    fn along(&self, axis: usize, pixels: usize) -> Option<usize> {
        let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
        let left = (pixels + 2 * self.padding[axis]).checked_sub(reach)?;
        Some(left / self.stride[axis] + 1)
    }

    /// Patches of an image of these extents.
    fn patches_of(&self, image: [usize; 2]) -> std::result::Result<[usize; 2], String> {
        let extents = [self.kernel, self.stride, self.dilation];
        ensure(extents.iter().flatten().all(|&extent| extent > 0), || {
            "kernel, stride and dilation must be at least 1".into()
        })?;
        match [0, 1].map(|axis| self.along(axis, image[axis])) {
            [Some(height), Some(width)] => Ok([height, width]),
            _ => {
                let ([h, w], [kh, kw]) = (image, self.kernel);
                Err(format!("patches of {kh} × {kw} don't fit images of {h} × {w} pixels"))
            }
        }
    }

    /// Extents of a use on images of this type.
    ///
    /// # Errors
    /// In words, where the op doesn't take it.
    pub fn extents(&self, x: &Type) -> std::result::Result<Extents, String> {
        float("x", x)?;
        let (batch, channels, image) = match (x.shape.as_slice(), self.channels) {
            (&[batch, height, width, channels], Channels::Last)
            | (&[batch, channels, height, width], Channels::First) => {
                (batch, channels, [height, width])
            }
            _ => return Err(format!("takes images of four axes, got {x}")),
        };
        Ok(Extents { batch, channels, image, patches: self.patches_of(image)? })
    }

    /// Type of images with these extents.
    fn images(&self, dtype: DType, Extents { batch, channels, image, .. }: &Extents) -> Type {
        let [height, width] = *image;
        match self.channels {
            Channels::Last => Type::new(dtype, [*batch, height, width, *channels]),
            Channels::First => Type::new(dtype, [*batch, *channels, height, width]),
        }
    }

    /// Type of columns with these extents.
    fn columns(&self, dtype: DType, Extents { batch, channels, patches, .. }: &Extents) -> Type {
        Type::new(dtype, [*batch, patches[0], patches[1], self.taps() * channels])
    }

    /// Position among the columns of a channel's element `tap` of a patch.
    pub fn column(&self, channels: usize, channel: usize, tap: usize) -> usize {
        match self.channels {
            Channels::Last => tap * channels + channel,
            Channels::First => channel * self.taps() + tap,
        }
    }

    /// Position of a pixel's channel in its images.
    fn pixel(&self, extents: &Extents, b: usize, [y, x]: [usize; 2], channel: usize) -> usize {
        let Extents { channels, image: [height, width], .. } = *extents;
        match self.channels {
            Channels::Last => ((b * height + y) * width + x) * channels + channel,
            Channels::First => ((b * channels + channel) * height + y) * width + x,
        }
    }

    /// The pixel, along one axis, of an element of a patch; none in the padding.
    pub fn source(&self, axis: usize, patch: usize, tap: usize, pixels: usize) -> Option<usize> {
        let padded = patch * self.stride[axis] + tap * self.dilation[axis];
        padded.checked_sub(self.padding[axis]).filter(|&pixel| pixel < pixels)
    }

    /// The patch, along one axis, that has a pixel as this element; none where there's no such patch.
    pub fn patch(&self, axis: usize, pixel: usize, tap: usize, patches: usize) -> Option<usize> {
        let first = (pixel + self.padding[axis]).checked_sub(tap * self.dilation[axis])?;
        let whole = first.is_multiple_of(self.stride[axis]);
        Some(first / self.stride[axis]).filter(|&patch| whole && patch < patches)
    }

    /// Calls `each` with every pair of positions, in the images and in the columns, that hold the same element.
    fn pairs(&self, extents: &Extents, mut each: impl FnMut(usize, usize)) {
        let Extents { batch, channels, image, patches: [rows, across] } = *extents;
        for patch in 0..batch * rows * across {
            let (b, oy, ox) = (patch / (rows * across), patch / across % rows, patch % across);
            for tap in 0..self.taps() {
                let (ky, kx) = (tap / self.kernel[1], tap % self.kernel[1]);
                let (y, x) = (self.source(0, oy, ky, image[0]), self.source(1, ox, kx, image[1]));
                let Some(at) = y.zip(x) else { continue };
                for channel in 0..channels {
                    let column = self.column(channels, channel, tap);
                    let pixel = self.pixel(extents, b, at.into(), channel);
                    each(pixel, patch * self.taps() * channels + column);
                }
            }
        }
    }

    /// Launches of `entry` over ranges of images that a device can bind.
    fn launches(
        &self,
        limits: &Limits,
        entry: &'static str,
        extents: &Extents,
        (x, out): (Place, Place),
        flops: u64,
    ) -> Launches {
        let Extents { batch, channels, image, patches } = *extents;
        let batch = batch as u64;
        let [of_x, of_out] = [x, out].map(|place| place.elements / batch.max(1));
        let aligned = self.channels == Channels::Last && channels.is_multiple_of(4);
        let workgroup = THREADS.min(limits.workgroup);
        let mut launches = Launches::new();
        for range in row_windows(limits, batch, &[(x.dtype, of_x), (out.dtype, of_out)]) {
            let window = |place: Place, n| place.window(range.start * n..range.end * n);
            let out = window(out, of_out);
            let groups = out.elements.div_ceil(PER_THREAD * u64::from(workgroup));
            let launch = Launch::new("unfold", entry, workgroup, groups)
                .constant("CHANNELS_FIRST", u64::from(self.channels == Channels::First))
                .constant("ALIGNED", u64::from(aligned))
                .constant("CHANNELS", channels as u64)
                .constant("HEIGHT", image[0] as u64)
                .constant("WIDTH", image[1] as u64)
                .constant("PATCHES_DOWN", patches[0] as u64)
                .constant("PATCHES_ACROSS", patches[1] as u64)
                .constant("KERNEL_HEIGHT", self.kernel[0] as u64)
                .constant("KERNEL_WIDTH", self.kernel[1] as u64)
                .constant("STRIDE_Y", self.stride[0] as u64)
                .constant("STRIDE_X", self.stride[1] as u64)
                .constant("PADDING_Y", self.padding[0] as u64)
                .constant("PADDING_X", self.padding[1] as u64)
                .constant("DILATION_Y", self.dilation[0] as u64)
                .constant("DILATION_X", self.dilation[1] as u64)
                .bind_four("x", window(x, of_x), aligned)
                // What pads the last four is the tensor's own.
                .bind_four("out", out, true)
                .param("elements", out.elements);
            launches.push(launch.costing(flops * (range.end - range.start) / batch));
        }
        launches
    }

    /// Ops to try, each with the extents of its images (B, H, W, C).
    fn samples() -> Vec<(Self, [usize; 4])> {
        use Channels::{First, Last};
        let of = |channels, kernel, stride, padding, dilation| Self {
            channels,
            kernel,
            stride,
            padding,
            dilation,
        };
        vec![
            (Self::patches(Last, [1, 1]), [1, 1, 1, 1]),
            (Self::patches(First, [4, 4]), [2, 8, 12, 3]),
            (Self::patches(Last, [2, 3]), [3, 5, 7, 4]),
            (of(Last, [3, 3], [1, 1], [1, 1], [1, 1]), [2, 5, 7, 4]),
            (of(First, [3, 3], [1, 1], [1, 1], [1, 1]), [2, 5, 7, 3]),
            (of(Last, [3, 2], [2, 1], [1, 2], [1, 1]), [1, 7, 6, 5]),
            (of(First, [2, 3], [1, 2], [0, 3], [3, 2]), [2, 9, 8, 2]),
            // Pixels between patches, which go nowhere.
            (of(Last, [1, 2], [3, 4], [0, 0], [1, 1]), [1, 8, 11, 3]),
        ]
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let of = |(op, [batch, height, width, channels]): (Self, [usize; 4])| {
            let extents = Extents { batch, channels, image: [height, width], patches: [0; 2] };
            [DType::F32, DType::BF16].map(|dtype| {
                let shape = op.images(dtype, &extents).shape;
                Case::new(op.clone(), vec![unit(dtype, &shape)])
            })
        };
        Self::samples().into_iter().flat_map(of).collect()
    }
}

impl Rule for Unfold {
    fn name(&self) -> &'static str {
        "unfold"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        Ok(vec![self.columns(x.dtype, &self.extents(x)?)])
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let x = graph.info(node.inputs[0]);
        let name = format!("grad.{}", x.name);
        let image = match self.channels {
            Channels::Last => [x.ty.shape[1], x.ty.shape[2]],
            Channels::First => [x.ty.shape[2], x.ty.shape[3]],
        };
        let op = UnfoldGrad { unfold: self.clone(), image };
        Ok(vec![Some(graph.one(op, &[dy], &name)?)])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let extents = self.extents(inputs[0])?;
        let places = (Place::input(0, inputs[0]), Place::output(0, outputs[0]));
        Ok(self.launches(limits, "unfold", &extents, places, outputs[0].elements() as u64))
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        let extents = self.extents(x.ty()).expect("the graph inferred them");
        out.fill(0.0);
        self.pairs(&extents, |pixel, column| out.set(column, x.get(pixel)));
    }
}

impl UnfoldGrad {
    /// Extents of a use on columns of this type.
    ///
    /// # Errors
    /// In words, where the op doesn't take it.
    pub fn extents(&self, dy: &Type) -> std::result::Result<Extents, String> {
        float("dy", dy)?;
        let patches = self.unfold.patches_of(self.image)?;
        let taps = self.unfold.taps();
        let &[batch, down, across, columns] = &dy.shape[..] else {
            return Err(format!("takes columns of four axes, got {dy}"));
        };
        ensure([down, across] == patches && columns.is_multiple_of(taps), || {
            let [down, across] = patches;
            format!("takes {down} × {across} patches of some channels of {taps} elements, got {dy}")
        })?;
        Ok(Extents { batch, channels: columns / taps, image: self.image, patches })
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let of = |(unfold, [batch, height, width, channels]): (Unfold, [usize; 4])| {
            let image = [height, width];
            let patches = unfold.patches_of(image).expect("cases are valid");
            let extents = Extents { batch, channels, image, patches };
            [DType::F32, DType::BF16].map(|dtype| {
                let shape = unfold.columns(dtype, &extents).shape;
                Case::new(Self { unfold: unfold.clone(), image }, vec![unit(dtype, &shape)])
            })
        };
        Unfold::samples().into_iter().flat_map(of).collect()
    }
}

impl Rule for UnfoldGrad {
    fn name(&self) -> &'static str {
        "unfold_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [dy] = arity(inputs)?;
        Ok(vec![self.unfold.images(dy.dtype, &self.extents(dy)?)])
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(d), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let name = format!("grad.{}", graph.info(node.inputs[0]).name);
        Ok(vec![Some(graph.one(self.unfold.clone(), &[d], &name)?)])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: inputs[0].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let extents = self.extents(inputs[0])?;
        let places = (Place::input(0, inputs[0]), Place::output(0, outputs[0]));
        let flops = inputs[0].elements() as u64;
        Ok(self.unfold.launches(limits, "fold", &extents, places, flops))
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (dy, dx) = (inputs[0], outputs[0]);
        let extents = self.extents(dy.ty()).expect("the graph inferred them");
        // Contributions meet in f64 before the one rounding of the store.
        let mut sums = vec![0.0; dx.len()];
        self.unfold.pairs(&extents, |pixel, column| sums[pixel] += dy.get(column));
        sums.iter().enumerate().for_each(|(index, &sum)| dx.set(index, sum));
    }
}
