//! Frozen weights of linear layers in 8 or 4 bits, dequantized before each matmul (as in QLoRA: Dettmers et al. 2023).
//!
//! | bits | storage | bits a weight |
//! |---|---|---|
//! | 8 | whole numbers from −127 to 127 in blocks of [`BLOCK`], an f32 scale each | 8.125 |
//! | 4 | 4-bit NormalFloat in blocks of 64, whose scales are in 8 bits less their mean: double quantization | 4.127 |
//!
//! In 4 bits, each tensor of a Hugging Face file has a mean of its own, as in bitsandbytes, also where a parameter holds several.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tightrope_core::expr::input;
use tightrope_core::ops::{
    Codebook, Concat, Dequantize, DequantizeNf4, Map, NF4_BLOCK, NF4_SCALES, Nf4, Nf4Scales,
    nf4_bytes,
};
use tightrope_core::{Class, DType, Graph, Tensor, Type};

use crate::error::Result;
use crate::params::{Parameter, Part};

/// Elements that share a scale in 8 bits.
pub(crate) const BLOCK: usize = 256;
/// How 8-bit weights are quantized. Their values are spread about evenly within a block, where the linear codebook has a smaller
/// error than the dynamic ones, whose many decades serve moments.
const CODEBOOK: Codebook = Codebook::Linear;

/// Bits of each frozen weight of a linear layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Option<u32>")]
pub enum FrozenBits {
    /// Those of the run's precision.
    #[default]
    Precision,
    /// Quantized in blocks.
    B8,
    /// 4-bit NormalFloat.
    B4,
}

/// What files say: a number of bits, or whether there are 8, as earlier ones did.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Bits(Option<u32>),
    Quantized(bool),
}

impl From<Written> for FrozenBits {
    fn from(written: Written) -> Self {
        match written {
            Written::Bits(bits) => bits.into(),
            Written::Quantized(quantized) => quantized.then_some(8).into(),
        }
    }
}

impl From<Option<u32>> for FrozenBits {
    /// Of 8 and 4; any other number is the precision's.
    fn from(bits: Option<u32>) -> Self {
        match bits {
            Some(8) => Self::B8,
            Some(4) => Self::B4,
            _ => Self::Precision,
        }
    }
}

impl From<FrozenBits> for Option<u32> {
    fn from(bits: FrozenBits) -> Self {
        match bits {
            FrozenBits::Precision => None,
            FrozenBits::B8 => Some(8),
            FrozenBits::B4 => Some(4),
        }
    }
}

impl FrozenBits {
    /// `values` of a parameter as training sees them: rounded to what is stored.
    pub(crate) fn round(self, parameter: &Parameter, values: &mut [f32]) {
        match self {
            Self::Precision => {}
            Self::B8 => {
                let (codes, scales) = quantize(CODEBOOK, values);
                let blocks = values.chunks_mut(BLOCK).zip(codes.chunks(BLOCK)).zip(scales);
                for ((block, codes), scale) in blocks {
                    for (value, &code) in block.iter_mut().zip(codes) {
                        *value = CODEBOOK.value(code.into()) as f32 * scale;
                    }
                }
            }
            Self::B4 => {
                for part in parts(parameter) {
                    let values = &mut values[part];
                    let quantized = Nf4::of(values);
                    values.copy_from_slice(&quantized.values(values.len()));
                }
            }
        }
    }
}

/// Elements of the tensors of a Hugging Face file that a parameter holds; all of it where one ends within a block.
fn parts(parameter: &Parameter) -> Vec<Range<usize>> {
    let columns = parameter.columns();
    let elements = |part: &Part| part.rows.start * columns..part.rows.end * columns;
    let parts: Vec<Range<usize>> = parameter.parts.iter().map(elements).collect();
    let follow = parts.windows(2).all(|pair| pair[0].end == pair[1].start);
    let whole = parts.iter().all(|part| part.start.is_multiple_of(NF4_BLOCK));
    let all = 0..parameter.elements();
    let covered = parts.first().map(|part| part.start) == Some(0)
        && parts.last().map(|part| part.end) == Some(all.end);
    if follow && whole && covered { parts } else { vec![all] }
}

/// A quantized weight in a graph.
#[derive(Clone, Debug)]
pub(crate) enum Quantized {
    /// In 8 bits: whole numbers, and their scales.
    B8 { codes: Tensor, scales: Tensor },
    /// In 4 bits: bytes of two codes, and the scales of each part.
    B4 { bytes: Tensor, parts: Vec<Scales> },
}

/// Scales in 8 bits.
#[derive(Clone, Debug)]
pub(crate) struct Scales {
    /// Those of the weight that they are.
    range: Range<usize>,
    codes: Tensor,
    /// Scales of the codes.
    scales: Tensor,
    /// The mean, f32 (1).
    offset: Tensor,
}

