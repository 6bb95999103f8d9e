//! A bound on how much longer a tokenizer's normalizers and decoders make a text.

use serde_json::Value;

/// Times that a text may become longer. Published tokenizers replace a space by three bytes.
const MOST: f64 = 64.0;

/// Refuses a `tokenizer.json` with replacements that multiply a text.
///
/// # Errors
/// A message with the part that does.
pub(super) fn check(json: &[u8]) -> Result<(), String> {
    // The parser refuses text that isn't JSON.
    let Ok(file) = serde_json::from_slice::<Value>(json) else { return Ok(()) };
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        let growth = of(&file[part]);
        if growth > MOST {
            return Err(format!(
                "its {part} makes a text up to {growth:.0} times longer, and {MOST} times are the most"
            ));
        }
    }
    Ok(())
}

/// Times that a part of the file makes a text longer at most, Unicode's normal forms apart.
fn of(part: &Value) -> f64 {
    let lists = ["normalizers", "pretokenizers", "decoders"];
    if let Some(list) = lists.iter().find_map(|name| part.get(name)?.as_array()) {
        return list.iter().map(of).product();
    }
    let length = |value: &Value| value.as_str().map_or(0.0, |text| text.len() as f64);
    match part["type"].as_str() {
        Some("Replace") => {
            let replaced = length(&part["content"]);
            match &part["pattern"]["String"] {
                Value::String(pattern) if !pattern.is_empty() => {
                    (replaced / pattern.len() as f64).max(1.0)
                }
                // A match of a regular expression may be empty.
                _ => 1.0 + replaced,
            }
        }
        Some("Prepend") => 1.0 + length(&part["prepend"]),
        _ => 1.0,
    }
}
