//! The values that a setting can take beyond plain numbers and text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use toml::Value;

/// A value written in TOML as a word, a number or a list.
pub trait Written: Sized {
    /// What is accepted, to follow "must be".
    const EXPECTED: &'static str;

    /// The value that `value` writes, or `None` when it isn't one.
    fn from_value(value: &Value) -> Option<Self>;
}

/// Lets serde read a type through [`Written`].
macro_rules! read_as_written {
    ($($name:ident),*) => {$(
        impl TryFrom<Value> for $name {
            type Error = String;

            fn try_from(value: Value) -> Result<Self, String> {
                Self::from_value(&value).ok_or_else(|| format!("must be {}", Self::EXPECTED))
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::try_from(Value::from(text))
            }
        }
    )*};
}

read_as_written!(Bytes, Checkpoint, Chunk, Device, MicroBatch);

/// A setting that is one of some words.
pub trait Word: Copy + 'static {
    /// Every value, in the order in which help lists them.
    const ALL: &'static [Self];

    /// The word that writes it.
    fn word(self) -> &'static str;
}

/// The words that write the values of `T`, in order.
pub fn words<T: Word>() -> Vec<String> {
    T::ALL.iter().map(|value| value.word().to_owned()).collect()
}

/// An enum whose variants are written as words.
macro_rules! words {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// Model architecture.
    pub enum Family {
        /// Learned positions, LayerNorm, GELU.
        Gpt2 = "gpt2",
        /// Rotary positions, RMSNorm, SwiGLU, grouped key and value heads.
        Llama = "llama",
    }
}

words! {
    /// Update rule.
    pub enum Optimizer {
        /// Adam with decoupled weight decay.
        AdamW = "adamw",
        /// Stochastic gradient descent with momentum `beta1`.
        Sgd = "sgd",
        /// Sign of an interpolated momentum: one state per weight.
        Lion = "lion",
    }
}

words! {
    /// Learning rate after the warmup.
    pub enum Schedule {
        /// Half a cosine from `lr` to `min_lr`.
        Cosine = "cosine",
        /// A line from `lr` to `min_lr`.
        Linear = "linear",
        /// `lr` throughout.
        Constant = "constant",
    }
}

words! {
    /// Storage type of weights and activations, and how f32 is multiplied; sums are always f32.
    pub enum Precision {
        /// 4 bytes.
        F32 = "f32",
        /// 4 bytes; products may round what they multiply to 10 bits after the point, where a GPU is faster so.
        Tf32 = "tf32",
        /// 2 bytes, the range of f32.
        Bf16 = "bf16",
        /// 2 bytes, with loss scaling.
        F16 = "f16",
    }
}

words! {
    /// Who multiplies matrices on an NVIDIA GPU.
    pub enum Products {
        /// The faster one for each shape, where the library is installed.
        Auto = "auto",
        /// The engine's own kernels.
        Own = "own",
        /// NVIDIA's library, wherever it can.
        Cublaslt = "cublaslt",
    }
}

words! {
    /// What may wait in host memory.
    pub enum Offload {
        /// Optimizer state and masters of weights, which the host then updates.
        Optimizer = "optimizer",
        /// Sums of gradients.
        Gradients = "gradients",
        /// What blocks begin with, from the forward to the backward pass.
        Activations = "activations",
        /// Weights of blocks.
        Weights = "weights",
    }
}

words! {
    /// A change of the numerics that the planner may make to fit the budget.
    pub enum Allow {
        /// Fewer bits than `memory.optimizer_bits`.
        OptimizerBits = "optimizer_bits",
        /// A 16-bit `run.precision`.
        Precision = "precision",
        /// More than `memory.offload` names, where the device has memory of its own. It changes no number.
        Offload = "offload",
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
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

impl Written for Bytes {
    const EXPECTED: &'static str =
        "a size above 0, such as \"2GiB\", \"1.5 GB\", \"512MiB\" or a number of bytes";

    fn from_value(value: &Value) -> Option<Self> {
        let bytes = match value {
            Value::Integer(bytes) => u64::try_from(*bytes).ok()?,
            Value::String(text) => parse_bytes(text.trim())?,
            _ => return None,
        };
        // TOML integers are signed, and a size that can't be written back is of no use.
        (1..=i64::MAX as u64).contains(&bytes).then_some(Self(bytes))
    }
}

impl Bytes {
    /// At least as many, in a unit that reads well.
    pub fn rounded_up(self) -> Self {
        const COARSE: u64 = 16 << 20;
        let unit = if self.0 < COARSE { 1 << 10 } else { 1 << 20 };
        Self(self.0.checked_next_multiple_of(unit).unwrap_or(self.0))
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

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        bytes.to_string().into()
    }
}

/// Sequences per forward and backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum MicroBatch {
    /// As many as the planner finds best.
    Auto,
    /// This many, at least 1.
    Size(usize),
}

impl Written for MicroBatch {
    const EXPECTED: &'static str = "a whole number, 1 or more, or \"auto\"";

    fn from_value(value: &Value) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self::Auto),
            _ => count(value).map(Self::Size),
        }
    }
}