impl Quantized {
    /// Declares the tensors of a weight; none where it's stored in the precision.
    pub fn declare(graph: &mut Graph, parameter: &Parameter, bits: FrozenBits) -> Option<Self> {
        let mut tensor = |end: String, dtype, shape: &[usize]| {
            let name = format!("{}.{end}", parameter.name);
            graph.persistent(&name, Type::new(dtype, shape), Class::Frozen)
        };
        let elements = parameter.elements();
        match bits {
            FrozenBits::Precision => None,
            FrozenBits::B8 => Some(Self::B8 {
                codes: tensor("codes".into(), CODEBOOK.dtype(), &parameter.shape),
                scales: tensor("scales".into(), DType::F32, &[elements.div_ceil(BLOCK)]),
            }),
            FrozenBits::B4 => {
                let bytes = tensor("nf4".into(), DType::U8, &[elements.div_ceil(2)]);
                let scales = |(index, part): (usize, Range<usize>)| {
                    let range = part.start / NF4_BLOCK..part.end.div_ceil(NF4_BLOCK);
                    let name = |end: &str| format!("scales.{index}{end}");
                    let blocks = range.len().div_ceil(NF4_SCALES);
                    Scales {
                        codes: tensor(name(""), Codebook::Signed.dtype(), &[range.len()]),
                        scales: tensor(name(".scales"), DType::F32, &[blocks]),
                        offset: tensor(name(".mean"), DType::F32, &[1]),
                        range,
                    }
                };
                let parts = parts(parameter).into_iter().enumerate().map(scales).collect();
                Some(Self::B4 { bytes, parts })
            }
        }
    }

    /// The tensor that holds its codes.
    pub fn codes(&self) -> Tensor {
        match self {
            Self::B8 { codes, .. } => *codes,
            Self::B4 { bytes, .. } => *bytes,
        }
    }

    /// All of its tensors.
    pub fn tensors(&self) -> Vec<Tensor> {
        self.clone().tensors_mut().into_iter().map(|tensor| *tensor).collect()
    }

    /// The same, to be replaced.
    pub fn tensors_mut(&mut self) -> Vec<&mut Tensor> {
        match self {
            Self::B8 { codes, scales } => vec![codes, scales],
            Self::B4 { bytes, parts } => {
                let of = |part| {
                    let Scales { codes, scales, offset, .. }: &mut Scales = part;
                    [codes, scales, offset]
                };
                [bytes].into_iter().chain(parts.iter_mut().flat_map(of)).collect()
            }
        }
    }

    /// Appends what gives its values in `dtype`.
    pub fn read(&self, graph: &mut Graph, parameter: &Parameter, dtype: DType) -> Result<Tensor> {
        let name = &parameter.name;
        let value = match self {
            Self::B8 { codes, scales } => {
                let op = Dequantize { block: BLOCK, codebook: CODEBOOK, dtype };
                graph.one(op, &[*codes, *scales], name)?
            }
            Self::B4 { bytes, parts } => {
                let mut full = vec![];
                for Scales { codes, scales, offset, .. } in parts {
                    let dtype = DType::F32;
                    let op = Dequantize { block: NF4_SCALES, codebook: Codebook::Signed, dtype };
                    let apart = graph.one(op, &[*codes, *scales], &format!("{name}.apart"))?;
                    graph.info_mut(apart).class = Class::Frozen;
                    let sum = Map::new(input(0) + input(1), dtype);
                    full.push(graph.one(sum, &[apart, *offset], &format!("{name}.part"))?);
                }
                let scales = match full[..] {
                    [scales] => scales,
                    _ => graph.one(Concat { axis: 0 }, &full, &format!("{name}.scales"))?,
                };
                full.push(scales);
                for tensor in full {
                    graph.info_mut(tensor).class = Class::Frozen;
                }
                let shape = parameter.shape.clone();
                let op = DequantizeNf4 { shape, block: NF4_BLOCK, dtype };
                graph.one(op, &[*bytes, scales], name)?
            }
        };
        graph.info_mut(value).class = Class::Frozen;
        Ok(value)
    }

