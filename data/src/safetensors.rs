//! The safetensors format (<https://huggingface.co/docs/safetensors>): 8 bytes of header length,
//! a JSON header, then the tensors' little-endian bytes back to back.
//!
//! The reader accepts nothing that two readers could understand differently: duplicate names, holes,
//! overlaps and lengths that don't match are errors.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use tightrope_core::{DType, Type};
use xxhash_rust::xxh3::Xxh3;

use crate::bytes::Bytes;
use crate::entry::Entry;
use crate::{Error, Result};

mod bitsandbytes;
mod sharded;
mod write;

use bitsandbytes::Packed;

pub use sharded::Weights;
pub(crate) use sharded::is_file_name;
#[cfg(not(target_family = "wasm"))]
pub(crate) use write::header;
pub use write::{Payload, Stream, Tensor, to_bytes, write};
pub(crate) use write::{to_file, write_to};

/// Longest header, as in the reference implementation.
const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the header length in front of the header.
const PREFIX: usize = 8;
const METADATA: &str = "__metadata__";

/// An opened file. Tensors are read from the map; the file must not change while it is open.
pub struct SafeTensors {
    path: PathBuf,
    bytes: Bytes,
    /// Where the data starts in the file.
    data: usize,
    /// In the order of the data.
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    metadata: BTreeMap<String, String>,
}

/// One tensor of an open file.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    path: &'a Path,
    /// Its name in the file.
    pub name: &'a str,
    /// Element type as the format spells it: "F32", "BF16", "I64", …
    pub dtype: &'static str,
    /// Extents, outermost first; empty for a scalar.
    pub shape: &'a [usize],
    /// Little-endian elements, row-major; not necessarily aligned. Of a weight that bitsandbytes quantized, its codes.
    pub bytes: &'a [u8],
    /// What a quantized weight is made of besides its codes.
    packed: Option<Packed<'a>>,
}

/// 16 hex digits of XXH3-64 over names, types and bytes of tensors, in whatever order and files they are.
pub fn weights_fingerprint<'a>(tensors: impl IntoIterator<Item = TensorView<'a>>) -> String {
    let mut sorted: Vec<TensorView<'_>> = tensors.into_iter().collect();
    sorted.sort_by_key(|tensor| tensor.name);
    let mut hash = Xxh3::new();
    for TensorView { name, dtype, shape, bytes, packed, .. } in sorted {
        hash.update(format!("{name} {dtype}{shape:?}\n").as_bytes());
        hash.update(bytes);
        packed.iter().flat_map(Packed::others).for_each(|bytes| hash.update(bytes));
    }
    format!("{:016x}", hash.digest())
}

