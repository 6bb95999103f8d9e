//! Chat templates: the model's own, built-in ones, and files.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::NaiveDate;
use minijinja::Value;
use serde::Deserialize;

use super::built_in;
use super::jinja::{Rendered, Template};
use super::row::{Conversation, Problem};
use crate::{Error, Result, Tokenizer, files, limits};

/// A Jinja template that writes a conversation as text, with what transformers gives such templates.
///
/// ```
/// use tightrope_data::{ChatTemplate, Tokenizer};
///
/// let template = ChatTemplate::find(Some("chatml"), None, &Tokenizer::Byte, None)?.expect("it is built in");
/// let text = template.question("Hi")?;
/// assert_eq!(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
/// # Ok::<(), tightrope_data::Error>(())
/// ```
pub struct ChatTemplate {
    name: String,
    source: String,
    template: Template,
    /// Special tokens by transformers' names, `bos_token` and so on.
    specials: BTreeMap<String, String>,
    /// Whether it writes what messages say, which some take apart into parts that a text hasn't got.
    writes_texts: bool,
    /// The template that stands in for it where all turns of the assistant are trained on.
    training: Option<Box<Self>>,
    /// The model's template for conversations with tools, if it has one.
    with_tools: Option<Box<Self>>,
}

/// What the assistant says in [`ChatTemplate::exchange`].
const ANSWER: &str = "qzanswerqz";

impl ChatTemplate {
    /// The file of a model directory that holds its template.
    pub const FILE: &str = crate::TEMPLATE_FILE;

    /// The template that is `asked` for: a built-in one, one of the tokenizer's by name, or a file. Else the model's own:
    /// `beside` is its [`ChatTemplate::FILE`], which goes before `chat_template` in `tokenizer_config.json`; conversations with
    /// tools are then written by the model's template `tool_use`, if it has one, as by transformers. `None` if the model has no
    /// template. `date` (`2026-11-25`) is the date that the template takes for today, by default today's.
    ///
    /// # Errors
    /// A name that nothing has, a file that can't be read, and a malformed template or date.
    pub fn find(
        asked: Option<&str>,
        beside: Option<&str>,
        tokenizer: &Tokenizer,
        date: Option<&str>,
    ) -> Result<Option<Self>> {
        let config = tokenizer.config().map(|(name, text)| Config::read(name, text)).transpose()?;
        let config = config.unwrap_or_default();
        let found = match (asked, beside) {
            (Some(asked), _) => Some(config.asked(asked)?),
            (None, Some(beside)) => Some((Self::FILE.to_owned(), beside.to_owned())),
            (None, None) => config.own()?.map(|source| ("the model's own".to_owned(), source)),
        };
        let Some((name, source)) = found else { return Ok(None) };
        let mut specials = tokenizer.named();
        let end = tokenizer.eos().map(|end| tokenizer.decode(&[end])).transpose()?;
        if let Some(end) = end {
            if matches!(tokenizer, Tokenizer::Gpt2(_)) {
                specials.entry("bos_token".to_owned()).or_insert_with(|| end.clone());
            }
            specials.entry("eos_token".to_owned()).or_insert(end);
        }
        for name in ["bos_token", "eos_token"] {
            specials.entry(name.to_owned()).or_default();
        }
        let tools = config.named(Config::TOOLS).filter(|text| asked.is_none() && *text != source);
        let with_tools = tools.map(|text| {
            Self::new(Config::TOOLS.to_owned(), text.to_owned(), specials.clone(), date)
        });
        let with_tools = with_tools.transpose()?.map(Box::new);
        Ok(Some(Self { with_tools, ..Self::new(name, source, specials, date)? }))
    }

