//! Hugging Face's `config.json`, read and written.

use serde_json::{Value, json};

use super::config::{Details, Family, ModelConfig, default_norm_eps, default_rope_theta};
use super::encoders::check_quantization;
use super::rope::RopeScaling;
use super::{gemma, llama, mistral, olmo2, phi3, qwen, smollm3};
use crate::error::Result;
use crate::keys::Keys;

impl Family {
    /// Its name in Hugging Face's `model_type`.
    pub const fn model_type(self) -> &'static str {
        match self {
            Self::Gemma3 => "gemma3_text",
            other => other.name(),
        }
    }

    /// Beginning of the names of its classes in transformers.
    pub(super) const fn class_prefix(self) -> &'static str {
        match self {
            Self::Gpt2 => "GPT2",
            Self::Llama => "Llama",
            Self::Mistral => "Mistral",
            Self::Qwen2 => "Qwen2",
            Self::Qwen3 => "Qwen3",
            Self::Gemma2 => "Gemma2",
            Self::Gemma3 => "Gemma3",
            Self::Phi3 => "Phi3",
            Self::SmolLm3 => "SmolLM3",
            Self::Olmo2 => "Olmo2",
        }
    }

    /// Its class in transformers that continues text.
    fn architecture(self) -> String {
        let end = if self == Self::Gpt2 { "LMHeadModel" } else { "ForCausalLM" };
        format!("{}{end}", self.class_prefix())
    }

    /// What a family's models of so many layers have besides their extents, where nothing else is said.
    pub fn details(self, layers: usize) -> Details {
        let which = |has: &dyn Fn(usize) -> bool| {
            (0..layers.min(ModelConfig::MOST_LAYERS)).filter(|&layer| has(layer)).collect()
        };
        match self {
            Self::Mistral => Details {
                window: Some(mistral::WINDOW),
                windowed: which(&|_| true),
                ..Details::NONE
            },
            Self::Gemma2 => gemma::details_2(which(&gemma::is_local(gemma::PATTERN_2))),
            Self::Gemma3 => gemma::details_3(which(&gemma::is_local(gemma::PATTERN_3))),
            Self::SmolLm3 => Details {
                unrotated: which(&smollm3::is_unrotated(smollm3::INTERVAL)),
                ..Details::NONE
            },
            _ => Details::NONE,
        }
    }

    /// Base of the rotary angles of a family's models, where nothing else is said.
    pub fn rope_theta(self) -> f64 {
        match self {
            Self::SmolLm3 => smollm3::THETA,
            Self::Gemma3 => gemma::GLOBAL_THETA,
            _ => default_rope_theta(),
        }
    }

    /// The family of a `model_type`.
    pub(super) fn of_model_type(model_type: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|family| family.model_type() == model_type)
    }
}

impl ModelConfig {
    /// The model that a Hugging Face `config.json` describes. Keys that don't change the network are passed
    /// over. GPT-2's `resid_pdrop` becomes the dropout; its `attn_pdrop` isn't applied.
    ///
    /// # Errors
    /// [`crate::Error::HuggingFace`] for a key that is missing, malformed or asks for something unsupported, for one that
    /// nobody here knows and that may change the network, and as [`ModelConfig::check`].
    pub fn from_hf(value: &Value) -> Result<Self> {
        let keys = Keys::of("config.json", "model_type", value)?;
        let family = Self::family_of_hf(&keys)?;
        let classes = keys.texts("architectures")?.unwrap_or_default();
        let continues_text = |class: &&&str| CAUSAL.iter().any(|end| class.ends_with(end));
        if let Some(other) = classes.iter().find(|class| !continues_text(class)) {
            let own = family.architecture();
            let problem =
                format!("is {other}, which isn't supported of this family; supported: {own}");
            return Err(keys.wrong("architectures", problem));
        }
        Self::body_of_hf(&keys)
    }

    /// The decoder that a `config.json` describes, whatever its head is for. Keys of the head are to be read before.
    pub(super) fn body_of_hf(keys: &Keys<'_>) -> Result<Self> {
        let config = match Self::family_of_hf(keys)? {
            Family::Gpt2 => gpt2(keys)?,
            family => decoder(keys, family)?,
        };
        keys.refuse_unknown(CHANGES)?;
        config.check()?;
        Ok(config)
    }

    fn family_of_hf(keys: &Keys<'_>) -> Result<Family> {
        check_quantization(keys)?;
        let model_type = keys.text("model_type")?;
        model_type.and_then(Family::of_model_type).ok_or_else(|| {
            let known: Vec<&str> = Family::ALL.iter().map(|family| family.model_type()).collect();
            let found = model_type.unwrap_or("missing");
            let problem = format!("is {found}; supported: {}", known.join(", "));
            keys.wrong("model_type", problem)
        })
    }

