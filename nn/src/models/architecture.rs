//! The models of this crate under one type: what settings, presets and directories name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tightrope_core::graph::nearest;

use super::bert::{Bert, BertConfig, bert_presets};
use super::classifier::{Classifier, ClassifierConfig};
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
    /// Encoders of text.
    Bert,
}

impl ModelFamily {
    /// Every family.
    pub const ALL: &'static [Self] = &[
        Self::Language(Family::Gpt2),
        Self::Language(Family::Llama),
        Self::Language(Family::Mistral),
        Self::Language(Family::Qwen2),
        Self::Language(Family::Qwen3),
        Self::Language(Family::Gemma2),
        Self::Language(Family::Gemma3),
        Self::Language(Family::Phi3),
        Self::Language(Family::SmolLm3),
        Self::Language(Family::Olmo2),
        Self::Vit,
        Self::Bert,
    ];

    /// Lower-case name, as in settings and in Hugging Face's `model_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Language(family) => family.name(),
            Self::Vit => "vit",
            Self::Bert => "bert",
        }
    }
}

/// A model of this crate, by its extents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Architecture {
    /// A language model.
    Language(ModelConfig),
    /// A decoder that classifies texts.
    Classifier(ClassifierConfig),
    /// A vision transformer.
    Vit(VitConfig),
    /// An encoder of text.
    Bert(BertConfig),
}

impl Architecture {
    /// What `model` was built from, where it's of this crate.
    pub fn of(model: &dyn Model) -> Option<Self> {
        let language = LanguageModel::of(model).map(|model| Self::Language(model.config().clone()));
        language
            .or_else(|| Classifier::of(model).map(|model| Self::Classifier(model.config().clone())))
            .or_else(|| Vit::of(model).map(|model| Self::Vit(model.config().clone())))
            .or_else(|| Bert::of(model).map(|model| Self::Bert(model.config().clone())))
    }

    /// The same model with `positions` positions if that is `Some`. A vision transformer stays as it is.
    pub fn with_positions(mut self, positions: Option<usize>) -> Self {
        match (&mut self, positions) {
            (Self::Language(config), Some(positions)) => config.context = positions,
            (Self::Classifier(config), Some(positions)) => config.decoder.context = positions,
            (Self::Bert(config), Some(positions)) => config.context = positions,
            (Self::Vit(_), _) | (_, None) => {}
        }
        self
    }

    /// Its family.
    pub fn family(&self) -> ModelFamily {
        match self {
            Self::Language(config) => ModelFamily::Language(config.family),
            Self::Classifier(config) => ModelFamily::Language(config.decoder.family),
            Self::Vit(_) => ModelFamily::Vit,
            Self::Bert(_) => ModelFamily::Bert,
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
        if let Some((_, config)) = bert_presets().find(|(known, _)| *known == own) {
            return Ok(Self::Bert(config));
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
        let vit = vit_presets().map(|(name, _)| name);
        language.chain(vit).chain(bert_presets().map(|(name, _)| name))
    }

    /// The model that a Hugging Face `config.json` describes.
    ///
    /// # Errors
    /// As [`ModelConfig::from_hf`], [`ClassifierConfig::from_hf`], [`VitConfig::from_hf`] and [`BertConfig::from_hf`].
    pub fn from_hf(value: &Value) -> Result<Self> {
        let keys = Keys::of("config.json", "model_type", value)?;
        let model_type = keys.text("model_type")?;
        if VitConfig::is_hf(model_type) {
            return Ok(Self::Vit(VitConfig::from_hf(value)?));
        }
        if BertConfig::is_hf(model_type) {
            return Ok(Self::Bert(BertConfig::from_hf(value)?));
        }
        match model_type {
            Some(name) if Family::of_model_type(name).is_none() => {
                let mut known: Vec<&str> = Family::ALL.iter().map(|f| f.model_type()).collect();
                known.extend([ModelFamily::Vit, ModelFamily::Bert].map(ModelFamily::name));
                let longer = known.iter().find(|known| known.starts_with(name));
                let near = longer.map(|known| (*known).to_owned());
                let near = near.or_else(|| nearest(name, known.iter().copied()));
                let near = near.map_or(String::new(), |near| format!(" (near to it: {near})"));
                let problem = format!("is {name}{near}; supported: {}", known.join(", "));
                Err(keys.wrong("model_type", problem))
            }
            Some(_) if ClassifierConfig::is_hf(&keys)? => {
                Ok(Self::Classifier(ClassifierConfig::from_hf(value)?))
            }
            _ => Ok(Self::Language(ModelConfig::from_hf(value)?)),
        }
    }

    /// The `config.json` with which transformers loads this model.
    pub fn to_hf(&self) -> Value {
        match self {
            Self::Language(config) => config.to_hf(),
            Self::Classifier(config) => config.to_hf(),
            Self::Vit(config) => config.to_hf(),
            Self::Bert(config) => config.to_hf(),
        }
    }

    /// Trained numbers of a model that passes its check, padding apart.
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Language(config) => config.parameters(),
            Self::Classifier(config) => config.parameters(),
            Self::Vit(config) => config.parameters(),
            Self::Bert(config) => config.parameters(),
        }
    }

    /// Whether the extents are in range and fit each other.
    ///
    /// # Errors
    /// As [`ModelConfig::check`], [`ClassifierConfig::check`], [`VitConfig::check`] and [`BertConfig::check`].
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Language(config) => config.check(),
            Self::Classifier(config) => config.check(),
            Self::Vit(config) => config.check(),
            Self::Bert(config) => config.check(),
        }
    }

    /// The model, where a sequence of text has `seq_len` tokens.
    ///
    /// # Errors
    /// As [`ModelConfig::build`], [`ClassifierConfig::build`], [`VitConfig::build`] and [`BertConfig::build`].
    pub fn build(&self, seq_len: usize) -> Result<Arc<dyn Model>> {
        match self {
            Self::Language(config) => config.build(seq_len),
            // A browser's tab has no labelled texts.
            Self::Classifier(_) if cfg!(target_family = "wasm") => Err(Error::Setting {
                key: "model.classes",
                problem: "a browser trains no classifiers of texts by decoders".into(),
            }),
            Self::Classifier(config) => config.build(seq_len),
            Self::Vit(config) => config.build(),
            Self::Bert(config) => config.build(seq_len),
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
            let model_type = match family {
                ModelFamily::Language(family) => family.model_type(),
                ModelFamily::Vit | ModelFamily::Bert => family.name(),
            };
            assert_eq!(file["model_type"], model_type, "{name}");
        }
        for name in ["vit-tiny", "bert-tiny"] {
            let model = Architecture::preset(name).unwrap().build(1).unwrap();
            assert_eq!(Architecture::of(&*model), Architecture::preset(name).ok());
        }
    }

    #[test]
    fn a_model_of_no_family_is_refused() {
        for (name, words) in [
            ("bloom", "`model_type`: is bloom; supported: gpt2, llama, mistral, qwen2, qwen3,"),
            // Its directories hold a vision tower besides.
            ("gemma3", "is gemma3 (near to it: gemma3_text)"),
            ("qwen4", "near to it: qwen"),
        ] {
            let file = serde_json::json!({ "model_type": name });
            let message = Architecture::from_hf(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        let message = Architecture::preset("vit-tyni").unwrap_err().to_string();
        assert!(message.contains("did you mean `vit-tiny`?"), "{message}");
    }
}