    fn new(
        name: String,
        source: String,
        specials: BTreeMap<String, String>,
        date: Option<&str>,
    ) -> Result<Self> {
        let date = match date {
            None => chrono::Local::now().date_naive(),
            Some(text) => text.parse().map_err(|_| Error::Setting {
                what: "data.date",
                value: text.to_owned(),
                domain: "a date such as 2026-11-25",
            })?,
        };
        match Template::parse(&source, date) {
            Ok(template) => {
                let mut made = Self {
                    name,
                    source,
                    template,
                    specials,
                    writes_texts: true,
                    training: None,
                    with_tools: None,
                };
                made.writes_texts = made.exchange().is_none_or(|text| text.contains(ANSWER));
                if let Some(text) = built_in::training(&made.source) {
                    let (name, specials) = (made.name.clone(), made.specials.clone());
                    let training =
                        Self::new(name, text.to_owned(), specials, Some(&date.to_string()));
                    made.training = Some(Box::new(training?));
                }
                Ok(made)
            }
            Err(error) => {
                let problem = format!(
                    "it isn't a Jinja template: {} (line {} of the template); correct it, or name another with --chat-template",
                    error.message, error.line
                );
                Err(Error::Template { name, problem })
            }
        }
    }

    /// Names of the built-in templates.
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        built_in::TEMPLATES.iter().map(|(name, _)| *name)
    }

    /// What it's called, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether what it writes depends on the date.
    pub fn is_dated(&self) -> bool {
        self.source.contains("strftime_now")
    }

    /// Today, as [`ChatTemplate::find`] takes it.
    pub fn today() -> String {
        chrono::Local::now().date_naive().to_string()
    }

    /// Whether a text is such a date.
    pub fn is_date(text: &str) -> bool {
        text.parse::<NaiveDate>().is_ok()
    }

    /// The token, as text, with which a turn of the assistant ends; empty where it can't be told. What the template writes behind
    /// it isn't the assistant's.
    pub fn end_of_turn(&self) -> String {
        let text = self.exchange().unwrap_or_default();
        let end = text.rsplit_once(ANSWER).and_then(|(_, end)| end.split_whitespace().next());
        end.unwrap_or_default().to_owned()
    }

    /// A conversation of two short messages, without marks; `None` where the template refuses it.
    fn exchange(&self) -> Option<String> {
        let say = |role, content| Value::from_pairs([("role", role), ("content", content)]);
        let messages = [say("user", "qzaskqz"), say("assistant", ANSWER)];
        let text = self.render(&messages, &Conversation::default(), false).ok()?;
        Some(text.chars().filter(|c| !super::jinja::MARKS.contains(c)).collect())
    }

    /// Returns `true` if a training template stands in for it where all turns of the assistant are trained on.
    pub fn has_training(&self) -> bool {
        self.training.is_some()
    }

    /// Its training template where it has one, else itself.
    pub(super) fn for_training(&self) -> &Self {
        self.training.as_deref().unwrap_or(self)
    }

    /// Whether it marks what the assistant says.
    pub(super) fn marks(&self) -> bool {
        self.template.marks()
    }

    /// Whether it writes what messages say, where that can be told.
    pub(super) fn writes_texts(&self) -> bool {
        self.writes_texts
    }

    /// The end-of-text token's text, empty where there is none.
    pub(super) fn eos(&self) -> &str {
        self.specials.get("eos_token").map_or("", String::as_str)
    }

    /// The text of messages of a conversation, with its tools and [`super::jinja::MARKS`] where it marks them.
    pub(super) fn render(
        &self,
        messages: &[Value],
        chat: &Conversation,
        add_generation_prompt: bool,
    ) -> std::result::Result<String, Problem> {
        self.render_parts(messages, chat, add_generation_prompt).map(|rendered| rendered.text)
    }

    /// As [`ChatTemplate::render`], with what the template's loops wrote for each message.
    pub(super) fn render_parts(
        &self,
        messages: &[Value],
        chat: &Conversation,
        add_generation_prompt: bool,
    ) -> std::result::Result<Rendered, Problem> {
        let tools = &chat.tools;
        if let (false, Some(own)) = (tools.is_undefined() || tools.is_none(), &self.with_tools) {
            if own.marks() != self.marks() {
                return Err(format!(
                    "it has tools, and one of the chat templates `{}` and `{}` marks the assistant's text by {{% generation %}} and the other doesn't; \
                     name one with --chat-template",
                    self.name, own.name
                ));
            }
            return own.render_parts(messages, chat, add_generation_prompt);
        }
        let names =
            self.specials.iter().map(|(name, token)| (name.as_str(), token.as_str().into()));
        let tools = if tools.is_undefined() { Value::from(()) } else { tools.clone() };
        let variables: Vec<(&str, Value)> = names
            .chain([
                ("messages", Value::from(messages.to_vec())),
                ("tools", tools),
                ("documents", Value::from(())),
                ("add_generation_prompt", add_generation_prompt.into()),
            ])
            .chain(chat.variables.iter().map(|(name, value)| (name.as_str(), value.clone())))
            .collect();
        self.template.render(&variables).map_err(|error| {
            format!(
                "the chat template refuses it: {} (line {} of the template)",
                error.message, error.line
            )
        })
    }
}