    /// The `config.json` with which transformers loads this model. All but GPT-2 and Phi-3 have no dropout there, so that theirs
    /// isn't in it.
    pub fn to_hf(&self) -> Value {
        if self.family == Family::Gpt2 {
            return self.gpt2_to_hf();
        }
        let rope = RopeScaling::to_hf(self.details.rope_scaling, self.rope_theta);
        let mut file = json!({
            "architectures": [self.family.architecture()],
            "model_type": self.family.model_type(),
            "attention_dropout": 0.0,
            "bos_token_id": null,
            "eos_token_id": null,
            "head_dim": self.head_dim(),
            "hidden_size": self.channels,
            "intermediate_size": self.hidden,
            "max_position_embeddings": self.context,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.norm_eps,
            // Both spellings: transformers reads the first from version 5 on, the others before.
            "rope_parameters": rope,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tied,
            "vocab_size": self.vocab,
        });
        if let Some(scaling) = self.details.rope_scaling {
            file["rope_scaling"] = json!(scaling);
        }
        let write = match self.family {
            Family::Gpt2 | Family::Llama => llama::write,
            Family::Mistral => mistral::write,
            Family::Qwen2 | Family::Qwen3 => qwen::write,
            Family::Gemma2 => gemma::write_2,
            Family::Gemma3 => gemma::write_3,
            Family::Phi3 => phi3::write,
            Family::SmolLm3 => smollm3::write,
            Family::Olmo2 => olmo2::write,
        };
        write(self, &mut file);
        file
    }

    fn gpt2_to_hf(&self) -> Value {
        // The token that ends a text in GPT-2's vocabulary; others' aren't known here.
        let end = (self.vocab == 50_257).then_some(50_256);
        json!({
            "architectures": [self.family.architecture()],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            "attn_pdrop": 0.0,
            "bos_token_id": end,
            "embd_pdrop": self.dropout,
            "eos_token_id": end,
            "layer_norm_epsilon": self.norm_eps,
            "n_ctx": self.context,
            "n_embd": self.channels,
            "n_head": self.heads,
            "n_inner": self.hidden,
            "n_layer": self.layers,
            "n_positions": self.context,
            "resid_pdrop": self.dropout,
            "tie_word_embeddings": self.tied,
            "vocab_size": self.vocab,
        })
    }
}

/// Ends of the names of classes that continue text, or that hold such a model without its head.
const CAUSAL: [&str; 4] = ["ForCausalLM", "LMHeadModel", "DoubleHeadsModel", "Model"];

/// Parts of names of keys that may change the network. A file's other unknown keys are of tokens, of training or of generation.
const CHANGES: &[&str] = &[
    "act",
    "alibi",
    "attention",
    "bias",
    "cap",
    "dropout",
    "expert",
    "layer",
    "moe",
    "multiplier",
    "norm",
    "pdrop",
    "position",
    "residual",
    "rope",
    "rotary",
    "scal",
    "window",
];

fn gpt2(keys: &Keys<'_>) -> Result<ModelConfig> {
    keys.must_be("activation_function", &[json!("gelu_new"), json!("gelu_pytorch_tanh")])?;
    keys.must_be("add_cross_attention", &[json!(false)])?;
    keys.must_be("scale_attn_by_inverse_layer_idx", &[json!(false)])?;
    keys.must_be("scale_attn_weights", &[json!(true)])?;
    // What isn't applied, changes rounding alone, or is of other heads.
    keys.pass_over(&[
        "attn_pdrop",
        "reorder_and_upcast_attn",
        "summary_activation",
        "summary_first_dropout",
    ]);
    let channels = keys.size("n_embd")?;
    let heads = keys.size("n_head")?;
    let dropout = keys.number("resid_pdrop")?.unwrap_or(0.1);
    let embedding_dropout = keys.number("embd_pdrop")?.unwrap_or(0.1);
    if embedding_dropout != dropout {
        let problem =
            format!("is {embedding_dropout}; supported: the same as resid_pdrop, {dropout}");
        return Err(keys.wrong("embd_pdrop", problem));
    }
    Ok(ModelConfig {
        family: Family::Gpt2,
        layers: keys.size("n_layer")?,
        channels,
        heads,
        kv_heads: heads,
        hidden: keys.optional_size("n_inner")?.unwrap_or(channels.saturating_mul(4)),
        context: keys.size("n_positions")?,
        vocab: keys.size("vocab_size")?,
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(true),
        dropout,
        norm_eps: keys.number("layer_norm_epsilon")?.unwrap_or(default_norm_eps()),
        rope_theta: default_rope_theta(),
        details: Details::NONE,
    })
}

