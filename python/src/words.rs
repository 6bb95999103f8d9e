//! Error messages with Python's keyword arguments in place of the command's flags.

use serde_json::{Map, Value};
use tightrope::settings::{LIST, Setting, Settings};

/// `text` with `--memory 4GiB` as `memory="4GiB"`, `--set table.key=value` as `settings={"table.key": value}`, `--data` as `data=`, and
/// the key of a setting that has a keyword as that. Other flags are unchanged.
pub fn in_keywords(text: &str) -> String {
    const LISTS: &str = "`tightrope train --help` lists what each setting takes";
    let text = by_keyword(text).replace(LISTS, "`tightrope.settings()` lists them all");
    let mut found = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find("--") {
        let (before, flag) = (&rest[..at], &rest[at + 2..]);
        found += before;
        let begins = !before.ends_with(|last: char| last.is_alphanumeric() || last == '-');
        match Some(flag).filter(|_| begins).and_then(keyword) {
            Some((said, left)) => {
                found += &said;
                rest = left;
            }
            None => {
                found += "--";
                rest = flag;
            }
        }
    }
    found + rest
}

/// `text` with `run.precision`, between marks or before a colon at its begin, as `precision=`.
fn by_keyword(text: &str) -> String {
    let mut text = text.to_owned();
    for setting in LIST {
        let Some(keyword) = setting.keyword().filter(|_| text.contains(setting.key)) else {
            continue;
        };
        text = text.replace(&format!("`{}`", setting.key), &format!("`{keyword}=`"));
        if let Some(rest) = text.strip_prefix(&format!("{}: ", setting.key)) {
            text = format!("`{keyword}=`: {rest}");
        }
    }
    text
}

/// A report whose texts name settings as Python does.
pub fn said(report: Value) -> Value {
    match report {
        Value::String(text) => in_keywords(&text).into(),
        Value::Array(items) => items.into_iter().map(said).collect(),
        Value::Object(items) => {
            items.into_iter().map(|(name, item)| (name, said(item))).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// The keyword that `text`, which follows the dashes of a flag, says, and what follows it.
fn keyword(text: &str) -> Option<(String, &str)> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let (name, after) = text.split_at(text.find(|letter| !is_name(letter)).unwrap_or(text.len()));
    if name == "set" {
        return entry(after);
    }
    let Some(setting) = LIST.iter().find(|setting| setting.has_flag(name)) else {
        return (name == "resume").then(|| (format!("{name}="), after));
    };
    let keyword = setting.keyword()?;
    let said = word(after).and_then(|(word, left)| Some((value(setting, word)?, left)));
    Some(match said {
        Some((value, left)) => (format!("{keyword}={value}"), left),
        None => (format!("{keyword}="), after),
    })
}

/// `key=value` after a space.
fn entry(text: &str) -> Option<(String, &str)> {
    let (words, left) = word(text)?;
    let (key, value) = words.split_once('=')?;
    Some((format!("settings={{\"{key}\": {}}}", literal(value)), left))
}

/// The word after a space, without what ends a clause, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix(' ')?;
    let end = text.find([' ', '\n', '`', ')', ';']).unwrap_or(text.len());
    let word = text[..end].trim_end_matches([',', '.', ':']);
    (!word.is_empty()).then(|| (word, &text[word.len()..]))
}

/// The value that `word` is for a setting, as Python writes it; `None` for a word of the sentence.
fn value(setting: &Setting, word: &str) -> Option<String> {
    let is_placeholder = word.chars().all(|letter| letter.is_ascii_uppercase());
    if is_placeholder && word.len() > 1 {
        return Some(word.to_owned());
    }
    let takes = |word: &str| {
        let value = word.parse().map_or_else(|_| word.into(), |number: u64| number.into());
        Settings::default().set_keyword(setting.key, value).is_ok()
    };
    // A setting that takes any text takes every word.
    let any = takes("no such word");
    let is_name = word.contains(|letter: char| letter.is_ascii_digit() || letter == '-');
    (takes(word) && (!any || is_name || word == "byte")).then(|| literal(word))
}

/// A value as Python writes it.
fn literal(word: &str) -> String {
    match word {
        "true" => "True".to_owned(),
        "false" => "False".to_owned(),
        _ if word.parse::<f64>().is_ok() => word.to_owned(),
        _ => format!("\"{word}\""),
    }
}
