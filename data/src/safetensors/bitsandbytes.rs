//! Weights that bitsandbytes quantized, as its state dictionaries hold them.
//!
//! | of a weight `w` (out, in) | holds |
//! |---|---|
//! | `w`, U8, or the bytes as floats | two codes of 4 bits a byte, the first in the upper half |
//! | `w.quant_map`, f32 (16) | the numbers that codes stand for, as parts of a block's scale |
//! | `w.absmax` | the scale of each block: f32, or U8 codes of `w.nested_quant_map` (256) with the scales `w.nested_absmax` |
//! | `w.quant_state.bitsandbytes__nf4` or `fp4` | JSON: block sizes, shape, dtype, and what's added to nested scales |
//! | `w`, I8, with `SCB` f32 (out) beside it | whole numbers of −127 to 127, as parts of the largest absolute value of their row |

use std::collections::BTreeMap;

use half::{bf16, f16};
use serde::Deserialize;

use super::TensorView;

/// Ends of the names of a weight's description.
const STATES: [&str; 2] = [".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"];
/// Ends of names of what a weight of 4 bits has besides.
const PARTS: [&str; 4] = [".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"];
const WEIGHT: &str = ".weight";
/// Beside a weight of 8 bits: scales of its rows, and how they lie.
const SCALES: &str = ".SCB";
const FORMAT: &str = ".weight_format";
/// 1 / 127, as bitsandbytes multiplies by it.
const PER_STEP: f32 = 7.874_016e-3;

/// The reason why a weight is refused.
type Problem = String;

/// A form of quantized weights.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Quantized {
    Four(State),
    /// Its extents.
    Eight(Vec<usize>),
    /// The transpose of one, which it's read as: its extents, and what is stored.
    Transposed(Vec<usize>, Box<Quantized>),
}

/// Quantized weights by name, and the names of all that belongs to them.
pub(super) type Found = (BTreeMap<String, Quantized>, Vec<String>);

/// The description of a weight of 4 bits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct State {
    blocksize: usize,
    dtype: String,
    shape: Vec<usize>,
    nested_blocksize: Option<usize>,
    nested_offset: Option<f64>,
}

/// A quantized weight's parts.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    pub how: &'a Quantized,
    /// Of blocks, or of rows.
    scales: &'a [u8],
    map: &'a [u8],
    /// Scales of scales, and the numbers that their codes stand for.
    nested: Option<[&'a [u8]; 2]>,
}

/// The quantized weights among tensors of these names, and the names of all that belongs to them. `get` gives a tensor.
///
/// # Errors
/// A weight whose parts are missing or don't fit each other.
pub(super) fn found<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    get: &dyn Fn(&str) -> Option<TensorView<'a>>,
) -> Result<Found, (String, Problem)> {
    let (mut weights, mut parts) = (BTreeMap::new(), Vec::new());
    for name in names {
        if let Some(weight) = STATES.iter().find_map(|end| name.strip_suffix(end)) {
            let refused = |problem: Problem| (weight.to_owned(), problem);
            let state = get(name).ok_or_else(|| refused("its description is missing".into()))?;
            let state: State = serde_json::from_slice(state.bytes)
                .map_err(|error| refused(format!("its description can't be read ({error})")))?;
            check_four(weight, &state, get).map_err(refused)?;
            weights.insert(weight.to_owned(), Quantized::Four(state));
            parts.push(name.to_owned());
            parts.extend(PARTS.iter().map(|end| format!("{weight}{end}")));
        } else if let Some(layer) = name.strip_suffix(SCALES) {
            let weight = format!("{layer}{WEIGHT}");
            let refused = |problem: Problem| (weight.clone(), problem);
            let found = get(&weight)
                .ok_or_else(|| refused("it's missing, and its scales are there".into()))?;
            let shape = found.shape.to_vec();
            let rows = get(name).filter(|scales| {
                scales.dtype == "F32"
                    && scales.bytes.len() == 4 * shape.first().copied().unwrap_or(0)
            });
            if found.dtype != "I8" || shape.len() != 2 || rows.is_none() {
                return Err(refused("it isn't a matrix of int8 with a scale for each row".into()));
            }
            let format = get(&format!("{layer}{FORMAT}"));
            if format.is_some_and(|format| format.bytes.iter().any(|&byte| byte != 0)) {
                return Err(refused(
                    "its layout isn't by rows, which is the only one that is read".into(),
                ));
            }
            weights.insert(weight, Quantized::Eight(shape));
            parts.extend([name.to_owned(), format!("{layer}{FORMAT}")]);
        }
    }
    Ok((weights, parts))
}

