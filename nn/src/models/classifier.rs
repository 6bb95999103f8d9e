//! Classifiers of texts by a decoder, as transformers' `…ForSequenceClassification`.   B texts, T positions, C channels
//!
//!   x = the decoder's last block, normed, at the last token of each text that isn't padding
//!   scores = x · scoreᵀ
//!
//! No position sees those behind it, so padding behind a text changes nothing.

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{Expand, Map, MatMul, Reshape};
use tightrope_core::{DType, Tensor};

use super::bert::BertConfig;
use super::config::{Family, ModelConfig};
use super::encoders::{check_labels, classes, labels, named, one_label};
use super::language::{fits_context, is_buffer, listed, parts, prefix};
use super::parts::Parts;
use super::scores::{self, LABELS};
use crate::error::{Result, ensure};
use crate::inputs::{Input, LAST, POSITIONS, START, TOKENS};
use crate::keys::Keys;
use crate::layers::{Layer as _, Linear};
use crate::model::Model;
use crate::params::{Init, Parameter};
use crate::pass::Pass;

/// End of the names of transformers' classes.
const CLASS: &str = "ForSequenceClassification";
/// The tensor of the scores in files.
const SCORE: &str = "score.weight";
/// The tensor of a head for another purpose: to continue text.
const CAUSAL_HEAD: &str = "lm_head.weight";

/// A decoder's extents, and the classes that it tells apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifierConfig {
    /// The decoder, of which the head isn't used.
    pub decoder: ModelConfig,
    /// Classes of texts.
    pub classes: usize,
    /// Names of the classes, in order; empty where they have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The token that fills up texts. Scores are those at the last other token. `None` where none is named: then they are those at
    /// the last token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<usize>,
}

impl ClassifierConfig {
    /// Returns `true` if a `config.json` names a class of such a classifier.
    pub(crate) fn is_hf(keys: &Keys<'_>) -> Result<bool> {
        let class = keys.texts("architectures")?.and_then(|list| list.first().copied());
        Ok(class.is_some_and(|class| class.ends_with(CLASS)))
    }

