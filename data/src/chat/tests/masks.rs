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

/// Cases that `tests/parity/record_trl_masks.py` recorded.
#[derive(Deserialize)]
struct OfTrl {
    templates: BTreeMap<String, String>,
    cases: BTreeMap<String, Vec<TrlCase>>,
    /// Without tokens around a text, and with some.
    prompts: [Vec<Prompt>; 2],
}

/// Characters of the prompt; tokens of both texts, a hash of their ids, the first one of the completion, and whether it's within the prompt.
type Prompt = (usize, usize, String, usize, bool);

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
        encoding.tokens(&row).unwrap().tokens
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
            |text: &str| ChatTemplate::find(None, &text.into(), &tokenizer, None).unwrap().unwrap();
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
                let tokens = encoding.tokens(&row).unwrap().tokens;
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
    let OfTrl { templates, cases, .. } = unpacked(TRL);
    assert_eq!((templates.len(), conversations.len()), (8, 200));
    for (name, text) in &templates {
        let template =
            ChatTemplate::find(None, &text.as_str().into(), &tokenizer, Some("2026-11-26"));
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
                encoding.tokens(&row).unwrap().tokens
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

#[test]
fn completions_begin_where_trl_has_them() {
    let conversations = unpacked::<Recorded>(CASES).conversations;
    let [plain, around] = unpacked::<OfTrl>(TRL).prompts;
    let mut json: serde_json::Value = serde_json::from_slice(TOKENIZER).unwrap();
    let of = |json: &serde_json::Value| {
        let config = br#"{"bos_token": "<s>", "eos_token": "</s>"}"#;
        Tokenizer::parse("t", json.to_string().as_bytes(), Some(config)).unwrap()
    };
    let bare = of(&json);
    let special =
        |token: &str| serde_json::json!({ "SpecialToken": { "id": token, "type_id": 0 } });
    let id = |token: &str| serde_json::json!({ "id": token, "ids": bare.encode(token).unwrap(), "tokens": [token] });
    let text = serde_json::json!({ "Sequence": { "id": "A", "type_id": 0 } });
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing", "single": [special("<s>"), text, special("</s>")], "pair": [text, { "Sequence": { "id": "B", "type_id": 0 } }],
        "special_tokens": { "<s>": id("<s>"), "</s>": id("</s>") }
    });
    for (tokenizer, prompts) in [(bare, plain), (of(&json), around)] {
        assert!(prompts.iter().any(|case| case.4) && prompts.iter().any(|case| !case.4));
        for (index, (case, messages)) in prompts.iter().zip(&conversations).enumerate() {
            let (cut, count, hash, first, merged) = case;
            let text = messages.last().unwrap()["content"].as_str().unwrap();
            let (prompt, completion) =
                (text.chars().take(*cut).collect(), text.chars().skip(*cut).collect());
            let train_on = TrainOn::Assistant;
            let (tokenizer, template) = (&tokenizer, None);
            let encoding = Encoding { tokenizer, template, templated_texts: false, train_on };
            let sequence = encoding.tokens(&Row::Plain { prompt, completion }).unwrap();
            assert_eq!(
                (sequence.tokens.len(), &hashed(&sequence.tokens)),
                (*count, hash),
                "{index}"
            );
            // The first token of all is never trained on.
            assert_eq!(edges(&sequence.tokens), [(*first).max(1), *count], "{index}");
            assert_eq!(sequence.merged, *merged, "{index}");
        }
    }
}

#[test]
fn rows_whose_tokens_merge_are_counted_and_pairs_begin_together() {
    let folder = tempdir().unwrap();
    let tokenizer = Tokenizer::gpt2().unwrap();
    let open = |format, rows: &str| {
        let path = file(&folder, "rows.jsonl", rows);
        let config = ChatsConfig { tokenizer: &tokenizer, ..config(format, None) };
        Chats::open(&[path], &config).unwrap()
    };
    // "Hello " alone ends in a space, which belongs to the word behind it.
    let rows = "{\"prompt\": \"Hello \", \"completion\": \"world\"}\n{\"prompt\": \"Hello\", \"completion\": \" world\"}";
    let chats = open(RowFormat::PromptCompletion, rows);
    assert_eq!((chats.counts().rows, chats.counts().merged), (2, 1));
    let world = [(15496, false), (995, true), (50256, true)];
    assert!([0, 1].iter().all(|&row| chats.rows().get(row).eq(world)));
    // The rejected answer leaves one of the prompt's two tokens.
    let pair = r#"{"prompt": "Hello ", "chosen": " x", "rejected": "world"}"#;
    let chats = open(RowFormat::Preference, pair);
    let firsts = [0, 1].map(|row| chats.rows().get(row).position(|(_, trained)| trained));
    assert_eq!((firsts, chats.counts().merged), ([Some(1); 2], 1));
    assert!(chats.rows().get(0).map(|(id, _)| id).take(3).eq([15496, 220, 2124]));
}
