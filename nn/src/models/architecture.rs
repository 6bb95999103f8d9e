//! The models of this crate under one type: what settings, presets and directories name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tightrope_core::graph::nearest;

use super::config::ModelConfig;
use super::language::LanguageModel;
use super::presets::{PRESETS, Preset};
use super::vit::{Vit, VitConfig, vit_presets};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::model::Model;

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

    /// The model `name`.
    ///
    /// # Errors
    /// [`Error::UnknownPreset`], with the most similar name and the list.
    pub fn preset(name: &str) -> Result<Self> {
        let language = PRESETS.iter().find(|preset| preset.name == name);
        if let Some(preset) = language {
            return Ok(Self::Language(preset.config()));
        }
        if let Some((_, config)) = vit_presets().find(|(known, _)| *known == name) {
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
        let model_type = Keys::of("config.json", "model_type", value)?.text("model_type")?;
        if VitConfig::is_hf(model_type) {
            return Ok(Self::Vit(VitConfig::from_hf(value)?));
        }
        Ok(Self::Language(ModelConfig::from_hf(value)?))
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
        let model = Architecture::preset("vit-tiny").unwrap().build(1).unwrap();
        assert_eq!(Architecture::of(&*model), Architecture::preset("vit-tiny").ok());
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        let message = Architecture::preset("vit-tyni").unwrap_err().to_string();
        assert!(message.contains("did you mean `vit-tiny`?"), "{message}");
    }
}
