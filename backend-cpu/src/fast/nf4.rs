//! 4-bit NormalFloat: two codes a byte, each as its level times its block's scale. Letters are those of core's `DequantizeNf4`.

use tightrope_core::ops::LEVELS;

use crate::fast::vmath::Storage;
use crate::fast::vmath::parallel::{Disjoint, for_each_block};

/// Elements of a task of the thread pool.
const TASK: usize = 1 << 14;

/// Writes the value of every code, of blocks with an even number of elements.
///
/// # Panics
/// If the lengths do not agree.
pub fn dequantize<X: Storage>(block: usize, bytes: &[u8], scales: &[f32], x: &mut [X]) {
    assert!(block.is_multiple_of(2), "a block ends within a byte");
    assert_eq!(x.len().div_ceil(2), bytes.len(), "two elements a byte");
    assert_eq!(x.len().div_ceil(block), scales.len(), "one scale a block");
    let elements = x.len();
    let x = Disjoint::new(x);
    for_each_block(scales.len(), (TASK / block).max(1), |blocks| {
        let range = blocks.start * block..(blocks.end * block).min(elements);
        // SAFETY: ranges of blocks do not overlap.
        let x = unsafe { x.part(range.start, range.len()) };
        let bytes = bytes[range.start / 2..range.end.div_ceil(2)].chunks(block / 2);
        for ((x, bytes), scale) in x.chunks_mut(block).zip(bytes).zip(&scales[blocks]) {
            // Sixteen roundings serve the block's 64.
            let values = LEVELS.map(|level| X::from_f32(level * scale));
            let (pairs, rest) = x.as_chunks_mut::<2>();
            for (pair, &byte) in pairs.iter_mut().zip(bytes) {
                *pair = [values[usize::from(byte >> 4)], values[usize::from(byte & 15)]];
            }
            if let ([last], [.., byte]) = (rest, bytes) {
                *last = values[usize::from(byte >> 4)];
            }
        }
    });
}