/// The decoder of a family.
fn decoder(keys: &Keys<'_>, family: Family) -> Result<ModelConfig> {
    keys.must_be("attention_dropout", &[json!(0), json!(0.0)])?;
    keys.must_be("partial_rotary_factor", &[json!(1), json!(1.0)])?;
    // How transformers computes the same.
    keys.pass_over(&[
        "_attn_implementation",
        "_attn_implementation_autoset",
        "attn_implementation",
    ]);
    keys.must_be("rope_interleaved", &[json!(false)])?;
    let gemma = matches!(family, Family::Gemma2 | Family::Gemma3);
    let channels = keys.size("hidden_size")?;
    let heads = keys.size("num_attention_heads")?;
    let context = keys.size("max_position_embeddings")?;
    let head_dim = keys.optional_size("head_dim")?.or(match family {
        Family::Qwen3 => Some(128),
        Family::Gemma2 | Family::Gemma3 => Some(gemma::HEAD_DIM),
        _ => None,
    });
    let (rope_theta, rope_scaling) = rope(keys, family, context)?;
    let tied = gemma || family == Family::SmolLm3;
    let eps = if matches!(family, Family::Phi3 | Family::Olmo2) { 1e-5 } else { 1e-6 };
    let details = Details {
        head_dim: head_dim.filter(|head_dim| head_dim.checked_mul(heads) != Some(channels)),
        rope_scaling,
        ..Details::NONE
    };
    let layers = keys.size("num_hidden_layers")?;
    // Each is looked at before the extents are checked.
    if layers > ModelConfig::MOST_LAYERS {
        let problem = format!("is {layers}; at most {} are read", ModelConfig::MOST_LAYERS);
        return Err(keys.wrong("num_hidden_layers", problem));
    }
    let mut config = ModelConfig {
        family,
        layers,
        channels,
        heads,
        kv_heads: keys.optional_size("num_key_value_heads")?.unwrap_or(heads),
        hidden: keys.size("intermediate_size")?,
        context,
        vocab: keys.size("vocab_size")?,
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(tied),
        dropout: 0.0,
        norm_eps: keys.number("rms_norm_eps")?.unwrap_or(eps),
        rope_theta,
        details,
    };
    let read = match family {
        Family::Gpt2 | Family::Llama => llama::read,
        Family::Mistral => mistral::read,
        Family::Qwen2 | Family::Qwen3 => qwen::read,
        Family::Gemma2 => gemma::read_2,
        Family::Gemma3 => gemma::read_3,
        Family::Phi3 => phi3::read,
        Family::SmolLm3 => smollm3::read,
        Family::Olmo2 => olmo2::read,
    };
    read(keys, &mut config)?;
    Ok(config)
}

