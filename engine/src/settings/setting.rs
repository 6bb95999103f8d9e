//! One line of the list of settings, as data.

use tightrope_nn::ModelFamily;
use toml::Value;

use super::command::Command;
use super::kind::{Kind, Range};

/// A setting: all that a front end needs to read, describe and check it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `table.name`.
    pub key: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// What it does, in a few words.
    pub help: &'static str,
    /// What holds when it isn't set, for a setting without a fixed default.
    pub unset: &'static str,
    /// Its flag, if it's set often.
    pub flag: Option<Flag>,
    /// The commands that read it. [`Settings::read_by`](super::Settings::read_by) holds the others to that.
    pub commands: &'static [Command],
    /// Keys that it had in earlier versions. They are read, and never written.
    pub old_keys: &'static [&'static str],
    /// Names that other programs give to it, for suggestions.
    pub elsewhere: &'static [&'static str],
    /// What the models read that it is a setting of; `None` where it is one of every model.
    pub reads: Option<Reads>,
    /// How the page shows it, if it does.
    pub page: Option<PageField>,
    /// Whether it only says where things lie, or how often a run reports: equal runs may differ in it.
    pub passing: bool,
    /// Whether it changes numbers of a run, and neither the bytes nor the seconds of its step.
    pub numbers_only: bool,
    pub(super) default: fn() -> Option<Value>,
}

/// The flag of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name, without the dashes.
    pub name: &'static str,
    /// Placeholder of the value in `--help`.
    pub placeholder: &'static str,
    /// Names that it had in earlier versions. They are accepted, and not listed.
    pub old_names: &'static [&'static str],
}

/// What models read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Tokens.
    Text,
    /// Tokens, of which it predicts the next.
    Causal,
    /// Pixels.
    Images,
    /// Anything that it classifies.
    Classes,
}

impl Reads {
    /// What a family reads.
    pub const fn of(family: ModelFamily) -> Self {
        match family {
            ModelFamily::Language(_) | ModelFamily::Bert => Self::Text,
            ModelFamily::Vit => Self::Images,
        }
    }

    /// Whether a setting of models that read this is one of a family.
    pub const fn is_of(self, family: ModelFamily) -> bool {
        match self {
            Self::Text => matches!(family, ModelFamily::Language(_) | ModelFamily::Bert),
            Self::Causal => matches!(family, ModelFamily::Language(_)),
            Self::Images => matches!(family, ModelFamily::Vit),
            Self::Classes => matches!(family, ModelFamily::Vit | ModelFamily::Bert),
        }
    }

    /// Returns `true` if a setting of models that read this is one of a decoder that classifies texts.
    pub const fn is_of_classifier(self) -> bool {
        matches!(self, Self::Text | Self::Classes)
    }

    /// Such a model, with its article.
    pub const fn model(self) -> &'static str {
        match self {
            Self::Text | Self::Causal => "a language model",
            Self::Images => "a vision transformer",
            Self::Classes => "a model that classifies",
        }
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text | Self::Causal => "text",
            Self::Images => "images",
            Self::Classes => "classes",
        }
    }
}

/// How the page shows a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageField {
    /// The form's label of it; `None` for a setting that has a control of its own.
    pub label: Option<&'static str>,
    /// Whether the form folds it away.
    pub more: bool,
    /// What an empty input means, where it may be empty.
    pub empty: Option<&'static str>,
    /// The words that the page offers, where they are not all.
    pub words: Option<&'static [&'static str]>,
}

/// The lines of the list.
impl Setting {
    /// A setting that every command takes that runs a model, without a flag.
    pub const fn new(
        key: &'static str,
        kind: Kind,
        help: &'static str,
        default: fn() -> Option<Value>,
    ) -> Self {
        Self {
            key,
            kind,
            help,
            unset: "",
            flag: None,
            commands: Command::MODEL,
            old_keys: &[],
            elsewhere: &[],
            reads: None,
            page: None,
            passing: false,
            numbers_only: false,
            default,
        }
    }

    /// With a flag of this name, and a placeholder for its value.
    pub const fn flag(self, name: &'static str, placeholder: &'static str) -> Self {
        Self { flag: Some(Flag { name, placeholder, old_names: &[] }), ..self }
    }

