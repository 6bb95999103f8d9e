//! What the inputs of a case hold: a function of the case's samples and nothing else, so that every backend
//! and every run sees the same bytes.

use crate::DType;
use crate::ops::{Case, Fill, Sample};

/// Number `index` of stream `stream`, uniform in [0, 1) with 53 random bits (SplitMix64, Steele et al. 2014).
pub fn uniform(stream: u64, index: u64) -> f64 {
    (mix(mix(stream).wrapping_add(index)) >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Element `index` of an input filled by `fill`, before it is rounded to the input's dtype.
pub fn element(fill: Fill, stream: u64, index: usize) -> f64 {
    let unit = uniform(stream, index as u64);
    match fill {
        Fill::Uniform(low, high) => low + unit * (high - low),
        Fill::Whole(low, high) => (low as f64 + unit * (high - low) as f64).floor(),
    }
}

/// Bytes of one input. Inputs of a case differ by their `stream`.
pub fn sample(sample: &Sample, stream: u64) -> Vec<u8> {
    let values = (0..sample.ty.elements()).map(|index| element(sample.fill, stream, index));
    encode(sample.ty.dtype, values)
}

/// Bytes of every input of a case.
pub fn inputs(case: &Case) -> Vec<Vec<u8>> {
    samples(&case.inputs)
}

/// Bytes of each of `list`, every one from a stream of its own.
pub fn samples(list: &[Sample]) -> Vec<Vec<u8>> {
    (0..).zip(list).map(|(stream, entry)| sample(entry, stream)).collect()
}

/// Numbers as the bytes of a tensor, rounded to `dtype`.
pub fn encode(dtype: DType, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let mut bytes = vec![];
    for value in values {
        let start = bytes.len();
        bytes.resize(start + dtype.size(), 0);
        dtype.write(&mut bytes[start..], value);
    }
    bytes
}

/// The numbers in a tensor's bytes.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(dtype.size()).map(|element| dtype.read(element)).collect()
}

#[cfg(test)]
mod tests {
    use crate::Type;

    use super::*;

    #[test]
    fn fills_stay_in_their_interval_and_reach_its_ends() {
        let whole: Vec<f64> =
            (0..1000).map(|index| element(Fill::Whole(-1, 3), 7, index)).collect();
        for value in [-1.0, 0.0, 1.0, 2.0] {
            assert!(whole.contains(&value), "{value} never drawn");
        }
        assert!(whole.iter().all(|value| (-1.0..=2.0).contains(value)));
        let mean: f64 =
            (0..10_000).map(|index| element(Fill::Uniform(2.0, 4.0), 1, index)).sum::<f64>() / 1e4;
        assert!((mean - 3.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn streams_differ_and_runs_do_not() {
        let entry = Sample { ty: Type::new(DType::BF16, [64]), fill: Fill::Uniform(-1.0, 1.0) };
        assert_eq!(sample(&entry, 0), sample(&entry, 0));
        assert_ne!(sample(&entry, 0), sample(&entry, 1));
    }

    #[test]
    fn numbers_survive_the_bytes() {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16, DType::I32, DType::I8] {
            let values = [-3.0, 0.0, 1.0, 2.0];
            assert_eq!(decode(dtype, &encode(dtype, values)), values, "{dtype}");
        }
    }
}
