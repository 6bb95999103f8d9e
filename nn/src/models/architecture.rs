//! The models of this crate under one type: what settings, presets and directories name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tightrope_core::graph::nearest;

use super::config::{Family, ModelConfig};
use super::language::LanguageModel;
use super::presets::{PRESETS, Preset, own_name};
use super::vit::{Vit, VitConfig, vit_presets};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::model::Model;

/// A family of models, as settings name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFamily {
    /// Language models of this family.
    Language(Family),
    /// Vision transformers.
    Vit,
}

impl ModelFamily {
    /// Every family.
    pub const ALL: &'static [Self] =
        &[Self::Language(Family::Gpt2), Self::Language(Family::Llama), Self::Vit];

    /// Lower-case name, as in settings and in Hugging Face's `model_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Language(family) => family.name(),
            Self::Vit => "vit",
        }
    }
}

/// A model of this crate, by its extents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Architecture {
    /// A GPT-2 or a Llama.
    Language(ModelConfig),
    /// A vision transformer.
    Vit(VitConfig),
}

impl Architecture {
    /// What `model` was built from, where it's of this crate.
    pub fn of(model: &dyn Model) -> Option<Self> {
        let language = LanguageModel::of(model).map(|model| Self::Language(model.config().clone()));
        language.or_else(|| Vit::of(model).map(|model| Self::Vit(model.config().clone())))
    }

    /// Its family.
    pub fn family(&self) -> ModelFamily {
        match self {
            Self::Language(config) => ModelFamily::Language(config.family),
            Self::Vit(_) => ModelFamily::Vit,
        }
    }

    /// The model `name`, which may be the name that it's published by elsewhere.
    ///
    /// # Errors
    /// [`Error::UnknownPreset`], with the most similar name and the list.
    pub fn preset(name: &str) -> Result<Self> {
        let own = own_name(name);
        let language = PRESETS.iter().find(|preset| preset.name == own);
        if let Some(preset) = language {
            return Ok(Self::Language(preset.config()));
        }
        if let Some((_, config)) = vit_presets().find(|(known, _)| *known == own) {
            return Ok(Self::Vit(config));
        }
        let names: Vec<&str> = Self::preset_names().collect();
        Err(Error::UnknownPreset {
            name: name.into(),
            nearest: nearest(name, names.iter().copied()),
            known: names.join(", "),
        })
    }

    /// Names of all presets, the smaller first within each group.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        let language = PRESETS.iter().map(|preset: &Preset| preset.name);
        language.chain(vit_presets().map(|(name, _)| name))
    }

    /// The model that a Hugging Face `config.json` describes.
    ///
    /// # Errors
    /// As [`ModelConfig::from_hf`] and [`VitConfig::from_hf`].
    pub fn from_hf(value: &Value) -> Result<Self> {
        let keys = Keys::of("config.json", "model_type", value)?;
        let model_type = keys.text("model_type")?;
        if VitConfig::is_hf(model_type) {
            return Ok(Self::Vit(VitConfig::from_hf(value)?));
        }
        let known = || ModelFamily::ALL.iter().map(|family| family.name());
        match model_type {
            Some(name) if !known().any(|known| known == name) => {
                let known: Vec<&str> = known().collect();
                let problem = format!("is {name}; supported: {}", known.join(", "));
                Err(keys.wrong("model_type", problem))
            }
            _ => Ok(Self::Language(ModelConfig::from_hf(value)?)),
        }
    }

    /// The `config.json` with which transformers loads this model.
    pub fn to_hf(&self) -> Value {
        match self {
            Self::Language(config) => config.to_hf(),
            Self::Vit(config) => config.to_hf(),
        }
    }

    /// Trained numbers of a model that passes its check, padding apart.
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Language(config) => config.parameters(),
            Self::Vit(config) => config.parameters(),
        }
    }

    /// Whether the extents are in range and fit each other.
    ///
    /// # Errors
    /// As [`ModelConfig::check`] and [`VitConfig::check`].
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Language(config) => config.check(),
            Self::Vit(config) => config.check(),
        }
    }

    /// The model, where a sequence of text has `seq_len` tokens.
    ///
    /// # Errors
    /// As [`ModelConfig::build`] and [`VitConfig::build`].
    pub fn build(&self, seq_len: usize) -> Result<Arc<dyn Model>> {
        match self {
            Self::Language(config) => config.build(seq_len),
            Self::Vit(config) => config.build(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_built_saved_and_read_again() {
        for name in Architecture::preset_names() {
            let architecture = Architecture::preset(name).unwrap();
            let value = serde_json::to_value(&architecture).unwrap();
            assert_eq!(serde_json::from_value::<Architecture>(value).unwrap(), architecture);
            assert_eq!(
                std::mem::discriminant(&Architecture::from_hf(&architecture.to_hf()).unwrap()),
                std::mem::discriminant(&architecture),
                "{name}"
            );
        }
        for family in ModelFamily::ALL {
            let of_family = |name: &&str| Architecture::preset(name).unwrap().family() == *family;
            let name = Architecture::preset_names().find(of_family).unwrap();
            let file = Architecture::preset(name).unwrap().to_hf();
            assert_eq!(file["model_type"], family.name(), "{name}");
        }
        let model = Architecture::preset("vit-tiny").unwrap().build(1).unwrap();
        assert_eq!(Architecture::of(&*model), Architecture::preset("vit-tiny").ok());
    }

    #[test]
    fn a_model_of_no_family_is_refused() {
        let file = serde_json::json!({ "model_type": "bloom" });
        let message = Architecture::from_hf(&file).unwrap_err().to_string();
        assert!(
            message.contains("`model_type`: is bloom; supported: gpt2, llama, vit"),
            "{message}"
        );
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        let message = Architecture::preset("vit-tyni").unwrap_err().to_string();
        assert!(message.contains("did you mean `vit-tiny`?"), "{message}");
    }
}
