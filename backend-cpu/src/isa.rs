//! Instruction sets: widths and tiles of each as data, and which of them this processor has.
//!
//! A [`Level`] can be asked about on any machine: the kernels of ops, their tiles and their scratch follow from it. An [`Isa`] is
//! a level that this processor has. Kernels take one: holding it is the proof that they may run.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;

use std::env;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use thiserror::Error;

/// Forces an instruction set, by its [`Level::name`]: for tests of kernels that the processor has wider ones than.
pub const VARIABLE: &str = "TIGHTROPE_ISA";

/// An instruction set. Each one has what those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Instructions that the target was compiled for.
    Portable,
    /// AVX2, FMA and F16C: Haswell, Zen and later.
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL: Skylake-SP and later.
    Avx512,
    /// AVX512-BF16, which multiplies pairs of bf16: Cooper Lake, Zen 4 and later.
    Avx512Bf16,
    /// AMX-BF16, which multiplies tiles of bf16: Sapphire Rapids and later.
    Amx,
}

impl Level {
    /// Every instruction set, the narrowest first.
    pub const ALL: [Self; 5] =
        [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::Amx];

    /// `portable`, `avx2`, `avx512`, `avx512-bf16` or `avx512-amx`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Amx => "avx512-amx",
        }
    }

    /// `true` if vectors multiply pairs of bf16.
    pub(crate) fn multiplies_bf16(self) -> bool {
        self >= Self::Avx512Bf16
    }
}

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

/// Why an instruction set is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{VARIABLE} is `{name}`: this processor has {}", Isa::names())]
pub struct IsaError {
    /// The name that was asked for.
    pub name: String,
}

impl Isa {
    /// Instructions that the target was compiled for.
    pub const PORTABLE: Self = Self(Level::Portable);

    /// The widest one that this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            static WIDEST: OnceLock<Level> = OnceLock::new();
            Self(*WIDEST.get_or_init(widest))
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::PORTABLE
    }

    /// Every one that this processor has, the narrowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let widest = Self::detect().0;
        Level::ALL.into_iter().filter(move |&level| level <= widest).map(Self)
    }

    /// The one with this [`Level::name`].
    ///
    /// # Errors
    /// [`IsaError`] if there is none with this name, or this processor lacks it.
    pub fn named(name: &str) -> Result<Self, IsaError> {
        let found = Self::available().find(|isa| isa.name() == name);
        found.ok_or_else(|| IsaError { name: name.to_owned() })
    }

    /// The one that [`VARIABLE`] forces; without it, the widest.
    ///
    /// # Errors
    /// [`IsaError`], as [`Isa::named`].
    pub fn chosen() -> Result<Self, IsaError> {
        match env::var_os(VARIABLE) {
            Some(name) => Self::named(&name.to_string_lossy()),
            None => Ok(Self::detect()),
        }
    }

    /// The instruction set as data.
    pub fn level(self) -> Level {
        self.0
    }

    /// The level's [`name`](Level::name).
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    fn names() -> String {
        Self::available().map(Self::name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(target_arch = "x86_64")]
fn widest() -> Level {
    macro_rules! has {
        ($($feature:tt),+) => { $(is_x86_feature_detected!($feature))&&+ };
    }
    if !has!("avx2", "fma", "f16c") {
        Level::Portable
    } else if !has!("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl") {
        Level::Avx2
    } else if !has!("avx512bf16") {
        Level::Avx512
    } else if !amx::usable() {
        Level::Avx512Bf16
    } else {
        Level::Amx
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_found_by_name() {
        for level in Level::ALL {
            match Isa::named(level.name()) {
                Ok(isa) => assert_eq!(isa.level(), level),
                Err(error) => {
                    assert!(level > Isa::detect().level());
                    let expected =
                        format!("TIGHTROPE_ISA is `{}`: this processor has", level.name());
                    assert!(error.to_string().starts_with(&expected), "{error}");
                    assert!(error.to_string().contains("portable"), "{error}");
                }
            }
        }
        assert!(Isa::named("sse9").is_err());
    }
}
