//! A row as a conversation: the messages that a template renders, or two plain texts.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::format::RowFormat;

/// What is wrong with a row and what to do.
pub(crate) type Problem = String;

/// A row of one of the formats of conversations.
#[derive(Clone, Debug)]
pub(super) enum Row {
    /// Messages, for a template.
    Messages(Conversation),
    /// Two texts.
    Plain {
        /// What is given.
        prompt: String,
        /// What is trained on.
        completion: String,
    },
}

/// Messages as a template gets them.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    /// Objects with `role` and `content`, and what else the row gave them.
    pub messages: Vec<Value>,
    /// What each is to the mask.
    pub turns: Vec<Turn>,
    /// Descriptions of functions; undefined where there are none.
    pub tools: Value,
    /// Variables of the template that the row sets, by name.
    pub variables: Vec<(String, Value)>,
    /// True of a row of turns that are all learned; false of a prompt and its answers.
    pub whole: bool,
}

/// What a message is to the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Of somebody else than the assistant.
    Other,
    /// Of the assistant, and given: part of a prompt, or of the weight 0.
    Given,
    /// Of the assistant.
    Assistant,
}

/// Roles, and the names that ShareGPT has for them.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
const SHARE_GPT: [(&str, &str); 11] = [
    ("system", "system"),
    ("human", "user"),
    ("user", "user"),
    ("gpt", "assistant"),
    ("assistant", "assistant"),
    ("chatgpt", "assistant"),
    ("bing", "assistant"),
    ("bard", "assistant"),
    ("tool", "tool"),
    ("observation", "tool"),
    ("function_response", "tool"),
];

/// Names of a message's reasoning; templates read the first two.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

impl Row {
    /// Reads a row of a format that has one conversation.
    ///
    /// # Errors
    /// What the format doesn't have, in words.
    pub fn read(row: &Value, format: RowFormat) -> Result<Self, Problem> {
        let whole = |chat| Self::Messages(Conversation { whole: true, ..chat });
        if format == RowFormat::Messages && row.kind() == ValueKind::Seq {
            return Conversation::default().with("the row", row, false).map(whole);
        }
        let begun = Conversation::of_row(row, format)?;
        match format {
            RowFormat::Messages => {
                begun.with("`messages`", &field(row, "messages")?, false).map(whole)
            }
            RowFormat::ShareGpt => begun.share_gpt(row).map(whole),
            RowFormat::Alpaca => begun.alpaca(row).map(whole),
            RowFormat::PromptCompletion => {
                let [prompt, completion] = ["prompt", "completion"].map(|key| field(row, key));
                let (prompt, completion) = (prompt?, completion?);
                match (prompt.as_str(), completion.as_str()) {
                    (Some(prompt), Some(completion)) => Ok(Self::Plain {
                        prompt: prompt.to_owned(),
                        completion: completion.to_owned(),
                    }),
                    (None, None) => begun
                        .with("`prompt`", &prompt, true)?
                        .with("`completion`", &completion, false)
                        .map(Self::Messages),
                    _ => Err(format!(
                        "`prompt` is {} and `completion` is {}; give two texts or two arrays of messages",
                        kind(&prompt),
                        kind(&completion)
                    )),
                }
            }
            RowFormat::Auto | RowFormat::Text | RowFormat::Labelled | RowFormat::Preference => {
                Err(format!("it was to be read as {}, which isn't a conversation", format.name()))
            }
        }
    }
}

impl Row {
    /// What its messages say.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Plain { prompt, completion } => vec![prompt.clone(), completion.clone()],
            Self::Messages(chat) => {
                let contents = chat.messages.iter().map(|message| message.get_attr("content"));
                contents.flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
            }
        }
    }
}

impl Conversation {
    /// The conversation of a row, which begins with its tools.
    pub fn of_row(row: &Value, format: RowFormat) -> Result<Self, Problem> {
        if row.kind() != ValueKind::Map {
            return Err(format!(
                "it is {}, not an object with {}; correct it or remove it",
                kind(row),
                quoted(format.columns())
            ));
        }
        Ok(Self { tools: tools(row)?, variables: variables(row)?, ..Self::default() })
    }

    /// A question and its answer.
    pub fn of_texts(prompt: &str, completion: &str) -> Self {
        let mut chat = Self::default();
        chat.say("user", prompt);
        chat.say("assistant", completion);
        chat
    }

    /// With the messages of the array that is called `name`; those of the assistant are `given` or trained on.
    pub fn with(mut self, name: &str, array: &Value, given: bool) -> Result<Self, Problem> {
        if array.kind() != ValueKind::Seq {
            return Err(format!(
                "{name} is {}, not an array of messages; correct the row or remove it",
                kind(array)
            ));
        }
        let mut index = 0;
        for message in array.try_iter().into_iter().flatten() {
            index += 1;
            self.push(&message, given).map_err(|problem| format!("message {index}: {problem}"))?;
        }
        if index == 0 {
            return Err(format!("{name} is empty; remove the row"));
        }
        Ok(self)
    }