/// The base of the rotary angles and what lowers them, in layers without a window.
fn rope(keys: &Keys<'_>, family: Family, context: usize) -> Result<(f64, Option<RopeScaling>)> {
    let mut theta = keys.number("rope_theta")?;
    let mut scaling = None;
    // Version 5 of transformers nests the rotary settings; before, only scaled variants had a table.
    for name in ["rope_parameters", "rope_scaling"] {
        let Some(mut table) = keys.table(name)? else { continue };
        if let Some(of_layers) = table.table("full_attention")? {
            table = of_layers;
        }
        scaling = RopeScaling::from_hf(&table, context)?.or(scaling);
        theta = table.number("rope_theta")?.or(theta);
    }
    Ok((theta.unwrap_or(family.rope_theta()), scaling))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{preset, presets};

    #[test]
    fn every_preset_survives_the_round_trip() {
        for preset in presets() {
            let config = ModelConfig { norm_eps: 1e-6, ..preset.config() };
            assert_eq!(ModelConfig::from_hf(&config.to_hf()).unwrap(), config, "{}", preset.name);
        }
        let config = ModelConfig { dropout: 0.2, hidden: 100, ..preset("tiny").unwrap() };
        assert_eq!(ModelConfig::from_hf(&config.to_hf()).unwrap(), config);
        let config = ModelConfig { rope_theta: 5e5, ..preset("llama-tiny").unwrap() };
        assert_eq!(ModelConfig::from_hf(&config.to_hf()).unwrap(), config);
    }

    #[test]
    fn the_published_gpt2_file() {
        let file = json!({
            "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
            "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "model_type": "gpt2",
            "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "resid_pdrop": 0.1, "summary_activation": null, "vocab_size": 50257
        });
        let expected = ModelConfig { dropout: 0.1, ..preset("gpt2").unwrap() };
        assert_eq!(ModelConfig::from_hf(&file).unwrap(), expected);
    }

    #[test]
    fn rotary_settings_of_both_versions() {
        let mut file = preset("llama-tiny").unwrap().to_hf();
        file.as_object_mut().unwrap().remove("rope_parameters");
        file["rope_theta"] = json!(5e5);
        file["rope_scaling"] = Value::Null;
        assert_eq!(ModelConfig::from_hf(&file).unwrap().rope_theta, 5e5);
        file["rope_parameters"] = json!({ "rope_theta": 7e5, "rope_type": "default" });
        assert_eq!(ModelConfig::from_hf(&file).unwrap().rope_theta, 7e5);
    }

    #[test]
    fn the_published_llama_3_2_file() {
        let file = json!({
            "architectures": ["LlamaForCausalLM"], "attention_bias": false,
            "attention_dropout": 0.0, "bos_token_id": 128_000, "eos_token_id": [128_001, 128_008, 128_009],
            "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
            "intermediate_size": 8192, "max_position_embeddings": 131_072, "mlp_bias": false,
            "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
            "num_key_value_heads": 8, "pretraining_tp": 2, "rms_norm_eps": 1e-5,
            "layer_types": vec!["full_attention"; 16],
            "rope_scaling": { "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192, "rope_type": "llama3" },
            "rope_theta": 500_000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
            "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128_256
        });
        assert_eq!(ModelConfig::from_hf(&file).unwrap(), preset("llama-3.2-1b").unwrap());
    }

    #[test]
    fn refusals_name_the_key() {
        let (gpt2, llama) =
            (preset("gpt2").unwrap().to_hf(), preset("llama-tiny").unwrap().to_hf());
        let [qwen, gemma, smol] =
            ["qwen2.5-0.5b", "gemma-2-2b", "smollm3-3b"].map(|name| preset(name).unwrap().to_hf());
        for (file, key, value, words) in [
            (&gpt2, "model_type", json!("bloom"), "is bloom; supported: gpt2, llama, mistral"),
            (&gpt2, "model_type", Value::Null, "`model_type`: is missing"),
            (
                &llama,
                "architectures",
                json!(["LlamaForQuestionAnswering"]),
                "is LlamaForQuestionAnswering, which isn't supported of this family; supported: LlamaForCausalLM",
            ),
            (&gpt2, "scale_attn_by_inverse_layer_idx", json!(true), "is true; supported: false"),
            (&gpt2, "activation_function", json!("relu"), "supported: \"gelu_new\""),
            (&gpt2, "embd_pdrop", json!(0.5), "`embd_pdrop`: is 0.5"),
            (&gpt2, "n_layer", Value::Null, "`n_layer`: is missing"),
            (&gpt2, "n_layer", json!(-1), "`n_layer`: must be a whole number, is -1"),
            (&gpt2, "n_head", json!(5), "`heads`: 5 heads don't divide"),
            (
                &gpt2,
                "quantization_config",
                json!({ "quant_method": "awq", "bits": 4 }),
                "says that weights are quantized by awq, which isn't read; weights of bitsandbytes",
            ),
            (&gpt2, "quantization_config", json!({}), "quantized by none that is named"),
            (&llama, "attention_bias", json!(true), "`attention_bias`: is true"),
            (
                &llama,
                "layer_types",
                json!(["sliding_attention"]),
                "lists \"sliding_attention\"; supported: full_attention",
            ),
            (&llama, "head_dim", json!(17), "even width, `head_dim` is 17"),
            (&llama, "partial_rotary_factor", json!(0.5), "`partial_rotary_factor`: is 0.5"),
            (
                &llama,
                "rope_parameters",
                json!({ "rope_type": "longrope" }),
                "`rope_parameters.rope_type`: is \"longrope\", a rope type that isn't supported yet",
            ),
            (&llama, "rope_parameters", json!({ "rope_type": "linear" }), "factor`: is missing"),
            (
                &llama,
                "rope_scaling",
                json!({ "type": "linear", "factor": 0.5 }),
                "`rope_scaling.factor`: must be at least 1, is 0.5",
            ),
            // What nobody here knows.
            (
                &llama,
                "embedding_multiplier",
                json!(12.0),
                "`embedding_multiplier`: is 12.0; it isn't",
            ),
            (&llama, "num_local_experts", json!(8), "may change what the model computes"),
            (&qwen, "layer_types", json!(["full_attention"]), "lists 1 layers, not 24"),
            (&gemma, "hidden_activation", json!("gelu"), "supported: \"gelu_pytorch_tanh\""),
            (&smol, "no_rope_layers", json!([1, 0]), "lists 2 layers, not 36"),
        ] {
            let mut file = file.clone();
            file[key] = value;
            let message = ModelConfig::from_hf(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        assert!(ModelConfig::from_hf(&json!([1])).is_err());
    }
}
