//! A bound on how much longer a tokenizer's normalizers and decoders make a text.

use serde_json::Value;

/// Times that a text may become longer. Published tokenizers replace a space by three bytes.
const MOST: f64 = 64.0;

/// Tokens that are put around a text at most.
const MOST_ADDED: usize = 256;

/// Bytes of an added token at most: the search for them takes the square of it.
const LONGEST_TOKEN: usize = 1024;

/// Times that one of Unicode's normal forms makes a text longer: U+FDFA becomes eleven times its bytes.
const NORMAL_FORM: f64 = 11.0;

/// Refuses a `tokenizer.json` with replacements that multiply a text.
///
/// # Errors
/// A message with the part that does; and text that isn't JSON, some of which the library reads.
pub(super) fn check(json: &[u8]) -> Result<(), String> {
    let file: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        let mut steps = Vec::new();
        collect(&file[part], &mut steps);
        let growth = of(&steps);
        if growth > MOST {
            return Err(format!(
                "its {part} makes a text up to {growth:.0} times longer, and {MOST} times are the most"
            ));
        }
    }
    let tokens = file["added_tokens"].as_array().into_iter().flatten();
    tokens.filter_map(|token| token["content"].as_str()).try_for_each(check_token)?;
    match added(&file["post_processor"]) > MOST_ADDED {
        true => {
            Err(format!("its post_processor adds more than {MOST_ADDED} tokens or texts to a text"))
        }
        false => Ok(()),
    }
}

/// Refuses an added token that is too long.
///
/// # Errors
/// A message with its length.
pub(super) fn check_token(content: &str) -> Result<(), String> {
    match content.len() > LONGEST_TOKEN {
        true => Err(format!(
            "an added token has {} bytes, and {LONGEST_TOKEN} are the most",
            content.len()
        )),
        false => Ok(()),
    }
}

/// Tokens and texts that post-processors put around a text. Published ones add a few.
fn added(part: &Value) -> usize {
    if let Some(list) = part["processors"].as_array() {
        return list.iter().map(added).fold(0, usize::saturating_add);
    }
    let tokens = |piece: &Value| {
        let name = piece["SpecialToken"]["id"].as_str().unwrap_or_default();
        part["special_tokens"][name]["ids"].as_array().map_or(1, Vec::len)
    };
    let templates = [&part["single"], &part["pair"]];
    let pieces = templates.into_iter().filter_map(Value::as_array).flatten();
    pieces.map(tokens).fold(0, usize::saturating_add)
}

/// The steps of a part and of the sequences in it, in their order.
fn collect<'a>(part: &'a Value, steps: &mut Vec<&'a Value>) {
    let lists = ["normalizers", "pretokenizers", "decoders"];
    match lists.iter().find_map(|name| part.get(name)?.as_array()) {
        Some(list) => list.iter().for_each(|part| collect(part, steps)),
        None => steps.push(part),
    }
}

/// Times that steps one after the other make a text longer at most.
fn of(steps: &[&Value]) -> f64 {
    let mut growth = 1.0;
    // Text in a normal form stays as it is, until something is replaced.
    let mut normal = false;
    let mut tables = 0;
    for step in steps {
        let kind = step["type"].as_str().unwrap_or_default();
        tables += usize::from(kind == "Precompiled");
        // SentencePiece's tables are normal forms; several are none that was published.
        let is_table = kind == "Precompiled" && tables == 1 && is_known(step);
        if is_table || matches!(kind, "NFC" | "NFD" | "NFKC" | "NFKD") {
            growth *= if normal { 1.0 } else { NORMAL_FORM };
            normal = true;
            continue;
        }
        growth *= of_step(kind, step);
        normal &= !matches!(kind, "Replace" | "Prepend" | "Precompiled");
    }
    growth
}

