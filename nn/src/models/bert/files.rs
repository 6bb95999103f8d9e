//! BERT's `config.json` of Hugging Face, and published sizes.

use serde_json::{Value, json};

use super::super::encoders::{
    activation, check_quantization, classes, hidden_act, labels, named, one_label,
};
use super::BertConfig;
use crate::error::Result;
use crate::keys::Keys;
use crate::layers::Activation;

/// `model_type` of transformers.
const MODEL_TYPE: &str = "bert";
/// The class that predicts masked tokens.
const MASKED: &str = "BertForMaskedLM";
/// The class of texts.
const CLASSES: &str = "BertForSequenceClassification";
/// Classes that hold the encoder, with a head for another purpose or without one.
const ENCODERS: [&str; 2] = ["BertModel", "BertForPreTraining"];

impl BertConfig {
    /// Whether a `config.json` says that it's of a BERT.
    pub(crate) fn is_hf(model_type: Option<&str>) -> bool {
        model_type == Some(MODEL_TYPE)
    }

    /// The model that a `config.json` describes: it classifies texts where that names `BertForSequenceClassification`, and
    /// predicts masked tokens where it names `BertForMaskedLM`, `BertForPreTraining`, `BertModel` or nothing. Keys that don't change
    /// the network are passed over.
    ///
    /// # Errors
    /// [`crate::Error::HuggingFace`] for a key that is missing, malformed or asks for something unsupported, and as
    /// [`BertConfig::check`].
    pub fn from_hf(value: &Value) -> Result<Self> {
        let keys = Keys::of("config.json", "model_type", value)?;
        keys.must_be("model_type", &[json!(MODEL_TYPE)])?;
        check_quantization(&keys)?;
        keys.must_be("position_embedding_type", &[json!("absolute")])?;
        for key in ["is_decoder", "add_cross_attention"] {
            keys.must_be(key, &[json!(false)])?;
        }
        keys.must_be("tie_word_embeddings", &[json!(true)])?;
        let architecture = keys.texts("architectures")?.and_then(|list| list.first().copied());
        let classifies = architecture == Some(CLASSES);
        match architecture {
            Some(name) if ![MASKED, CLASSES].contains(&name) && !ENCODERS.contains(&name) => {
                let known = [&[MASKED, CLASSES], &ENCODERS[..]].concat().join(", ");
                let problem = format!("is {name}; supported: {known}");
                return Err(keys.wrong("architectures", problem));
            }
            _ => {}
        }
        if classifies {
            one_label(&keys)?;
        }
        let config = Self {
            layers: keys.size("num_hidden_layers")?,
            channels: keys.size("hidden_size")?,
            heads: keys.size("num_attention_heads")?,
            hidden: keys.size("intermediate_size")?,
            context: keys.size("max_position_embeddings")?,
            vocab: keys.size("vocab_size")?,
            types: keys.optional_size("type_vocab_size")?.unwrap_or(2),
            classes: classifies.then(|| classes(&keys)).transpose()?,
            labels: if classifies { labels(&keys) } else { vec![] },
            activation: activation(&keys)?,
            dropout: keys.number("hidden_dropout_prob")?.unwrap_or(0.1),
            attention_dropout: keys.number("attention_probs_dropout_prob")?.unwrap_or(0.1),
            classifier_dropout: keys.number("classifier_dropout")?,
            norm_eps: keys.number("layer_norm_eps")?.unwrap_or(1e-12),
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` with which transformers loads this model.
    pub fn to_hf(&self) -> Value {
        let mut file = json!({
            "architectures": [if self.classes.is_some() { CLASSES } else { MASKED }],
            "model_type": MODEL_TYPE,
            "attention_probs_dropout_prob": self.attention_dropout,
            "hidden_act": hidden_act(self.activation),
            "hidden_dropout_prob": self.dropout,
            "hidden_size": self.channels,
            "intermediate_size": self.hidden,
            "layer_norm_eps": self.norm_eps,
            "max_position_embeddings": self.context,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "pad_token_id": 0,
            "type_vocab_size": self.types,
            "vocab_size": self.vocab,
        });
        if let Some(classes) = self.classes {
            let [by_id, by_label] = named(classes, &self.labels);
            file["classifier_dropout"] = json!(self.classifier_dropout);
            file["id2label"] = by_id;
            file["label2id"] = by_label;
        }
        file
    }
}

/// Published BERTs: name, layers, channels and heads.
const SIZES: [(&str, [usize; 3]); 3] =
    [("bert-tiny", [2, 128, 2]), ("bert-base", [12, 768, 12]), ("bert-large", [24, 1024, 16])];

/// BERTs by name, the smaller first, with the vocabulary of the uncased ones. They predict masked tokens.
pub fn bert_presets() -> impl Iterator<Item = (&'static str, BertConfig)> {
    SIZES.into_iter().map(|(name, [layers, channels, heads])| {
        let config = BertConfig {
            layers,
            channels,
            heads,
            hidden: 4 * channels,
            context: 512,
            vocab: 30_522,
            types: 2,
            classes: None,
            labels: vec![],
            activation: Activation::Gelu,
            dropout: 0.1,
            attention_dropout: 0.1,
            classifier_dropout: None,
            norm_eps: 1e-12,
        };
        (name, config)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> BertConfig {
        bert_presets().find(|(known, _)| *known == name).unwrap().1
    }

    /// Counts that PyTorch gives for transformers' models of these sizes.
    #[test]
    fn published_counts() {
        for (name, masked, of_two_classes) in [
            ("bert-tiny", 4_416_698, 4_386_178),
            ("bert-base", 109_514_298, 109_483_778),
            ("bert-large", 335_174_458, 335_143_938),
        ] {
            let config = preset(name);
            assert_eq!(config.parameters(), masked, "{name}");
            let classifier = BertConfig { classes: Some(2), ..config };
            assert_eq!(classifier.parameters(), of_two_classes, "{name}");
        }
    }

    #[test]
    fn every_preset_survives_the_round_trip() {
        for (name, config) in bert_presets() {
            assert_eq!(BertConfig::from_hf(&config.to_hf()).unwrap(), config, "{name}");
        }
        let labels = ["no", "yes", "perhaps"].map(str::to_owned).to_vec();
        let config = BertConfig {
            classes: Some(3),
            labels,
            classifier_dropout: Some(0.25),
            activation: Activation::Relu,
            attention_dropout: 0.0,
            types: 3,
            ..preset("bert-tiny")
        };
        assert_eq!(config.to_hf()["label2id"]["perhaps"], 2);
        assert_eq!(BertConfig::from_hf(&config.to_hf()).unwrap(), config);
    }

    #[test]
    fn published_files_are_read() {
        let mut file = preset("bert-base").to_hf();
        for name in ["BertForPreTraining", "BertModel"] {
            file["architectures"] = json!([name]);
            assert_eq!(BertConfig::from_hf(&file).unwrap(), preset("bert-base"), "{name}");
        }
        // As transformers names the classes of a model that isn't a classifier.
        file["id2label"] = json!({ "0": "LABEL_0", "1": "LABEL_1" });
        file["position_embedding_type"] = json!("absolute");
        assert_eq!(BertConfig::from_hf(&file).unwrap(), preset("bert-base"));
    }

    #[test]
    fn refusals_name_the_key() {
        let file = BertConfig { classes: Some(2), ..preset("bert-tiny") }.to_hf();
        for (key, value, words) in [
            ("architectures", json!(["BertForQuestionAnswering"]), "supported: BertForMaskedLM,"),
            ("position_embedding_type", json!("relative_key"), "`position_embedding_type`: is"),
            ("is_decoder", json!(true), "`is_decoder`: is true"),
            ("tie_word_embeddings", json!(false), "`tie_word_embeddings`: is false"),
            ("problem_type", json!("regression"), "`problem_type`: is \"regression\""),
            ("id2label", json!({ "0": "LABEL_0" }), "`id2label`: has one class"),
            ("hidden_act", json!("quick_gelu"), "`hidden_act`: is quick_gelu; supported: gelu,"),
            ("hidden_size", Value::Null, "`hidden_size`: is missing"),
            ("num_attention_heads", json!(5), "5 heads don't divide 128 channels"),
            ("hidden_dropout_prob", json!(1.0), "`dropout`: 1 must be"),
            ("id2label", json!({}), "`classes`: 0 must lie between"),
        ] {
            let mut file = file.clone();
            file[key] = value;
            let message = BertConfig::from_hf(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
