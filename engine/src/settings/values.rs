//! The values that a setting can take beyond plain numbers and text.

use std::fmt;
use std::str::FromStr;

use tightrope_data::{RowFormat, TrainOn};
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::lora::Biases;
use tightrope_nn::{
    self as nn, GradientSums, Gradients, Master, ModelFamily, Offload, Schedule, StateBits,
    TableBits, UpdateRule,
};
use toml::Value;

use super::kind::{Form, Kind, LARGEST, SettingValue, Unwritable};

/// A setting that is one of some words.
pub trait Word: Copy + 'static {
    /// Every value, in the order in which help lists them.
    const ALL: &'static [Self];

    /// The word that writes it.
    fn word(self) -> &'static str;
}

/// Reads and writes types as words.
macro_rules! read_as_words {
    ($($name:ident),*) => {$(
        impl SettingValue for $name {
            const KIND: Kind =
                Kind::Word(|| Self::ALL.iter().map(|value| value.word()).collect());

            fn read(value: &Value) -> Option<Self> {
                let word = value.as_str()?;
                Self::ALL.iter().copied().find(|value| value.word() == word)
            }

            fn write(&self) -> Result<Option<Value>, Unwritable> {
                Ok(Some(self.word().into()))
            }
        }
    )*};
}

/// Enums whose variants are written as words; the first one is the default.
macro_rules! words {
    ($(
        $(#[$doc:meta])*
        pub enum $name:ident {
            $(#[$first_doc:meta])*
            $first:ident = $first_word:literal,
            $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub enum $name {
                $(#[$first_doc])*
                #[default]
                $first,
                $($(#[$variant_doc])* $variant,)*
            }

            impl Word for $name {
                const ALL: &'static [Self] = &[Self::$first, $(Self::$variant),*];

                fn word(self) -> &'static str {
                    match self {
                        Self::$first => $first_word,
                        $(Self::$variant => $word,)*
                    }
                }
            }
        )*

        read_as_words!($($name),*);
    };
}

/// Lets a type with a notation of its own be read from the words of a command line.
macro_rules! read_from_text {
    ($($name:ident),*) => {$(
        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let value = Self::read(&Value::from(text));
                value.ok_or_else(|| format!("must be {}", Self::FORM.expected))
            }
        }
    )*};
}

/// Types of other crates that say their own words.
macro_rules! named {
    ($($name:ident),*) => {
        $(
            impl Word for $name {
                const ALL: &'static [Self] = Self::ALL;

                fn word(self) -> &'static str {
                    self.name()
                }
            }
        )*

        read_as_words!($($name),*);
    };
}

named!(
    AttentionKind,
    Biases,
    GradientSums,
    Gradients,
    Master,
    ModelFamily,
    RowFormat,
    Schedule,
    TrainOn,
    UpdateRule
);

/// Storage type of weights and activations, and how f32 is multiplied; sums are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Storage of weights and activations.
    pub storage: nn::Precision,
    /// Matmuls may round f32 operands to 10 bits after the point, where a GPU is faster so.
    pub tf32: bool,
}

impl Precision {
    /// f32, multiplied as TF32.
    pub const TF32: Self = Self { storage: nn::Precision::F32, tf32: true };

    /// With this storage, and f32 multiplied as it is.
    pub const fn of(storage: nn::Precision) -> Self {
        Self { storage, tf32: false }
    }

    /// With storage in `storage`, and f32 multiplied as before.
    #[must_use]
    pub fn stored_in(self, storage: nn::Precision) -> Self {
        Self { storage, tf32: self.tf32 && storage == nn::Precision::F32 }
    }
}

impl Default for Precision {
    fn default() -> Self {
        Self::of(nn::Precision::F32)
    }
}

impl Word for Precision {
    const ALL: &'static [Self] = &[
        Self::of(nn::Precision::F32),
        Self::TF32,
        Self::of(nn::Precision::BF16),
        Self::of(nn::Precision::F16),
    ];

    fn word(self) -> &'static str {
        if self.tf32 { "tf32" } else { self.storage.name() }
    }
}

