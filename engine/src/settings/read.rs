//! Reading settings: files, flags, `--set` and JSON, the later over the earlier.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use tightrope_data::files;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use super::setting::Setting;
use super::{LIST, Origin, Place, Settings, SettingsError, find, names, retired};

/// The text that a setting stands in: a file, or words of the command line.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: Option<&'a str>,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, message: String, span: Range<usize>, help: String) -> SettingsError {
        SettingsError { message, place: Some(Box::new(self.place(span))), help }
    }

    fn place(&self, span: Range<usize>) -> Place {
        Place::new(self.file, self.text, span)
    }

    /// An error of the TOML parser, whose text stands at byte `offset` of this source.
    fn syntax(&self, error: &toml::de::Error, offset: usize) -> SettingsError {
        let span = error.span().unwrap_or_default();
        let reason = error.message().trim().replace('\n', "; ");
        let help = match self.file {
            Some(_) if reason.starts_with("duplicate") => "keep one of them",
            Some(_) => "tables are `[train]` and keys `lr = 3e-4`; text stands in \"quotes\"",
            None => "values are TOML: 3e-4, true, \"text\", [\"a\", \"b\"]",
        };
        let span = span.start + offset..span.end + offset;
        self.error(format!("not TOML: {reason}"), span, help.to_owned())
    }
}

/// Most bytes of a settings file.
const LARGEST: u64 = 1 << 20;

/// The text of a settings file, which may be a pipe.
///
/// # Errors
/// When it can't be read, isn't UTF-8, or goes on for more than 1 MiB.
pub(crate) fn text_of(path: &Path) -> Result<String, SettingsError> {
    files::read_piped(path, LARGEST).map_err(|error| {
        let message = format!("can't read the settings file `{}`: {error}", path.display());
        SettingsError::new(message, "give the path of a TOML file, such as a run's `run.toml`")
    })
}

/// Each of these adds over what was said before it. Nothing is checked but each value by itself, so
/// [`Settings::check`] goes last.
impl Settings {
    /// Adds a settings file.
    ///
    /// # Errors
    /// When the file can't be read, isn't TOML, or has an unknown key or an unfit value.
    pub fn read_file(&mut self, path: &Path) -> Result<(), SettingsError> {
        self.read_text(&path.display().to_string(), &text_of(path)?)
    }

    /// Adds `text`, the content of a settings file of this name.
    ///
    /// # Errors
    /// As [`Settings::read_file`].
    pub fn read_text(&mut self, file: &str, text: &str) -> Result<(), SettingsError> {
        let source = Source { file: Some(file), text };
        let tables = DeTable::parse(text).map_err(|error| source.syntax(&error, 0))?.into_inner();
        let mut seen = BTreeSet::new();
        for (table, keys) in in_order(tables) {
            let name = table.get_ref().as_ref();
            if !names::tables().any(|known| known == name) {
                let message = match keys.get_ref() {
                    DeValue::Table(_) => format!("unknown table `{name}`"),
                    _ => format!("setting `{name}` outside of a table"),
                };
                return Err(source.error(message, table.span(), names::help_for_table(name)));
            }
            let span = keys.span();
            let DeValue::Table(keys) = keys.into_inner() else {
                let message = format!("`{name}` must be a table, not a value");
                let help = format!("write `[{name}]` on a line of its own, and its keys below it");
                return Err(source.error(message, span, help));
            };
            for (key, value) in in_order(keys) {
                let path = format!("{name}.{}", key.get_ref());
                if let Some(retired) = retired::find(&path) {
                    self.retire(retired, Origin::Text(source.place(key.span())));
                    continue;
                }
                let setting = find(&path).ok_or_else(|| unknown(source, &path, key.span()))?;
                if !seen.insert(setting.key) {
                    let message = format!("`{path}` is `{}` by another name", setting.key);
                    return Err(source.error(message, key.span(), "keep one of them".to_owned()));
                }
                let span = value.span();
                self.add(source, setting, plain(source, value)?, span)?;
            }
        }
        Ok(())
    }

