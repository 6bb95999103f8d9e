//! A model's chat templates by name, and the files that they are in.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::built_in;
use crate::{Error, Result, TEMPLATE_FILE, Tokenizer, files, limits};

/// Chat templates of a model directory in files of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateFiles {
    /// The text of `chat_template.jinja`.
    pub default: Option<String>,
    /// Texts of `additional_chat_templates/NAME.jinja`, by name.
    pub others: BTreeMap<String, String>,
}

impl From<&str> for TemplateFiles {
    /// One template.
    fn from(text: &str) -> Self {
        Self { default: Some(text.to_owned()), ..Self::default() }
    }
}

impl TemplateFiles {
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.others.is_empty()
    }

    /// The templates in the `tokenizer_config.json` of a tokenizer.
    ///
    /// # Errors
    /// A file that isn't JSON, or whose `chat_template` is neither a text nor named texts.
    pub fn of_tokenizer(tokenizer: &Tokenizer) -> Result<Self> {
        let named = Named::of(&Self::default(), tokenizer)?;
        let mut others: BTreeMap<String, String> = named.templates.into_iter().collect();
        Ok(Self { default: others.remove(Named::DEFAULT), others })
    }
}

/// A model's templates by name.
#[derive(Default)]
pub(super) struct Named {
    /// Name of the file that holds them, for messages.
    file: String,
    /// The template of a model that has one is `default`.
    templates: Vec<(String, String)>,
}

impl Named {
    const DEFAULT: &'static str = "default";
    pub(super) const TOOLS: &'static str = "tool_use";

    /// The templates in files of their own, else those of `tokenizer_config.json`, as in transformers.
    pub(super) fn of(files: &TemplateFiles, tokenizer: &Tokenizer) -> Result<Self> {
        let default = files.default.iter().map(|text| (Self::DEFAULT.to_owned(), text.clone()));
        let others = files.others.iter().map(|(name, text)| (name.clone(), text.clone()));
        let templates: Vec<_> = default.chain(others).collect();
        match tokenizer.config() {
            _ if !templates.is_empty() => Ok(Self { file: TEMPLATE_FILE.to_owned(), templates }),
            Some((name, text)) => Self::read(name, text),
            None => Ok(Self::default()),
        }
    }

    fn read(name: &str, text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Listed {
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
                let list = Vec::<Listed>::deserialize(list).map_err(|error| {
                    refused(format!(
                        "its `chat_template` is neither a text nor a list of named ones ({error}); give another with --chat-template"
                    ))
                })?;
                list.into_iter().map(|listed| (listed.name, listed.template)).collect()
            }
        };
        Ok(Self { file: name.to_owned(), templates })
    }

    /// The text of the template of this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.templates.iter().find(|(own, _)| own == name);
        found.map(|(_, text)| text.as_str())
    }

    /// Name and text of what is asked for.
    pub(super) fn asked(&self, asked: &str) -> Result<(String, String)> {
        let text = built_in::TEMPLATES.iter().find(|(name, _)| *name == asked);
        if let Some((_, text)) = text {
            return Ok((asked.to_owned(), (*text).to_owned()));
        }
        if let Some(text) = self.get(asked) {
            return Ok((asked.to_owned(), text.to_owned()));
        }
        let path = Path::new(asked);
        if !path.exists() {
            let names: Vec<_> = built_in::TEMPLATES.iter().map(|(name, _)| *name).collect();
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

    /// Name and text of the model's default, where it has templates.
    pub(super) fn first(&self) -> Result<Option<(String, String)>> {
        let text = match (self.get(Self::DEFAULT), self.templates.as_slice()) {
            (Some(text), _) => text,
            (None, [(_, text)]) => text,
            (None, []) => return Ok(None),
            (None, several) => {
                let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
                let problem = format!(
                    "it has the chat templates {} and none is the default; name one with --chat-template",
                    names.join(", ")
                );
                return Err(Error::Template { name: self.file.clone(), problem });
            }
        };
        let is_file = self.file == TEMPLATE_FILE;
        let name = if is_file { TEMPLATE_FILE } else { "the model's own" };
        Ok(Some((name.to_owned(), text.to_owned())))
    }
}