read_as_words!(Precision);
read_from_text!(Bytes, Device);

words! {
    /// Who multiplies matrices on an NVIDIA GPU.
    pub enum Matmul {
        /// The faster one for each shape, where the library is installed.
        Auto = "auto",
        /// The engine's own kernels.
        Own = "own",
        /// NVIDIA's library, wherever it can.
        Cublaslt = "cublaslt",
    }

    /// A change of the numerics that the planner may make to fit the budget.
    pub enum Allow {
        /// Fewer bits than `memory.optimizer_bits`.
        OptimizerBits = "optimizer_bits",
        /// 8 bits for `memory.table_bits`, where optimizer state is in 8.
        TableBits = "table_bits",
        /// `memory.gradients` in bf16.
        Gradients = "gradients",
        /// No `memory.master` of bf16 weights.
        Master = "master",
        /// A 16-bit `run.precision`.
        Precision = "precision",
        /// More than `memory.offload` names, where the device has memory of its own. It changes no number.
        Offload = "offload",
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Larger units first, so that [`Bytes`] prints in the largest that is exact.
const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
];

impl Bytes {
    const FORM: Form = Form {
        expected: "a size above 0, such as \"2GiB\", \"1.5 GB\", \"512MiB\" or a number of bytes",
        words: &[],
        pattern: Some(r"^\s*[0-9]+(\.[0-9]+)?\s*([KMGTkmgt][Ii]?)?[Bb]?\s*$"),
        whole: true,
        list: false,
        accepts: |value| Self::read(value).is_some(),
    };

    /// At least as many, in a unit that reads well.
    pub fn rounded_up(self) -> Self {
        const COARSE: u64 = 16 << 20;
        let unit = if self.0 < COARSE { 1 << 10 } else { 1 << 20 };
        Self(self.0.checked_next_multiple_of(unit).unwrap_or(self.0))
    }
}

impl SettingValue for Bytes {
    const KIND: Kind = Kind::Form(&Self::FORM);

    fn read(value: &Value) -> Option<Self> {
        let bytes = match value {
            Value::Integer(bytes) => u64::try_from(*bytes).ok()?,
            Value::String(text) => parse_bytes(text.trim())?,
            _ => return None,
        };
        // TOML integers are signed, and a size that can't be written back is of no use.
        (1..=i64::MAX as u64).contains(&bytes).then_some(Self(bytes))
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        Ok(Some(self.to_string().into()))
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let scale = if unit.is_empty() || unit.eq_ignore_ascii_case("B") {
        1
    } else {
        UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    if scale == 1 {
        return None;
    }
    Some((number.parse::<f64>().ok()? * scale as f64) as u64)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, scale)| self.0.is_multiple_of(*scale)) {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// Pixels along the sides of an image or of a patch: height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents(pub [usize; 2]);

impl SettingValue for Extents {
    const KIND: Kind = Kind::Form(&Form {
        expected: "a number of pixels, 1 or more, or \"HEIGHTxWIDTH\"",
        words: &[],
        pattern: Some("^0*[1-9][0-9]*x0*[1-9][0-9]*$"),
        whole: true,
        list: false,
        accepts: |value| Self::read(value).is_some(),
    });

    fn read(value: &Value) -> Option<Self> {
        let Some(text) = value.as_str() else { return count(value).map(|side| Self([side; 2])) };
        let side =
            |text: &str| text.parse().ok().filter(|side| (1..=LARGEST as usize).contains(side));
        let (height, width) = text.split_once('x')?;
        Some(Self([side(height)?, side(width)?]))
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        let [height, width] = self.0;
        if height == width { height.write() } else { Ok(Some(format!("{height}x{width}").into())) }
    }
}

/// Sequences or images per forward and backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MicroBatch {
    /// As many as the planner finds best.
    #[default]
    Auto,
    /// This many, at least 1.
    Size(usize),
}

auto_or!(MicroBatch::Size, "a whole number, 1 or more, or \"auto\"", count, SettingValue::write);

/// Rows of a large intermediate that exist at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunk {
    /// As many as the planner finds best.
    #[default]
    Auto,
    /// All of them.
    None,
    /// This many, at least 1.
    Rows(usize),
}

impl SettingValue for Chunk {
    const KIND: Kind = Kind::Form(&Form {
        expected: "a number of rows, 1 or more, \"auto\" or \"none\"",
        words: &["auto", "none"],
        pattern: None,
        whole: true,
        list: false,
        accepts: |value| Self::read(value).is_some(),
    });

    fn read(value: &Value) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self::Auto),
            Some("none") => Some(Self::None),
            _ => count(value).map(Self::Rows),
        }
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        match self {
            Self::Auto => Ok(Some("auto".into())),
            Self::None => Ok(Some("none".into())),
            Self::Rows(rows) => rows.write(),
        }
    }
}