/// What a `tokenizer_config.json` says of templates.
#[derive(Default)]
struct Config {
    name: String,
    /// By name; the one of a model that has one is `default`.
    templates: Vec<(String, String)>,
}

impl Config {
    const DEFAULT: &'static str = "default";
    const TOOLS: &'static str = "tool_use";

    fn read(name: &str, text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
            template: String,
        }
        let refused = |problem: String| Error::Template { name: name.to_owned(), problem };
        let config: serde_json::Value = serde_json::from_slice(text)
            .map_err(|error| refused(format!("it isn't JSON ({error}); fetch it again")))?;
        let templates = match config.get("chat_template") {
            None | Some(serde_json::Value::Null) => Vec::new(),
            Some(serde_json::Value::String(text)) => vec![(Self::DEFAULT.to_owned(), text.clone())],
            Some(serde_json::Value::Object(named)) => {
                let text = |(name, text): (&String, &serde_json::Value)| {
                    Some((name.clone(), text.as_str()?.to_owned()))
                };
                named.iter().map(text).collect::<Option<_>>().ok_or_else(|| {
                    refused("its `chat_template` is an object with a value that isn't a text; give another with --chat-template".to_owned())
                })?
            }
            Some(list) => {
                let list = Vec::<Named>::deserialize(list).map_err(|error| {
                    refused(format!(
                        "its `chat_template` is neither a text nor a list of named ones ({error}); give another with --chat-template"
                    ))
                })?;
                list.into_iter().map(|named| (named.name, named.template)).collect()
            }
        };
        Ok(Self { name: name.to_owned(), templates })
    }

    fn named(&self, name: &str) -> Option<&str> {
        let found = self.templates.iter().find(|(own, _)| own == name);
        found.map(|(_, text)| text.as_str())
    }

    /// Name and text of what is asked for.
    fn asked(&self, asked: &str) -> Result<(String, String)> {
        let text = built_in::TEMPLATES.iter().find(|(name, _)| *name == asked);
        if let Some((_, text)) = text {
            return Ok((asked.to_owned(), (*text).to_owned()));
        }
        if let Some(text) = self.named(asked) {
            return Ok((asked.to_owned(), text.to_owned()));
        }
        let path = Path::new(asked);
        if !path.exists() {
            let names: Vec<_> = ChatTemplate::built_in().collect();
            let problem = format!(
                "it is neither a file nor one of the built-in templates {}; name one of these, or a file",
                names.join(", ")
            );
            return Err(Error::Template { name: asked.to_owned(), problem });
        }
        let text = files::read(path, limits::DESCRIPTION).map_err(Error::io("read", path))?;
        let text = String::from_utf8(text).map_err(|error| Error::NotUtf8 {
            name: asked.to_owned(),
            offset: error.utf8_error().valid_up_to(),
        })?;
        Ok((asked.to_owned(), text))
    }

    /// The model's own, where it has one.
    fn own(&self) -> Result<Option<String>> {
        match (self.named(Self::DEFAULT), self.templates.as_slice()) {
            (Some(text), _) => Ok(Some(text.to_owned())),
            (None, [(_, text)]) => Ok(Some(text.clone())),
            (None, []) => Ok(None),
            (None, several) => {
                let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
                let problem = format!(
                    "it has the chat templates {} and none is the default; name one with --chat-template",
                    names.join(", ")
                );
                Err(Error::Template { name: self.name.clone(), problem })
            }
        }
    }
}