    fn push(&mut self, message: &Value, given: bool) -> Result<(), Problem> {
        if message.kind() != ValueKind::Map {
            return Err(format!(
                "it is {}, not an object with `role` and `content`; correct it",
                kind(message)
            ));
        }
        let role = text(message, "role")?;
        if !ROLES.contains(&role.as_str()) {
            return Err(unknown_role(&role, &ROLES));
        }
        let assistant = role == "assistant";
        let calls = present(message, "tool_calls").is_some();
        let content = match present(message, "content") {
            None if assistant && calls => None,
            None => return Err("it has no `content`; correct it".to_owned()),
            Some(content) => match content.kind() {
                ValueKind::String => None,
                ValueKind::Seq => Some(joined(&content)?),
                _ => {
                    return Err(format!(
                        "its `content` is {}, not a text; correct it",
                        kind(&content)
                    ));
                }
            },
        };
        let given = given || !counts(message)?;
        self.add(for_template(message, content), assistant, given);
        Ok(())
    }

    fn add(&mut self, message: Value, assistant: bool, given: bool) {
        self.messages.push(message);
        self.turns.push(match (assistant, given) {
            (false, _) => Turn::Other,
            (true, true) => Turn::Given,
            (true, false) => Turn::Assistant,
        });
    }

    pub fn say(&mut self, role: &str, content: &str) {
        let message = Value::from_pairs([("role", role), ("content", content)]);
        self.add(message, role == "assistant", false);
    }

    /// The system's message of formats that have a column for it.
    fn system(&mut self, row: &Value) -> Result<(), Problem> {
        if present(row, "system").is_some() {
            let system = text(row, "system")?;
            if !system.is_empty() {
                self.say("system", &system);
            }
        }
        Ok(())
    }

    fn share_gpt(mut self, row: &Value) -> Result<Self, Problem> {
        self.system(row)?;
        let turns = field(row, "conversations")?;
        if turns.kind() != ValueKind::Seq {
            return Err(format!(
                "`conversations` is {}, not an array of turns; correct the row or remove it",
                kind(&turns)
            ));
        }
        let mut index = 0;
        for turn in turns.try_iter().into_iter().flatten() {
            index += 1;
            let of_turn = |problem| format!("turn {index}: {problem}");
            if turn.kind() != ValueKind::Map {
                let problem =
                    format!("it is {}, not an object with `from` and `value`", kind(&turn));
                return Err(of_turn(problem + "; correct it"));
            }
            // Messages as OpenAI has them, under ShareGPT's name.
            if present(&turn, "from").is_none() && present(&turn, "role").is_some() {
                self.push(&turn, false).map_err(of_turn)?;
                continue;
            }
            let from = text(&turn, "from").map_err(of_turn)?;
            let value = text(&turn, "value").map_err(of_turn)?;
            let names = SHARE_GPT.map(|(name, _)| name);
            let role = SHARE_GPT.iter().find(|(name, _)| *name == from);
            let (_, role) = role.ok_or_else(|| of_turn(unknown_role(&from, &names)))?;
            let given = !counts(&turn).map_err(of_turn)?;
            let message = Value::from_pairs([("role", *role), ("content", value.as_str())]);
            self.add(message, *role == "assistant", given);
        }
        if index == 0 {
            return Err("`conversations` is empty; remove the row".to_owned());
        }
        Ok(self)
    }

    /// The earlier turns of a row of LLaMA-Factory's: pairs of what the user said and the answer.
    fn history(&mut self, row: &Value) -> Result<(), Problem> {
        let Some(history) = present(row, "history") else { return Ok(()) };
        let wrong = || "its `history` isn't an array of pairs of texts; correct it".to_owned();
        if history.kind() != ValueKind::Seq {
            return Err(wrong());
        }
        for pair in history.try_iter().into_iter().flatten() {
            let texts: Vec<Value> = pair.try_iter().map_err(|_| wrong())?.collect();
            let [said, answer] = &texts[..] else { return Err(wrong()) };
            let (Some(said), Some(answer)) = (said.as_str(), answer.as_str()) else {
                return Err(wrong());
            };
            let user = [("role", "user"), ("content", said), ("instruction", said), ("input", "")];
            self.add(Value::from_pairs(user), false, false);
            self.say("assistant", answer);
        }
        Ok(())
    }

    /// The user's message has `instruction` and `input` beside its content, for Alpaca's own template.
    fn alpaca(mut self, row: &Value) -> Result<Self, Problem> {
        self.system(row)?;
        self.history(row)?;
        let (instruction, output) = (text(row, "instruction")?, text(row, "output")?);
        let input = match present(row, "input") {
            Some(_) => text(row, "input")?,
            None => String::new(),
        };
        let content = match input.is_empty() {
            true => instruction.clone(),
            false => format!("{instruction}\n\n{input}"),
        };
        let user = [
            ("role", "user".to_owned()),
            ("content", content),
            ("instruction", instruction),
            ("input", input),
        ];
        self.add(Value::from_pairs(user), false, false);
        self.say("assistant", &output);
        Ok(self)
    }
}