impl SafeTensors {
    /// Maps and checks a file. Reads the header only.
    ///
    /// # Errors
    /// A missing file, and every departure from the format, naming the tensor.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::parse(path.as_ref().to_owned(), Bytes::open(path.as_ref())?)
    }

    /// Checks a file in memory; `name` is for messages.
    ///
    /// # Errors
    /// Every departure from the format, naming the tensor.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        Self::parse(name.into(), bytes.into())
    }

    pub(crate) fn parse(path: PathBuf, bytes: Bytes) -> Result<Self> {
        let file = |problem: String| Error::SafeTensors { path: path.clone(), problem };
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
            return Err(file(format!("it has {} bytes; fetch it again", bytes.len())));
        };
        let header_len = u64::from_le_bytes(*prefix);
        if header_len > MAX_HEADER {
            return Err(file(format!(
                "its header would be {header_len} bytes, over the limit of {MAX_HEADER}; it may be another format"
            )));
        }
        let Some((header, data)) = rest.split_at_checked(header_len as usize) else {
            return Err(file(format!(
                "its header of {header_len} bytes is cut off after {}; fetch it again",
                rest.len()
            )));
        };
        if !header.starts_with(b"{") {
            return Err(file(
                "its header does not start with '{'; it may be another format".to_owned(),
            ));
        }
        // A copy, which stays text whoever writes the file.
        let header = header.to_vec();
        let header: Header = serde_json::from_slice(&header)
            .map_err(|e| file(format!("its header is not valid ({e}); fetch it again")))?;
        let mut entries = header
            .tensors
            .into_iter()
            .map(|(name, raw)| check_entry(&path, name, raw, data.len()))
            .collect::<Result<Vec<_>>>()?;
        entries.sort_by(|a, b| (a.start, a.end, &a.name).cmp(&(b.start, b.end, &b.name)));
        let mut end = 0;
        for entry in &entries {
            if entry.start != end {
                let what =
                    if entry.start < end { "overlaps the tensor before" } else { "leaves a hole" };
                let problem =
                    format!("it {what}: it starts at byte {} of the data, not {end}", entry.start);
                return Err(Error::Tensor { path, tensor: entry.name.clone(), problem });
            }
            end = entry.end;
        }
        if end != data.len() {
            return Err(file(format!(
                "its tensors end at byte {end} of the data, which has {}; fetch it again",
                data.len()
            )));
        }
        let data = PREFIX + header_len as usize;
        Ok(Self { data, metadata: header.metadata, ..Self::of_ranges(path, bytes, entries) })
    }

    /// Tensors at ranges of the bytes of another format, which were checked and have names of their own.
    fn of_ranges(path: PathBuf, bytes: Bytes, entries: Vec<Entry>) -> Self {
        let by_name =
            entries.iter().enumerate().map(|(index, entry)| (entry.name.clone(), index)).collect();
        Self { path, bytes, data: 0, entries, by_name, metadata: BTreeMap::new() }
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names in the order of the data.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The tensors in the order of the data.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = TensorView<'_>> {
        self.entries.iter().map(|entry| self.view(entry))
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        self.by_name.get(name).map(|&index| self.view(&self.entries[index]))
    }

    /// The tensor called `name`, or an error that says what the file has instead.
    ///
    /// # Errors
    /// Where there is none.
    pub fn require(&self, name: &str) -> Result<TensorView<'_>> {
        self.get(name).ok_or_else(|| Error::Tensor {
            path: self.path.clone(),
            tensor: name.to_owned(),
            problem: missing(self.names()),
        })
    }

    /// The free-form strings of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Everything in front of the data: length, JSON, padding.
    pub(crate) fn header(&self) -> &[u8] {
        &self.bytes[..self.data]
    }

    fn view<'a>(&'a self, entry: &'a Entry) -> TensorView<'a> {
        TensorView {
            path: &self.path,
            name: &entry.name,
            dtype: entry.dtype,
            shape: &entry.shape,
            bytes: &self.bytes[self.data + entry.start..self.data + entry.end],
            packed: None,
        }
    }
}

impl fmt::Debug for SafeTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafeTensors")
            .field("path", &self.path)
            .field("tensors", &self.entries)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{:?}", self.name, self.dtype, self.shape)
    }
}

impl TensorView<'_> {
    /// Dtype and shape; none for the dtypes Tightrope only reads or only passes on.
    pub fn ty(&self) -> Option<Type> {
        let dtype = DTYPES.iter().find(|(name, _, _)| *name == self.dtype)?.2?;
        Some(Type::new(dtype, self.shape))
    }

    /// The elements of a float tensor as f32; F64 is rounded to nearest, the others are exact. A weight that bitsandbytes quantized has the values that it
    /// dequantizes to.
    ///
    /// # Errors
    /// Any dtype but F64, F32, BF16 and F16.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        if let Some(packed) = &self.packed {
            return Ok(packed.values(self.bytes));
        }
        Ok(match self.dtype {
            "F64" => self.map(|b| f64::from_le_bytes(b) as f32),
            "F32" => self.map(f32::from_le_bytes),
            "BF16" => self.map(|b| bf16::from_le_bytes(b).to_f32()),
            "F16" => self.map(|b| f16::from_le_bytes(b).to_f32()),
            _ => return Err(self.error(format!("it holds {}, not floats", self.dtype))),
        })
    }

    /// Shape, and the elements of a float tensor as f32.
    ///
    /// # Errors
    /// As [`TensorView::to_f32`].
    pub fn to_values(&self) -> Result<(Vec<usize>, Vec<f32>)> {
        Ok((self.shape.to_vec(), self.to_f32()?))
    }

    /// Shape, and the elements as f32 of a tensor of optimizer state: floats, or the quantized U8 of 8-bit state.
    ///
    /// # Errors
    /// Any dtype but F64, F32, BF16, F16 and U8.
    pub fn to_state(&self) -> Result<(Vec<usize>, Vec<f32>)> {
        match self.dtype {
            "U8" => Ok((self.shape.to_vec(), self.map(|[code]| code.into()))),
            _ => self.to_values(),
        }
    }

    /// The elements of an integer tensor as i32.
    ///
    /// # Errors
    /// Any dtype but I64, I32, U32, I16, I8 and U8, and a value that i32 can't hold.
    pub fn to_i32(&self) -> Result<Vec<i32>> {
        let wide: Vec<i64> = match self.dtype {
            "I32" => return Ok(self.map(i32::from_le_bytes)),
            "I64" => self.map(i64::from_le_bytes),
            "U32" => self.map(|b| u32::from_le_bytes(b).into()),
            "I16" => return Ok(self.map(|b| i16::from_le_bytes(b).into())),
            "I8" => return Ok(self.map(|b| i8::from_le_bytes(b).into())),
            "U8" => return Ok(self.map(|[b]| b.into())),
            _ => return Err(self.error(format!("it holds {}, not integers", self.dtype))),
        };
        let narrow = |(index, value): (usize, i64)| {
            i32::try_from(value)
                .map_err(|_| self.error(format!("element {index} is {value}, beyond 32 bits")))
        };
        wide.into_iter().enumerate().map(narrow).collect()
    }

    fn map<const N: usize, T>(&self, f: impl Fn([u8; N]) -> T) -> Vec<T> {
        self.bytes.as_chunks().0.iter().map(|&element| f(element)).collect()
    }

    fn error(&self, problem: String) -> Error {
        Error::Tensor { path: self.path.to_owned(), tensor: self.name.to_owned(), problem }
    }
}

