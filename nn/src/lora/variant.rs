//! Settings of adapters as PEFT has them, besides rank, alpha, targets and dropout.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Settings of adapters besides rank, alpha, targets and dropout, as PEFT has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Variant {
    /// Adapters count alpha/√r times, not alpha/r.
    pub rslora: bool,
    /// Rows of the adapted weight have lengths that are learned (DoRA).
    pub dora: bool,
    /// Ranks of modules whose names end as an expression says.
    pub ranks: BTreeMap<String, usize>,
    /// The same of alphas.
    pub alphas: BTreeMap<String, f64>,
    /// The layers that have adapters; all where it's `None`.
    pub layers: Option<Vec<usize>>,
    /// Names of the lists of layers that those numbers are of; any where there are none.
    pub layers_pattern: Vec<String>,
    /// Modules without adapters, as targets name them.
    pub exclude: Vec<String>,
    /// Modules that are trained whole and saved with the adapters.
    pub saved: Vec<String>,
    /// Biases that are trained.
    pub bias: Biases,
}

/// Biases of a model that are trained beside its adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Biases {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// Biases of layers with an adapter.
    LoraOnly,
}

impl Biases {
    /// All choices.
    pub const ALL: &'static [Self] = &[Self::None, Self::All, Self::LoraOnly];

    /// In a word, as PEFT has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
            Self::LoraOnly => "lora_only",
        }
    }
}

impl Variant {
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}
