//! Tensor maps as `kernels/emulator/hopper.h` reads them, for what the driver of a GPU takes.

use std::ops::Range;

use tightrope_core::launch::Boxed;

use crate::source::TensorMap;

/// Bytes that move together, of which addresses and strides are multiples.
const CHUNK_BYTES: u64 = 16;

/// Most elements of a box along an axis.
const MOST_ELEMENTS: u32 = 256;

/// The map of a tensor in `memory`.
///
/// # Errors
/// In words, what a driver would refuse (CUDA Driver API, `cuTensorMapEncodeTiled`).
pub fn encode(boxed: &Boxed, address: u64, memory: Range<u64>) -> Result<TensorMap, String> {
    let Boxed { name, place, extents, strides, edges, .. } = boxed;
    let size = place.dtype.size() as u64;
    let strides = strides.map(|stride| stride * size);
    let refused = |why: &str| Err(format!("`{name}` has no tensor map: {why} ({boxed:?})"));
    if !address.is_multiple_of(CHUNK_BYTES) {
        return refused("it begins at no multiple of 16 bytes");
    }
    if !strides.iter().all(|stride| stride.is_multiple_of(CHUNK_BYTES) && *stride < 1 << 40) {
        return refused("its strides are no multiples of 16 bytes below 2^40");
    }
    if strides[0] < extents[0] * size
        || strides[1] < extents[1] * strides[0]
        || !strides[1].is_multiple_of(strides[0])
    {
        return refused("its axes don't lie within each other");
    }
    if !extents.iter().all(|extent| (1..=1 << 32).contains(extent)) {
        return refused("its extents are none");
    }
    if !edges.iter().all(|edge| (1..=MOST_ELEMENTS).contains(edge))
        || u64::from(edges[0]) * size != Boxed::ROW_BYTES.into()
    {
        return refused("its boxes have other rows than are swizzled, or more than 256 elements");
    }
    let last: u64 = [size, strides[0], strides[1]]
        .iter()
        .zip(extents)
        .map(|(stride, extent)| stride * (extent - 1))
        .sum();
    if address < memory.start || address + last + size > memory.end {
        return refused("it lies outside of what was allocated");
    }
    let pieces = Boxed::ROW_BYTES / CHUNK_BYTES as u32;
    let wide = [address].into_iter().chain(*extents).chain(strides).flat_map(u64::to_le_bytes);
    let narrow = edges.iter().copied().chain([size as u32, pieces]).flat_map(u32::to_le_bytes);
    let mut map = [0; size_of::<TensorMap>()];
    map.iter_mut().zip(wide.chain(narrow)).for_each(|(to, byte)| *to = byte);
    Ok(map)
}

#[cfg(test)]
mod tests {
    use tightrope_core::DType;
    use tightrope_core::launch::{Place, Source};

    use super::*;

    #[test]
    fn what_a_driver_refuses_is_refused() {
        let elements = 2 * 8 * 64;
        let place = Place { source: Source::Scratch, dtype: DType::BF16, first: 0, elements };
        let whole = Boxed {
            name: "x",
            place,
            first: 0,
            extents: [60, 8, 2],
            strides: [64, 8 * 64],
            edges: [64, 64, 1],
        };
        let memory = 1 << 20..(1 << 20) + 2 * elements;
        let of = |boxed: Boxed, address| encode(&boxed, address, memory.clone());
        assert!(of(whole, memory.start).is_ok());
        for (boxed, address) in [
            (whole, memory.start + 8),
            (whole, memory.start + 2 * elements),
            (Boxed { strides: [60, 480], ..whole }, memory.start),
            (Boxed { strides: [64, 64], ..whole }, memory.start),
            (Boxed { extents: [0, 8, 2], ..whole }, memory.start),
            (Boxed { extents: [60, 8, 3], ..whole }, memory.start),
            (Boxed { edges: [128, 64, 1], ..whole }, memory.start),
            (Boxed { edges: [64, 257, 1], ..whole }, memory.start),
        ] {
            assert!(of(boxed, address).is_err(), "{boxed:?} at {address}");
        }
    }
}