/// Activation checkpointing: which activations are computed again in the backward pass, and not kept for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// The planner's choice per tensor.
    #[default]
    Auto,
    /// None.
    None,
    /// All of every block but its input.
    Block,
    /// All of N blocks in a row but the input of the first, N at least 1.
    Every(usize),
    /// All of √L of L blocks in a row but the input of the first.
    Sqrt,
    /// All of every block but the tensors of these names.
    AllBut(Vec<String>),
}

impl SettingValue for Recompute {
    const KIND: Kind = Kind::Form(&Form {
        expected: "\"auto\", \"none\", \"block\", \"every:N\", \"sqrt\" or a list of the tensors to keep",
        words: &["auto", "none", "block", "sqrt"],
        pattern: Some("^every:0*[1-9][0-9]*$"),
        whole: false,
        list: true,
        accepts: |value| Self::read(value).is_some(),
    });

    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(word) => match word.as_str() {
                "auto" => Some(Self::Auto),
                "none" => Some(Self::None),
                "block" => Some(Self::Block),
                "sqrt" => Some(Self::Sqrt),
                _ => word.strip_prefix("every:")?.parse().ok().filter(|n| *n > 0).map(Self::Every),
            },
            names => Vec::read(names).map(Self::AllBut),
        }
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        match self {
            Self::Auto => Ok(Some("auto".into())),
            Self::None => Ok(Some("none".into())),
            Self::Block => Ok(Some("block".into())),
            Self::Every(blocks) => Ok(Some(format!("every:{blocks}").into())),
            Self::Sqrt => Ok(Some("sqrt".into())),
            Self::AllBut(names) => names.write(),
        }
    }
}

/// Where a plan runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The fastest one found.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The GPU of this index through Vulkan, Metal or DX12; 0 is the fastest.
    Wgpu(usize),
    /// The NVIDIA GPU of this index.
    Cuda(usize),
}

impl Device {
    const FORM: Form = Form {
        expected: "\"auto\", \"cpu\", \"wgpu\", \"cuda\", or \"wgpu:N\" and \"cuda:N\"",
        words: &["auto", "cpu", "wgpu", "cuda"],
        pattern: Some("^(wgpu|cuda):[0-9]+$"),
        whole: false,
        list: false,
        accepts: |value| Self::read(value).is_some(),
    };
}

impl SettingValue for Device {
    const KIND: Kind = Kind::Form(&Self::FORM);