    /// The model that a `config.json` describes.
    ///
    /// # Errors
    /// As [`ModelConfig::from_hf`]; a class of another family, and labels that aren't one class for each text.
    pub fn from_hf(value: &Value) -> Result<Self> {
        let keys = Keys::of("config.json", "model_type", value)?;
        let decoder = ModelConfig::body_of_hf(&keys)?;
        let class = Self::class(decoder.family);
        let found = keys.texts("architectures")?.unwrap_or_default();
        if found != [class.as_str()] {
            let problem = format!(
                "is {}, which isn't supported of this family; supported: {class}",
                found.join(", ")
            );
            return Err(keys.wrong("architectures", problem));
        }
        one_label(&keys)?;
        let config = Self {
            classes: classes(&keys)?,
            labels: labels(&keys),
            padding: keys.optional_size("pad_token_id")?,
            decoder,
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` with which transformers loads this model.
    pub fn to_hf(&self) -> Value {
        let mut file = self.decoder.to_hf();
        file["architectures"] = json!([Self::class(self.decoder.family)]);
        [file["id2label"], file["label2id"]] = named(self.classes, &self.labels);
        if let Some(padding) = self.padding {
            file["pad_token_id"] = json!(padding);
        }
        file
    }

    /// A family's class in transformers.
    fn class(family: Family) -> String {
        let prefix = match family {
            // The class without `Text` reads images too.
            Family::Gemma3 => "Gemma3Text",
            other => other.class_prefix(),
        };
        format!("{prefix}{CLASS}")
    }

    /// Trained numbers of a model that passes [`ClassifierConfig::check`], padding apart.
    pub fn parameters(&self) -> u64 {
        let parameters = Classifier::of_checked(self, 1).parameters();
        parameters.iter().map(|parameter| parameter.stored() as u64).sum()
    }

    /// The model of these settings, trained on sequences of `seq_len` tokens.
    ///
    /// # Errors
    /// As [`Classifier::new`].
    pub fn build(&self, seq_len: usize) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(Classifier::new(self, seq_len)?))
    }

    /// # Errors
    /// As [`ModelConfig::check`]; [`crate::Error::Setting`] for a number of classes that is out of range, or names of another number of
    /// them.
    pub fn check(&self) -> Result<()> {
        self.decoder.check()?;
        ensure((1..=BertConfig::MOST_CLASSES).contains(&self.classes), "classes", || {
            format!("{} must lie between 1 and {}", self.classes, BertConfig::MOST_CLASSES)
        })?;
        check_labels(&self.labels, self.classes)
    }
}

/// A decoder that classifies texts, for sequences of one length.
#[derive(Debug)]
pub struct Classifier {
    config: ClassifierConfig,
    seq_len: usize,
    parts: Parts,
    score: Linear,
}

impl Classifier {
    /// The model of these settings, trained on sequences of `seq_len` tokens.
    ///
    /// # Errors
    /// As [`ClassifierConfig::check`], and [`crate::Error::Setting`] where a sequence is empty or longer than the context.
    pub fn new(config: &ClassifierConfig, seq_len: usize) -> Result<Self> {
        config.check()?;
        ensure(seq_len > 0, TOKENS, || "a sequence has at least one token".to_owned())?;
        fits_context(&config.decoder, seq_len)?;
        Ok(Self::of_checked(config, seq_len))
    }

    /// `model`, where it is a classifier by a decoder.
    pub fn of(model: &dyn Model) -> Option<&Self> {
        (model as &dyn Any).downcast_ref()
    }

    /// Its settings.
    pub fn config(&self) -> &ClassifierConfig {
        &self.config
    }

    fn of_checked(config: &ClassifierConfig, seq_len: usize) -> Self {
        let parts = Parts { head: None, ..parts(&config.decoder) };
        let shape = [config.classes, config.decoder.channels];
        let score = Parameter::new(SCORE, &shape, Init::Normal { std: 0.02 }).stored_as(SCORE);
        let score = Linear::of(score, None).as_head();
        Self { config: config.clone(), seq_len, parts, score }
    }

    /// Scores of each text, f32 (B, 1, classes).
    fn scores(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let tokens = pass.input(TOKENS)?;
        let x = self.parts.hidden(pass, tokens, self.config.decoder.dropout)?;
        let last = last(pass, x)?;
        let last = self.parts.norm_f.apply(pass, last)?;
        self.score.scores(pass, last)
    }
}

/// The values (B, 1, C) of x (B, T, C) at the position of each sequence that the input [`LAST`] names. They're multiplied by 1, all others by 0.
fn last(pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
    let &[batch, extent, _] = pass.shape(x) else { return Ok(x) };
    let [last, positions] = [pass.input(LAST)?, pass.input(POSITIONS)?];
    // Positions are exact in f32.
    let last = pass.one(Map::new(input(0), DType::F32), &[last], "last.position")?;
    let last = pass.one(Expand { axis: 1, extent }, &[last], "last.positions")?;
    let is_last = (input(0) - input(1)).select(constant(0.0), constant(1.0));
    let chosen = pass.map(is_last, &[last, positions], "last.chosen")?;
    let chosen = pass.one(Reshape { shape: vec![batch, 1, extent] }, &[chosen], "last.rows")?;
    let matmul = MatMul { batch: true, ..MatMul::new(pass.dtype()) };
    pass.one(matmul, &[chosen, x], "last")
}

impl Model for Classifier {
    fn parameters(&self) -> Vec<Parameter> {
        let mut list = listed(&self.parts);
        list.extend(self.score.parameters());
        list
    }

    fn inputs(&self) -> Vec<Input> {
        let number = |name: &str| Input::new(name, DType::I32, &[]);
        vec![
            Input::new(TOKENS, DType::I32, &[self.seq_len]),
            number(LAST),
            number(LABELS),
            Input::range(POSITIONS, 0..self.seq_len as i32),
            Input::range(START, 0..1),
        ]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let scores = self.scores(pass)?;
        scores::loss(pass, scores)
    }

    fn logits(&self, pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        let scores = self.scores(pass)?;
        scores::logits(pass, scores, self.config.classes).map(Some)
    }

    fn tokens(&self) -> usize {
        self.seq_len
    }

    fn prefix(&self) -> &str {
        prefix(self.config.decoder.family)
    }

    fn made_anew(&self, name: &str) -> bool {
        name == SCORE
    }

    fn passes_over(&self, name: &str) -> bool {
        name == CAUSAL_HEAD || is_buffer(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Architecture;
    use crate::preset;

    fn tiny(family: &str) -> ClassifierConfig {
        let decoder = ModelConfig { norm_eps: 1e-6, ..preset(family).unwrap() };
        ClassifierConfig { decoder, classes: 3, labels: vec![], padding: Some(5) }
    }

    #[test]
    fn every_family_has_a_class_that_is_read_and_written() {
        for (family, class) in [
            ("tiny", "GPT2ForSequenceClassification"),
            ("llama-tiny", "LlamaForSequenceClassification"),
            ("mistral-7b", "MistralForSequenceClassification"),
            ("qwen2.5-0.5b", "Qwen2ForSequenceClassification"),
            ("qwen3-0.6b", "Qwen3ForSequenceClassification"),
            ("gemma-2-2b", "Gemma2ForSequenceClassification"),
            ("gemma-3-270m", "Gemma3TextForSequenceClassification"),
            ("phi-3-mini", "Phi3ForSequenceClassification"),
            ("smollm3-3b", "SmolLM3ForSequenceClassification"),
            ("olmo-2-1b", "Olmo2ForSequenceClassification"),
        ] {
            let labels = ["no", "yes", "perhaps"].map(str::to_owned).to_vec();
            let config = ClassifierConfig { labels, ..tiny(family) };
            let file = config.to_hf();
            assert_eq!(file["architectures"], json!([class]));
            assert_eq!(file["label2id"]["perhaps"], 2);
            assert_eq!(Architecture::from_hf(&file).unwrap(), Architecture::Classifier(config));
        }
    }

    #[test]
    fn the_head_is_a_score_in_place_of_logits() {
        let config = tiny("llama-tiny");
        let names: Vec<String> = Classifier::of_checked(&config, 4)
            .parameters()
            .iter()
            .flat_map(|it| it.parts.iter().map(|part| part.name.clone()))
            .collect();
        assert!(names.iter().any(|name| name == "score.weight"));
        assert!(names.iter().all(|name| name != "lm_head.weight"));
        let tied = ModelConfig { tied: true, ..config.decoder.clone() };
        let scores = 3 * config.decoder.channels as u64;
        assert_eq!(config.parameters(), tied.parameters() + scores);
    }

    #[test]
    fn refusals_name_the_key() {
        let file = tiny("llama-tiny").to_hf();
        for (key, value, words) in [
            (
                "architectures",
                json!(["MistralForSequenceClassification"]),
                "is MistralForSequenceClassification, which isn't supported of this family; supported: LlamaForSequenceClassification",
            ),
            ("problem_type", json!("regression"), "`problem_type`: is \"regression\""),
            (
                "problem_type",
                json!("multi_label_classification"),
                "`problem_type`: is \"multi_label_classification\"",
            ),
            ("id2label", json!({ "0": "LABEL_0" }), "`id2label`: has one class"),
            ("id2label", json!({}), "`classes`: 0 must lie between"),
            ("pad_token_id", json!(-1), "`pad_token_id`: must be a whole number, is -1"),
            ("num_local_experts", json!(8), "may change what the model computes"),
        ] {
            let mut file = file.clone();
            file[key] = value;
            let message = Architecture::from_hf(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