/// True if a message counts, by its `weight`: a number or a truth value.
///
/// # Errors
/// A weight that is neither 0 nor 1.
fn counts(message: &Value) -> Result<bool, Problem> {
    let Some(weight) = present(message, "weight") else { return Ok(true) };
    let number = match weight.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(weight.is_true()))),
        ValueKind::Number => f64::try_from(weight.clone()).ok(),
        _ => None,
    };
    match number {
        Some(0.0) => Ok(false),
        Some(1.0) => Ok(true),
        _ => Err(format!("its `weight` is {weight}, and may be 0 or 1; correct it")),
    }
}

/// The `tools` of a row: an array, or a text of one.
fn tools(row: &Value) -> Result<Value, Problem> {
    let Some(tools) = present(row, "tools") else { return Ok(Value::UNDEFINED) };
    let tools = match tools.as_str() {
        None => tools,
        Some("") => return Ok(Value::UNDEFINED),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| format!("its `tools` isn't JSON ({error}); correct it"))?,
    };
    match tools.kind() {
        ValueKind::Seq => Ok(tools),
        _ => Err(format!("its `tools` is {}, not an array; correct it", kind(&tools))),
    }
}

/// The `chat_template_kwargs` of a row: an object.
fn variables(row: &Value) -> Result<Vec<(String, Value)>, Problem> {
    const NAME: &str = "chat_template_kwargs";
    let Some(given) = present(row, NAME) else { return Ok(Vec::new()) };
    if given.kind() != ValueKind::Map {
        return Err(format!("its `{NAME}` is {}, not an object; correct it", kind(&given)));
    }
    // A table has each key in every row, and nothing for those that a row lacks.
    let names = given.try_iter().into_iter().flatten();
    let named = names.filter_map(|name| {
        let value = given.get_item(&name).ok().filter(|value| !value.is_none())?;
        Some((name.as_str()?.to_owned(), value))
    });
    Ok(named.collect())
}

/// The text of content in parts.
fn joined(parts: &Value) -> Result<String, Problem> {
    let mut all = String::new();
    for part in parts.try_iter().into_iter().flatten() {
        let is_text = part.kind() == ValueKind::Map
            && present(&part, "type").is_none_or(|kind| kind.as_str() == Some("text"));
        if !is_text {
            return Err("a part of its `content` isn't text, which is all that is read; remove it"
                .to_owned());
        }
        all += &text(&part, "text")?;
    }
    Ok(all)
}

/// A message as transformers hands it to templates: with `content` in place of its own where it's given, without null fields,
/// and with its reasoning under each name that templates read. A template would print null, and Parquet has it for every field
/// that other messages have.
fn for_template(message: &Value, content: Option<String>) -> Value {
    let keys = message.try_iter().into_iter().flatten();
    let mut fields: Vec<(Value, Value)> = keys
        .filter_map(|key| {
            let name = key.as_str()?;
            let value = match (name, &content) {
                ("content", Some(text)) => text.into(),
                _ => present(message, name)?,
            };
            Some((key, value))
        })
        .collect();
    if let Some(reasoning) = REASONING.iter().find_map(|name| present(message, name)) {
        for name in REASONING.iter().take(2).filter(|name| present(message, name).is_none()) {
            fields.push(((*name).into(), reasoning.clone()));
        }
    }
    Value::from_pairs(fields)
}

/// A field that is there, and isn't null.
pub(super) fn present(object: &Value, name: &str) -> Option<Value> {
    let value = object.get_attr(name).ok()?;
    (!value.is_undefined() && !value.is_none()).then_some(value)
}

/// A field of a row.
///
/// # Errors
/// One that is missing or null.
pub(crate) fn field(object: &Value, name: &str) -> Result<Value, Problem> {
    present(object, name).ok_or_else(|| format!("it has no `{name}`; correct it or remove it"))
}

/// A field of a row that is a text.
///
/// # Errors
/// As [`field`], and another kind of value.
pub(crate) fn text(object: &Value, name: &str) -> Result<String, Problem> {
    let value = field(object, name)?;
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| format!("its `{name}` is {}, not a text; correct it", kind(&value)))
}

fn unknown_role(role: &str, known: &[&str]) -> Problem {
    format!("its role is {role:?}, and may be {}; correct it", known.join(", "))
}

fn quoted(columns: &[&str]) -> String {
    let columns: Vec<_> = columns.iter().map(|column| format!("`{column}`")).collect();
    columns.join(" and ")
}

/// What JSON calls a value.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "missing",
        ValueKind::None => "null",
        ValueKind::Bool => "a truth value",
        ValueKind::Number => "a number",
        ValueKind::String => "a text",
        ValueKind::Seq => "an array",
        ValueKind::Map => "an object",
        ValueKind::Bytes => "bytes that are no UTF-8 text",
        _ => "something else",
    }
}