    /// Adds what a flag of the command line gives to `setting`: one value, or several for a list of paths.
    ///
    /// # Errors
    /// When a value doesn't fit.
    pub fn read_flag(
        &mut self,
        setting: &'static Setting,
        values: &[String],
    ) -> Result<(), SettingsError> {
        let mut text = format!("--{}", setting.flag.map_or(setting.key, |flag| flag.name));
        let start = text.len() + 1;
        for value in values {
            text.push(' ');
            text.push_str(value);
        }
        let source = Source { file: None, text: &text };
        let value = match values {
            _ if setting.kind.is_paths() => values.to_vec().into(),
            [text] if setting.kind.is_text() => text.clone().into(),
            _ => typed(source, start)?,
        };
        self.add(source, setting, value, start..text.len())
    }

    /// Adds `table.key=value`, the argument of `--set`. The value is TOML, and text needs no
    /// quotes.
    ///
    /// # Errors
    /// When it isn't of this form, the key is unknown, or the value doesn't fit.
    pub fn read_argument(&mut self, argument: &str) -> Result<(), SettingsError> {
        const FLAG: &str = "--set ";
        let text = format!("{FLAG}{argument}");
        let source = Source { file: None, text: &text };
        let Some((path, value)) = argument.split_once('=') else {
            let message = "`--set` takes `table.key=value`".to_owned();
            let help = "for example `--set train.beta2=0.99`".to_owned();
            return Err(source.error(message, FLAG.len()..text.len(), help));
        };
        let path = path.trim();
        let start = text.len() - value.len();
        if let Some(retired) = retired::find(path) {
            self.retire(retired, Origin::Text(source.place(FLAG.len()..start)));
            return Ok(());
        }
        let setting =
            find(path).ok_or_else(|| unknown(source, path, FLAG.len()..FLAG.len() + path.len()))?;
        let bare = !value.trim_start().starts_with(['"', '\'', '[']);
        let parsed = if setting.kind.is_text() && bare {
            value.trim().into()
        } else {
            typed(source, start)?
        };
        self.add(source, setting, parsed, start..text.len())
    }

