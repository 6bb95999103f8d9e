//! Keys of a `tokenizer_config.json` by which classes of transformers change how a text is normalized and split, whatever the
//! `tokenizer.json` beside it says.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// Changes `inner` as the class does that the configuration names; true if anything changed. The class is BERT's where none is named.
///
/// # Errors
/// A message, for a part that the library doesn't read again.
pub(super) fn apply(inner: &mut Tokenizer, config: &Value) -> Result<bool, String> {
    if !config.is_object() {
        return Ok(false);
    }
    let flag = |key: &str, unset: bool| json!(config[key].as_bool().unwrap_or(unset));
    let class = config["tokenizer_class"].as_str().unwrap_or("BertTokenizer");
    match class.strip_suffix("Fast").unwrap_or(class) {
        "BertTokenizer" => {
            let keys = [
                ("lowercase", flag("do_lower_case", true)),
                ("handle_chinese_chars", flag("tokenize_chinese_chars", true)),
                ("strip_accents", json!(config["strip_accents"].as_bool())),
            ];
            let normalizer = with_keys(inner.get_normalizer(), "BertNormalizer", &keys)?;
            let changed = normalizer.is_some();
            if changed {
                inner.with_normalizer(normalizer);
            }
            Ok(changed)
        }
        "GPT2Tokenizer" | "Qwen2Tokenizer" => {
            let keys = [("add_prefix_space", flag("add_prefix_space", false))];
            let splitter = with_keys(inner.get_pre_tokenizer(), "ByteLevel", &keys)?;
            let changed = splitter.is_some();
            if changed {
                inner.with_pre_tokenizer(splitter);
            }
            Ok(changed)
        }
        _ => Ok(false),
    }
}

/// A copy of `part` in which those of type `name` have these keys; `None` if they already do.
fn with_keys<P: Serialize + DeserializeOwned>(
    part: Option<&P>,
    name: &str,
    keys: &[(&str, Value)],
) -> Result<Option<P>, String> {
    let before = serde_json::to_value(part).map_err(|error| error.to_string())?;
    let mut after = before.clone();
    set(&mut after, name, keys);
    if after == before {
        return Ok(None);
    }
    serde_json::from_value(after).map_err(|error| error.to_string())
}

/// Sets these keys in every object of type `name`.
fn set(value: &mut Value, name: &str, keys: &[(&str, Value)]) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| set(value, name, keys)),
        Value::Object(object) => {
            if object.get("type").and_then(Value::as_str) == Some(name) {
                keys.iter().for_each(|(key, value)| {
                    object.insert((*key).to_owned(), value.clone());
                });
            }
            object.values_mut().for_each(|value| set(value, name, keys));
        }
        _ => {}
    }
}
