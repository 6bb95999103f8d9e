//! scikit-learn's digits, and drawings made like them.

#[cfg(not(target_family = "wasm"))]
pub(super) use built_in::parts;

/// Name of the images, as checkpoints remember it.
pub(super) const NAME: &str = "digits";

/// The images, compiled in. A page fetches them.
#[cfg(not(target_family = "wasm"))]
mod built_in {
    use crate::Result;
    use crate::images::{Parts, idx};

    // Made by `data/assets/digits.py`.
    const IMAGES: &[u8] = include_bytes!("../../assets/digits/digits-images-idx3-ubyte.gz");
    const LABELS: &[u8] = include_bytes!("../../assets/digits/digits-labels-idx1-ubyte.gz");

    pub fn parts() -> Result<Parts> {
        let bytes = |packed: &'static [u8]| std::borrow::Cow::Borrowed(packed).into();
        idx::from_bytes(super::NAME, bytes(IMAGES), bytes(LABELS))
    }
}

/// Pixels of an image along each side.
const SIDE: usize = 8;
/// Pixels along each side of the bitmap that an image is counted from.
const FINE: usize = 32;
/// Pixels of the bitmap that make one of the image, along each side.
const BLOCK: usize = FINE / SIDE;
/// Columns that a digit takes of the bitmap, in its middle; it takes all rows.
const WIDTH: usize = 20;
/// How much wider than tall a digit is stretched at most: a 1 stays narrow.
const MOST_STRETCH: f64 = 1.5;
/// Pixels of ink of a bitmap. Whatever the digit, the images hold about this much, as NIST's program makes strokes thicker
/// and thinner.
const INK: usize = 312;
/// Strength from which a place of a drawing is ink.
const DARK: u8 = 128;

/// A drawing as the digits were made from scanned ones: cut to its ink, stretched to `WIDTH` × `FINE` pixels in the middle
/// of a bitmap of `FINE` × `FINE`, its strokes made as thick as theirs, and the ink of each `BLOCK` × `BLOCK` pixels
/// counted. See <https://archive.ics.uci.edu/dataset/80> and Garris et al., "NIST Form-Based Handprint Recognition System",
/// 1997.
///
/// `ink` is rows of `width` places, 0 for none. Gives rows of 8 × 8 pixels of 17 shades, 0 to 255; `None` where nothing is
/// drawn.
pub fn drawn_digit(ink: &[u8], width: usize) -> Option<Vec<u8>> {
    let rows: Vec<&[u8]> = ink.chunks_exact(width.max(1)).collect();
    let is_ink = |row: usize, column: usize| rows[row][column] >= DARK;
    let inked_row = |&row: &usize| rows[row].iter().any(|&place| place >= DARK);
    let inked_column = |&column: &usize| (0..rows.len()).any(|row| is_ink(row, column));
    let (top, bottom) = ends((0..rows.len()).filter(inked_row))?;
    let (left, right) = ends((0..width).filter(inked_column))?;
    let (tall, wide) = ((bottom - top + 1) as f64, (right - left + 1) as f64);
    let columns = (FINE as f64 * wide / tall * MOST_STRETCH).clamp(1.0, WIDTH as f64);
    let start = (FINE as f64 - columns) / 2.0;
    let mut bitmap = [[false; FINE]; FINE];
    for (y, line) in bitmap.iter_mut().enumerate() {
        let row = top + ((y as f64 + 0.5) * tall / FINE as f64) as usize;
        for (x, pixel) in line.iter_mut().enumerate() {
            let across = (x as f64 + 0.5 - start) / columns;
            let column = left + (across.max(0.0) * wide) as usize;
            *pixel = (0.0..1.0).contains(&across) && is_ink(row.min(bottom), column.min(right));
        }
    }
    let bitmap = thickened(bitmap);
    let count = |y: usize, x: usize| {
        let rows = bitmap[y * BLOCK..(y + 1) * BLOCK].iter();
        rows.flat_map(|row| &row[x * BLOCK..(x + 1) * BLOCK]).filter(|&&pixel| pixel).count()
    };
    let shade = |ink: usize| (ink as f64 * 255.0 / (BLOCK * BLOCK) as f64).round() as u8;
    Some((0..SIDE * SIDE).map(|at| shade(count(at / SIDE, at % SIDE))).collect())
}