/// Format's name, bytes of an element, and the dtype of core where there is one.
const DTYPES: [(&str, usize, Option<DType>); 16] = [
    ("F64", 8, Some(DType::F64)),
    ("F32", 4, Some(DType::F32)),
    ("BF16", 2, Some(DType::BF16)),
    ("F16", 2, Some(DType::F16)),
    ("I64", 8, None),
    ("I32", 4, Some(DType::I32)),
    ("U32", 4, Some(DType::U32)),
    ("I16", 2, Some(DType::I16)),
    ("I8", 1, Some(DType::I8)),
    ("U8", 1, Some(DType::U8)),
    // Present in published weights, and passed over by name.
    ("U64", 8, None),
    ("U16", 2, None),
    ("C64", 8, None),
    ("F8_E4M3", 1, None),
    ("F8_E5M2", 1, None),
    ("BOOL", 1, None),
];

/// The format's name of a dtype.
fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::BF16 => "BF16",
        DType::F16 => "F16",
        DType::I32 => "I32",
        DType::U32 => "U32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U8 => "U8",
    }
}

/// A tensor of the header, unchecked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

fn check_entry(path: &Path, name: String, raw: RawEntry, data: usize) -> Result<Entry> {
    let RawEntry { dtype, shape, data_offsets: [start, end] } = raw;
    let refuse = |problem: String| {
        Err(Error::Tensor { path: path.to_owned(), tensor: name.clone(), problem })
    };
    let Some(&(dtype, size, _)) = DTYPES.iter().find(|(known, _, _)| *known == dtype) else {
        return refuse(format!("dtype \"{dtype}\" is not known; convert it to F32 or BF16"));
    };
    let bytes = shape.iter().try_fold(size, |product, &extent| product.checked_mul(extent));
    let Some(bytes) = bytes else {
        return refuse(format!("shape {shape:?} of {dtype} overflows"));
    };
    if start > end || end > data {
        return refuse(format!(
            "its bytes {start}..{end} are not inside the data, which has {data}; fetch the file again"
        ));
    }
    if end - start != bytes {
        return refuse(format!(
            "{dtype} of shape {shape:?} takes {bytes} bytes and {start}..{end} holds {}",
            end - start
        ));
    }
    Ok(Entry { name, dtype, shape, start, end })
}

/// The header as written, with every name once.
struct Header {
    tensors: Vec<(String, RawEntry)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
        use serde::de::Error as _;
        let mut tensors: BTreeMap<String, RawEntry> = BTreeMap::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            let duplicate = if name == METADATA {
                metadata.replace(map.next_value()?).is_some()
            } else {
                tensors.insert(name.clone(), map.next_value()?).is_some()
            };
            if duplicate {
                return Err(A::Error::custom(format_args!("\"{name}\" appears twice")));
            }
        }
        Ok(Header {
            tensors: tensors.into_iter().collect(),
            metadata: metadata.unwrap_or_default(),
        })
    }
}

/// What to say of a tensor that isn't among `names`.
fn missing<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let some: Vec<&str> = names.take(3).collect();
    format!(
        "it is not there; the {count} tensors present begin with {}: check that the model's \
         family and layer count match the file",
        some.join(", ")
    )
}

#[cfg(test)]
mod tests;