fn check_four<'a>(
    weight: &str,
    state: &State,
    get: &dyn Fn(&str) -> Option<TensorView<'a>>,
) -> Result<(), Problem> {
    let of = |end: &str| {
        let name = format!("{weight}{end}");
        get(&name).ok_or_else(|| format!("`{name}` is missing"))
    };
    let elements = state.shape.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
    let elements = elements.filter(|&all| all > 0).ok_or("its shape is empty or too large")?;
    let blocks = elements.div_ceil(state.blocksize.max(1));
    let codes = of("")?;
    let is_storage = ["U8", "BF16", "F16", "F32"].contains(&codes.dtype);
    if !is_storage || codes.bytes.len() != elements.div_ceil(2) {
        return Err(format!(
            "its codes are {} bytes of {}, which aren't two a byte of shape {:?}",
            codes.bytes.len(),
            codes.dtype,
            state.shape
        ));
    }
    if !["float32", "bfloat16", "float16"].contains(&state.dtype.as_str()) {
        return Err(format!("its dtype is {:?}", state.dtype));
    }
    let (map, scales) = (of(".quant_map")?, of(".absmax")?);
    let fits = |found: &TensorView<'_>, dtype: &str, count: usize, size: usize| {
        found.dtype == dtype && found.bytes.len() == count * size
    };
    let nested = match (state.nested_blocksize, state.nested_offset) {
        (None, _) => fits(&scales, "F32", blocks, 4),
        (Some(block), Some(offset)) => {
            let outer = blocks.div_ceil(block.max(1));
            offset.is_finite()
                && fits(&scales, "U8", blocks, 1)
                && fits(&of(".nested_absmax")?, "F32", outer, 4)
                && fits(&of(".nested_quant_map")?, "F32", 256, 4)
        }
        (Some(_), None) => false,
    };
    match nested && state.blocksize > 0 && fits(&map, "F32", 16, 4) {
        true => Ok(()),
        false => Err("its scales don't fit its shape".into()),
    }
}

impl Quantized {
    /// The transpose of a matrix.
    pub fn transposed(self) -> Self {
        let shape = self.shape().iter().rev().copied().collect();
        Self::Transposed(shape, Box::new(self))
    }

    /// Extents of the weight.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Four(state) => &state.shape,
            Self::Eight(shape) | Self::Transposed(shape, _) => shape,
        }
    }

    /// The type of numbers that it's dequantized to, as safetensors names it.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::Four(state) => match state.dtype.as_str() {
                "bfloat16" => "BF16",
                "float16" => "F16",
                _ => "F32",
            },
            Self::Eight(_) => "F32",
            Self::Transposed(_, stored) => stored.dtype(),
        }
    }

    /// Its parts, of which `get` gives each by the end of its name behind `weight`.
    pub fn packed<'a>(
        &'a self,
        weight: &str,
        get: &dyn Fn(&str) -> Option<TensorView<'a>>,
    ) -> Option<Packed<'a>> {
        let bytes = |end: &str| get(&format!("{weight}{end}")).map(|view| view.bytes);
        Some(match self {
            Self::Eight(_) => {
                let scales = get(&format!("{}{SCALES}", weight.strip_suffix(WEIGHT)?))?;
                Packed { how: self, scales: scales.bytes, map: &[], nested: None }
            }
            Self::Four(state) => {
                let nested = match state.nested_blocksize {
                    Some(_) => Some([bytes(".nested_absmax")?, bytes(".nested_quant_map")?]),
                    None => None,
                };
                Packed { how: self, scales: bytes(".absmax")?, map: bytes(".quant_map")?, nested }
            }
            Self::Transposed(_, stored) => Packed { how: self, ..stored.packed(weight, get)? },
        })
    }
}

impl Packed<'_> {
    /// The bytes besides the codes, for a fingerprint.
    pub fn others(&self) -> impl Iterator<Item = &[u8]> {
        [self.scales, self.map].into_iter().chain(self.nested.into_iter().flatten())
    }

    /// The weight, as bitsandbytes dequantizes it: of 4 bits rounded to its dtype.
    pub fn values(&self, codes: &[u8]) -> Vec<f32> {
        match self.how {
            Quantized::Eight(shape) => {
                let scales = floats(self.scales);
                let columns = shape.get(1).copied().unwrap_or(1).max(1);
                let value = |(at, &code): (usize, &u8)| {
                    f32::from(code.cast_signed()) * scales[at / columns] * PER_STEP
                };
                codes.iter().enumerate().map(value).collect()
            }
            Quantized::Four(state) => self.of_four_bits(state, codes),
            Quantized::Transposed(shape, stored) => {
                let values = Self { how: stored, ..*self }.values(codes);
                let [rows, columns] = [0, 1].map(|axis| shape.get(axis).copied().unwrap_or(1));
                let places = (0..rows).flat_map(|row| (0..columns).map(move |it| it * rows + row));
                places.map(|place| values[place]).collect()
            }
        }
    }

    fn of_four_bits(&self, state: &State, codes: &[u8]) -> Vec<f32> {
        let map = floats(self.map);
        let scales = self.scales_of_blocks(state);
        let round: fn(f32) -> f32 = match state.dtype.as_str() {
            "bfloat16" => |value| bf16::from_f32(value).to_f32(),
            "float16" => |value| f16::from_f32(value).to_f32(),
            _ => |value| value,
        };
        let elements: usize = state.shape.iter().product();
        let value = |at: usize| {
            let byte = codes[at / 2];
            let code = if at.is_multiple_of(2) { byte >> 4 } else { byte & 0xf };
            round(map[usize::from(code)] * scales[at / state.blocksize])
        };
        (0..elements).map(value).collect()
    }

    fn scales_of_blocks(&self, state: &State) -> Vec<f32> {
        let (Some([outer, map]), Some(block), Some(offset)) =
            (self.nested, state.nested_blocksize, state.nested_offset)
        else {
            return floats(self.scales);
        };
        let (outer, map, offset) = (floats(outer), floats(map), offset as f32);
        let scale = |(at, &code): (usize, &u8)| map[usize::from(code)] * outer[at / block] + offset;
        self.scales.iter().enumerate().map(scale).collect()
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
