//! Resampling of images to one size.

use super::ImageShape;

/// A decoded image: rows of pixels, the channels of each in a row.
pub(super) struct Decoded {
    pub shape: ImageShape,
    pub pixels: Vec<u8>,
}

impl Decoded {
    pub fn new(shape: ImageShape, pixels: Vec<u8>) -> Result<Self, String> {
        if pixels.is_empty() || pixels.len() != shape.elements() {
            return Err(format!("it is {shape}, and {} bytes were decoded", pixels.len()));
        }
        Ok(Self { shape, pixels })
    }
}

/// Bits after the point of a weight: Pillow's, so that a sum of bytes stays within 32 bits.
const FRACTION: u32 = 32 - 8 - 2;

/// Weights of the pixels along one axis that make each pixel of the output.
struct Taps {
    /// First pixel that counts.
    first: usize,
    /// Their weights, of [`FRACTION`] bits, which sum to 1.
    weights: Vec<i32>,
}

/// Writes `image` in the size of `shape` to `out` as planes: resampled along each axis by a triangle as wide as an output pixel, so that
/// small outputs don't alias. Its bits are those of Pillow's `resize(…, BILINEAR)` after `convert`, as a `ViTImageProcessor` has them.
/// Proportions aren't kept.
pub(super) fn resize(image: &Decoded, shape: ImageShape, out: &mut [u8]) {
    let grey = (shape.channels < image.shape.channels).then(|| luma(image));
    let image = grey.as_ref().unwrap_or(image);
    let (from, channels) = (image.shape, image.shape.channels);
    let columns = taps(from.width, shape.width);
    let mut wide = Vec::with_capacity(from.height * shape.width * channels);
    for row in image.pixels.chunks_exact(from.width * channels) {
        for tap in &columns {
            wide.extend((0..channels).map(|channel| tap.sum(&row[channel..], channels)));
        }
    }
    let width = shape.width * channels;
    for (y, tap) in taps(from.height, shape.height).iter().enumerate() {
        for x in 0..shape.width {
            for (channel, plane) in out.chunks_exact_mut(shape.height * shape.width).enumerate() {
                // Grey is every channel's.
                let from = x * channels + channel.min(channels - 1);
                plane[y * shape.width + x] = tap.sum(&wide[from..], width);
            }
        }
    }
}

/// Brightness of colours, by ITU-R BT.601, as Pillow rounds it.
fn luma(image: &Decoded) -> Decoded {
    let of = |rgb: &[u8]| {
        let [r, g, b] = [rgb[0], rgb[1], rgb[2]].map(u32::from);
        ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8
    };
    let shape = ImageShape { channels: 1, ..image.shape };
    Decoded { shape, pixels: image.pixels.chunks_exact(3).map(of).collect() }
}

impl Taps {
    /// The weighted sum of elements `step` apart.
    fn sum(&self, elements: &[u8], step: usize) -> u8 {
        let taps = elements[self.first * step..].iter().step_by(step).zip(&self.weights);
        let half = 1 << (FRACTION - 1);
        let sum = taps.fold(half, |sum, (&element, weight)| sum + i32::from(element) * weight);
        (sum >> FRACTION).clamp(0, 255) as u8
    }
}

fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    let taps = |index: usize| {
        let centre = (index as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let end = ((centre + reach + 0.5) as usize).min(from);
        let weight =
            |pixel: usize| (1.0 - ((pixel as f64 - centre + 0.5) * (1.0 / reach)).abs()).max(0.0);
        let sum: f64 = (first..end).map(weight).sum();
        let fixed = |pixel| (0.5 + weight(pixel) / sum * f64::from(1 << FRACTION)) as i32;
        Taps { first, weights: (first..end).map(fixed).collect() }
    };
    (0..to).map(taps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(height: usize, width: usize, pixels: Vec<u8>) -> Decoded {
        Decoded { shape: ImageShape { channels: 1, height, width }, pixels }
    }

    fn resized(image: &Decoded, channels: usize, height: usize, width: usize) -> Vec<u8> {
        let shape = ImageShape { channels, height, width };
        let mut out = vec![0; shape.elements()];
        resize(image, shape, &mut out);
        out
    }

    #[test]
    fn an_image_of_the_size_stays_as_it_is() {
        let image = grey(3, 5, (0..15).map(|i| i * 17).collect());
        assert_eq!(resized(&image, 1, 3, 5), image.pixels);
    }

    #[test]
    fn an_axis_is_resampled_without_the_other() {
        // Black, a white square in the middle, black.
        let white = |at: usize| if (4..8).contains(&at) { 255 } else { 0 };
        let wide = grey(4, 12, (0..48).map(|i| white(i % 12)).collect());
        assert_eq!(resized(&wide, 1, 1, 3), [36, 191, 36]);
        let tall = grey(12, 4, (0..48).map(|i| white(i / 4)).collect());
        assert_eq!(resized(&tall, 1, 3, 1), [36, 191, 36]);
    }

    #[test]
    fn a_constant_stays_one_and_means_stay() {
        for (height, width) in [(1, 1), (2, 7), (31, 9), (200, 3)] {
            let image = grey(height, width, vec![77; height * width]);
            for (to_height, to_width) in [(1, 1), (5, 3), (64, 64)] {
                let out = resized(&image, 3, to_height, to_width);
                assert!(out.iter().all(|&pixel| pixel == 77), "{height} × {width}");
            }
        }
        let checks =
            grey(64, 64, (0..4096).map(|i| if (i / 64 + i) % 2 == 0 { 255 } else { 0 }).collect());
        assert!(resized(&checks, 1, 8, 8).iter().all(|&pixel| pixel.abs_diff(128) <= 1));
    }

    #[test]
    fn colours_become_grey_by_their_brightness() {
        let shape = ImageShape { channels: 3, height: 1, width: 3 };
        let image = Decoded { shape, pixels: vec![255, 0, 0, 0, 255, 0, 0, 0, 255] };
        assert_eq!(resized(&image, 1, 1, 3), [76, 150, 29]);
        assert_eq!(resized(&image, 3, 1, 3), [255, 0, 0, 0, 255, 0, 0, 0, 255]);
    }
}
