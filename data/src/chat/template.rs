//! Chat templates: the model's own, built-in ones, and files.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use minijinja::Value;

use super::built_in;
use super::jinja::{Rendered, Template};
use super::named::{Named, TemplateFiles};
use super::row::{Conversation, Problem};
use crate::{Error, Result, Tokenizer};

/// A Jinja template that writes a conversation as text, with what transformers gives such templates.
///
/// ```
/// use tightrope_data::{ChatTemplate, TemplateFiles, Tokenizer};
///
/// let own = TemplateFiles::default();
/// let template = ChatTemplate::find(Some("chatml"), &own, &Tokenizer::Byte, None)?.expect("it is built in");
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

    /// The template that is `asked` for: a built-in one, one of the model's by name, or a file. Else the model's own default, and
    /// conversations with tools are written by its template `tool_use`, if it has one, as by transformers. The model's are `beside` it,
    /// or those of `tokenizer_config.json` where no file is. `None` if the model has no template. `date` (`2026-11-25`) is the date
    /// that the template takes for today, by default today's.
    ///
    /// # Errors
    /// A name that nothing has, a file that can't be read, and a malformed template or date.
    pub fn find(
        asked: Option<&str>,
        beside: &TemplateFiles,
        tokenizer: &Tokenizer,
        date: Option<&str>,
    ) -> Result<Option<Self>> {
        let own = Named::of(beside, tokenizer)?;
        let found = match asked {
            Some(asked) => Some(own.asked(asked)?),
            None => own.first()?,
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
        // In transformers, a token that a tokenizer hasn't got isn't defined; others have templates written for those that have.
        if !matches!(tokenizer, Tokenizer::HuggingFace(_)) {
            for name in ["bos_token", "eos_token"] {
                specials.entry(name.to_owned()).or_default();
            }
        }
        let tools = own.get(Named::TOOLS).filter(|text| asked.is_none() && *text != source);
        let with_tools = tools.map(|text| {
            Self::new(Named::TOOLS.to_owned(), text.to_owned(), specials.clone(), date)
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

    /// The files of a model directory by which [`ChatTemplate::find`] finds it again.
    pub fn files(&self) -> TemplateFiles {
        let tools = self.with_tools.iter();
        let others = tools.map(|own| (own.name.clone(), own.source.clone())).collect();
        TemplateFiles { default: Some(self.source.clone()), others }
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
