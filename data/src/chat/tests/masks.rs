//! Masks against those that other systems tell, recorded by `tests/parity/record_masks.py`.

use std::collections::BTreeMap;
use std::io::Read as _;

use minijinja::Value;
use serde::Deserialize;

use super::*;
use crate::chat::mask::{Encoding, TRAINED};
use crate::chat::row::Row;

const TOKENIZER: &[u8] = include_bytes!("../../../../tests/parity/chat-masks/tokenizer.json");
const CASES: &[u8] = include_bytes!("../../../../tests/parity/chat-masks/cases.json.gz");
const TRL: &[u8] = include_bytes!("../../../../tests/parity/chat-masks/trl.json.gz");

#[derive(Deserialize)]
struct Recorded {
    templates: BTreeMap<String, Texts>,
    conversations: Vec<Vec<serde_json::Value>>,
    cases: BTreeMap<String, Vec<Case>>,
}

#[derive(Deserialize)]
struct Texts {
    published: String,
    tagged: String,
}

/// Tokens, a hash of their ids, edges of what the assistant says, tokens of the prompt.
type Case = (usize, String, Vec<usize>, usize);

/// What `tests/parity/record_trl_masks.py` recorded.
#[derive(Deserialize)]
struct OfTrl {
    templates: BTreeMap<String, String>,
    cases: BTreeMap<String, Vec<TrlCase>>,
}

/// Tokens, a hash of their ids and edges of what the assistant says; tokens by the published template, their hash, and tokens of the
/// prompt to the last turn.
type TrlCase = (usize, String, Vec<usize>, usize, String, usize);

