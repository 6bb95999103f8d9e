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

/// Weights of the pixels along one axis that make each pixel of the output.
struct Taps {
    /// First pixel that counts.
    first: usize,
    /// Their weights, which sum to 1.
    weights: Vec<f32>,
}

/// Writes the largest part of `image` with the proportions of `shape`, around its centre, to `out` as planes: resampled by a
/// triangle as wide as an output pixel, so that small outputs don't alias, as Pillow's `BILINEAR` does. An image of
/// this size stays as it is.
pub(super) fn cover(image: &Decoded, shape: ImageShape, out: &mut [u8]) {
    let from = image.shape;
    if from == shape {
        let plane = shape.height * shape.width;
        for (place, pixel) in image.pixels.chunks_exact(shape.channels).enumerate() {
            pixel
                .iter()
                .enumerate()
                .for_each(|(channel, &value)| out[channel * plane + place] = value);
        }
        return;
    }
    // Input pixels for each output pixel, alike on both axes.
    let scale =
        (from.height as f64 / shape.height as f64).min(from.width as f64 / shape.width as f64);
    let rows = taps(from.height, shape.height, scale);
    let columns = taps(from.width, shape.width, scale);
    // Columns of the rows that count, then rows: (input row, output column, channel).
    let used = rows.first().map_or(0, |tap| tap.first);
    let end = rows.last().map_or(used, |tap| tap.first + tap.weights.len());
    let mut wide = vec![0.0; (end - used) * shape.width * from.channels];
    let row_elements = from.width * from.channels;
    for (row, to) in image
        .pixels
        .chunks_exact(row_elements)
        .skip(used)
        .zip(wide.chunks_exact_mut(shape.width * from.channels))
    {
        for (tap, to) in columns.iter().zip(to.chunks_exact_mut(from.channels)) {
            for (channel, to) in to.iter_mut().enumerate() {
                let pixel = |at: usize| f32::from(row[(tap.first + at) * from.channels + channel]);
                *to = tap.weights.iter().enumerate().map(|(at, weight)| weight * pixel(at)).sum();
            }
        }
    }
    let plane = shape.height * shape.width;
    let width = shape.width * from.channels;
    let mut pixel = vec![0.0; from.channels];
    for (y, tap) in rows.iter().enumerate() {
        for x in 0..shape.width {
            for (channel, sum) in pixel.iter_mut().enumerate() {
                let at = |row: usize| {
                    wide[(tap.first - used + row) * width + x * from.channels + channel]
                };
                *sum = tap.weights.iter().enumerate().map(|(row, weight)| weight * at(row)).sum();
            }
            for channel in 0..shape.channels {
                let value = match (from.channels, shape.channels) {
                    (3, 1) => luma(&pixel),
                    (1, _) => pixel[0],
                    _ => pixel[channel],
                };
                out[channel * plane + y * shape.width + x] = value.round() as u8;
            }
        }
    }
}

/// Brightness of a colour, by ITU-R BT.601.
fn luma(rgb: &[f32]) -> f32 {
    0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
}

fn taps(from: usize, to: usize, scale: f64) -> Vec<Taps> {
    let start = (from as f64 - to as f64 * scale) / 2.0;
    let reach = scale.max(1.0);
    let taps = |index: usize| {
        let centre = start + (index as f64 + 0.5) * scale;
        let first = (centre - reach).floor().max(0.0) as usize;
        let end = ((centre + reach).ceil() as usize).clamp(first + 1, from);
        let weight = |pixel: usize| (1.0 - (pixel as f64 + 0.5 - centre).abs() / reach).max(0.0);
        let sum: f64 = (first..end).map(weight).sum();
        let weights = (first..end).map(|pixel| (weight(pixel) / sum) as f32).collect();
        Taps { first, weights }
    };
    (0..to).map(taps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(height: usize, width: usize, pixels: Vec<u8>) -> Decoded {
        Decoded { shape: ImageShape { channels: 1, height, width }, pixels }
    }

    fn covered(image: &Decoded, channels: usize, height: usize, width: usize) -> Vec<u8> {
        let shape = ImageShape { channels, height, width };
        let mut out = vec![0; shape.elements()];
        cover(image, shape, &mut out);
        out
    }

    #[test]
    fn an_image_of_the_size_stays_as_it_is() {
        let image = grey(3, 5, (0..15).map(|i| i * 17).collect());
        assert_eq!(covered(&image, 1, 3, 5), image.pixels);
    }

    #[test]
    fn the_middle_is_kept_whatever_the_size() {
        // Black, a white square in the middle, black.
        let pixels: Vec<u8> =
            (0..4 * 12).map(|i| if (4..8).contains(&(i % 12)) { 255 } else { 0 }).collect();
        let wide = grey(4, 12, pixels);
        assert_eq!(covered(&wide, 1, 4, 4), [255; 16]);
        let tall =
            grey(12, 4, (0..48).map(|i| if (16..32).contains(&i) { 255 } else { 0 }).collect());
        assert_eq!(covered(&tall, 1, 4, 4), [255; 16]);
        // Neighbours beyond the part reach into its border, as wide as an output pixel.
        assert_eq!(covered(&wide, 1, 1, 1)[0], 191);
    }

    #[test]
    fn a_constant_stays_one_and_means_stay() {
        for (height, width) in [(1, 1), (2, 7), (31, 9), (200, 3)] {
            let image = grey(height, width, vec![77; height * width]);
            for (to_height, to_width) in [(1, 1), (5, 3), (64, 64)] {
                let out = covered(&image, 3, to_height, to_width);
                assert!(out.iter().all(|&pixel| pixel == 77), "{height} × {width}");
            }
        }
        let checks =
            grey(64, 64, (0..4096).map(|i| if (i / 64 + i) % 2 == 0 { 255 } else { 0 }).collect());
        assert!(covered(&checks, 1, 8, 8).iter().all(|&pixel| pixel.abs_diff(128) <= 1));
    }

    #[test]
    fn colours_become_grey_by_their_brightness() {
        let shape = ImageShape { channels: 3, height: 1, width: 3 };
        let image = Decoded { shape, pixels: vec![255, 0, 0, 0, 255, 0, 0, 0, 255] };
        assert_eq!(covered(&image, 1, 1, 3), [76, 150, 29]);
        assert_eq!(covered(&image, 3, 1, 3), [255, 0, 0, 0, 255, 0, 0, 0, 255]);
    }
}
