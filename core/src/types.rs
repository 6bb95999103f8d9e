//! `Type`: the dtype and static shape of a tensor.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// Storage type of a tensor's elements. Arithmetic accumulates in f32 whatever the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE double; only for gradient checks, no backend stores it.
    F64,
    /// IEEE single.
    F32,
    /// bfloat16: the upper half of an f32.
    BF16,
    /// IEEE half.
    F16,
    /// Token ids and positions.
    I32,
    /// Bit patterns and counters.
    U32,
    /// The lower half of an f32 master whose upper half is a bf16 weight.
    I16,
    /// Block-quantised values, signed.
    I8,
    /// Block-quantised values, unsigned.
    U8,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::BF16 | Self::F16 | Self::I16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }

    /// Whether values are real numbers, which gradients flow through.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::BF16 | Self::F16)
    }

    /// Storage of statistics and sums over values of this dtype: f32, or f64 in gradient checks.
    pub const fn statistics(self) -> Self {
        match self {
            Self::F64 => Self::F64,
            _ => Self::F32,
        }
    }

    /// Lower-case name, as in settings and plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::BF16 => "bf16",
            Self::F16 => "f16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U8 => "u8",
        }
    }

    /// The element at the start of `bytes`, as f64. Exact for every dtype.
    ///
    /// # Panics
    /// Where `bytes` holds less than one element.
    #[inline]
    pub fn read(self, bytes: &[u8]) -> f64 {
        fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
            *bytes.first_chunk().expect("an element's bytes")
        }
        match self {
            Self::F64 => f64::from_le_bytes(first(bytes)),
            Self::F32 => f32::from_le_bytes(first(bytes)).into(),
            Self::BF16 => bf16::from_le_bytes(first(bytes)).into(),
            Self::F16 => f16::from_le_bytes(first(bytes)).into(),
            Self::I32 => i32::from_le_bytes(first(bytes)).into(),
            Self::U32 => u32::from_le_bytes(first(bytes)).into(),
            Self::I16 => i16::from_le_bytes(first(bytes)).into(),
            Self::I8 => i8::from_le_bytes(first(bytes)).into(),
            Self::U8 => bytes[0].into(),
        }
    }

    /// All elements of `bytes` as f32.
    pub fn values(self, bytes: &[u8]) -> Vec<f32> {
        let elements = bytes.chunks_exact(self.size());
        match self {
            Self::F32 => {
                bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
            }
            _ => elements.map(|element| self.read(element) as f32).collect(),
        }
    }

    /// Writes `value` to the start of `bytes`, rounded to nearest even (integers: truncated, clamped).
    ///
    /// # Panics
    /// Where `bytes` holds less than one element.
    pub fn write(self, bytes: &mut [u8], value: f64) {
        let n = self.size();
        let single = value as f32;
        match self {
            Self::F64 => bytes[..n].copy_from_slice(&value.to_le_bytes()),
            Self::F32 => bytes[..n].copy_from_slice(&single.to_le_bytes()),
            Self::BF16 => bytes[..n].copy_from_slice(&bf16::from_f32(single).to_le_bytes()),
            Self::F16 => bytes[..n].copy_from_slice(&f16::from_f32(single).to_le_bytes()),
            Self::I32 => bytes[..n].copy_from_slice(&(value as i32).to_le_bytes()),
            Self::U32 => bytes[..n].copy_from_slice(&(value as u32).to_le_bytes()),
            Self::I16 => bytes[..n].copy_from_slice(&(value as i16).to_le_bytes()),
            Self::I8 => bytes[..n].copy_from_slice(&(value as i8).to_le_bytes()),
            Self::U8 => bytes[0] = value as u8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Dtype and static shape of a tensor; row-major and contiguous.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Type {
    /// Storage type of the elements.
    pub dtype: DType,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
}

impl Type {
    /// A type from its parts.
    pub fn new(dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of storage.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// Extent of the last axis; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all extents but the last.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, leading)| leading.iter().product())
    }

    /// The same shape with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self { dtype, shape: self.shape.clone() }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