fn unpacked<T: serde::de::DeserializeOwned>(packed: &[u8]) -> T {
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn tokenizer() -> Tokenizer {
    let tokenizer_config = br#"{"bos_token": "<s>", "eos_token": {"content": "</s>"}}"#;
    Tokenizer::parse("tokenizer.json", TOKENIZER, Some(tokenizer_config)).unwrap()
}

/// FNV-1a, as the recording script has it.
fn hashed(tokens: &[u32]) -> String {
    let bytes = tokens.iter().flat_map(|token| (token & !TRAINED).to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn edges(tokens: &[u32]) -> Vec<usize> {
    let (mut edges, mut before) = (Vec::new(), false);
    for (place, token) in tokens.iter().copied().chain([0]).enumerate() {
        let now = token & TRAINED != 0;
        if now != before {
            edges.push(place);
            before = now;
        }
    }
    edges
}

#[test]
fn spaces_that_a_tokenizer_has_no_place_for_are_trained_on() {
    let mut json: serde_json::Value = serde_json::from_slice(TOKENIZER).unwrap();
    let mut encoded = |trims: bool| {
        json["post_processor"] = serde_json::json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": trims, "use_regex": true
        });
        let tokenizer = Tokenizer::parse("t", json.to_string().as_bytes(), None).unwrap();
        let chatml = template("chatml");
        let row = serde_json::json!({ "messages": [
            { "role": "user", "content": "  q  " },
            { "role": "assistant", "content": "  def f(x):\n    return  x\n        y  " },
            { "role": "user", "content": " \n   q" },
            { "role": "assistant", "content": "a   b" },
        ] });
        let row = Row::read(&serde_json::from_value(row).unwrap(), RowFormat::Messages).unwrap();
        let encoding = Encoding {
            tokenizer: &tokenizer,
            template: Some(&chatml),
            templated_texts: false,
            train_on: TrainOn::Assistant,
        };
        encoding.tokens(&row).unwrap()
    };
    let whole = encoded(false);
    assert_eq!(edges(&whole).len(), 4);
    assert_eq!(encoded(true), whole);
}

#[test]
fn masks_are_those_of_transformers_and_trl() {
    let tokenizer = tokenizer();
    let Recorded { templates, conversations, cases } = unpacked(CASES);
    assert_eq!((templates.len(), conversations.len()), (6, 200));
    for (name, texts) in &templates {
        let find =
            |text: &str| ChatTemplate::find(None, Some(text), &tokenizer, None).unwrap().unwrap();
        let (published, tagged) = (find(&texts.published), find(&texts.tagged));
        for (index, messages) in conversations.iter().enumerate() {
            let (count, hash, assistant, prompt) = &cases[name][index];
            let mut messages = messages.clone();
            if name == "gemma-2" && messages[0]["role"] == "system" {
                messages.remove(0);
            }
            let encode = |row: serde_json::Value, format, template, train_on| {
                let row: Value = serde_json::from_value(row).unwrap();
                let row = Row::read(&row, format).unwrap();
                let template = Some(template);
                let encoding =
                    Encoding { tokenizer: &tokenizer, template, templated_texts: false, train_on };
                let tokens = encoding.tokens(&row).unwrap();
                assert_eq!(tokens.len(), *count, "{name} {index}");
                assert_eq!(hashed(&tokens), *hash, "{name} {index}");
                tokens
            };
            let chat = serde_json::json!({ "messages": messages });
            let by_tags = encode(chat.clone(), RowFormat::Messages, &tagged, TrainOn::Assistant);
            assert_eq!(edges(&by_tags), *assistant, "transformers, {name} {index}");
            let (last, before) = messages.split_last().unwrap();
            let completion = serde_json::json!({ "prompt": before, "completion": [last] });
            for (row, format, train_on) in [
                (completion, RowFormat::PromptCompletion, TrainOn::Assistant),
                (chat.clone(), RowFormat::Messages, TrainOn::Last),
            ] {
                let tokens = encode(row, format, &published, train_on);
                assert_eq!(edges(&tokens), [*prompt, *count], "TRL, {name} {index}");
            }
            // Prefixes add what the template writes behind a turn, and nothing else.
            let by_prefixes = encode(chat, RowFormat::Messages, &published, TrainOn::Assistant);
            for (place, (one, other)) in by_prefixes.iter().zip(&by_tags).enumerate() {
                if one != other {
                    assert!(one & TRAINED != 0, "{name} {index} {place}");
                    let text = tokenizer.decode(&[one & !TRAINED]).unwrap();
                    let text = text.trim();
                    assert!(text.is_empty() || text == "</s>", "{name} {index} {place}: {text:?}");
                }
            }
        }
    }
}

/// A third of the assistant's turns with thoughts, as the recording script has them.
fn thinking(messages: &[serde_json::Value], index: usize) -> Vec<serde_json::Value> {
    let turns = messages.iter().enumerate().map(|(place, message)| {
        let mut message = message.clone();
        if message["role"] == "assistant" && (index + place).is_multiple_of(3) {
            let said =
                |message: &serde_json::Value| message["content"].as_str().unwrap().to_owned();
            let (thought, answer) = (said(&messages[place - 1]), said(&message));
            message["content"] = format!("<think>\n{thought}\n</think>\n\n{answer}").into();
        }
        message
    });
    turns.collect()
}

#[test]
fn assistants_turns_are_those_of_trl() {
    let tokenizer = tokenizer();
    let conversations = unpacked::<Recorded>(CASES).conversations;
    let OfTrl { templates, cases } = unpacked(TRL);
    assert_eq!((templates.len(), conversations.len()), (8, 200));
    for (name, text) in &templates {
        let template = ChatTemplate::find(None, Some(text), &tokenizer, Some("2026-11-26"));
        let template = template.unwrap().unwrap();
        // TRL refuses to train on turns by these; they have nothing that depends on what follows.
        let refused = ["llama3_2", "smollm2"].contains(&&**name);
        assert_eq!(template.has_training(), !refused, "{name}");
        for (index, messages) in conversations.iter().enumerate() {
            let messages = thinking(messages, index);
            let encode = |row: serde_json::Value, format, train_on| {
                let row: Value = serde_json::from_value(row).unwrap();
                let row = Row::read(&row, format).unwrap();
                let (tokenizer, template) = (&tokenizer, Some(&template));
                let encoding = Encoding { tokenizer, template, templated_texts: false, train_on };
                encoding.tokens(&row).unwrap()
            };
            let (count, hash, assistant, whole, whole_hash, prompt) = &cases[name][index];
            let chat = serde_json::json!({ "messages": messages });
            let tokens = encode(chat.clone(), RowFormat::Messages, TrainOn::Assistant);
            assert_eq!((tokens.len(), &hashed(&tokens)), (*count, hash), "{name} {index}");
            assert_eq!(edges(&tokens), *assistant, "{name} {index}");
            let (last, before) = messages.split_last().unwrap();
            let completion = serde_json::json!({ "prompt": before, "completion": [last] });
            for (row, format, train_on) in [
                (completion, RowFormat::PromptCompletion, TrainOn::Assistant),
                (chat, RowFormat::Messages, TrainOn::Last),
            ] {
                let tokens = encode(row, format, train_on);
                assert_eq!(
                    (tokens.len(), &hashed(&tokens)),
                    (*whole, whole_hash),
                    "{name} {index}"
                );
                assert_eq!(edges(&tokens), [*prompt, *whole], "{name} {index}");
            }
        }
    }
}
