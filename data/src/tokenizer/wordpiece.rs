//! BERT's `vocab.txt`, a token on each line, as the `tokenizer.json` that Hugging Face's library reads.

use serde_json::{Map, Value, json};

/// Its name in published models.
pub(super) const VOCAB: &str = "vocab.txt";

/// What stands for words that no tokens make.
const UNKNOWN: &str = "[UNK]";
const BEGIN: &str = "[CLS]";
const END: &str = "[SEP]";
const SPECIALS: [&str; 5] = [UNKNOWN, BEGIN, END, "[MASK]", "[PAD]"];

/// The `tokenizer.json` of a list of word pieces (Schuster and Nakajima 2012). `lowercase` says whether texts lose case and accents.
///
/// # Errors
/// A list that isn't UTF-8, or without one of the tokens that BERT has, in words.
pub(super) fn json(list: &[u8], lowercase: bool) -> Result<String, String> {
    let list = std::str::from_utf8(list).map_err(|error| format!("it isn't UTF-8 ({error})"))?;
    let lines = list.lines().enumerate().map(|(id, token)| (token.trim_end().to_owned(), id));
    let vocab: Map<String, Value> = lines.map(|(token, id)| (token, id.into())).collect();
    let id = |token: &str| vocab.get(token).cloned().ok_or_else(|| format!("it has no {token}"));
    let mut added = vec![];
    for token in SPECIALS {
        added.push(json!({
            "id": id(token)?, "content": token, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        }));
    }
    let file = json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": lowercase,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "BertProcessing", "sep": [END, id(END)?], "cls": [BEGIN, id(BEGIN)?],
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": UNKNOWN, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    });
    Ok(file.to_string())
}
