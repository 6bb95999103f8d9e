//! Settings from files, flags and `--set`, the later over the earlier.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize as _;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::schema::{self, Key};
use super::{Place, Settings, SettingsError};

/// Settings gathered so far. Each method adds over what came before it.
#[derive(Debug, Default)]
pub struct Merge {
    tables: Table,
    places: BTreeMap<&'static str, Place>,
}

/// The text that a setting stands in: a file, or words of the command line.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: Option<&'a str>,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, message: String, span: Range<usize>, help: String) -> SettingsError {
        let place = Some(Box::new(Place::new(self.file, self.text, span)));
        SettingsError { message, place, help }
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

impl Merge {
    /// Adds a settings file.
    ///
    /// # Errors
    /// When the file can't be read, isn't TOML, or has an unknown key or an unfit value.
    pub fn file(&mut self, path: &Path) -> Result<(), SettingsError> {
        let text = std::fs::read_to_string(path).map_err(|error| SettingsError {
            message: format!("can't read the settings file `{}`: {error}", path.display()),
            place: None,
            help: "give the path of a TOML file, such as a run's `run.toml`".to_owned(),
        })?;
        self.text(&path.display().to_string(), &text)
    }

    /// Adds `text`, the content of a settings file of this name.
    ///
    /// # Errors
    /// As [`Merge::file`].
    pub fn text(&mut self, file: &str, text: &str) -> Result<(), SettingsError> {
        let source = Source { file: Some(file), text };
        let tables = DeTable::parse(text).map_err(|error| source.syntax(&error, 0))?.into_inner();
        for (table, keys) in in_order(tables) {
            let name = table.get_ref().as_ref();
            if !schema::TABLES.contains(&name) {
                let names = schema::KEYS.iter().map(Key::name);
                let help = match schema::nearest(name, schema::TABLES) {
                    Some(near) => format!("did you mean `[{near}]`?"),
                    None => match schema::nearest(name, names).and_then(of_name) {
                        Some(key) => {
                            format!("did you mean `{}` in `[{}]`?", key.name(), key.table())
                        }
                        None => tables_help(),
                    },
                };
                let message = match keys.get_ref() {
                    DeValue::Table(_) => format!("unknown table `{name}`"),
                    _ => format!("setting `{name}` outside of a table"),
                };
                return Err(source.error(message, table.span(), help));
            }
            let span = keys.span();
            let DeValue::Table(keys) = keys.into_inner() else {
                let message = format!("`{name}` must be a table, not a value");
                let help = format!("write `[{name}]` on a line of its own, and its keys below it");
                return Err(source.error(message, span, help));
            };
            for (key, value) in in_order(keys) {
                let path = format!("{name}.{}", key.get_ref());
                let key = schema::find(&path).ok_or_else(|| unknown(source, &path, key.span()))?;
                let span = value.span();
                self.add(source, key, plain(source, value)?, span)?;
            }
        }
        Ok(())
    }

    /// Adds what a flag of the command line gives to `key`: one value, or several for a list.
    ///
    /// # Errors
    /// When a value doesn't fit.
    pub fn flag(&mut self, key: &'static Key, values: &[String]) -> Result<(), SettingsError> {
        let mut text = format!("--{}", key.flag.unwrap_or(key.path));
        let start = text.len() + 1;
        for value in values {
            text.push(' ');
            text.push_str(value);
        }
        let source = Source { file: None, text: &text };
        let value = match values {
            _ if matches!(key.kind, schema::Kind::Paths) => values.to_vec().into(),
            [text] if key.kind.is_text() => text.clone().into(),
            _ => typed(source, start)?,
        };
        self.add(source, key, value, start..text.len())
    }

    /// Adds `table.key=value`, the argument of `--set`. The value is TOML, and text needs no
    /// quotes.
    ///
    /// # Errors
    /// When it isn't of this form, the key is unknown, or the value doesn't fit.
    pub fn set(&mut self, argument: &str) -> Result<(), SettingsError> {
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
        let key = schema::find(path)
            .ok_or_else(|| unknown(source, path, FLAG.len()..FLAG.len() + path.len()))?;
        let bare = !value.trim_start().starts_with(['"', '\'', '[']);
        let parsed =
            if key.kind.is_text() && bare { value.trim().into() } else { typed(source, start)? };
        self.add(source, key, parsed, start..text.len())
    }

    /// Where the setting at `path` was given last, if anywhere.
    pub fn place(&self, path: &str) -> Option<&Place> {
        self.places.get(path)
    }

    /// The settings, with defaults for the rest, checked.
    ///
    /// # Errors
    /// When settings don't hold together; the place is that of the setting to look at first.
    pub fn finish(self) -> Result<Settings, SettingsError> {
        let unfit = |error: toml::de::Error| SettingsError {
            message: format!("the settings don't fit together: {}", error.message()),
            place: None,
            help: "`tightrope train --help` lists what each setting takes".to_owned(),
        };
        let settings: Settings = Value::Table(self.tables).try_into().map_err(unfit)?;
        settings.check().map_err(|conflict| {
            let place = conflict.keys.iter().find_map(|key| self.places.get(key));
            let place = place.cloned().map(Box::new);
            SettingsError { place, ..conflict.into() }
        })?;
        Ok(settings)
    }

