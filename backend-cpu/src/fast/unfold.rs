//! Patches of images as rows of a matrix, and the sum of patches back into images.
//!
//! Letters are those of core's `Unfold`: B images of H × W pixels with C channels, OH × OW patches of KH × KW. Sums are in f32
//! whatever the storage, in the order of the taps.

use tightrope_core::ops::{Channels, Unfold, UnfoldExtents};

use crate::fast::vmath::Storage;
use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block};

/// Channels that are summed at a time, on the stack.
const CHANNELS: usize = 64;

/// out (B, OH, OW, KH·KW·C) from images.
pub fn unfold<T: Storage>(op: &Unfold, extents: &UnfoldExtents, images: &[T], out: &mut [T]) {
    let UnfoldExtents { batch, channels, image: [height, width], patches: [down, across] } =
        *extents;
    let columns = op.taps() * channels;
    let row = across * columns;
    let out = Disjoint::new(out);
    for_each_block(batch * down, block_rows(row), |block| {
        // SAFETY: blocks of rows do not overlap.
        let out = unsafe { out.part(block.start * row, block.len() * row) };
        out.fill(T::from_f32(0.0));
        for (patch, out) in (block.start * across..).zip(out.chunks_exact_mut(columns)) {
            let (b, oy, ox) = (patch / (down * across), patch / across % down, patch % across);
            for tap in 0..op.taps() {
                let (ky, kx) = (tap / op.kernel[1], tap % op.kernel[1]);
                let pixel = op.source(0, oy, ky, height).zip(op.source(1, ox, kx, width));
                let Some((y, x)) = pixel else { continue };
                match op.channels {
                    Channels::Last => {
                        let from = ((b * height + y) * width + x) * channels;
                        out[tap * channels..][..channels]
                            .copy_from_slice(&images[from..from + channels]);
                    }
                    Channels::First => {
                        let from = images[(b * channels * height + y) * width + x..].iter();
                        let to = out[tap..].iter_mut().step_by(op.taps());
                        to.zip(from.step_by(height * width)).for_each(|(to, from)| *to = *from);
                    }
                }
            }
        }
    });
}

/// dx, like the images, from dy (B, OH, OW, KH·KW·C).
pub fn fold<T: Storage>(op: &Unfold, extents: &UnfoldExtents, dy: &[T], dx: &mut [T]) {
    let UnfoldExtents { channels, image: [height, width], .. } = *extents;
    match op.channels {
        Channels::Last => {
            let row = width * channels;
            each_row(dx, row, |index, dx| {
                let (b, y) = (index / height, index % height);
                for (x, dx) in dx.chunks_exact_mut(channels).enumerate() {
                    for (part, dx) in dx.chunks_mut(CHANNELS).enumerate() {
                        let mut sums = [0.0_f32; CHANNELS];
                        for (tap, patch) in taps_of(op, extents, b, [y, x]) {
                            let column = op.column(channels, part * CHANNELS, tap);
                            let dy = &dy[patch * op.taps() * channels + column..][..dx.len()];
                            sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy.to_f32());
                        }
                        dx.iter_mut().zip(sums).for_each(|(dx, sum)| *dx = T::from_f32(sum));
                    }
                }
            });
        }
        Channels::First => each_row(dx, width, |index, dx| {
            let (b, channel, y) =
                (index / (channels * height), index / height % channels, index % height);
            for (x, dx) in dx.iter_mut().enumerate() {
                let terms = taps_of(op, extents, b, [y, x]).map(|(tap, patch)| {
                    let column = op.column(channels, channel, tap);
                    dy[patch * op.taps() * channels + column].to_f32()
                });
                *dx = T::from_f32(terms.sum());
            }
        }),
    }
}

/// Runs `body` for every row of `dx` and its number.
fn each_row<T: Send>(dx: &mut [T], row: usize, body: impl Fn(usize, &mut [T]) + Sync) {
    let Some(rows) = dx.len().checked_div(row) else { return };
    let dx = Disjoint::new(dx);
    for_each_block(rows, block_rows(row), |block| {
        // SAFETY: blocks of rows do not overlap.
        let dx = unsafe { dx.part(block.start * row, block.len() * row) };
        block.zip(dx.chunks_exact_mut(row)).for_each(|(index, dx)| body(index, dx));
    });
}

/// The elements of patches that lie over a pixel: which of its patch, and which patch of all.
fn taps_of<'a>(
    op: &'a Unfold,
    extents: &'a UnfoldExtents,
    b: usize,
    [y, x]: [usize; 2],
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let [down, across] = extents.patches;
    (0..op.taps()).filter_map(move |tap| {
        let (ky, kx) = (tap / op.kernel[1], tap % op.kernel[1]);
        let (oy, ox) = op.patch(0, y, ky, down).zip(op.patch(1, x, kx, across))?;
        Some((tap, (b * down + oy) * across + ox))
    })
}
