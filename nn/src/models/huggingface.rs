//! Hugging Face's `config.json`, read and written.

use serde_json::{Value, json};

use super::config::{Family, ModelConfig, default_norm_eps, default_rope_theta};
use crate::error::Result;
use crate::keys::Keys;

impl ModelConfig {
    /// The model that a Hugging Face `config.json` describes. Keys that don't change the network are passed
    /// over. GPT-2's `resid_pdrop` becomes the dropout; its `attn_pdrop` isn't applied.
    ///
    /// # Errors
    /// [`crate::Error::HuggingFace`] for a key that is missing, malformed or asks for something unsupported, and as
    /// [`ModelConfig::check`].
    pub fn from_hf(value: &Value) -> Result<Self> {
        let keys = Keys::of("config.json", "model_type", value)?;
        keys.must_be("quantization_config", &[])?;
        let config = match keys.text("model_type")? {
            Some("gpt2") => gpt2(&keys)?,
            Some("llama") => llama(&keys)?,
            other => {
                let found = other.unwrap_or("missing");
                let problem = format!("is {found}; supported: gpt2, llama");
                return Err(keys.wrong("model_type", problem));
            }
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` with which transformers loads this model. Llama has no dropout there, so that of a
    /// Llama isn't in it.
    pub fn to_hf(&self) -> Value {
        match self.family {
            Family::Gpt2 => {
                // The token that ends a text in GPT-2's vocabulary; others' aren't known here.
                let end = (self.vocab == 50_257).then_some(50_256);
                json!({
                    "architectures": ["GPT2LMHeadModel"],
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
            Family::Llama => json!({
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "attention_bias": false,
                "attention_dropout": 0.0,
                "bos_token_id": null,
                "eos_token_id": null,
                "head_dim": self.head_dim(),
                "hidden_act": "silu",
                "hidden_size": self.channels,
                "intermediate_size": self.hidden,
                "max_position_embeddings": self.context,
                "mlp_bias": false,
                "num_attention_heads": self.heads,
                "num_hidden_layers": self.layers,
                "num_key_value_heads": self.kv_heads,
                "rms_norm_eps": self.norm_eps,
                // Both spellings: transformers reads the first from version 5 on, the second before.
                "rope_parameters": { "rope_theta": self.rope_theta, "rope_type": "default" },
                "rope_theta": self.rope_theta,
                "tie_word_embeddings": self.tied,
                "vocab_size": self.vocab,
            }),
        }
    }
}

fn gpt2(keys: &Keys<'_>) -> Result<ModelConfig> {
    keys.must_be("activation_function", &[json!("gelu_new"), json!("gelu_pytorch_tanh")])?;
    keys.must_be("add_cross_attention", &[json!(false)])?;
    keys.must_be("scale_attn_by_inverse_layer_idx", &[json!(false)])?;
    keys.must_be("scale_attn_weights", &[json!(true)])?;
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
    })
}

fn llama(keys: &Keys<'_>) -> Result<ModelConfig> {
    keys.must_be("hidden_act", &[json!("silu")])?;
    keys.must_be("attention_bias", &[json!(false)])?;
    keys.must_be("mlp_bias", &[json!(false)])?;
    keys.must_be("attention_dropout", &[json!(0), json!(0.0)])?;
    let mut rope_theta = keys.number("rope_theta")?;
    // Version 5 of transformers nests the rotary settings; before, only scaled variants had a table.
    for table in ["rope_parameters", "rope_scaling"] {
        let Some(rope) = keys.table(table)? else { continue };
        rope.must_be("rope_type", &[json!("default")])?;
        rope.must_be("type", &[json!("default")])?;
        rope.must_be("partial_rotary_factor", &[json!(1), json!(1.0)])?;
        rope_theta = rope.number("rope_theta")?.or(rope_theta);
    }
    let channels = keys.size("hidden_size")?;
    let heads = keys.size("num_attention_heads")?;
    if let Some(head_dim) = keys.optional_size("head_dim")?
        && head_dim.checked_mul(heads) != Some(channels)
    {
        let problem = format!(
            "is {head_dim}; supported: hidden_size / num_attention_heads = {channels} / {heads}"
        );
        return Err(keys.wrong("head_dim", problem));
    }
    Ok(ModelConfig {
        family: Family::Llama,
        layers: keys.size("num_hidden_layers")?,
        channels,
        heads,
        kv_heads: keys.optional_size("num_key_value_heads")?.unwrap_or(heads),
        hidden: keys.size("intermediate_size")?,
        context: keys.size("max_position_embeddings")?,
        vocab: keys.size("vocab_size")?,
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
        dropout: 0.0,
        norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
        rope_theta: rope_theta.unwrap_or(default_rope_theta()),
    })
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
    fn refusals_name_the_key() {
        let (gpt2, llama) =
            (preset("gpt2").unwrap().to_hf(), preset("llama-tiny").unwrap().to_hf());
        for (file, key, value, words) in [
            (&gpt2, "model_type", json!("bloom"), "is bloom; supported: gpt2, llama"),
            (&gpt2, "model_type", Value::Null, "`model_type`: is missing"),
            (&gpt2, "scale_attn_by_inverse_layer_idx", json!(true), "is true; supported: false"),
            (&gpt2, "activation_function", json!("relu"), "supported: \"gelu_new\""),
            (&gpt2, "embd_pdrop", json!(0.5), "`embd_pdrop`: is 0.5"),
            (&gpt2, "n_layer", Value::Null, "`n_layer`: is missing"),
            (&gpt2, "n_layer", json!(-1), "`n_layer`: must be a whole number, is -1"),
            (&gpt2, "n_head", json!(5), "`heads`: 5 heads don't divide"),
            (&gpt2, "quantization_config", json!({}), "`quantization_config`: is {}"),
            (&llama, "attention_bias", json!(true), "`attention_bias`: is true"),
            (&llama, "head_dim", json!(32), "`head_dim`: is 32"),
            (
                &llama,
                "rope_parameters",
                json!({ "rope_type": "llama3" }),
                "`rope_parameters.rope_type`: is \"llama3\"",
            ),
            (&llama, "rope_scaling", json!({ "type": "linear" }), "`rope_scaling.type`"),
        ] {
            let mut file = file.clone();
            file[key] = value;
            let message = ModelConfig::from_hf(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        assert!(ModelConfig::from_hf(&json!([1])).is_err());
    }
}