/// Times that a step makes a text longer.
fn of_step(kind: &str, step: &Value) -> f64 {
    let length = |value: &Value| value.as_str().map_or(0.0, |text| text.len() as f64);
    match kind {
        "Replace" => {
            let replaced = length(&step["content"]);
            match &step["pattern"]["String"] {
                Value::String(pattern) if !pattern.is_empty() => {
                    (replaced / pattern.len() as f64).max(1.0)
                }
                // A match of a regular expression may be empty.
                _ => 1.0 + replaced,
            }
        }
        "Prepend" => 1.0 + length(&step["prepend"]),
        // A byte becomes a character of up to two, and a word may get a space.
        "ByteLevel" => match step["add_prefix_space"] == true {
            true => 4.0,
            false => 2.0,
        },
        // A space becomes a character of up to four bytes, and a word may get one.
        "Metaspace" => 4.0,
        // Chinese characters of three bytes get spaces on both sides.
        "BertNormalizer" => 5.0 / 3.0,
        "Lowercase" => 1.5,
        "Precompiled" => longest_text(step) as f64,
        _ => 1.0,
    }
}

/// Returns true if a table has no longer texts than those that are published.
fn is_known(table: &Value) -> bool {
    const LONGEST: usize = 33;
    longest_text(table) <= LONGEST
}

/// Bytes of the longest text that a table of SentencePiece has for another: its length, a trie of that many bytes, and texts with a zero
/// behind each.
fn longest_text(table: &Value) -> usize {
    let Some(text) = table["precompiled_charsmap"].as_str() else { return 1 };
    let bytes = base64(text.as_bytes());
    let texts = bytes
        .split_first_chunk()
        .and_then(|(length, rest)| rest.get(u32::from_le_bytes(*length) as usize..));
    texts.unwrap_or(&bytes).split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(1)
}

/// The bytes of base64; what isn't of its alphabet is passed over.
fn base64(text: &[u8]) -> Vec<u8> {
    let value = |&byte: &u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let values: Vec<u8> = text.iter().filter_map(value).collect();
    let mut bytes = Vec::with_capacity(values.len() / 4 * 3);
    for group in values.chunks(4) {
        let number = group.iter().fold(0_u32, |number, &value| number << 6 | u32::from(value));
        let number = number << (6 * (4 - group.len()));
        bytes.extend(&number.to_be_bytes()[1..group.len().max(1)]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(part: &str, steps: Vec<Value>) -> Result<(), String> {
        let list = if part == "normalizer" { "normalizers" } else { "pretokenizers" };
        let file = json!({ part: { "type": "Sequence", list: steps } });
        check(file.to_string().as_bytes())
    }

    #[test]
    fn published_chains_pass_and_those_that_multiply_are_refused() {
        let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
        let of = |kind: &str| json!({ "type": kind, "add_prefix_space": true });
        // ALBERT's, with a table of no texts.
        let table = json!({ "type": "Precompiled", "precompiled_charsmap": "AAAAAA==" });
        let albert = vec![
            replace("``", "\""),
            of("NFKD"),
            of("StripAccents"),
            of("Lowercase"),
            table.clone(),
            json!({ "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": " " }),
        ];
        checked("normalizer", albert).unwrap();
        checked("pre_tokenizer", vec![of("Split"), of("ByteLevel")]).unwrap();
        for steps in [
            vec![of("ByteLevel"); 40],
            vec![of("Metaspace"); 4],
            vec![replace("a", "aaa"); 4],
            vec![of("NFKD"), replace("a", "\u{fdfa}"), of("NFKD")],
            // A text of 200 bytes, behind a trie of none.
            vec![
                json!({ "type": "Precompiled", "precompiled_charsmap": format!("AAAAAA{}", "YWFh".repeat(67)) }),
            ],
        ] {
            let refused = checked("normalizer", steps.clone()).unwrap_err();
            assert!(refused.contains("times longer"), "{steps:?}: {refused}");
        }
    }

    #[test]
    fn a_template_that_repeats_a_text_is_refused() {
        let file = |times: usize| {
            let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
            json!({ "post_processor": { "type": "TemplateProcessing", "single": vec![text; times], "pair": [], "special_tokens": {} } })
        };
        check(file(2).to_string().as_bytes()).unwrap();
        let refused = check(file(300).to_string().as_bytes()).unwrap_err();
        assert!(refused.contains("post_processor"), "{refused}");
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        for (text, bytes) in
            [("aGVsbG8=", "hello"), ("aGVsbG8", "hello"), ("aGVs\nbG9v", "helloo"), ("", "")]
        {
            assert_eq!(base64(text.as_bytes()), bytes.as_bytes());
        }
    }
}
