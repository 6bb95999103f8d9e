//! PEFT's `adapter_config.json`, read and written.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::frozen::FrozenBits;
use crate::keys::Keys;
use crate::lora::{ALL_LINEAR, Biases, Lora, REGEX, Variant};
use crate::params::Parameter;

/// Keys that make of adapters something else than [`Lora`] is, unless they are absent or are what is listed here.
fn plain() -> [(&'static str, Vec<Value>); 13] {
    let (no, none) = (|| vec![json!(false)], || vec![json!({}), json!([])]);
    // Other values begin by changing the frozen weights.
    let initial = [json!(true), json!(false), json!("gaussian"), json!("orthogonal"), json!("eva")];
    [
        ("use_qalora", no()),
        ("lora_bias", no()),
        ("init_lora_weights", initial.to_vec()),
        ("layer_replication", none()),
        ("target_parameters", none()),
        ("trainable_token_indices", none()),
        ("alora_invocation_tokens", none()),
        ("arrow_config", none()),
        ("kasa_config", none()),
        ("monteclora_config", none()),
        ("velora_config", none()),
        ("use_bdlora", vec![json!(false), json!({})]),
        ("ensure_weight_tying", no()),
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
        let targets = names(&keys, "target_modules")?;
        let layers = layers(&keys)?;
        Ok(Self {
            rank: keys.size("r")?,
            alpha: alpha.ok_or_else(|| {
                keys.wrong("lora_alpha", "is missing; it must be a number".to_owned())
            })?,
            targets,
            dropout: keys.number("lora_dropout")?.unwrap_or(0.0),
            base_bits: FrozenBits::Precision,
            variant: Variant {
                rslora: keys.flag("use_rslora")?.unwrap_or(false),
                dora: keys.flag("use_dora")?.unwrap_or(false),
                ranks: patterns(&keys, "rank_pattern", |value| {
                    value.as_u64().and_then(|rank| rank.try_into().ok())
                })?,
                alphas: patterns(&keys, "alpha_pattern", Value::as_f64)?,
                layers,
                layers_pattern: optional_names(&keys, "layers_pattern", false)?,
                exclude: optional_names(&keys, "exclude_modules", true)?,
                saved: optional_names(&keys, "modules_to_save", false)?,
                bias: bias(&keys)?,
            },
        })
    }

    /// PEFT's `adapter_config.json` for adapters of a model with these parameters, which is found at `base`.
    pub fn to_peft(&self, list: &[Parameter], base: Option<&str>) -> Value {
        let transposed =
            list.iter().flat_map(|parameter| &parameter.parts).any(|part| part.transposed);
        let variant = &self.variant;
        let alphas = variant.alphas.iter().map(|(pattern, &alpha)| (pattern.clone(), whole(alpha)));
        let mut file = json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "bias": variant.bias.name(),
            // GPT-2's layers are `Conv1D`s, which store (in, out).
            "fan_in_fan_out": transposed,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": whole(self.alpha),
            "lora_dropout": self.dropout,
            "modules_to_save": listed(&variant.saved),
            "r": self.rank,
            "target_modules": listed(&self.targets),
            "use_dora": variant.dora,
            "use_rslora": variant.rslora,
        });
        if !variant.ranks.is_empty() {
            file["rank_pattern"] = json!(variant.ranks);
        }
        if !variant.alphas.is_empty() {
            file["alpha_pattern"] = Value::Object(alphas.collect());
        }
        if variant.layers.is_some() {
            file["layers_to_transform"] = json!(variant.layers);
        }
        for (key, list) in
            [("layers_pattern", &variant.layers_pattern), ("exclude_modules", &variant.exclude)]
        {
            if !list.is_empty() {
                file[key] = listed(list);
            }
        }
        file
    }
}

/// `number` without a point where it has no fraction: PEFT declares its alpha whole.
fn whole(number: f64) -> Value {
    let rounded = number as u64;
    if rounded as f64 == number { json!(rounded) } else { json!(number) }
}

