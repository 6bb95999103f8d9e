//! Vision transformers of Hugging Face: `config.json`, and published sizes.

use serde_json::{Value, json};

use super::super::encoders::{
    activation, check_quantization, classes, hidden_act, labels, named, one_label,
};
use super::{Pooling, VitConfig};
use crate::error::Result;
use crate::keys::Keys;
use crate::layers::Activation;

/// `model_type` of transformers, whose scores are of a class token.
const CLASS: &str = "vit";
/// `model_type` of a model that transformers has no name for: the scores are of the mean over patches.
const MEAN: &str = "vit-mean";

impl VitConfig {
    /// Whether a `config.json` says that it's of a vision transformer.
    pub(crate) fn is_hf(model_type: Option<&str>) -> bool {
        matches!(model_type, Some(CLASS | MEAN))
    }

    /// The model that the `config.json` of a `ViTForImageClassification` describes. Keys that don't change the network are
    /// passed over.
    ///
    /// # Errors
    /// [`crate::Error::HuggingFace`] for a key that is missing, malformed or asks for something unsupported, and as
    /// [`VitConfig::check`].
    pub fn from_hf(value: &Value) -> Result<Self> {
        let keys = Keys::of("config.json", "model_type", value)?;
        let pooling = match keys.text("model_type")? {
            Some(MEAN) => Pooling::Mean,
            Some(CLASS) => Pooling::Class,
            other => {
                let found = other.unwrap_or("missing");
                return Err(keys.wrong("model_type", format!("is {found}; supported: {CLASS}")));
            }
        };
        check_quantization(&keys)?;
        keys.must_be("attention_probs_dropout_prob", &[json!(0), json!(0.0)])?;
        one_label(&keys)?;
        let config = Self {
            layers: keys.size("num_hidden_layers")?,
            channels: keys.size("hidden_size")?,
            heads: keys.size("num_attention_heads")?,
            hidden: keys.size("intermediate_size")?,
            image: keys.extents("image_size")?,
            patch: keys.extents("patch_size")?,
            colors: keys.optional_size("num_channels")?.unwrap_or(3),
            classes: classes(&keys)?,
            labels: labels(&keys),
            pooling,
            qkv_bias: keys.flag("qkv_bias")?.unwrap_or(true),
            activation: activation(&keys)?,
            dropout: keys.number("hidden_dropout_prob")?.unwrap_or(0.0),
            norm_eps: keys.number("layer_norm_eps")?.unwrap_or(1e-12),
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` with which transformers loads this model. It has no name for a model with [`Pooling::Mean`], and
    /// refuses it.
    pub fn to_hf(&self) -> Value {
        let [by_id, by_label] = named(self.classes, &self.labels);
        json!({
            "architectures": ["ViTForImageClassification"],
            "model_type": match self.pooling { Pooling::Class => CLASS, Pooling::Mean => MEAN },
            "attention_probs_dropout_prob": 0.0,
            "hidden_act": hidden_act(self.activation),
            "hidden_dropout_prob": self.dropout,
            "hidden_size": self.channels,
            "id2label": by_id,
            "image_size": extents(self.image),
            "intermediate_size": self.hidden,
            "label2id": by_label,
            "layer_norm_eps": self.norm_eps,
            "num_attention_heads": self.heads,
            "num_channels": self.colors,
            "num_hidden_layers": self.layers,
            "patch_size": extents(self.patch),
            "qkv_bias": self.qkv_bias,
        })
    }
}

/// One number where both are the same, as published files have it.
fn extents([height, width]: [usize; 2]) -> Value {
    if height == width { json!(height) } else { json!([height, width]) }
}

/// A published vision transformer, or a small one: name, layers, channels, heads, pixels of an image and of a patch along
/// each side.
const SIZES: [(&str, [usize; 5]); 7] = [
    ("vit-tiny", [4, 64, 4, 8, 2]),
    ("deit-tiny-patch16-224", [12, 192, 3, 224, 16]),
    ("deit-small-patch16-224", [12, 384, 6, 224, 16]),
    ("vit-base-patch32-224", [12, 768, 12, 224, 32]),
    ("vit-base-patch16-224", [12, 768, 12, 224, 16]),
    ("vit-large-patch16-224", [24, 1024, 16, 224, 16]),
    ("vit-huge-patch14-224", [32, 1280, 16, 224, 14]),
];

/// Vision transformers by name, the smaller first. `vit-tiny` is for grey images of 8 × 8 pixels in 10 classes, as
/// scikit-learn's digits; the others are for ImageNet's 1,000.
pub fn vit_presets() -> impl Iterator<Item = (&'static str, VitConfig)> {
    SIZES.into_iter().map(|(name, [layers, channels, heads, image, patch])| {
        let small = image == 8;
        let config = VitConfig {
            layers,
            channels,
            heads,
            hidden: 4 * channels,
            image: [image; 2],
            patch: [patch; 2],
            colors: if small { 1 } else { 3 },
            classes: if small { 10 } else { 1000 },
            labels: vec![],
            pooling: Pooling::Class,
            qkv_bias: true,
            activation: Activation::Gelu,
            // Of few images, much would be learned by heart.
            dropout: if small { 0.2 } else { 0.0 },
            norm_eps: 1e-12,
        };
        (name, config)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> VitConfig {
        vit_presets().find(|(known, _)| *known == name).unwrap().1
    }

    /// Counts that transformers and timm give for the published models.
    #[test]
    fn published_counts() {
        for (name, count) in [
            ("deit-tiny-patch16-224", 5_717_416),
            ("deit-small-patch16-224", 22_050_664),
            ("vit-base-patch32-224", 88_224_232),
            ("vit-base-patch16-224", 86_567_656),
            ("vit-large-patch16-224", 304_326_632),
            ("vit-huge-patch14-224", 632_045_800),
        ] {
            assert_eq!(preset(name).parameters(), count, "{name}");
        }
    }

    #[test]
    fn every_preset_survives_the_round_trip() {
        for (name, config) in vit_presets() {
            assert_eq!(VitConfig::from_hf(&config.to_hf()).unwrap(), config, "{name}");
        }
        let config = VitConfig {
            image: [15, 20],
            patch: [5, 10],
            pooling: Pooling::Mean,
            activation: Activation::GeluTanh,
            qkv_bias: false,
            dropout: 0.1,
            ..preset("vit-tiny")
        };
        assert_eq!(VitConfig::from_hf(&config.to_hf()).unwrap(), config);
        let labels = ["cat", "dog"].map(str::to_owned).to_vec();
        let named = VitConfig { classes: 2, labels, ..config };
        assert_eq!(named.to_hf()["label2id"], json!({ "cat": 0, "dog": 1 }));
        assert_eq!(VitConfig::from_hf(&named.to_hf()).unwrap(), named);
    }

    #[test]
    fn refusals_name_the_key() {
        let file = preset("vit-tiny").to_hf();
        for (key, value, words) in [
            ("model_type", json!("deit"), "`model_type`: is deit; supported: vit"),
            ("hidden_act", json!("quick_gelu"), "`hidden_act`: is quick_gelu; supported: gelu,"),
            ("attention_probs_dropout_prob", json!(0.1), "`attention_probs_dropout_prob`: is 0.1"),
            ("problem_type", json!("regression"), "`problem_type`: is \"regression\""),
            (
                "quantization_config",
                json!({ "quant_method": "gptq", "bits": 4 }),
                "`quantization_config`: says that weights are quantized by gptq, which isn't read",
            ),
            ("image_size", json!([8, 8, 8]), "`image_size`: must be"),
            ("patch_size", json!(3), "patches of 3 × 3 pixels don't divide images of 8 × 8"),
            ("hidden_size", Value::Null, "`hidden_size`: is missing"),
            ("num_attention_heads", json!(5), "5 heads don't divide 64 channels"),
            ("id2label", json!([1]), "`id2label`: must be an object"),
            ("id2label", json!({ "0": "LABEL_0" }), "`id2label`: has one class"),
        ] {
            let mut file = file.clone();
            file[key] = value;
            let message = VitConfig::from_hf(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