impl From<MicroBatch> for Value {
    fn from(size: MicroBatch) -> Self {
        match size {
            MicroBatch::Auto => "auto".into(),
            MicroBatch::Size(size) => Self::Integer(size as i64),
        }
    }
}

/// Rows of a large intermediate that exist at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Chunk {
    /// As many as the planner finds best.
    Auto,
    /// All of them.
    None,
    /// This many, at least 1.
    Rows(usize),
}

impl Written for Chunk {
    const EXPECTED: &'static str = "a number of rows, 1 or more, \"auto\" or \"none\"";

    fn from_value(value: &Value) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self::Auto),
            Some("none") => Some(Self::None),
            _ => count(value).map(Self::Rows),
        }
    }
}

impl From<Chunk> for Value {
    fn from(chunk: Chunk) -> Self {
        match chunk {
            Chunk::Auto => "auto".into(),
            Chunk::None => "none".into(),
            Chunk::Rows(rows) => Self::Integer(rows as i64),
        }
    }
}

/// Which activations are kept for the backward pass; the others are computed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Checkpoint {
    /// The planner's choice per tensor.
    Auto,
    /// All are kept.
    None,
    /// The input of every block.
    Block,
    /// The input of every N-th block, N at least 1.
    Every(usize),
    /// The input of every √L-th of L blocks.
    Sqrt,
    /// The tensors of these names.
    Keep(Vec<String>),
}

impl Written for Checkpoint {
    const EXPECTED: &'static str =
        "\"auto\", \"none\", \"block\", \"every:N\", \"sqrt\" or a list of tensor names";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(word) => match word.as_str() {
                "auto" => Some(Self::Auto),
                "none" => Some(Self::None),
                "block" => Some(Self::Block),
                "sqrt" => Some(Self::Sqrt),
                _ => word.strip_prefix("every:")?.parse().ok().filter(|n| *n > 0).map(Self::Every),
            },
            Value::Array(names) => {
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                names.collect::<Option<_>>().map(Self::Keep)
            }
            _ => None,
        }
    }
}

impl From<Checkpoint> for Value {
    fn from(checkpoint: Checkpoint) -> Self {
        match checkpoint {
            Checkpoint::Auto => "auto".into(),
            Checkpoint::None => "none".into(),
            Checkpoint::Block => "block".into(),
            Checkpoint::Every(blocks) => format!("every:{blocks}").into(),
            Checkpoint::Sqrt => "sqrt".into(),
            Checkpoint::Keep(names) => names.into(),
        }
    }
}

/// Where a plan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Device {
    /// The fastest one found.
    Auto,
    /// The processor.
    Cpu,
    /// The GPU of this index through Vulkan, Metal or DX12; 0 is the fastest.
    Wgpu(usize),
    /// The NVIDIA GPU of this index.
    Cuda(usize),
}

impl Written for Device {
    const EXPECTED: &'static str =
        "\"auto\", \"cpu\", \"wgpu\", \"cuda\", or \"wgpu:N\" and \"cuda:N\"";

    fn from_value(value: &Value) -> Option<Self> {
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

impl From<Device> for Value {
    fn from(device: Device) -> Self {
        device.to_string().into()
    }
}

fn count(value: &Value) -> Option<usize> {
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
        assert_eq!("every:4".parse(), Ok(Checkpoint::Every(4)));
        assert!("every:0".parse::<Checkpoint>().is_err());
        assert_eq!("none".parse(), Ok(Chunk::None));
        assert_eq!(Chunk::from_value(&Value::Integer(0)), None);
        assert_eq!(words::<Allow>(), ["optimizer_bits", "precision", "offload"]);
    }
}