/// Names as PEFT writes them: a text where they are all layers or a regular expression, and `null` where there are none.
fn listed(names: &[String]) -> Value {
    match names {
        [] => Value::Null,
        [one] if one.starts_with(REGEX) => json!(one[REGEX.len()..]),
        names if names.iter().any(|name| name == ALL_LINEAR) => json!(ALL_LINEAR),
        names => json!(names),
    }
}

/// The modules that a key names: a list of names, or a text, which is a regular expression unless it's [`ALL_LINEAR`].
fn names(keys: &Keys<'_>, key: &str) -> Result<Vec<String>> {
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let found = match keys.get(key) {
        Some(Value::String(text)) if text == ALL_LINEAR => Some(vec![ALL_LINEAR.to_owned()]),
        Some(Value::String(text)) => Some(vec![format!("{REGEX}{text}")]),
        Some(Value::Array(list)) => list.iter().map(name).collect(),
        _ => None,
    };
    found.ok_or_else(|| {
        let found = keys.get(key).map_or("missing".to_owned(), Value::to_string);
        let kinds = "a list of names, a regular expression";
        keys.wrong(key, format!("is {found}; supported: {kinds}, \"{ALL_LINEAR}\""))
    })
}

/// As [`names`], of a key that may be absent. A text is one name unless it `may_be_pattern`.
fn optional_names(keys: &Keys<'_>, key: &str, may_be_pattern: bool) -> Result<Vec<String>> {
    match keys.get(key) {
        None => Ok(vec![]),
        Some(Value::String(name)) if !may_be_pattern => Ok(vec![name.clone()]),
        Some(Value::String(text)) if text.is_empty() => Ok(vec![]),
        Some(_) => names(keys, key),
    }
}

/// The biases that are trained.
fn bias(keys: &Keys<'_>) -> Result<Biases> {
    let Some(value) = keys.get("bias") else { return Ok(Biases::None) };
    let found = Biases::ALL.iter().find(|bias| value == bias.name());
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = Biases::ALL.iter().map(|bias| bias.name()).collect();
        keys.wrong("bias", format!("is {value}; supported: {}", known.join(", ")))
    })
}

/// The layers that have adapters: a number, or a list of numbers, of which an empty one is of all.
fn layers(keys: &Keys<'_>) -> Result<Option<Vec<usize>>> {
    const KEY: &str = "layers_to_transform";
    let number = |value: &Value| value.as_u64().and_then(|layer| layer.try_into().ok());
    let found: Option<Vec<usize>> = match keys.get(KEY) {
        None => return Ok(None),
        Some(Value::Array(list)) => list.iter().map(number).collect(),
        Some(value) => number(value).map(|layer| vec![layer]),
    };
    match (found, keys.get(KEY)) {
        (Some(layers), _) => Ok(Some(layers).filter(|layers| !layers.is_empty())),
        (None, value) => {
            let found = value.unwrap_or(&Value::Null);
            Err(keys.wrong(KEY, format!("is {found}; supported: a number, a list of numbers")))
        }
    }
}

