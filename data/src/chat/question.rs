//! Questions to a model: a text, or a conversation in JSON.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::format::RowFormat;
use super::row::{Conversation, Problem, Row, Turn};
use super::template::ChatTemplate;
use crate::{Error, Result};

/// Keys that the first message of a conversation begins with, and those of a row that holds one.
const OF_MESSAGE: [&str; 4] = ["role", "content", "from", "value"];
const OF_ROW: [&str; 2] = ["messages", "conversations"];

impl ChatTemplate {
    /// The text that a model continues to answer `asked`, up to the beginning of the assistant's turn. `asked` is a user's text, or a conversation in
    /// JSON: an array of messages, or an object with `messages` or `conversations` as rows of data have it.
    ///
    /// # Errors
    /// [`Error::RowFormat`] for a conversation that isn't JSON, whose messages can't be read, or that ends with the assistant's turn; a
    /// template that refuses it.
    pub fn question(&self, asked: &str) -> Result<String> {
        let chat = match is_conversation(asked) {
            true => read(asked).map_err(|problem| Error::RowFormat {
                name: "the conversation".to_owned(),
                problem,
            })?,
            false => {
                let mut chat = Conversation::default();
                chat.say("user", asked);
                chat
            }
        };
        let rendered = self.render(&chat.messages, &chat, true);
        rendered.map_err(|problem| Error::Template { name: self.name().to_owned(), problem })
    }
}

/// Returns `true` if a text begins as a conversation in JSON does. Other texts that begin with a bracket are a user's.
fn is_conversation(text: &str) -> bool {
    let after = |text: &str, mark| text.trim_start().strip_prefix(mark).map(str::to_owned);
    let begins = |text: &str, keys: &[&str]| {
        let object = after(text, '{').map(|text| text.trim_start().to_owned());
        let key = object.and_then(|text| text.strip_prefix(['"', '\'']).map(str::to_owned));
        key.is_some_and(|text| keys.iter().any(|key| text.starts_with(key)))
    };
    match after(text, '[') {
        Some(messages) => begins(&messages, &OF_MESSAGE),
        None => begins(text, &OF_ROW),
    }
}

fn read(text: &str) -> std::result::Result<Conversation, Problem> {
    let json: Value =
        serde_json::from_str(text).map_err(|error| format!("it isn't JSON: {error}"))?;
    let in_turns = |json: &Value| json.get_attr("from").is_ok_and(|from| !from.is_undefined());
    let (row, format) = match json.kind() {
        ValueKind::Seq if json.get_item_by_index(0).is_ok_and(|first| in_turns(&first)) => {
            (Value::from_pairs([("conversations", json)]), RowFormat::ShareGpt)
        }
        ValueKind::Seq => (json, RowFormat::Messages),
        _ if json.get_attr("conversations").is_ok_and(|turns| !turns.is_undefined()) => {
            (json, RowFormat::ShareGpt)
        }
        _ => (json, RowFormat::Messages),
    };
    match Row::read(&row, format)? {
        Row::Messages(chat) if chat.turns.last() == Some(&Turn::Other) => Ok(chat),
        _ => Err("its last message is the assistant's, which leaves nothing to answer".to_owned()),
    }
}