    /// Whose flag had these names in earlier versions. Goes after [`Setting::flag`].
    pub const fn old_flags(self, old_names: &'static [&'static str]) -> Self {
        match self.flag {
            Some(flag) => Self { flag: Some(Flag { old_names, ..flag }), ..self },
            None => panic!("only a setting with a flag had other flags"),
        }
    }

    /// That had these keys in earlier versions.
    pub const fn old_keys(self, old_keys: &'static [&'static str]) -> Self {
        Self { old_keys, ..self }
    }

    /// That other programs give these names to.
    pub const fn elsewhere(self, elsewhere: &'static [&'static str]) -> Self {
        Self { elsewhere, ..self }
    }

    /// Of models that read this, and of no others.
    pub const fn reads(self, reads: Reads) -> Self {
        Self { reads: Some(reads), ..self }
    }

    /// That the page's form shows under this label.
    pub const fn page(self, label: &'static str) -> Self {
        self.on_page(PageField { label: Some(label), more: false, empty: None, words: None })
    }

    /// That the page's form shows under this label, folded away.
    pub const fn page_more(self, label: &'static str) -> Self {
        self.on_page(PageField { label: Some(label), more: true, empty: None, words: None })
    }

    /// That the page has a control of its own for.
    pub const fn page_control(self) -> Self {
        self.on_page(PageField { label: None, more: false, empty: None, words: None })
    }

    /// Whose input on the page may be empty, which means this.
    pub const fn page_empty(self, empty: &'static str) -> Self {
        match self.page {
            Some(page) => self.on_page(PageField { empty: Some(empty), ..page }),
            None => panic!("the page doesn't show this setting"),
        }
    }

    /// Of whose words the page offers these.
    pub const fn page_words(self, words: &'static [&'static str]) -> Self {
        match self.page {
            Some(page) => self.on_page(PageField { words: Some(words), ..page }),
            None => panic!("the page doesn't show this setting"),
        }
    }

    const fn on_page(self, page: PageField) -> Self {
        Self { page: Some(page), ..self }
    }

    /// For which this holds when it isn't set.
    pub const fn unset(self, unset: &'static str) -> Self {
        Self { unset, ..self }
    }

    /// That changes something for these commands alone.
    pub const fn only(self, commands: &'static [Command]) -> Self {
        Self { commands, ..self }
    }

    /// That is of several ranks. A browser's tab has no others, and so no words on it.
    pub const fn of_ranks(self) -> Self {
        match cfg!(target_family = "wasm") {
            true => Self { help: "Of several ranks", elsewhere: &[], ..self },
            false => self,
        }
    }

    /// In which equal runs may differ.
    pub const fn passing(self) -> Self {
        Self { passing: true, ..self }
    }

    /// That changes numbers of a run, and neither the bytes nor the seconds of its step.
    pub const fn numbers_only(self) -> Self {
        Self { numbers_only: true, ..self }
    }

    /// That is a whole number, `least` or more.
    pub const fn at_least(self, least: i64) -> Self {
        match self.kind {
            Kind::Whole(_, most) => Self { kind: Kind::Whole(least, most), ..self },
            _ => panic!("only a whole number has a least one"),
        }
    }

    /// That is a whole number, `most` or less.
    pub const fn at_most(self, most: i64) -> Self {
        match self.kind {
            Kind::Whole(least, _) => Self { kind: Kind::Whole(least, most), ..self },
            _ => panic!("only a whole number has a largest one"),
        }
    }

    /// That is one of these whole numbers.
    pub const fn one_of(self, values: &'static [i64]) -> Self {
        match self.kind {
            Kind::Whole(..) | Kind::OneOf(_) => Self { kind: Kind::OneOf(values), ..self },
            _ => panic!("only a whole number is one of some"),
        }
    }

    /// That is a number in this range.
    pub const fn within(self, range: Range) -> Self {
        match self.kind {
            Kind::Number(_) => Self { kind: Kind::Number(range), ..self },
            _ => panic!("only a number has a range"),
        }
    }
}

impl Setting {
    /// The table that holds it.
    pub fn table(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(table, _)| table)
    }

    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// Its name as a keyword argument: its flag with underscores, if it has one.
    pub fn keyword(&self) -> Option<String> {
        self.flag.map(|flag| flag.name.replace('-', "_"))
    }

    /// Whether this is its flag, or was in an earlier version.
    pub fn has_flag(&self, name: &str) -> bool {
        self.flag.is_some_and(|flag| flag.name == name || flag.old_names.contains(&name))
    }

    /// Its fixed default, if it has one.
    pub fn default(&self) -> Option<Value> {
        (self.default)()
    }

    /// The default as one would type it, or what holds when the setting isn't set.
    pub fn default_text(&self) -> String {
        match self.default() {
            Some(Value::String(word)) => word,
            Some(Value::Array(items)) if items.is_empty() => "none".to_owned(),
            Some(value) => to_toml(&value),
            None => self.unset.to_owned(),
        }
    }

    /// What it does and its default, in one sentence.
    pub fn describe(&self) -> String {
        format!("{} [default: {}]", self.help, self.default_text())
    }

    /// `value` in the form that settings store, or what is wrong with it as "must be …".
    ///
    /// # Errors
    /// When the type or range is wrong.
    pub fn accept(&self, value: Value) -> Result<Value, String> {
        let value = self.kind.normalise(value);
        if self.kind.accepts(&value) {
            return Ok(value);
        }
        Err(match (self.kind, &value) {
            (Kind::List(item), Value::Array(items)) => {
                let wrong = items.iter().find(|value| !item.accepts(value)).unwrap_or(&value);
                format!("must be a list, each item {}, not {}", item.expected(), describe(wrong))
            }
            (Kind::Whole(_, most), Value::Integer(number)) if *number > most => {
                format!("must be at most {most}, not {number}")
            }
            (kind, value) => format!("must be {}, not {}", kind.expected(), describe(value)),
        })
    }
}

/// `value` in TOML, small numbers as `1e-8`.
pub(super) fn to_toml(value: &Value) -> String {
    match value {
        Value::Float(x) if *x != 0.0 && x.abs() < 1e-3 => format!("{x:e}"),
        value => value.to_string(),
    }
}

/// `value`, as a message names it.
fn describe(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::String(text) if text.is_empty() => "empty text".to_owned(),
        Value::String(text) if text.chars().count() > LONGEST => {
            let start: String = text.chars().take(LONGEST).collect();
            format!("the text {:?}", start + "…")
        }
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        Value::Datetime(date) => format!("the date {date}"),
        number => to_toml(number),
    }
}