    /// Adds an object of tables, as [`Settings::to_json`] writes it. A value that is `null` isn't set.
    ///
    /// # Errors
    /// When it isn't an object of objects, a key is unknown, or a value doesn't fit.
    pub fn read_json(
        &mut self,
        json: &serde_json::Value,
        origin: &Origin,
    ) -> Result<(), SettingsError> {
        let tables_only = || {
            let message = "the settings aren't an object of tables".to_owned();
            SettingsError::new(message, "write {\"train\": {\"lr\": 3e-4}}")
        };
        for (table, keys) in json.as_object().ok_or_else(tables_only)? {
            if !names::tables().any(|known| known == table) {
                let message = format!("unknown table `{table}`");
                return Err(SettingsError::new(message, &names::help_for_table(table)));
            }
            for (name, value) in keys.as_object().ok_or_else(tables_only)? {
                if !value.is_null() {
                    self.set(&format!("{table}.{name}"), value, origin.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Sets the setting of this keyword, [`Setting::keyword`], or of this key, for a caller. One file may stand for a list of them.
    ///
    /// # Errors
    /// When there is no such setting, or the value doesn't fit.
    pub fn set_keyword(
        &mut self,
        keyword: &str,
        value: serde_json::Value,
    ) -> Result<(), SettingsError> {
        let named = || {
            let flag = keyword.replace('_', "-");
            LIST.iter().find(|setting| setting.has_flag(&flag))
        };
        let Some(setting) = find(keyword).or_else(named) else {
            if keyword.contains('.') {
                return self.set(keyword, &value, Origin::Caller);
            }
            let keywords: Vec<String> = LIST.iter().filter_map(Setting::keyword).collect();
            let near = names::nearest(keyword, keywords.iter().map(String::as_str));
            let help = near.map_or_else(
                || {
                    "each setting is named by its flag or its key, such as `lr` or \"train.lr\""
                        .to_owned()
                },
                |near| format!("did you mean `{near}`?"),
            );
            return Err(SettingsError::new(format!("unknown setting `{keyword}`"), &help));
        };
        let value = match value {
            one @ serde_json::Value::String(_) if setting.kind.is_paths() => vec![one].into(),
            value => value,
        };
        self.set(setting.key, &value, Origin::Caller)
    }

    /// Sets the setting of this key, as `origin` says.
    ///
    /// # Errors
    /// When there is no such setting, or the value doesn't fit.
    pub fn set(
        &mut self,
        key: &str,
        value: &serde_json::Value,
        origin: Origin,
    ) -> Result<(), SettingsError> {
        if let Some(retired) = retired::find(key) {
            self.retire(retired, origin);
            return Ok(());
        }
        let setting = find(key).ok_or_else(|| {
            SettingsError::new(format!("unknown setting `{key}`"), &names::help_for(key))
        })?;
        let unfit = |wrong| unfit(setting, value.as_str(), wrong);
        let value = Value::deserialize(value.into_deserializer());
        let value = value.map_err(|error| unfit(format!("must be a value of TOML: {error}")))?;
        self.accept(setting, value).map_err(unfit)?;
        self.origins.insert(setting.key, origin);
        Ok(())
    }

    fn add(
        &mut self,
        source: Source<'_>,
        setting: &'static Setting,
        value: Value,
        span: Range<usize>,
    ) -> Result<(), SettingsError> {
        let place = source.place(span);
        let word = value.as_str().map(str::to_owned);
        self.accept(setting, value).map_err(|wrong| SettingsError {
            place: Some(Box::new(place.clone())),
            ..unfit(setting, word.as_deref(), wrong)
        })?;
        self.origins.insert(setting.key, Origin::Text(place));
        Ok(())
    }

    /// Takes the value, or says what is wrong with it as "must be …".
    fn accept(&mut self, setting: &Setting, value: Value) -> Result<(), String> {
        let value = setting.accept(value)?;
        match self.assign(setting.key, &value) {
            true => Ok(()),
            // A number within the limits that this processor's words can't hold.
            false => Err("must be smaller".to_owned()),
        }
    }
}

/// A value that doesn't fit. `word` is its text, if it's one.
fn unfit(setting: &Setting, word: Option<&str>, wrong: String) -> SettingsError {
    let near = setting.kind.words().and_then(|words| names::nearest(word?, words));
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{}: {}", setting.key, setting.describe()),
    };
    SettingsError::new(format!("`{}` {wrong}", setting.key), &help)
}

/// The entries in the order of the text, so that the first mistake is reported first.
fn in_order<'i>(table: DeTable<'i>) -> Vec<(Spanned<Cow<'i, str>>, Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn plain(source: Source<'_>, value: Spanned<DeValue<'_>>) -> Result<Value, SettingsError> {
    let span = value.span();
    let value = Value::deserialize(ValueDeserializer::from(value));
    value.map_err(|error| {
        let help = "whole numbers reach from -9223372036854775808 to 9223372036854775807";
        source.error(format!("not TOML: {}", error.message()), span, help.to_owned())
    })
}

/// The value written from byte `start` of a command line. What isn't TOML but looks like a word
/// or a number is taken as written.
fn typed(source: Source<'_>, start: usize) -> Result<Value, SettingsError> {
    let text = source.text[start..].trim();
    let start = start + source.text[start..].find(text).unwrap_or(0);
    match DeValue::parse(text) {
        Ok(value) => plain(source, value),
        Err(error) if text.starts_with(['"', '\'', '[', '{']) => Err(source.syntax(&error, start)),
        // TOML wants digits before a point.
        Err(_) => match text.parse::<f64>() {
            Ok(number) => Ok(number.into()),
            Err(_) => Ok(text.into()),
        },
    }
}

fn unknown(source: Source<'_>, key: &str, span: Range<usize>) -> SettingsError {
    source.error(format!("unknown setting `{key}`"), span, names::help_for(key))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::settings::{Bytes, Chunk, Device, LIST, MicroBatch, Offload, Recompute, UpdateRule};

    fn from_set(arguments: &[&str]) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        arguments.iter().try_for_each(|argument| settings.read_argument(argument))?;
        settings.check().map(|()| settings)
    }

    fn from_flag(key: &str, values: &[&str]) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        settings.read_flag(find(key).unwrap(), &values)?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Settings::default().read_file(Path::new("no/such.toml")).unwrap_err();
        assert!(error.to_string().contains("`no/such.toml`"), "{error}");
    }

    #[test]
    fn text_needs_no_quotes() {
        let settings = from_set(&[
            "train.optimizer=lion",
            "run.out=2024",
            "data.files=1.txt",
            "data.tokenizer='a b'",
            "memory.budget=1.5GiB",
            "memory.offload=optimizer, gradients",
            "memory.recompute=[\"h.0\", \"h.1\"]",
            "memory.loss_chunk=512",
            " train.lr = .5 ",
            "train.steps=1e4",
            "run.device=cuda:1",
        ])
        .unwrap();
        assert_eq!(settings.train.optimizer, UpdateRule::Lion);
        assert_eq!(settings.run.out, Some(PathBuf::from("2024")));
        assert_eq!(settings.data.files, [PathBuf::from("1.txt")]);
        assert_eq!(settings.data.tokenizer.as_deref(), Some("a b"));
        assert_eq!(settings.memory.budget, Some(Bytes(3 << 29)));
        assert_eq!(
            settings.memory.offload,
            Offload { optimizer: true, gradients: true, ..Offload::NONE }
        );
        assert_eq!(settings.memory.recompute, Recompute::AllBut(vec!["h.0".into(), "h.1".into()]));
        assert_eq!(settings.memory.loss_chunk, Chunk::Rows(512));
        assert_eq!(settings.train.lr, Some(0.5));
        assert_eq!(settings.train.steps, Some(10_000));
        assert_eq!(settings.run.device, Device::Cuda(1));
    }

    #[test]
    fn flags_take_text_as_it_is() {
        let settings = from_flag("run.out", &["\"quoted"]).unwrap();
        assert_eq!(settings.run.out, Some(PathBuf::from("\"quoted")));
        let settings = from_flag("data.files", &["a b.txt", "[1].txt"]).unwrap();
        assert_eq!(settings.data.files, [PathBuf::from("a b.txt"), PathBuf::from("[1].txt")]);
    }

    #[test]
    fn the_later_wins_and_the_rest_stays() {
        let mut settings = Settings::default();
        settings.read_text("a.toml", "[train]\nlr = 1\nsteps = 5\nmicro_batch = 4\n").unwrap();
        settings.read_text("b.toml", "train.lr = 2\n").unwrap();
        settings.read_argument("train.steps=7").unwrap();
        assert_eq!(settings.origin("train.lr").to_string(), "b.toml:1:12");
        assert_eq!(settings.origin("train.micro_batch").to_string(), "a.toml:4:15");
        assert_eq!(settings.origin("train.steps").to_string(), "the command line");
        assert_eq!(settings.origin("train.clip"), &Origin::Default);
        assert_eq!(settings.train.lr, Some(2.0));
        assert_eq!(settings.train.steps, Some(7));
        assert_eq!(settings.train.micro_batch, MicroBatch::Size(4));
        assert_eq!(settings.run, Settings::default().run);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ -~é\n]{0,60}", value in "[ -~é]{0,20}") {
            let _ = Settings::default().read_text("f.toml", &text).map_err(|error| error.to_string());
            let _ = from_set(&[&text]).map_err(|error| error.to_string());
            for setting in LIST {
                let _ = from_set(&[&format!("{}={value}", setting.key)]).map_err(|e| e.to_string());
                let _ = from_flag(setting.key, &[&value]).map_err(|e| e.to_string());
            }
        }
    }
}
