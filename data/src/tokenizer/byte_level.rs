//! A `vocab.json` and the `merges.txt` beside it, as GPT-2, Qwen 2 and RoBERTa were published with, as the `tokenizer.json` that Hugging
//! Face's library reads.

use serde_json::{Map, Value, json};

use super::huggingface::CONFIG;

/// Tokens and their ids.
pub(super) const VOCAB: &str = "vocab.json";
/// Pairs of tokens, in the order in which they are merged.
pub(super) const MERGES: &str = "merges.txt";

/// Words as Qwen 2 cuts them.
const QWEN_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Tokenizers that are published in these two files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gpt2,
    Qwen2,
    Roberta,
}

impl Kind {
    /// By the class that the tokenizer's configuration names, else by the model's type.
    fn of(config: &Value, model: &Value) -> Result<Self, String> {
        let class = config["tokenizer_class"].as_str().map(|class| class.trim_end_matches("Fast"));
        match class {
            Some("GPT2Tokenizer" | "CodeGenTokenizer") => Ok(Self::Gpt2),
            Some("Qwen2Tokenizer") => Ok(Self::Qwen2),
            Some("RobertaTokenizer") => Ok(Self::Roberta),
            Some(other) => Err(format!(
                "it is of a {other}, which isn't read from vocab.json and merges.txt; save it as tokenizer.json with transformers' \
                 save_pretrained"
            )),
            None => Ok(match model["model_type"].as_str() {
                Some(kind) if kind.starts_with("qwen") => Self::Qwen2,
                Some("roberta") => Self::Roberta,
                _ => Self::Gpt2,
            }),
        }
    }

    /// Special tokens that the configuration needn't name.
    fn named(self) -> &'static [(&'static str, &'static str)] {
        const END: &str = "<|endoftext|>";
        match self {
            Self::Gpt2 => &[("bos_token", END), ("eos_token", END), ("unk_token", END)],
            Self::Qwen2 => &[("eos_token", END), ("unk_token", END), ("pad_token", END)],
            Self::Roberta => &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("sep_token", "</s>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<s>"),
                ("mask_token", "<mask>"),
            ],
        }
    }
}

/// The `tokenizer.json` of the two files. `model` is the model's configuration; the tokenizer's own among `files` gets the special tokens
/// that its class has by default.
///
/// # Errors
/// A message, for files that aren't such lists and for an unknown class.
pub(super) fn json(
    vocab: &[u8],
    merges: &[u8],
    model: Option<&[u8]>,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<Vec<u8>, String> {
    let vocab: Map<String, Value> = serde_json::from_slice(vocab)
        .map_err(|error| format!("it isn't an object of ids ({error}); fetch it again"))?;
    let model = model.and_then(|model| serde_json::from_slice(model).ok()).unwrap_or_default();
    let held = files.iter().position(|(name, _)| name == CONFIG);
    let held = held.map(|at| files.swap_remove(at).1);
    let config = held.and_then(|text| serde_json::from_slice(&text).ok());
    let mut config: Map<String, Value> = config.unwrap_or_default();
    let kind = Kind::of(&Value::Object(config.clone()), &model)?;
    let merges = pairs(merges)?;
    let spaced = config.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(false);
    let level = |regex: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": spaced, "trim_offsets": true, "use_regex": regex,
        })
    };
    for (name, token) in kind.named() {
        config.entry((*name).to_owned()).or_insert_with(|| (*token).into());
    }
    let words = match kind {
        Kind::Gpt2 | Kind::Roberta => level(true),
        Kind::Qwen2 => json!({ "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": QWEN_WORDS }, "behavior": "Isolated", "invert": false },
            level(false),
        ] }),
    };
    let around = match kind {
        Kind::Gpt2 | Kind::Qwen2 => Value::Null,
        Kind::Roberta => {
            let token = |name: &str| -> Result<Value, String> {
                let text = config[name].as_str().or_else(|| config[name]["content"].as_str());
                let id = text.and_then(|text| vocab.get(text));
                id.map(|id| json!([text, id])).ok_or_else(|| format!("it has no {name}"))
            };
            json!({
                "type": "RobertaProcessing", "sep": token("sep_token")?, "cls": token("cls_token")?,
                "trim_offsets": true, "add_prefix_space": spaced,
            })
        }
    };
    let file = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": if kind == Kind::Qwen2 { json!({ "type": "NFC" }) } else { Value::Null },
        "pre_tokenizer": words,
        "post_processor": around,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
            "merges": merges,
        },
    });
    files.push((CONFIG.to_owned(), Value::Object(config).to_string().into_bytes()));
    Ok(file.to_string().into_bytes())
}

/// The pairs of a list of merges, a line each.
fn pairs(list: &[u8]) -> Result<Vec<[&str; 2]>, String> {
    let list = std::str::from_utf8(list)
        .map_err(|error| format!("its merges.txt isn't UTF-8 ({error}); fetch it again"))?;
    let lines = list.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with("#version"));
    lines
        .map(|(number, line)| match line.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => Ok([left, right]),
            _ => Err(format!(
                "line {} of its merges.txt isn't of two tokens; fetch it again",
                number + 1
            )),
        })
        .collect()
}
