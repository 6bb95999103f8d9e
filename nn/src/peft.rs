//! PEFT's `adapter_config.json`, read and written.

use serde_json::{Value, json};

use crate::error::Result;
use crate::frozen::FrozenBits;
use crate::keys::Keys;
use crate::lora::{ALL_LINEAR, Lora};
use crate::params::Parameter;

/// Keys that make of adapters something else than [`Lora`] is, unless they are left out or are what is listed here.
fn plain() -> [(&'static str, Vec<Value>); 19] {
    let (no, none) = (|| vec![json!(false)], || vec![json!({})]);
    // Other values begin by changing the frozen weights.
    let initial = [json!(true), json!(false), json!("gaussian"), json!("orthogonal"), json!("eva")];
    [
        ("bias", vec![json!("none")]),
        ("use_dora", no()),
        ("use_rslora", no()),
        ("use_qalora", no()),
        ("lora_bias", no()),
        ("rank_pattern", none()),
        ("alpha_pattern", none()),
        ("init_lora_weights", initial.to_vec()),
        ("modules_to_save", vec![]),
        ("exclude_modules", vec![]),
        ("layers_to_transform", vec![]),
        ("layer_replication", vec![]),
        ("target_parameters", vec![]),
        ("trainable_token_indices", vec![]),
        ("alora_invocation_tokens", vec![]),
        ("arrow_config", vec![]),
        ("kasa_config", vec![]),
        ("monteclora_config", vec![]),
        ("use_bdlora", vec![]),
    ]
}

impl Lora {
    /// The adapters that PEFT's `adapter_config.json` describes, of frozen weights in the run's precision. Keys that don't
    /// change what adapters compute are passed over.
    ///
    /// # Errors
    /// [`crate::Error::HuggingFace`] for a key that is missing, malformed or asks for something unsupported. What
    /// depends on the model is left to [`Lora::check`].
    pub fn from_peft(value: &Value) -> Result<Self> {
        let keys = Keys::of("adapter_config.json", "peft_type", value)?;
        if keys.text("peft_type")? != Some("LORA") {
            let found = keys.get("peft_type").map_or("missing".to_owned(), Value::to_string);
            return Err(keys.wrong("peft_type", format!("is {found}; supported: \"LORA\"")));
        }
        for (key, supported) in plain() {
            keys.must_be(key, &supported)?;
        }
        let alpha = keys.number("lora_alpha")?;
        Ok(Self {
            rank: keys.size("r")?,
            alpha: alpha.ok_or_else(|| {
                keys.wrong("lora_alpha", "is missing; it must be a number".to_owned())
            })?,
            targets: targets(&keys)?,
            dropout: keys.number("lora_dropout")?.unwrap_or(0.0),
            base_bits: FrozenBits::Precision,
        })
    }

    /// PEFT's `adapter_config.json` for adapters of a model with these parameters, which is found at `base`.
    pub fn to_peft(&self, list: &[Parameter], base: Option<&str>) -> Value {
        let transposed =
            list.iter().flat_map(|parameter| &parameter.parts).any(|part| part.transposed);
        let targets = match self.targets.iter().any(|target| target == ALL_LINEAR) {
            true => json!(ALL_LINEAR),
            false => json!(self.targets),
        };
        json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "bias": "none",
            // GPT-2's layers are `Conv1D`s, which store (in, out).
            "fan_in_fan_out": transposed,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": whole(self.alpha),
            "lora_dropout": self.dropout,
            "modules_to_save": null,
            "r": self.rank,
            "target_modules": targets,
            "use_dora": false,
            "use_rslora": false,
        })
    }
}

/// `number` without a point where it has no fraction: PEFT declares its alpha whole.
fn whole(number: f64) -> Value {
    let rounded = number as u64;
    if rounded as f64 == number { json!(rounded) } else { json!(number) }
}

/// The layers that have adapters. A text other than [`ALL_LINEAR`] is a regular expression to PEFT.
fn targets(keys: &Keys<'_>) -> Result<Vec<String>> {
    const KEY: &str = "target_modules";
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let found = match keys.get(KEY) {
        Some(Value::String(text)) if text == ALL_LINEAR => Some(vec![ALL_LINEAR.to_owned()]),
        Some(Value::Array(list)) => list.iter().map(name).collect(),
        _ => None,
    };
    found.ok_or_else(|| {
        let found = keys.get(KEY).map_or("missing".to_owned(), Value::to_string);
        let problem = format!("is {found}; supported: a list of names, \"{ALL_LINEAR}\"");
        keys.wrong(KEY, problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parameters, preset};

    fn lora(targets: &[&str]) -> Lora {
        let targets = targets.iter().map(|&target| target.to_owned()).collect();
        Lora { rank: 4, alpha: 6.5, targets, dropout: 0.25, base_bits: FrozenBits::Precision }
    }

    #[test]
    fn what_is_written_is_read() {
        for (preset_name, targets) in
            [("tiny", &["c_attn", "mlp.c_proj"][..]), ("llama-tiny", &[ALL_LINEAR])]
        {
            let (list, lora) = (parameters(&preset(preset_name).unwrap()), lora(targets));
            assert_eq!(Lora::from_peft(&lora.to_peft(&list, Some("base"))).unwrap(), lora);
        }
    }

    #[test]
    fn refusals_name_the_key() {
        let file = lora(&["c_attn"]).to_peft(&parameters(&preset("tiny").unwrap()), None);
        for (key, value, words) in [
            ("peft_type", json!("LOHA"), "json, key `peft_type`: is \"LOHA\"; supported: \"LORA\""),
            ("peft_type", Value::Null, "`peft_type`: is missing"),
            ("r", Value::Null, "adapter_config.json, key `r`: is missing"),
            ("r", json!(-4), "`r`: must be a whole number, is -4"),
            ("lora_alpha", Value::Null, "`lora_alpha`: is missing"),
            ("target_modules", json!(".*attn.*"), "is \".*attn.*\"; supported: a list of names"),
            ("target_modules", json!(["c_attn", 3]), "`target_modules`: is [\"c_attn\",3]"),
            ("target_modules", Value::Null, "`target_modules`: is missing"),
            ("use_dora", json!(true), "`use_dora`: is true; supported: false"),
            ("use_rslora", json!(true), "`use_rslora`: is true"),
            ("bias", json!("all"), "`bias`: is \"all\"; supported: \"none\""),
            ("rank_pattern", json!({ "c_attn": 8 }), "`rank_pattern`: is {\"c_attn\":8}"),
            ("modules_to_save", json!(["lm_head"]), "supported: leaving it out"),
            ("init_lora_weights", json!("pissa"), "`init_lora_weights`: is \"pissa\""),
        ] {
            let mut file = file.clone();
            file[key] = value;
            let message = Lora::from_peft(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        let message = Lora::from_peft(&json!([1])).unwrap_err().to_string();
        assert!(message.contains("the file holds [1], no object"), "{message}");
    }
}