/// Numbers by the pattern of the modules that they are of.
fn patterns<T>(
    keys: &Keys<'_>,
    key: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<BTreeMap<String, T>> {
    let empty = Map::new();
    let table = match keys.get(key) {
        None => &empty,
        Some(Value::Object(table)) => table,
        Some(value) => {
            return Err(keys.wrong(key, format!("is {value}; supported: an object of numbers")));
        }
    };
    let number = |(pattern, value): (&String, &Value)| {
        let number = read(value).ok_or_else(|| {
            keys.wrong(key, format!("says {value} of `{pattern}`, which must be a number"))
        })?;
        Ok((pattern.clone(), number))
    };
    table.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parameters, preset};

    fn lora(targets: &[&str]) -> Lora {
        let targets = targets.iter().map(|&target| target.to_owned()).collect();
        Lora {
            rank: 4,
            alpha: 6.5,
            targets,
            dropout: 0.25,
            base_bits: FrozenBits::Precision,
            variant: Variant::default(),
        }
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
            ("target_modules", json!(["c_attn", 3]), "`target_modules`: is [\"c_attn\",3]"),
            ("target_modules", Value::Null, "`target_modules`: is missing"),
            ("bias", json!("some"), "`bias`: is \"some\"; supported: none, all, lora_only"),
            ("lora_bias", json!(true), "`lora_bias`: is true; supported: false"),
            ("rank_pattern", json!({ "c_attn": "8" }), "says \"8\" of `c_attn`"),
            ("layers_to_transform", json!("1"), "is \"1\"; supported: a number, a list"),
            ("target_parameters", json!(["a"]), "is [\"a\"]; supported: {}"),
            ("init_lora_weights", json!("pissa"), "`init_lora_weights`: is \"pissa\""),
        ] {
            let mut file = file.clone();
            file[key] = value;
            let message = Lora::from_peft(&file).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
            assert!(!message.contains("leav"), "{message}");
        }
        let message = Lora::from_peft(&json!([1])).unwrap_err().to_string();
        assert!(message.contains("the file holds [1], no object"), "{message}");
    }

    #[test]
    fn variants_are_read_and_written() {
        let mut file = lora(&["c_attn"]).to_peft(&parameters(&preset("tiny").unwrap()), None);
        for (key, value) in [
            ("target_modules", json!(r".*attn\.(c_attn|c_proj)")),
            ("use_rslora", json!(true)),
            ("use_dora", json!(true)),
            ("rank_pattern", json!({ "c_attn": 8, "h.1.attn.c_proj": 2 })),
            ("alpha_pattern", json!({ "c_proj": 16 })),
            ("exclude_modules", json!(["h.0.attn.c_attn"])),
            ("modules_to_save", json!(["ln_f"])),
            ("bias", json!("lora_only")),
        ] {
            file[key] = value;
        }
        let read = Lora::from_peft(&file).unwrap();
        let list = parameters(&preset("tiny").unwrap());
        assert_eq!(read.to_peft(&list, None), file);
        read.check(&list).unwrap();
        let trained = read.parameters(&list).unwrap();
        let shape = |name: &str| {
            let found =
                trained.iter().find(|it| it.parts[0].name == format!("base_model.model.{name}"));
            found.map(|parameter| parameter.shape.clone())
        };
        assert_eq!(shape("transformer.h.0.attn.c_attn.lora_A.weight"), None);
        assert_eq!(shape("transformer.h.1.attn.c_attn.lora_A.weight"), Some(vec![8, 64]));
        assert_eq!(shape("transformer.h.0.attn.c_proj.lora_B.weight"), Some(vec![64, 4]));
        assert_eq!(shape("transformer.h.1.attn.c_proj.lora_magnitude_vector"), Some(vec![64]));
        assert_eq!(shape("transformer.ln_f.bias"), Some(vec![64]));
        assert_eq!(shape("transformer.h.0.attn.c_proj.base_layer.bias"), Some(vec![64]));
        assert_eq!(shape("transformer.h.0.mlp.c_fc.bias"), None);
        // The numbers of a list of layers, of which PEFT takes the first in a name.
        file["target_modules"] = json!(["c_attn"]);
        file["layers_to_transform"] = json!(1);
        let list_of = |file: &Value| {
            let adapters = Lora::from_peft(file).unwrap().parameters(&list).unwrap();
            adapters.iter().filter(|it| it.name.ends_with("lora_A")).count()
        };
        assert_eq!(list_of(&file), 1);
        file["layers_pattern"] = json!("blocks");
        assert_eq!(list_of(&file), 0);
        file["layers_pattern"] = json!(["blocks", "h"]);
        assert_eq!(list_of(&file), 1);
    }
}