    fn read(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "wgpu" => Some(Self::Wgpu(0)),
            "cuda" => Some(Self::Cuda(0)),
            word => match word.split_once(':')? {
                ("wgpu", index) => index.parse().ok().map(Self::Wgpu),
                ("cuda", index) => index.parse().ok().map(Self::Cuda),
                _ => None,
            },
        }
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        Ok(Some(self.to_string().into()))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Wgpu(0) => f.write_str("wgpu"),
            Self::Wgpu(index) => write!(f, "wgpu:{index}"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl SettingValue for Offload {
    const KIND: Kind =
        Kind::List(&Kind::Word(|| Self::NONE.named().map(|(name, _)| name).to_vec()));

    fn read(value: &Value) -> Option<Self> {
        Vec::<String>::read(value)?.try_into().ok()
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        Vec::<String>::from(*self).write()
    }
}

/// Types that are a number of bits.
macro_rules! read_as_bits {
    ($($name:ident: $values:expr),*) => {$(
        impl SettingValue for $name {
            const KIND: Kind = Kind::OneOf($values);

            fn read(value: &Value) -> Option<Self> {
                u32::try_from(value.as_integer()?).ok()?.try_into().ok()
            }

            fn write(&self) -> Result<Option<Value>, Unwritable> {
                Ok(Some(i64::from(u32::from(*self)).into()))
            }
        }
    )*};
}

read_as_bits!(StateBits: &[32, 16, 8], TableBits: &[32, 8]);

/// Reads and writes a type that is `auto` or what one variant holds.
macro_rules! auto_or {
    ($name:ident::$held:ident, $expected:literal, $read:expr, $write:expr) => {
        impl SettingValue for $name {
            const KIND: Kind = Kind::Form(&Form {
                expected: $expected,
                words: &["auto"],
                pattern: None,
                whole: true,
                list: false,
                accepts: |value| Self::read(value).is_some(),
            });

            fn read(value: &Value) -> Option<Self> {
                match value.as_str() {
                    Some("auto") => Some(Self::Auto),
                    _ => $read(value).map(Self::$held),
                }
            }

            fn write(&self) -> Result<Option<Value>, Unwritable> {
                match self {
                    Self::Auto => Ok(Some("auto".into())),
                    Self::$held(held) => $write(held),
                }
            }
        }
    };
}
pub(super) use auto_or;

/// A whole number above 0.
pub(super) fn count(value: &Value) -> Option<usize> {
    usize::try_from(value.as_integer()?).ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let bytes = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0).ok();
        assert_eq!(bytes("2GiB"), Some(2 << 30));
        assert_eq!(bytes(" 1.5 gib "), Some(3 << 29));
        assert_eq!(bytes("512MiB"), Some(512 << 20));
        assert_eq!(bytes("2GB"), Some(2_000_000_000));
        assert_eq!(bytes("300 mb"), Some(300_000_000));
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("4096B"), Some(4096));
        for wrong in
            ["", "0", "GiB", "2G", "-1GiB", "1.2.3GiB", "1.5", "nan", "99999999999TiB", "."]
        {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        for exact in ["2GiB", "1536MiB", "2GB", "1001B", "3KiB"] {
            assert_eq!(exact.parse::<Bytes>().unwrap().to_string(), exact);
        }
        for (bytes, rounded) in [
            (25_554_511_617, "24371MiB"),
            (61_000, "60KiB"),
            (2 << 30, "2GiB"),
            (u64::MAX, "18446744073709551615B"),
        ] {
            assert_eq!(Bytes(bytes).rounded_up().to_string(), rounded);
        }
    }

    #[test]
    fn words_of_each_type() {
        assert_eq!("cuda:3".parse(), Ok(Device::Cuda(3)));
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        assert!("cuda:".parse::<Device>().is_err());
        assert!("cuda:-1".parse::<Device>().is_err());
        assert_eq!(Recompute::read(&"every:4".into()), Some(Recompute::Every(4)));
        assert_eq!(Recompute::read(&"every:0".into()), None);
        assert_eq!(Chunk::read(&"none".into()), Some(Chunk::None));
        assert_eq!(Chunk::read(&Value::Integer(0)), None);
        assert_eq!(Extents::read(&"8x12".into()), Some(Extents([8, 12])));
        assert_eq!(Extents::read(&Value::Integer(8)), Some(Extents([8, 8])));
        assert_eq!(Extents([8, 8]).write(), Ok(Some(Value::Integer(8))));
        assert_eq!(Extents([8, 12]).write(), Ok(Some("8x12".into())));
        for wrong in ["", "x", "8x", "0x8", "8x-1", "8x8x8", "8x2000000000"] {
            assert_eq!(Extents::read(&wrong.into()), None, "{wrong}");
        }
        let allowed =
            ["optimizer_bits", "table_bits", "gradients", "master", "precision", "offload"];
        assert_eq!(Vec::<Allow>::KIND.words().unwrap(), allowed);
    }
}