    /// What a device holds for the `values` from element `first` on, as tensors with their first element and numbers. `scales_before`
    /// are those of the pieces before this one, which follow each other from the first on; the last piece of a weight of
    /// `elements` has what follows from all of them.
    pub fn written(
        &self,
        (first, elements): (usize, usize),
        values: &[f32],
        scales_before: &mut Vec<f32>,
    ) -> Vec<(Tensor, usize, Vec<f32>)> {
        match self {
            Self::B8 { codes, scales } => {
                let (quantized, scale) = quantize(CODEBOOK, values);
                vec![(*codes, first, quantized), (*scales, first / BLOCK, scale)]
            }
            Self::B4 { bytes, parts } => {
                if first == 0 {
                    scales_before.clear();
                }
                let (packed, of_piece) = nf4_bytes(values);
                scales_before.extend(of_piece);
                let packed = packed.into_iter().map(f32::from).collect();
                let mut written = vec![(*bytes, first / 2, packed)];
                if first + values.len() == elements {
                    for Scales { range, codes, scales, offset } in parts {
                        let quantized = Nf4Scales::of(&scales_before[range.clone()]);
                        let numbers = quantized.codes.into_iter().map(f32::from).collect();
                        written.push((*codes, 0, numbers));
                        written.push((*scales, 0, quantized.scales));
                        written.push((*offset, 0, vec![quantized.offset]));
                    }
                }
                written
            }
        }
    }
}

/// The quantized values of a weight, and the scale of each block.
fn quantize(codebook: Codebook, values: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut quantized, mut scales) = (Vec::with_capacity(values.len()), vec![]);
    for block in values.chunks(BLOCK) {
        let largest = block.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        let scale = largest / codebook.largest() as f32;
        scales.push(scale);
        let part = |&x: &f32| if scale > 0.0 { f64::from(x) / f64::from(scale) } else { 0.0 };
        quantized.extend(block.iter().map(|x| codebook.nearest(part(x)) as f32));
    }
    (quantized, scales)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial_values;
    use crate::params::Init;

    fn weights() -> Vec<f32> {
        initial_values(&Parameter::new("w", &[64, 512], Init::Normal { std: 0.02 }), 3)
    }

    /// Root of the mean square of what `rounded` is off, in standard deviations of the weights.
    fn error(values: &[f32], rounded: &[f32]) -> f64 {
        let off = values.iter().zip(rounded).map(|(x, y)| f64::from(x - y).powi(2));
        (off.sum::<f64>() / values.len() as f64).sqrt() / 0.02
    }

    /// Why [`CODEBOOK`] is what it is.
    #[test]
    fn the_linear_codebook_is_off_by_less_than_the_dynamic_one_on_weights() {
        let values = weights();
        let of = |codebook: Codebook| {
            let (quantized, scales) = quantize(codebook, &values);
            let rounded: Vec<f32> = quantized
                .iter()
                .enumerate()
                .map(|(i, &c)| codebook.value(c.into()) as f32 * scales[i / BLOCK])
                .collect();
            error(&values, &rounded)
        };
        let (linear, dynamic) = (of(CODEBOOK), of(Codebook::Signed));
        assert!(linear < 0.008 && linear < 0.7 * dynamic, "{linear} and {dynamic}");
    }

    #[test]
    fn fewer_bits_are_off_by_more() {
        let values = weights();
        let [none, eight, four] =
            [FrozenBits::Precision, FrozenBits::B8, FrozenBits::B4].map(|bits| {
                let mut rounded = values.clone();
                bits.round(&Parameter::new("w", &[64, 512], Init::Zeros), &mut rounded);
                error(&values, &rounded)
            });
        assert!(none == 0.0 && eight < 0.008 && (0.05..0.1).contains(&four), "{eight} and {four}");
    }

    #[test]
    fn pieces_give_what_the_whole_does() {
        let values = weights();
        let parameter = Parameter::new("w", &[values.len()], Init::Zeros);
        for bits in [FrozenBits::B8, FrozenBits::B4] {
            let mut graph = Graph::new();
            let weight = Quantized::declare(&mut graph, &parameter, bits).unwrap();
            let mut scales = vec![];
            let whole = weight.written((0, values.len()), &values, &mut scales);
            let mut pieces: Vec<(Tensor, Vec<f32>)> = vec![];
            for (piece, part) in values.chunks(1 << 13).enumerate() {
                for (tensor, first, numbers) in
                    weight.written((piece << 13, values.len()), part, &mut scales)
                {
                    match pieces.iter_mut().find(|(known, _)| *known == tensor) {
                        Some((_, known)) => {
                            assert_eq!(known.len(), first);
                            known.extend(numbers);
                        }
                        None => pieces.push((tensor, numbers)),
                    }
                }
            }
            let whole: Vec<_> = whole.into_iter().map(|(tensor, _, n)| (tensor, n)).collect();
            assert_eq!(pieces, whole, "{bits:?}");
        }
    }

    #[test]
    fn files_say_bits_or_whether_there_are_8() {
        for (text, bits) in [
            ("8", FrozenBits::B8),
            ("4", FrozenBits::B4),
            ("null", FrozenBits::Precision),
            ("true", FrozenBits::B8),
            ("false", FrozenBits::Precision),
        ] {
            assert_eq!(serde_json::from_str::<FrozenBits>(text).unwrap(), bits, "{text}");
        }
        assert_eq!(serde_json::to_string(&FrozenBits::B4).unwrap(), "4");
    }
}