fn ends(mut list: impl Iterator<Item = usize>) -> Option<(usize, usize)> {
    let first = list.next()?;
    Some((first, list.last().unwrap_or(first)))
}

type Bitmap = [[bool; FINE]; FINE];

/// The bitmap with the strokes whose ink is nearest to [`INK`].
fn thickened(mut bitmap: Bitmap) -> Bitmap {
    let ink = |bitmap: &Bitmap| bitmap.iter().flatten().filter(|&&pixel| pixel).count();
    let grows = ink(&bitmap) < INK;
    loop {
        let next = stepped(&bitmap, grows);
        let (now, then) = (ink(&bitmap), ink(&next));
        if now == then || then.abs_diff(INK) >= now.abs_diff(INK) {
            return bitmap;
        }
        bitmap = next;
    }
}

/// The bitmap with a pixel more on every side of its ink, or of what isn't.
fn stepped(bitmap: &Bitmap, grows: bool) -> Bitmap {
    let mut next = *bitmap;
    for (y, row) in next.iter_mut().enumerate() {
        for (x, pixel) in row.iter_mut().enumerate().filter(|(_, pixel)| **pixel != grows) {
            let beside = [(y.wrapping_sub(1), x), (y + 1, x), (y, x.wrapping_sub(1)), (y, x + 1)];
            let at = |&(y, x): &(usize, usize)| bitmap.get(y).and_then(|row| row.get(x).copied());
            *pixel = grows == beside.iter().any(|it| at(it) == Some(grows));
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drawing of `side` × `side` places whose ink is what `is_ink` says of (row, column).
    fn drawing(side: usize, is_ink: impl Fn(usize, usize) -> bool) -> Vec<u8> {
        (0..side * side).map(|at| if is_ink(at / side, at % side) { 255 } else { 0 }).collect()
    }

    fn shown(ink: &[u8], width: usize) -> Vec<Vec<u8>> {
        drawn_digit(ink, width).unwrap().chunks(SIDE).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn a_drawing_fills_the_height_wherever_it_is_and_however_large() {
        let ring = |middle: usize, outer: f64| {
            drawing(100, move |y, x| {
                let far = (y as f64 - middle as f64).hypot((x as f64 - middle as f64) * 1.3);
                (outer * 0.6..outer).contains(&far)
            })
        };
        let (large, small) = (shown(&ring(50, 45.0), 100), shown(&ring(30, 20.0), 100));
        for digit in [&large, &small] {
            let columns: Vec<bool> = (0..8).map(|x| digit.iter().any(|row| row[x] > 0)).collect();
            assert_eq!(columns, [false, true, true, true, true, true, true, false]);
            assert!(digit[0].iter().any(|&pixel| pixel > 0) && digit[7].iter().any(|&p| p > 0));
            assert!(digit[3][3] < 64 && digit[4][4] < 64, "a hole stays: {digit:?}");
        }
        let off = large.iter().flatten().zip(small.iter().flatten()).map(|(a, b)| a.abs_diff(*b));
        assert!(off.max() < Some(100));
    }

    #[test]
    fn strokes_become_as_thick_as_those_of_the_digits() {
        let mean = |digit: &[Vec<u8>]| {
            digit.iter().flatten().map(|&pixel| f64::from(pixel)).sum::<f64>() / 64.0
        };
        for thick in [2, 6, 12, 40] {
            let one = shown(&drawing(120, |y, x| (10..110).contains(&y) && x / thick == 1), 120);
            assert!((60.0..100.0).contains(&mean(&one)), "{thick}: {one:?}");
            assert!(one.iter().all(|row| row[0] == 0 && row[7] == 0 && row[3] > 0), "{one:?}");
        }
    }

    #[test]
    fn nothing_drawn_is_nothing() {
        assert_eq!(drawn_digit(&[0; 100], 10), None);
        assert_eq!(drawn_digit(&[], 0), None);
        assert_eq!(drawn_digit(&[], 10), None);
        let dot = drawn_digit(&drawing(9, |y, x| (y, x) == (4, 4)), 9).unwrap();
        assert_eq!(dot.len(), 64);
        assert!(dot.iter().all(|pixel| (u32::from(*pixel) * 16 + 128) % 255 < 16 * 16));
    }
}