    fn add(
        &mut self,
        source: Source<'_>,
        key: &'static Key,
        value: Value,
        span: Range<usize>,
    ) -> Result<(), SettingsError> {
        let value = key.accept(value.clone()).map_err(|wrong| {
            let near = key.kind.words().and_then(|words| {
                let near = schema::nearest(value.as_str()?, words.iter().map(String::as_str));
                near.map(|near| format!("did you mean `{near}`?"))
            });
            let help = near.unwrap_or_else(|| format!("{}: {}", key.path, key.describe()));
            source.error(format!("`{}` {wrong}", key.path), span.clone(), help)
        })?;
        let table = self.tables.entry(key.table()).or_insert_with(|| Table::new().into());
        if let Value::Table(table) = table {
            table.insert(key.name().to_owned(), value);
        }
        self.places.insert(key.path, Place::new(source.file, source.text, span));
        Ok(())
    }
}

/// The entries in the order of the text, so that the first mistake is reported first.
fn in_order<'i>(
    table: DeTable<'i>,
) -> Vec<(Spanned<std::borrow::Cow<'i, str>>, Spanned<DeValue<'i>>)> {
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

fn of_name(name: &str) -> Option<&'static Key> {
    schema::KEYS.iter().find(|key| key.name() == name)
}

fn tables_help() -> String {
    format!("the tables are {}", schema::TABLES.join(", "))
}

fn unknown(source: Source<'_>, path: &str, span: Range<usize>) -> SettingsError {
    let (table, name) = path.split_once('.').unwrap_or(("", path));
    let known_table = schema::TABLES.contains(&table);
    let near_here = schema::nearest(name, schema::names(table));
    let near_table = schema::nearest(table, schema::TABLES);
    let near = match (near_here, near_table) {
        (Some(near), _) => Some(format!("{table}.{near}")),
        (None, Some(near_table)) if !known_table => {
            schema::nearest(name, schema::names(near_table))
                .map(|key| format!("{near_table}.{key}"))
        }
        _ => schema::nearest(name, schema::KEYS.iter().map(Key::name))
            .and_then(of_name)
            .map(|key| key.path.to_owned()),
    };
    let takes = if known_table {
        let names: Vec<_> = schema::names(table).collect();
        format!("`{table}` takes {}", names.join(", "))
    } else {
        tables_help()
    };
    let help = match near {
        Some(near) => format!("did you mean `{near}`? {takes}"),
        None => takes,
    };
    source.error(format!("unknown setting `{path}`"), span, help)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::settings::{Bytes, Checkpoint, Chunk, Device, MicroBatch, Offload, Optimizer};

    fn from_set(arguments: &[&str]) -> Result<Settings, SettingsError> {
        let mut merge = Merge::default();
        for argument in arguments {
            merge.set(argument)?;
        }
        merge.finish()
    }

    fn from_flag(path: &str, values: &[&str]) -> Result<Settings, SettingsError> {
        let mut merge = Merge::default();
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        merge.flag(schema::find(path).unwrap(), &values)?;
        merge.finish()
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Merge::default().file(Path::new("no/such.toml")).unwrap_err();
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
            "memory.checkpoint=[\"h.0\", \"h.1\"]",
            "memory.loss_chunk=512",
            " train.lr = .5 ",
            "train.steps=1e4",
            "run.device=cuda:1",
        ])
        .unwrap();
        assert_eq!(settings.train.optimizer, Optimizer::Lion);
        assert_eq!(settings.run.out, Some(PathBuf::from("2024")));
        assert_eq!(settings.data.files, [PathBuf::from("1.txt")]);
        assert_eq!(settings.data.tokenizer.as_deref(), Some("a b"));
        assert_eq!(settings.memory.budget, Some(Bytes(3 << 29)));
        assert_eq!(settings.memory.offload, [Offload::Optimizer, Offload::Gradients]);
        assert_eq!(settings.memory.checkpoint, Checkpoint::Keep(vec!["h.0".into(), "h.1".into()]));
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
        let mut merge = Merge::default();
        merge.text("a.toml", "[train]\nlr = 1\nsteps = 5\nmicro_batch = 4\n").unwrap();
        merge.text("b.toml", "train.lr = 2\n").unwrap();
        merge.set("train.steps=7").unwrap();
        let settings = merge.finish().unwrap();
        assert_eq!(settings.train.lr, Some(2.0));
        assert_eq!(settings.train.steps, Some(7));
        assert_eq!(settings.train.micro_batch, MicroBatch::Size(4));
        assert_eq!(settings.run, Settings::default().run);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ -~é\n]{0,60}", value in "[ -~é]{0,20}") {
            let _ = Merge::default().text("f.toml", &text).map_err(|error| error.to_string());
            let _ = from_set(&[&text]).map_err(|error| error.to_string());
            for key in &schema::KEYS {
                let _ = from_set(&[&format!("{}={value}", key.path)]).map_err(|e| e.to_string());
                let _ = from_flag(key.path, &[&value]).map_err(|e| e.to_string());
            }
        }
    }
}
